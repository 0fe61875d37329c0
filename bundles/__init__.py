"""Evidence bundles: writing, hashing, verifying, rebuilding."""

from bundles.contents import Bundle, EvidenceFile
from bundles.reader import PartialBundle, read_bundle, read_partial
from bundles.verify import Difference, VerifyResult, verify_bundle
from bundles.writer import EvidenceStore, seal

__all__ = [
    "Bundle",
    "Difference",
    "EvidenceFile",
    "EvidenceStore",
    "PartialBundle",
    "VerifyResult",
    "read_bundle",
    "read_partial",
    "seal",
    "verify_bundle",
]
