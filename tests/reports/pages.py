"""Bundles to report on, and what a page says about itself, for the tests of reports."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from bundles.contents import Bundle
from bundles.reader import read_bundle
from bundles.writer import EvidenceStore, seal
from harness.checks.correctness.cor007_long_context_retrieval import LongContextRetrieval
from harness.checks.correctness.cor008_reasoning import Reasoning
from harness.checks.correctness.cor009_negative_control import NegativeControl
from harness.checks.correctness.cor010_comparable_answers import ComparableAnswers
from harness.model.change import Change
from harness.model.evaluation import ChatMessage, EvalRow
from harness.model.evidence import (
    AnyEvidence,
    ArmEvidence,
    EnvironmentEvidence,
    EvalSetEvidence,
    GapEvidence,
    SuiteEvidence,
)
from harness.model.finding import Finding, ItemScores, Location, Measurement
from harness.model.judgement import CheckSummary, Judgement, decide_verdict, worst
from harness.model.words import Arm, Outcome, Principle, Tier
from reports.html import render_html
from reports.view import build_view
from tests.bundles.examples import (
    CHANGE,
    CHECK_HELP,
    CPU_ONLY_POLICY_TEXT,
    MANIFEST_TEXT,
    POLICY_TEXT,
    arm,
    environment,
    evidence_to_admit,
    evidence_to_reject,
    evidence_undecided,
    evidence_with_error,
    suite,
    write_bundle,
)
from tests.harness.checks.eval_builder import EvalWorld, build_evals
from tests.harness.checks.evidence_builder import CHANGE as DRILL_CHANGE
from tests.harness.checks.evidence_builder import context_of
from tests.reports.drill_example import MACHINE, store_drills
from tests.reports.drill_example import MANIFEST_TEXT as DRILL_MANIFEST

HOSTILE = (
    "<script>alert('x')</script>",
    '"><img src=https://evil.example/x onerror=alert(1)>',
    "</style></pre></svg><a href=javascript:alert(1)>click</a>",
    "{{ 7*7 }}{% raw %} ${x} <!-- --> ]]>",
    "\x1b[2J\x1b[31mred\x00\x07 \u202egnp.exe\u2066 zero\u200bwidth \u2028line",
    "Z" + "\u0337\u0361" * 40 + "algo",
    "verylongname" * 60,
    "@everyone #1 [x](https://evil.example) `code` **bold** | pipe\n# heading\n- item",
    "日本語の件名 – ünïcode 🎉",
)
NAMES = ("admit", "undecided", "reject", "error", "hostile", "silent", "evaluations", "drills")


def hostile(index: int) -> str:
    """One of the hostile texts."""
    return HOSTILE[index % len(HOSTILE)]


def render_example(bundle: Bundle) -> str:
    """The report with the examples' own lines on how checks decide."""
    return render_html(build_view(bundle, {**CHECK_HELP, "HOST-0": (hostile(0), hostile(2))}))


def write_example(folder: Path, name: str) -> None:
    """The bundle of a name of `NAMES`."""
    if name == "admit":
        write_bundle(folder, evidence_to_admit(), render_example, CPU_ONLY_POLICY_TEXT)
    elif name == "hostile":
        write_hostile(folder)
    elif name == "silent":
        write_silent(folder)
    elif name == "evaluations":
        write_evaluations(folder)
    elif name == "drills":
        summaries, findings = store_drills(folder)
        _seal(folder, DRILL_MANIFEST, DRILL_CHANGE, summaries, findings)
    else:
        evidence = {
            "undecided": evidence_undecided,
            "reject": evidence_to_reject,
            "error": evidence_with_error,
        }[name]()
        write_bundle(folder, evidence, render_example)


def write_silent(folder: Path) -> None:
    """A bundle of a machine and nothing that ran on it, whose one required check said nothing."""
    summary = CheckSummary(
        check="ISO001", title="Every changed file lies in the owned paths", principle=Principle.ISOLATION,
        tier=Tier.STATIC, required=True, outcome=Outcome.ERROR, num_findings=0,
    )  # fmt: skip
    EvidenceStore(folder).add(environment())
    _seal(folder, MANIFEST_TEXT, CHANGE, (summary,), ())


def write_evaluations(folder: Path) -> None:
    """A bundle of the evaluation suites whose candidate is worse, as the real checks judge it."""
    records = build_evals(EvalWorld(num_rows=100, num_problems=10, samples=4, loss=0.25))
    store, findings, summaries = EvidenceStore(folder), [], []
    for record in (MACHINE, *records):
        store.add(record)
    for check in (LongContextRetrieval(), Reasoning(), NegativeControl(), ComparableAnswers()):
        own = check.run(context_of(records))
        findings += own
        summaries.append(
            CheckSummary(
                check=check.id, title=check.title, principle=check.principle, tier=check.tier, required=True,
                outcome=worst([f.outcome for f in own]), num_findings=len(own),
            )
        )  # fmt: skip
    _seal(folder, MANIFEST_TEXT, CHANGE, tuple(summaries), tuple(findings))


def write_hostile(folder: Path) -> None:
    """A bundle in which every text that a change or a model can reach is hostile."""
    store = EvidenceStore(folder)
    ids = tuple(store.add(record) for record in _hostile_evidence())
    outcomes = list(Outcome)
    findings, summaries = [], []
    for i in range(len(HOSTILE)):
        check = f"HOST-{i}" if i % 2 == 0 else hostile(i)
        principle, tier = list(Principle)[i % 4], list(Tier)[i % 5]
        outcome = outcomes[i % len(outcomes)]
        findings.append(
            Finding(
                check=check, principle=principle, tier=tier, subject=hostile(i + 1), outcome=outcome,
                message=hostile(i + 2), advice=hostile(i + 3), location=Location(path=hostile(i + 4), line=1234),
                evidence=ids, details=tuple(HOSTILE),
                items=tuple(
                    ItemScores(item=name, baseline=1.0, candidate=0.123456, baseline_again=0.0)
                    for name in ("q0000", hostile(i))
                ),
                measurements=(
                    Measurement(
                        name=hostile(i + 5), unit=hostile(i + 6), estimate=0.123456 * 10**i, ci_low=-1e300,
                        ci_high=1e300, margin=1e-7, n=12345, hardware=hostile(i + 7),
                    ),
                    Measurement(name="same", unit="", estimate=2.0, ci_low=2.0, ci_high=2.0, margin=2.0, n=1),
                    Measurement(name="lone", unit="", estimate=-0.0, n=0),
                    Measurement(name="one-sided", unit="ms", estimate=1234.5, ci_low=1230.25, n=7),
                ),
            )
        )  # fmt: skip
        summaries.append(
            CheckSummary(
                check=check, title=hostile(i + 8), principle=principle, tier=tier, required=i % 3 != 0,
                outcome=outcome, num_findings=1,
            )
        )  # fmt: skip
    change = CHANGE.model_copy(update={"head_subject": hostile(4), "limited_to": HOSTILE[:3]})
    title = json.dumps(hostile(2) + hostile(4) + hostile(6))
    manifest = MANIFEST_TEXT.replace('"Kimi K3 specialised decode path"', title)
    _seal(folder, manifest, change, tuple(summaries), tuple(findings))


def _hostile_evidence() -> tuple[AnyEvidence, ...]:
    packages = {text: text for text in HOSTILE}
    fields = environment().model_dump() | {"cpu": hostile(0), "packages": packages, "gpus": (hostile(1),)}
    machine = EnvironmentEvidence.model_validate(fields)
    server = arm(Arm.CANDIDATE, failure=hostile(2)).model_dump()
    server |= {"log_tail": HOSTILE * 2, "command": HOSTILE, "hardware": machine.machine}
    return (
        machine,
        environment(),
        ArmEvidence.model_validate(server),
        hostile_answers(Arm.BASELINE),
        hostile_answers(Arm.CANDIDATE),
        EvalSetEvidence(
            tier=Tier.CPU,
            recorded_at="",
            suite=hostile(0),
            source=hostile(1),
            source_sha256="",
            grader=hostile(2),
            rows=(
                EvalRow(
                    row="r",
                    messages=(ChatMessage(role="user", content=" ".join(HOSTILE)),),
                    answer=hostile(3),
                ),
            ),
        ),
        GapEvidence(tier=Tier.GPU, recorded_at=hostile(7), what=hostile(3), broke=False, reason=hostile(5)),
        GapEvidence(tier=Tier.CLUSTER, recorded_at="", what="tier cluster", broke=True, reason=hostile(0)),
    )


def hostile_answers(which: Arm) -> SuiteEvidence:
    """A suite whose first answer says everything hostile."""
    record = suite(which, text=" ".join(HOSTILE))
    return record.model_copy(
        update={"items": (record.items[0].model_copy(update={"row": "r"}), *record.items[1:])}
    )


def _seal(
    folder: Path,
    manifest_text: str,
    change: Change,
    summaries: tuple[CheckSummary, ...],
    findings: tuple[Finding, ...],
) -> None:
    verdict, reason = decide_verdict(summaries)
    judgement = Judgement(
        verdict=verdict, reason=reason, change=change, manifest_sha256="00" * 32, policy_sha256="11" * 32,
        policy_version="2026-11", harness_version="0.1.0", checks=summaries, findings=findings,
    )  # fmt: skip
    seal(
        folder, manifest_text=manifest_text, policy_text=POLICY_TEXT, judgement=judgement,
        render_report=render_example,
    )  # fmt: skip


@dataclass
class Element:
    """One element of a page."""

    tag: str
    attributes: dict[str, str]
    parent: Element | None
    children: list[Element | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """All text below."""
        return "".join(c if isinstance(c, str) else c.text for c in self.children)

    def walk(self) -> Iterator[Element]:
        """The element and all below it."""
        yield self
        for child in self.children:
            if isinstance(child, Element):
                yield from child.walk()

    def ancestors(self) -> Iterator[Element]:
        """The element and all above it."""
        element: Element | None = self
        while element is not None:
            yield element
            element = element.parent


class _Builder(HTMLParser):
    VOID = ("meta", "br", "link", "img", "input", "hr")

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = self.at = Element("document", {}, None)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {k: v or "" for k, v in attrs}, self.at)
        self.at.children.append(element)
        if tag not in self.VOID:
            self.at = element

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.at.children.append(Element(tag, {k: v or "" for k, v in attrs}, self.at))

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)


def parse_page(html: str) -> Element:
    """The page as a tree; an element that is not closed properly fails the test."""
    builder = _Builder()
    builder.feed(html)
    builder.close()
    assert builder.at is builder.root
    return builder.root


class Values:
    """The values of a bundle's JSON and TOML files by place."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, Any] = {}

    def at(self, ref: str) -> Any:
        """The value at `file#/pointer`."""
        file, _, pointer = ref.partition("#")
        if file not in self._files:
            data = (self._folder / file).read_bytes()
            self._files[file] = tomllib.loads(data.decode()) if file.endswith(".toml") else json.loads(data)
        value = self._files[file]
        for part in pointer.split("/")[1:]:
            key = unquote(part).replace("~1", "/").replace("~0", "~")
            value = value[int(key)] if isinstance(value, list) else value[key]
        return value


def read_example(folder: Path) -> Bundle:
    """The bundle of an example."""
    return read_bundle(folder)
