"""Keyless signatures of CI jobs: a Sigstore bundle over `sha256sums.txt`, checked without a network.

A certificate that lived for minutes says for whom an identity provider vouched, a transparency log that the signature
was made while it lived. What the identity is worth, the reader's policy says. Sources: the Sigstore client
specification, and Fulcio's docs/oid-info.md (`.1.1` and `.1.8`, the issuer).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from struct import error as StructError
from typing import TYPE_CHECKING

from bundles.error import BundleError
from bundles.files import write_atomic
from bundles.json_text import parse_json
from bundles.layout import ATTESTATION_FOLDER, SHA256SUMS
from bundles.reader import load_folder, parse_folder
from bundles.signer import SigstoreIdentity
from harness.model.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

SUFFIX = ".sigstore.json"
_ISSUER_OID, _OLD_ISSUER_OID = "1.3.6.1.4.1.57264.1.8", "1.3.6.1.4.1.57264.1.1"
_UTF8_STRING = 0x0C
_MAX_SAID = 200
_EXTRA = "Install the extra: pip install 'fasttrack[attest]'."


def keyless_path(data: bytes) -> str:
    """Where a signature lies: its name is its digest."""
    return f"{ATTESTATION_FOLDER}/sigstore-{hashlib.sha256(data).hexdigest()[:32]}{SUFFIX}"


def sign_keyless(folder: Path) -> str:
    """Signs a sealed bundle as the CI job that this runs in, and returns the signature's path in it.

    Raises:
        BundleError: the bundle is not whole.
        ConfigurationError: the extra is not installed, this is no CI job that has a token, or Sigstore refused.
    """
    loaded = load_folder(folder)
    parse_folder(loaded)
    try:
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig
        from sigstore.oidc import IdentityToken, detect_credential
        from sigstore.sign import SigningContext
    except ImportError as error:
        raise ConfigurationError("no-sigstore", "Sigstore's library is not installed.", _EXTRA) from error
    try:
        token = detect_credential()
        if token is None:
            message = "There is no identity token: this signs in a CI job that may ask for one."
            raise ConfigurationError("no-identity", message, "On GitHub, the job needs `id-token: write`.")
        context = SigningContext.from_trust_config(ClientTrustConfig.production())
        with context.signer(IdentityToken(token)) as signer:
            data = signer.sign_artifact(loaded.data[SHA256SUMS]).to_json().encode("utf-8")
    except Error as error:
        raise ConfigurationError(
            "sigstore-refused", f"Sigstore did not sign: {error}", "Try again."
        ) from error
    path = keyless_path(data)
    write_atomic(folder / path, data)
    return path


def read_keyless(path: str, data: bytes, sums: bytes, root: Path | None) -> SigstoreIdentity:
    """Who signed, once certificate, log entry and signature hold.

    Args:
        path: Where the signature lies in the bundle.
        data: The Sigstore bundle.
        sums: The bytes of `sha256sums.txt`, which it must be over.
        root: Sigstore's trusted root (`trusted_root.json`); None: that of the public instance, as last fetched or as
            the library brings it.

    Raises:
        BundleError: it does not hold, is of another bundle, or cannot be checked here.
    """
    if path != keyless_path(data):
        raise BundleError("attestation-malformed", path, "it is not the file that it is named for.")
    try:
        from sigstore.errors import Error
        from sigstore.models import InvalidBundle
    except ImportError as error:
        message = "a Sigstore signature, which this installation cannot check."
        raise BundleError("attestation-unchecked", path, message, _EXTRA) from error
    parse_json(data, path)
    # What the library, given a hostile file, was seen to raise besides its own errors.
    hostile: tuple[type[Exception], ...] = (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        StructError,
        *_x509_errors(),
    )
    try:
        return _verified(data, sums, root)
    except InvalidBundle as error:
        raise BundleError("attestation-malformed", path, "it is no Sigstore bundle.") from error
    except Error as error:
        said = (str(error).splitlines() or [type(error).__name__])[0][:_MAX_SAID]
        raise BundleError("attestation-bad-signature", path, f"Sigstore says: {said}.") from error
    except hostile as error:
        message = f"not a Sigstore bundle that holds: {type(error).__name__}."
        raise BundleError("attestation-malformed", path, message) from error


def _verified(data: bytes, sums: bytes, root: Path | None) -> SigstoreIdentity:
    from sigstore.models import Bundle, ClientTrustConfig, TrustedRoot
    from sigstore.verify import Verifier

    if root is None:
        trusted = ClientTrustConfig.production(offline=True).trusted_root
    else:
        trusted = TrustedRoot.from_file(str(root))
    named = _Named()
    Verifier(trusted_root=trusted).verify_artifact(sums, Bundle.from_json(data), named)
    (identity,) = named.identities
    return identity


class _Named:
    """A verification policy that takes every identity and remembers it: the gate's policy rules on it."""

    def __init__(self) -> None:
        self.identities: list[SigstoreIdentity] = []

    def verify(self, cert: Certificate) -> None:
        """Called once the certificate's chain holds."""
        self.identities.append(identity_of(cert))


def identity_of(cert: Certificate) -> SigstoreIdentity:
    """The one subject of a certificate, and who vouched for it.

    Raises:
        ValueError: no subject or several, of another kind than an address; no issuer, or two different ones.
    """
    from cryptography import x509

    names = list(cert.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    if len(names) != 1 or not isinstance(names[0], x509.RFC822Name | x509.UniformResourceIdentifier):
        raise ValueError(f"{len(names)} subjects, or one that is no address")
    issuers = {
        _issuer(extension.oid.dotted_string, extension.value.value)
        for extension in cert.extensions
        if isinstance(extension.value, x509.UnrecognizedExtension)
        and extension.oid.dotted_string in (_ISSUER_OID, _OLD_ISSUER_OID)
    }
    if len(issuers) != 1:
        raise ValueError(f"{len(issuers)} issuers")
    return SigstoreIdentity(identity=names[0].value, issuer=issuers.pop())


def _issuer(oid: str, value: bytes) -> str:
    """The older extension holds plain text, the newer one a DER UTF8String."""
    if oid == _OLD_ISSUER_OID:
        return value.decode("utf-8")
    if len(value) < 2 or value[0] != _UTF8_STRING or value[1] > 127 or len(value) != 2 + value[1]:
        raise ValueError("the issuer is no short UTF8String")
    return value[2:].decode("utf-8")


def _x509_errors() -> tuple[type[Exception], ...]:
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    return (x509.ExtensionNotFound, x509.DuplicateExtension, x509.InvalidVersion, UnsupportedAlgorithm)
