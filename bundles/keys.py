"""Ed25519 keys that sign bundles: made, read and named as OpenSSH does.

A private key is a PEM file (PKCS #8) or an OpenSSH key, with or without a passphrase; a public key is the one line that
stands in `id_ed25519.pub`. `ssh-keygen` reads what is written here, and what it makes is read here.
"""

from __future__ import annotations

import base64
import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.model.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY_TYPE = "ssh-ed25519"


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An Ed25519 public key."""

    raw: bytes
    """32 bytes."""

    @property
    def line(self) -> str:
        """`ssh-ed25519 AAAA...`, without a comment."""
        return f"{_KEY_TYPE} {base64.b64encode(self._blob).decode('ascii')}"

    @property
    def fingerprint(self) -> str:
        """`SHA256:...` as `ssh-keygen -l` prints it; names the key."""
        digest = base64.b64encode(hashlib.sha256(self._blob).digest()).decode("ascii")
        return f"SHA256:{digest.rstrip('=')}"

    @property
    def _blob(self) -> bytes:
        return b"".join(len(part).to_bytes(4, "big") + part for part in (_KEY_TYPE.encode(), self.raw))

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` is this key's over `message`."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """An Ed25519 private key; its text form never leaves this module unencrypted unless asked for."""

    key: Ed25519PrivateKey

    @property
    def public(self) -> PublicKey:
        """Its public half."""
        return PublicKey(self.key.public_key().public_bytes_raw())

    def sign(self, message: bytes) -> bytes:
        """64 bytes; the same message gives the same signature (RFC 8032)."""
        return self.key.sign(message)


def parse_public_key(text: str) -> PublicKey:
    """The key in a line `ssh-ed25519 AAAA... comment`.

    Raises:
        ConfigurationError: not such a line.
    """
    parts = text.split()
    try:
        if len(parts) < 2 or parts[0] != _KEY_TYPE:
            raise ValueError("it does not begin with ssh-ed25519 and the key in base64")
        blob = base64.b64decode(parts[1], validate=True)
        key = PublicKey(blob[-32:])
        if key.line.split()[1] != parts[1]:
            raise ValueError("the base64 text is not that of an Ed25519 key")
    except ValueError as error:
        raise ConfigurationError(
            "bad-public-key",
            f"Not a public key: {error}.",
            "Give the one line of a .pub file that `fasttrack keygen` or `ssh-keygen -t ed25519` wrote.",
        ) from error
    return key


def make_private_key() -> PrivateKey:
    """A new key from the system's random source."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return PrivateKey(Ed25519PrivateKey.generate())


def write_key_pair(path: Path, key: PrivateKey, passphrase: str) -> Path:
    """Writes the private key to `path`, readable by its owner alone, and the public one beside it.

    Args:
        path: The private key's file; `.pub` is added for the public one.
        key: The key.
        passphrase: Encrypts the private key; empty leaves it in clear text.

    Returns:
        The public key's file.

    Raises:
        ConfigurationError: one of the two files exists: a key is never overwritten.
    """
    from cryptography.hazmat.primitives import serialization as form

    encryption = form.BestAvailableEncryption(passphrase.encode()) if passphrase else form.NoEncryption()
    data = key.key.private_bytes(form.Encoding.PEM, form.PrivateFormat.OpenSSH, encryption)
    public = path.with_name(path.name + ".pub")
    for file in (path, public):
        if file.exists():
            raise ConfigurationError("key-exists", f"{file} exists.", "Name another file with --out.")
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as private:
        private.write(data)
    public.write_text(f"{key.public.line}\n", encoding="ascii")
    return public


def read_private_key(path: Path, passphrase: str = "") -> PrivateKey:
    """The Ed25519 key of a PEM or OpenSSH file.

    Raises:
        ConfigurationError: no such file, another kind of key, or the passphrase is wrong or missing.
    """
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        data = path.read_bytes()
    except OSError as error:
        message = f"The key {path} cannot be read: {error.strerror}."
        raise ConfigurationError("bad-private-key", message, "Make one with `fasttrack keygen`.") from error
    is_ssh = b"BEGIN OPENSSH PRIVATE KEY" in data
    load = serialization.load_ssh_private_key if is_ssh else serialization.load_pem_private_key
    try:
        key = load(data, passphrase.encode() or None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        message = f"The key {path} cannot be opened: {error}"
        advice = "Set FASTTRACK_KEY_PASSPHRASE if it has a passphrase; Ed25519 keys are taken, nothing else."
        raise ConfigurationError("bad-private-key", message, advice) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ConfigurationError(
            "bad-private-key",
            f"The key {path} is not an Ed25519 key.",
            "Make one with `fasttrack keygen` or `ssh-keygen -t ed25519`.",
        )
    return PrivateKey(key)
