import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal
from harness.model.judgement import Judgement
from harness.model.words import Verdict

bundle = Path(sys.argv[1])


def admitted(judgement: Judgement) -> Judgement:
    return judgement.model_copy(update={"verdict": Verdict.ADMIT, "reason": "every required check passes"})


reseal(bundle, judgement=admitted)
