import sys
from pathlib import Path

from harness.app.selftest.resealing import reseal

reseal(Path(sys.argv[1]))
