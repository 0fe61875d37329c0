"""An evidence store that writes nothing."""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.model.evidence import AnyEvidence


@dataclass(slots=True)
class Kept:
    """An evidence store in memory."""

    records: list[AnyEvidence] = field(default_factory=list)

    def add(self, record: AnyEvidence) -> str:
        self.records.append(record)
        return record.id
