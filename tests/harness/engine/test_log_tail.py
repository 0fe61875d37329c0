"""What is shown of a log is safe to show."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from harness.engine.log_tail import read_first_error, read_log_tail


def test_only_the_last_lines_are_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("\n".join(f"line {i}" for i in range(1000)))
    assert read_log_tail(tmp_path / "log", 2) == ("line 998", "line 999")


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (b"\x1b[1;31mred\x1b[0m\x00\x07", "red"),
        (b"bad \xff byte", "bad \ufffd byte"),
        (b"10%\r20%\r30%", "30%"),
        (b"login ghp_0123456789abcdefghij", "login ghp_***"),
        (b"at /home/me/model/x", "at {model}/x"),
        (b"x" * 1000, "x" * 500),
    ],
    ids=["control characters", "not utf-8", "progress bar", "token", "path", "long line"],
)
def test_a_line_is_cleaned(tmp_path: Path, raw: bytes, shown: str) -> None:
    (tmp_path / "log").write_bytes(raw)
    assert read_log_tail(tmp_path / "log", 1, {"/home/me/model": "{model}", "/home/me": "~"}) == (shown,)


def test_the_name_of_the_machine_and_secrets_of_the_environment_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_API_KEY", "swordfish99")
    (tmp_path / "log").write_text(f"{socket.gethostname()} swordfish99")
    assert read_log_tail(tmp_path / "log", 1) == ("{host} ***",)


def test_no_log_has_no_lines(tmp_path: Path) -> None:
    assert read_log_tail(tmp_path / "log", 5) == ()


LOG = """(APIServer pid=3) WARNING 11-29 13:32:52 [utils.py:255] may cause errors like `OSError: too many files`.
(Worker pid=2) ERROR 11-29 13:33:39 [executor.py:1063] Traceback (most recent call last):
(Worker pid=2) ERROR 11-29 13:33:39 [executor.py:1063]     raise ValueError("x")
(Worker pid=2) ERROR 11-29 13:33:39 [executor.py:1063] ValueError: no common block size
RuntimeError: Engine core initialization failed.
"""


def test_the_first_exception_is_named_as_the_cause_and_a_warning_is_not(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert read_first_error(tmp_path / "log") == "ValueError: no common block size"


def test_an_exception_outside_the_logger_is_found(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO fine\nurllib.error.HTTPError: 404\nValueError: later\n")
    assert read_first_error(tmp_path / "log") == "urllib.error.HTTPError: 404"


def test_a_log_without_exception_names_no_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO fine\n")
    assert read_first_error(tmp_path / "log") + read_first_error(tmp_path / "none") == ""


def test_a_module_that_python_does_not_find_is_named(tmp_path: Path) -> None:
    said = "Error while finding module specification for 'a.b' (ModuleNotFoundError: No module named 'a')"
    (tmp_path / "log").write_text(f"a warning (ValueError: not this)\npython: {said}\n")
    assert read_first_error(tmp_path / "log").startswith("ModuleNotFoundError: No module named 'a'")
