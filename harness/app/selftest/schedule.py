"""In which order the cases of a selftest run, and which of them beside which."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum

from harness.app.selftest.catalogue import Case
from harness.app.selftest.gpu_asks import asked_of, shares_of
from harness.model.selftest import Stage


class Shared(StrEnum):
    """What is run once for many cases."""

    HONEST = "honest"
    """The bundle of an honest change that is tampered with, of the static tier."""
    MEASURED = "measured"
    """The same with all arms, timed; the clean twins of faults that are timed are part of that change."""
    CLEAN = "clean"
    """The clean tree's baselines and scripted runs."""


NEEDED = {
    Stage.BUNDLE: Shared.HONEST,
    Stage.EVIDENCE: Shared.MEASURED,
    Stage.PROBE: Shared.CLEAN,
    Stage.ARM: Shared.CLEAN,
    Stage.MADE: Shared.CLEAN,
}
_LEFT_FOR_THE_END = 8
"""Tasks without an engine, for each process but one: about as long as a case with an engine."""
_ENGINES = (Stage.TIMING, Stage.PROBE, Stage.ARM, Stage.MADE, Stage.GPU)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one process does at a time."""

    cases: tuple[Case, ...]
    """Judged as one change; of a shared run those that it is made for."""
    makes: Shared | None = None
    """The shared run that it is; None: it judges its cases."""

    @property
    def stage(self) -> Stage:
        """Of its cases."""
        return self.cases[0].fault.stage

    @property
    def needs(self) -> Shared | None:
        """The shared run that must be done before."""
        if self.makes:
            return None
        return Shared.MEASURED if all(is_timed_twin(case) for case in self.cases) else NEEDED.get(self.stage)

    @property
    def has_engines(self) -> bool:
        """Whether it starts some; a twin that is measured with an honest change does where that is rejected."""
        return self.makes is Shared.MEASURED or (self.stage in _ENGINES and self.needs is not Shared.MEASURED)

    @property
    def num_shares(self) -> int:
        """Shares of a GPU's memory that its processes take."""
        return sum(shares_of(asked_of(self.cases)).values()) if self.stage is Stage.GPU else 0


def is_timed_twin(case: Case) -> bool:
    """Whether it can be measured as a part of the honest change that is tampered with, for which all arms are timed."""
    return case.is_twin and case.fault.stage is Stage.TIMING and case.base is None


def plan_tasks(groups: Sequence[Sequence[Case]]) -> list[Task]:
    """A task for each group, after the shared runs that one of them needs.

    What is timed comes first, while there is most that can run beside the rest of it; then what asks for features,
    or for most of a GPU, which takes longest.
    """
    tasks = [Task(cases=tuple(group)) for group in groups]
    for_whom = {
        shared: tuple(case for task in tasks if task.needs is shared for case in task.cases)
        for shared in Shared
    }
    shared_runs = [Task(cases=cases, makes=shared) for shared, cases in for_whom.items() if cases]
    return sorted(
        [*shared_runs, *tasks],
        key=lambda task: (
            task.stage is not Stage.TIMING and task.makes is not Shared.MEASURED,
            task.makes is None,
            not any(case.fault.features for case in task.cases),
            -task.num_shares,
        ),
    )


def next_task(
    waiting: Sequence[Task], running: Collection[Task], made: Collection[Shared], jobs: int
) -> Task | None:
    """What is begun next; None: nothing, until something that runs is done.

    Half of what runs is to have engines as long as there is other work: an engine leaves a core idle now and then. A
    little of that work is left until every engine has begun, to fill what the last of them leave.
    """
    ready = [task for task in waiting if task.needs is None or task.needs in made]
    wants_engines = sum(task.has_engines for task in running) < jobs // 2 or sum(
        not task.has_engines for task in waiting
    ) <= _LEFT_FOR_THE_END * (jobs - 1)
    first = ready[0] if ready else None
    return next((task for task in ready if task.has_engines is wants_engines), first)
