import io
import shutil
import sys
import tarfile
from pathlib import Path

bundle = Path(sys.argv[1])
packed = bundle.with_name("packed.tar.gz")
with tarfile.open(packed, "w:gz") as tar:
    for file in sorted(bundle.rglob("*")):
        if file.is_file():
            tar.add(file, str(file.relative_to(bundle)))
    member = tarfile.TarInfo("../climbed.txt")
    member.size = 3
    tar.addfile(member, io.BytesIO(b"out"))
shutil.rmtree(bundle)
packed.rename(bundle)
