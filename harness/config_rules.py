"""What must hold between the fields of a manifest or a policy."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from harness.config_fields import BadField, suggestion
from harness.model.evals import EvalSource, EvalsSection
from harness.model.globs import glob_problem, literal_parts
from harness.model.kernels import KernelsSection
from harness.model.manifest import (
    DispatchSection,
    Manifest,
    PathsSection,
    PerformanceSection,
    StateSection,
)
from harness.model.paths import PathRules
from harness.model.policy import Policy
from harness.model.words import Tier

_TARGET = re.compile(r"[\w.]+:[\w.]+")
_PACKAGE = re.compile(r"[^\W\d]\w*")


def manifest_problems(manifest: Manifest) -> list[BadField]:
    """Every rule between fields that a manifest breaks."""
    globs = list(_glob_problems(manifest))
    problems = list(globs)
    if not globs:
        problems += _path_problems(manifest.paths)
    problems += _dispatch_problems(manifest.dispatch, manifest.paths.import_roots)
    if manifest.switch.on == manifest.switch.off:
        problems.append(BadField("switch.on", f'"{manifest.switch.on}"', "a value other than switch.off"))
    nano = manifest.models.nano
    if nano is not None and not any("{out}" in argument for argument in nano.build):
        problems.append(BadField("models.nano.build", "no {out}", "{out} where the folder's name belongs"))
    found = manifest.models.slice
    if found is not None:
        path = "models.slice"
        problems += _dispatch_problems(found.dispatch, manifest.paths.import_roots, f"{path}.dispatch")
        problems += _state_problems(found.state, f"{path}.state")
        if found.performance is not None:
            names = (f"{path}.performance", f"{path}.scope")
            problems += _performance_problems(found.performance, found.scope.max_batch, *names)
    problems += _state_problems(manifest.state, "state")
    problems += kernel_problems(manifest.kernels)
    problems += _eval_problems(manifest.evals, manifest.scope.max_context)
    return problems + list(_performance_problems(manifest.performance, manifest.scope.max_batch))


def _state_problems(section: StateSection | None, path: str) -> Iterator[BadField]:
    """Globs that name nothing: what matches every buffer declares none."""
    for kind in ("caches", "states", "mailboxes", "workspaces"):
        for index, glob in enumerate(getattr(section, kind, ())):
            if not any(re.fullmatch(r"\w+", part) for part in glob.split(".")):
                expected = "a glob in which one name between dots is written out"
                yield BadField(f"{path}.{kind}[{index}]", f'"{glob}"', expected)


def kernel_problems(section: KernelsSection) -> list[BadField]:
    """Every rule between fields that `[kernels]` breaks."""
    return [
        BadField(f"kernels.entries[{index}].arches", "an empty list", "a list of at least 1")
        for index, entry in enumerate(section.entries)
        if not entry.arches
    ]


def policy_problems(policy: Policy, known_checks: Mapping[str, Tier]) -> list[BadField]:
    """Required ids that no check has or that stand under another tier than its own; signers that are listed twice."""
    problems = []
    for tier, ids in policy.required.items():
        for index, check in enumerate(ids):
            path = f"required.{tier}[{index}]"
            if check not in known_checks:
                near = suggestion(check, sorted(known_checks))
                problems.append(BadField(path, f'"{check}"', f"the id of a check{near}"))
            elif known_checks[check] is not tier:
                problems.append(
                    BadField(path, f'"{check}"', f"{check} under {known_checks[check]}, its own tier")
                )
    return problems + _repeated_signers(policy)


def _repeated_signers(policy: Policy) -> list[BadField]:
    """Keys and identities that stand for two holders: they would be worth what the last of them is."""
    signers = [
        (f"trust.keys[{i}].public_key", tuple(key.public_key.split()[:2]))
        for i, key in enumerate(policy.trust.keys)
    ]
    signers += [
        (f"trust.identities[{i}].identity", (known.identity, known.issuer))
        for i, known in enumerate(policy.trust.identities)
    ]
    places = [place for i, (place, signer) in enumerate(signers) if signer in [s for _, s in signers[:i]]]
    return [BadField(place, "one that is listed already", "each once") for place in places]


def _glob_problems(manifest: Manifest) -> Iterator[BadField]:
    paths = manifest.paths
    groups = {
        "paths.owned": paths.owned,
        "paths.protected": paths.protected,
        "paths.tests": paths.tests,
        "paths.docs": paths.docs,
        "coverage.cpu": manifest.coverage.cpu,
    }
    for name, globs in groups.items():
        for index, glob in enumerate(globs):
            if problem := glob_problem(glob):
                got, _, expected = problem.removeprefix("got ").partition(", expected ")
                yield BadField(f"{name}[{index}]", got, expected)
            elif name in ("paths.tests", "paths.docs") and not literal_parts(glob):
                yield BadField(f"{name}[{index}]", f'"{glob}"', "a glob that begins with a full name")


def _path_problems(paths: PathsSection) -> Iterator[BadField]:
    rules = PathRules(paths)
    for index, glob in enumerate(paths.owned):
        if expected := rules.why_not_owned(glob):
            yield BadField(f"paths.owned[{index}]", f'"{glob}"', expected)
    seen: set[str] = set()
    for index, hook in enumerate(paths.hooks):
        expected = rules.why_not_hook(hook.file)
        if hook.file in seen:
            expected = "each file once"
        seen.add(hook.file)
        if expected:
            yield BadField(f"paths.hooks[{index}].file", f'"{hook.file}"', expected)
    for index, root in enumerate(paths.import_roots):
        if not _PACKAGE.fullmatch(root):
            yield BadField(f"paths.import_roots[{index}]", f'"{root}"', "the name of a top-level package")


def _dispatch_problems(
    dispatch: DispatchSection, roots: tuple[str, ...], section: str = "dispatch"
) -> Iterator[BadField]:
    """Faults of `[dispatch]`, or of a slice's, whose baseline code may be the engine's own."""
    elsewhere = () if section == "dispatch" else dispatch.baseline_code
    targets = [(f"{section}.decisions[{i}].target", d.target) for i, d in enumerate(dispatch.decisions)]
    targets += _numbered(f"{section}.specialized_code", dispatch.specialized_code)
    targets += _numbered(f"{section}.baseline_code", dispatch.baseline_code)
    for path, target in targets:
        if not _TARGET.fullmatch(target):
            yield BadField(path, f'"{target}"', '"module:function" or "module:Class.method"')
        elif target not in elsewhere and not _is_below(target.partition(":")[0], roots):
            yield BadField(path, f'"{target}"', f"a module below paths.import_roots ({', '.join(roots)})")
    for path, module in _numbered(f"{section}.never_imported_when_off", dispatch.never_imported_when_off):
        if not _is_below(module, roots):
            yield BadField(path, f'"{module}"', f"a module below paths.import_roots ({', '.join(roots)})")
    for path, module in _numbered(f"{section}.imported_when_off", dispatch.imported_when_off):
        if not _is_below(module, roots):
            yield BadField(path, f'"{module}"', f"a module below paths.import_roots ({', '.join(roots)})")
        elif any(
            _is_below(m, (module,)) or _is_below(module, (m,)) for m in dispatch.never_imported_when_off
        ):
            yield BadField(path, f'"{module}"', f"modules apart from {section}.never_imported_when_off")
    for target in sorted(set(dispatch.specialized_code) & set(dispatch.baseline_code)):
        yield BadField(f"{section}.baseline_code", f'"{target}"', "code that is not specialized_code as well")


def _read_problems(manifest: Manifest) -> Iterator[BadField]:
    for path, target in _numbered("switch.reads", manifest.switch.reads):
        if not _TARGET.fullmatch(target):
            yield BadField(path, f'"{target}"', '"module:function", "module:Class" or "module:NAME"')


def _eval_problems(evals: EvalsSection, max_context: int) -> Iterator[BadField]:
    sources: dict[str, EvalSource] = {"evals.mrcr": evals.mrcr, "evals.aime": evals.aime}
    for name, source in sources.items():
        if source.hub and source.path:
            yield BadField(f"{name}.path", f'"{source.path}"', "either hub or path")
        if bool(source.hub) != bool(source.revision):
            got = f'"{source.revision}"' if source.revision else "nothing"
            yield BadField(f"{name}.revision", got, "the data set's commit, together with hub")
    paths = [(f"{name}.path", source.path) for name, source in sources.items()]
    paths += [(f"evals.lm_eval[{i}].include_path", task.include_path) for i, task in enumerate(evals.lm_eval)]
    for path, value in paths:
        if value.startswith("/") or ".." in value.split("/"):
            yield BadField(path, f'"{value}"', "a path inside the repository")
    lengths = evals.mrcr.lengths
    if any(b <= a for a, b in pairwise((0, *lengths))) or (lengths and lengths[-1] > max_context):
        yield BadField(
            "evals.mrcr.lengths",
            str(list(lengths)),
            f"ascending lengths up to {max_context}, scope.max_context",
        )


def _performance_problems(
    section: PerformanceSection, max_batch: int, path: str = "performance", scope: str = "scope"
) -> Iterator[BadField]:
    """Faults of `[performance]`, or of a slice's, within the scope of that name."""
    batches = section.decode_batches
    if not batches:
        yield BadField(f"{path}.decode_batches", "an empty list", "a list of at least 1")
    for index, batch in enumerate(batches):
        if not 1 <= batch <= max_batch:
            limit = f"1 to {scope}.max_batch ({max_batch})"
            yield BadField(f"{path}.decode_batches[{index}]", str(batch), limit)
    for index, claim in enumerate(section.claims):
        if claim.batch not in batches:
            yield BadField(f"{path}.claims[{index}].batch", str(claim.batch), f"one of {path}.decode_batches")


def _numbered(name: str, values: Iterable[str]) -> list[tuple[str, str]]:
    return [(f"{name}[{index}]", value) for index, value in enumerate(values)]


def _is_below(module: str, roots: tuple[str, ...]) -> bool:
    return any(module == root or module.startswith(f"{root}.") for root in roots)
