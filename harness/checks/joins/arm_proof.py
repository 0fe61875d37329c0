"""What keeps an arm's records from being evidence of this change: a dead tracer, another process, other code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from harness.checks.joins.token_steps import client_items, client_of, index_parts
from harness.model.check import CheckContext
from harness.model.evaluation import GIVEN_UP, SuiteItem
from harness.model.evidence import ArmEvidence, EvidenceSet, LedgerEvidence, SubjectEvidence, session_mark
from harness.model.ledger import ImportedFile
from harness.model.manifest import Manifest
from harness.model.words import Arm, Outcome, Tier

ONE_PROCESS = "its records share marks with another arm's that only one process can have"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong with an arm's records, with the lines that show it."""

    outcome: Outcome
    text: str
    details: tuple[str, ...] = ()


def find_problems(context: CheckContext, arm: Arm, tier: Tier) -> tuple[Problem, ...]:
    """All problems of one arm that has an `ArmEvidence`; none means that its records count."""
    evidence = context.evidence
    sessions = evidence.sessions(arm, tier)
    if not sessions:
        raise ValueError(f"no record of arm {arm}")
    return (
        *(problem for record in sessions for problem in find_process_problems(context, record)),
        *_session_problems(evidence, sessions, arm, tier),
        *_ledger_problems(evidence, arm, tier),
    )


def find_process_problems(context: CheckContext, record: ArmEvidence) -> tuple[Problem, ...]:
    """Problems of the process alone: how it ended, its switch, its tracer, what it imported."""
    return (
        *_server_problems(record),
        *_switch_problems(record, context.manifest),
        *_tracer_problems(record, context.manifest),
        *_import_problems(context, record),
    )


def _server_problems(record: ArmEvidence) -> Iterator[Problem]:
    if not record.started or record.failure:
        what = "died" if record.started else "did not start"
        yield Problem(
            outcome=Outcome.ERROR,
            text=f"its server {what}: {record.failure or 'no reason was recorded'}",
            details=record.log_tail,
        )


def _switch_problems(record: ArmEvidence, manifest: Manifest) -> Iterator[Problem]:
    """The candidate is started with the value that means on, the baseline without the key, the A/A with off."""
    switch = manifest.switch
    wanted = {Arm.CANDIDATE: switch.on, Arm.BASELINE: None, Arm.BASELINE_AGAIN: switch.off}[record.arm]
    found = record.additional_config.get(switch.key)
    if found != wanted:
        yield Problem(
            outcome=Outcome.ERROR,
            text=f"it was started with {switch.key} = {found or 'unset'}, expected {wanted or 'unset'}",
        )


def _tracer_problems(record: ArmEvidence, manifest: Manifest) -> Iterator[Problem]:
    """The tracer lives, and wraps every target that the arm can have imported."""
    if record.ledger_problems:
        text = f"its ledger's reader found {len(record.ledger_problems)} faults"
        yield Problem(outcome=Outcome.ERROR, text=text, details=record.ledger_problems)
    proof = record.proof
    if proof is None:
        yield Problem(outcome=Outcome.ERROR, text="its worker's tracer wrote nothing")
        return
    if not proof.nonce:
        yield Problem(
            outcome=Outcome.ERROR, text="its tracer's record bears no nonce, so anybody can have written it"
        )
    if not proof.marker_seen:
        yield Problem(outcome=Outcome.ERROR, text="the tracer did not see its own planted call")
    if not proof.step_hooks:
        yield Problem(outcome=Outcome.ERROR, text="the tracer hooks no engine function, so it sees no step")
    if proof.missing:
        lines = tuple(f"{target}: {reason}" for target, reason in sorted(proof.missing.items()))
        yield Problem(outcome=Outcome.ERROR, text=f"{len(lines)} targets could not be wrapped", details=lines)
    dispatch = manifest.dispatch
    wanted = set(dispatch.baseline_code)
    if record.arm is Arm.CANDIDATE:
        wanted |= {d.target for d in dispatch.decisions} | set(dispatch.specialized_code)
    unwrapped = tuple(sorted(wanted - set(proof.wrapped) - proof.missing.keys()))
    if unwrapped:
        text = f"{len(unwrapped)} of {len(wanted)} targets of the manifest are not wrapped"
        yield Problem(outcome=Outcome.ERROR, text=text, details=unwrapped)


def _session_problems(
    evidence: EvidenceSet, sessions: Sequence[ArmEvidence], arm: Arm, tier: Tier
) -> Iterator[Problem]:
    """Where an arm has had several servers, each answer is accounted for by the ledger of the one that was asked."""
    ledgers = evidence.ledgers(arm, tier)
    if len(sessions) < 2 and len(ledgers) < 2:
        return
    alive = {record.proof.nonce for record in sessions if record.proof is not None}
    unknown = [ledger.session for ledger in ledgers if ledger.session not in alive]
    if unknown:
        text = f"{len(unknown)} of its {len(ledgers)} ledgers come from a server of which there is no record"
        yield Problem(outcome=Outcome.ERROR, text=text)
    items = {item.request_id: item for _, item in client_items(evidence, arm, tier)}
    strangers = {
        f"{client} in the ledger of {ledger.session[:8] or 'a nameless server'}"
        for ledger in ledgers
        for row in ledger.rows
        for request in row.requests
        if (client := client_of(request.request_id, items)) is not None
        and session_mark(items[client]) != ledger.session[:8]
    }
    if strangers:
        text = f"{len(strangers)} requests are in the ledger of a server that was not asked them"
        yield Problem(outcome=Outcome.ERROR, text=text, details=tuple(sorted(strangers)))


def _ledger_problems(evidence: EvidenceSet, arm: Arm, tier: Tier) -> Iterator[Problem]:
    """The ledger has rows, in order, and accounts for every token that the clients of this arm got."""
    ledger = evidence.ledger(arm, tier)
    if ledger is None or not ledger.rows:
        yield Problem(outcome=Outcome.ERROR, text="its ledger has no step")
        return
    repeated = [step for step, count in Counter(row.step for row in ledger.rows).items() if count > 1]
    if repeated:
        yield Problem(outcome=Outcome.ERROR, text=f"{len(repeated)} steps occur twice in its ledger")
    servers = [sorted(one.rows, key=lambda row: row.step) for one in evidence.ledgers(arm, tier)]
    if any(b.started_ns < a.started_ns for rows in servers for a, b in pairwise(rows)) or any(
        row.duration_ns < 0 for row in ledger.rows
    ):
        yield Problem(outcome=Outcome.ERROR, text="the clock of its ledger runs backwards")
    if any(row.num_reqs != len(row.requests) for row in ledger.rows):
        yield Problem(
            outcome=Outcome.ERROR, text="steps of its ledger do not list the requests that they count"
        )
    yield from _accounting_problems(evidence, ledger, arm, tier)


def _accounting_problems(
    evidence: EvidenceSet, ledger: LedgerEvidence, arm: Arm, tier: Tier
) -> Iterator[Problem]:
    """Ledger, server usage and client agree on the tokens of every request."""
    sent = client_items(evidence, arm, tier)
    if not sent:
        yield Problem(
            outcome=Outcome.ERROR, text="no request was sent to it, so its ledger concerns nothing known"
        )
        return
    reused = [r for r, n in Counter(item.request_id for _, item in sent).items() if n > 1 or not r]
    if reused:
        text = "requests share an id, so their tokens cannot be told apart"
        yield Problem(outcome=Outcome.ERROR, text=text, details=tuple(reused))
        return
    parts = index_parts(ledger, (item.request_id for _, item in sent))
    emitted = {client: sum(emitted for *_, emitted in its_parts) for client, its_parts in parts.items()}
    answered = [(where, item) for where, item in sent if not item.error]
    short = _miscounted(sent)
    if short:
        lines = tuple(
            f"{_name(w, i)}: usage {i.num_completion_tokens}, client {i.num_received_tokens}"
            for w, i in short
        )
        # The candidate's own fault only when the same server code counts rightly with the switch off.
        counts_off = not _miscounted(client_items(evidence, Arm.BASELINE, tier))
        outcome = Outcome.FAIL if arm is Arm.CANDIDATE and counts_off else Outcome.ERROR
        text = f"the server's usage and the client count differ in {len(short)} of {len(sent)} requests"
        yield Problem(outcome=outcome, text=text, details=lines)
    lost = [(w, i) for w, i in answered if not _accounts_for(emitted[i.request_id], i)]
    if lost:
        lines = tuple(
            f"{_name(w, i)}: usage {i.num_completion_tokens}, ledger {emitted[i.request_id]}" for w, i in lost
        )
        text = f"the ledger does not account for the tokens of {len(lost)} of {len(answered)} requests"
        yield Problem(outcome=Outcome.ERROR, text=text, details=lines)


def _accounts_for(num_in_ledger: int, item: SuiteItem) -> bool:
    """Whether the ledger has the request's tokens.

    A stop string is found, and a closed connection noticed, outside the engine's core, which may have gone on by then.
    """
    ended_outside = item.finish_reason == GIVEN_UP or (
        item.finish_reason == "stop" and '"stop":' in item.options_text
    )
    if ended_outside:
        return num_in_ledger >= item.num_completion_tokens
    return num_in_ledger == item.num_completion_tokens


def _miscounted(sent: Iterable[tuple[str, SuiteItem]]) -> list[tuple[str, SuiteItem]]:
    """Answers with a usage block that counts other tokens; a refused or broken-off one has none."""
    return [
        (where, item)
        for where, item in sent
        if item.num_completion_tokens != item.num_received_tokens
        and (item.num_completion_tokens or not item.error)
    ]


def _name(where: str, item: SuiteItem) -> str:
    return f"{where}, {item.item}"


def _import_problems(context: CheckContext, record: ArmEvidence) -> Iterator[Problem]:
    """What the worker imported is what the head commit holds, and the targets' modules are among it."""
    committed = context.evidence.of(SubjectEvidence)
    if not committed:
        yield Problem(outcome=Outcome.ERROR, text="the subject's files at the head were not recorded")
        return
    if committed[-1].commit != context.change.head:
        text = f"the subject's files were recorded at commit {committed[-1].commit[:12]}, not at the head"
        yield Problem(outcome=Outcome.ERROR, text=text)
    files = committed[-1].files
    others = tuple(f"{f.module} ({f.path})" for f in record.imported if not is_committed(f, files))
    if others:
        text = (
            f"{len(others)} imported files are not those of the head commit: the evidence concerns other code"
        )
        yield Problem(outcome=Outcome.ERROR, text=text, details=others)
    if record.arm is not Arm.CANDIDATE:
        return
    dispatch = context.manifest.dispatch
    targets = [*(d.target for d in dispatch.decisions), *dispatch.specialized_code]
    imported = {f.module for f in record.imported}
    absent = tuple(sorted({t.split(":")[0] for t in targets} - imported))
    if absent:
        text = "no record shows which files the targets' modules were imported from"
        yield Problem(outcome=Outcome.ERROR, text=text, details=absent)


def is_committed(imported: ImportedFile, files: dict[str, str]) -> bool:
    """Whether the head holds this file with these bytes, below any folder that holds the import root."""
    root = imported.module.split(".")[0]
    names = (imported.path, f"{root}/{imported.path}")
    return any(
        digest == imported.sha256
        for path, digest in files.items()
        if any(path == name or path.endswith(f"/{name}") for name in names)
    )


def shared_between_arms(evidence: EvidenceSet, arms: Sequence[Arm], tier: Tier) -> dict[Arm, tuple[str, ...]]:
    """What two arms have in common that only one process can have: a nonce, steps or request ids."""
    shared: dict[Arm, tuple[str, ...]] = {}
    marks = {arm: _marks_of(evidence, arm, tier) for arm in arms}
    for arm in arms:
        lines = []
        for other in arms:
            common = marks[arm] & marks[other] if other is not arm else set()
            kinds = sorted({kind for kind, _ in common})
            lines += [f"{kind} also occurs on arm {other}" for kind in kinds]
        if lines:
            shared[arm] = tuple(lines)
    return shared


def _marks_of(evidence: EvidenceSet, arm: Arm, tier: Tier) -> set[tuple[str, str]]:
    marks = {("request id", item.request_id) for _, item in client_items(evidence, arm, tier)}
    marks |= {
        ("its nonce", record.proof.nonce)
        for record in evidence.sessions(arm, tier)
        if record.proof is not None and record.proof.nonce
    }
    for ledger in evidence.ledgers(arm, tier):
        marks |= {("a step", f"{row.step}/{row.started_ns}/{row.duration_ns}") for row in ledger.rows}
    return marks
