"""Who signed: the holder of a key, or somebody for whom an identity provider vouched when the signature was made."""

from __future__ import annotations

from dataclasses import dataclass

from bundles.keys import PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class SigstoreIdentity:
    """The subject of a Sigstore certificate."""

    identity: str
    """An e-mail address, or the address of a workflow with its ref."""
    issuer: str
    """Address of the identity provider."""

    @property
    def fingerprint(self) -> str:
        """Names the identity, as a key's fingerprint names the key."""
        return f"{self.identity} ({self.issuer})"


Signer = PublicKey | SigstoreIdentity
