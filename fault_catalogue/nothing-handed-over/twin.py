import shutil
import sys
from pathlib import Path

bundle = Path(sys.argv[1])
shutil.copytree(bundle, bundle.with_name("uploaded"))
shutil.rmtree(bundle)
bundle.with_name("uploaded").rename(bundle)
