import sys
from pathlib import Path

bundle = Path(sys.argv[1])
min(bundle.glob("evidence/*-imports-*.json")).unlink()
