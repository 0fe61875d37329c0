"""What the bytes of an evidence file say before they have a type: the digest that names them, and who wrote them."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from bundles.error import BundleError
from bundles.json_text import parse_written_json, render_both_forms

SCHEMA_VERSION = 1
"""Of every record of a bundle, and of its layout."""
_WORTH_A_PROCESS = 8 * 1024**2
"""Bytes that take longer to read than a process to start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredForm:
    """One evidence file."""

    canonical_sha256: str
    """Of the content, in the canonical form."""
    is_written: bool
    """Whether the bytes are those of the writer."""


def read_form(data: bytes, path: str) -> StoredForm:
    """The form of one file; `path` names it in errors.

    Raises:
        BundleError: not strict JSON, not an object, an unknown schema version, or a number beyond all bounds.
    """
    value, forms = parse_written_json(data, path)
    refuse_unknown_version(value, path)
    try:
        as_written, canonical = forms or render_both_forms(value)
    except ValueError as error:
        raise BundleError("evidence-wrong-type", path, "a number is not finite.") from error
    return StoredForm(canonical_sha256=hashlib.sha256(canonical).hexdigest(), is_written=data == as_written)


def begin_forms(files: Mapping[str, bytes]) -> Callable[[], Mapping[str, StoredForm]]:
    """Reads the forms of many files in a process beside this one; call the result to wait for them.

    A file that has no form is left out, and so are all where no process can be had or is worth its start: what is wrong
    with a file, `read_form` says to the caller.
    """
    if sum(len(data) for data in files.values()) < _WORTH_A_PROCESS or not _can_fork():
        return dict
    receiver, sender = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_send_forms, args=(files, sender), daemon=True)
    process.start()
    sender.close()

    def finish() -> Mapping[str, StoredForm]:
        try:
            forms: Mapping[str, StoredForm] = receiver.recv()
        except EOFError:
            forms = {}
        process.join()
        return forms

    return finish


def _can_fork() -> bool:
    """Whether a copy of this process would run beside it, and safely.

    A fork takes no thread along, and so not what a thread holds locked; macOS starts threads of its own.
    """
    return sys.platform == "linux" and threading.active_count() == 1 and len(os.sched_getaffinity(0)) > 1


def _send_forms(files: Mapping[str, bytes], sender: Connection) -> None:
    forms = {}
    for path, data in files.items():
        try:
            forms[path] = read_form(data, path)
        except BundleError:
            continue
    sender.send(forms)


def refuse_unknown_version(value: Any, path: str) -> None:
    """Holds a file to the versions that are read here.

    Raises:
        BundleError: not an object, or of another version.
    """
    if not isinstance(value, dict):
        message = f"expected an object, got {type(value).__name__}."
        raise BundleError("evidence-wrong-type", path, message)
    for name in ("schema_version", "bundle_version"):
        version = value.get(name, SCHEMA_VERSION)
        if isinstance(version, int) and version > SCHEMA_VERSION:
            message = f"{name} {version} is newer than this fasttrack reads, which is {SCHEMA_VERSION}."
            raise BundleError("evidence-newer-version", path, message, "Read it with a newer fasttrack.")
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise BundleError("evidence-unknown-version", path, f"unknown {name} {version!r}.")
