import sys
from pathlib import Path

bundle = Path(sys.argv[1])
for name in ("judgement.json", "report.html", "manifest.json", "sha256sums.txt"):
    (bundle / name).unlink()
