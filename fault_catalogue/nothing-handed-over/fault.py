import shutil
import sys
from pathlib import Path

bundle = Path(sys.argv[1])
shutil.rmtree(bundle)
bundle.mkdir()
