import sys
from pathlib import Path

from harness.app.selftest.resealing import Records, reseal
from harness.model.evidence import ArmEvidence
from harness.model.words import Arm


def blind(arm: ArmEvidence) -> ArmEvidence:
    assert arm.proof is not None
    return arm.model_copy(update={"proof": arm.proof.model_copy(update={"marker_seen": False})})


def edited(records: Records) -> Records:
    return [blind(r) if r.kind == "arm" and r.arm is Arm.CANDIDATE else r for r in records]


reseal(Path(sys.argv[1]), edited)
