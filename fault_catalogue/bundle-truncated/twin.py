import shutil
import sys
from pathlib import Path

from bundles.archive import pack

bundle = Path(sys.argv[1])
packed = bundle.with_name("packed.tar.gz")
pack(bundle, packed)
shutil.rmtree(bundle)
packed.rename(bundle)
