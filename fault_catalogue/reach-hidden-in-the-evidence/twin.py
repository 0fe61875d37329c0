import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal

bundle = Path(sys.argv[1])
reseal(bundle)
