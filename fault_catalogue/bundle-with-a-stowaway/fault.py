import sys
from pathlib import Path

bundle = Path(sys.argv[1])
(bundle / "raw").mkdir(exist_ok=True)
(bundle / "raw" / "notes.txt").write_text("take a look")
