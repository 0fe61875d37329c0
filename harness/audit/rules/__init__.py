"""The rules, one a file: each has an id, a claim, and how it decides."""

from __future__ import annotations

from harness.audit.rules.base import Rule
from harness.audit.rules.pdl001_reads_after_wait import ReadsAfterWait
from harness.audit.rules.pdl002_trigger_after_stores import TriggerAfterStores
from harness.audit.rules.pdl003_wait_before_exit import WaitBeforeExit
from harness.audit.rules.pdl004_writes_after_wait import WritesAfterWait
from harness.audit.rules.syn001_polls_are_strong import PollsAreStrong
from harness.audit.rules.syn002_spins_are_bounded import SpinsAreBounded
from harness.audit.rules.syn003_slots_are_rearmed import SlotsAreRearmed
from harness.audit.rules.syn004_words_are_tested import WordsAreTested
from harness.audit.rules.syn010_barrier_counts import BarrierCounts
from harness.audit.rules.syn011_mbarrier_counts import MbarrierCounts

RULES: tuple[Rule, ...] = (
    ReadsAfterWait(),
    TriggerAfterStores(),
    WaitBeforeExit(),
    WritesAfterWait(),
    PollsAreStrong(),
    SpinsAreBounded(),
    SlotsAreRearmed(),
    WordsAreTested(),
    BarrierCounts(),
    MbarrierCounts(),
)

__all__ = ["RULES", "Rule"]
