import sys
from pathlib import Path

from bundles.attestation import sign_bundle
from bundles.keys import make_private_key
from harness.app.selftest.resealing import reseal
from harness.model.words import TrustLevel

bundle = Path(sys.argv[1])
signed = bundle / sign_bundle(bundle, make_private_key(), TrustLevel.CONTRIBUTOR)
statement = signed.read_bytes()
reseal(bundle, lambda records: [r for r in records if r.kind != "gap"])
signed.parent.mkdir(exist_ok=True)
signed.write_bytes(statement)
