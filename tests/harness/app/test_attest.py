"""What a waiver and a key pair are refused for before anything is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bundles.keys import make_private_key, write_key_pair
from harness.app.attest import waive
from harness.model.errors import ConfigurationError
from harness.options import WaiveOptions


@pytest.mark.parametrize("days", [-1, 0], ids=["yesterday", "today"])
def test_a_waiver_is_signed_only_for_a_day_that_is_not_over(tmp_path: Path, days: int) -> None:
    write_key_pair(tmp_path / "key", make_private_key(), "")
    options = WaiveOptions(
        check="ISO001",
        head="a" * 40,
        reason="known",
        until=datetime.now(UTC).date() + timedelta(days=days),
        key=tmp_path / "key",
        passphrase="",
        out=tmp_path / "waiver",
    )
    if days < 0:
        with pytest.raises(ConfigurationError) as caught:
            waive(options)
        assert caught.value.slug == "waiver-over"
    else:
        waive(options)
    assert options.out.exists() is (days == 0)
