"""Laws of configuration: everything that is wrong is said at once, where it is, in the user's words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from harness.config import load_manifest, load_policy, read_configuration
from harness.model.errors import ConfigurationError, FasttrackError
from harness.model.manifest import Manifest
from harness.model.policy import Policy
from harness.model.words import ExitCode, Tier

ROOT = Path(__file__).parents[2]
MANIFEST = (ROOT / "fasttrack.toml").read_text(encoding="utf-8")
POLICY = (ROOT / ".github/fasttrack-policy.toml").read_text(encoding="utf-8")


def refusal(text: str | bytes) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load_manifest(text)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "docs/manifest.md" in caught.value.advice
    return caught.value


def edited(old: str, new: str) -> str:
    assert old in MANIFEST
    return MANIFEST.replace(old, new, 1)


def test_this_repositorys_own_manifest_and_policy_load() -> None:
    assert load_manifest(MANIFEST).paths.import_roots == ("specialized_path", "nano_training")
    assert load_policy(POLICY).required[Tier.STATIC]


def test_every_bad_field_is_listed_at_once() -> None:
    text = edited("max_batch = 8", 'max_batch = "8"').replace("max_context = 4096", "max_context = -1")
    text = text.replace('outside = "fall back"', 'outside = "fall"', 1).replace(
        'key = "decode_backend"\n', ""
    )
    message = refusal(text).message
    assert "fasttrack.toml has 4 errors" in message
    assert 'scope.max_batch: got "8", expected an integer' in message
    assert "scope.max_context: got -1, expected at least 1" in message
    assert """scope.outside: got "fall", expected 'refuse' or 'fall back'""" in message
    assert "switch.key: got nothing, expected a string" in message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "owned =",
            "ownd =",
            'paths.ownd: got an unknown key, expected a key of [paths]; did you mean "owned"?',
        ),
        ("[scope]", "[scop]", 'expected a key of the top of the file; did you mean "scope"?'),
        (
            'key = "',
            'max_batch = 1\nkey = "',
            'switch.max_batch: got an unknown key, expected "max_batch" below [scope]',
        ),
        ('key = "', 'zzz = 1\nkey = "', "switch.zzz: got an unknown key, expected one of kind, key, on, off"),
        ('value = "path"', 'valeu = "path"', "dispatch.decisions[0].valeu: got an unknown key"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_known_one(old: str, new: str, expected: str) -> None:
    assert expected in refusal(edited(old, new)).message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("schema_version = 1", "schema_version = 2", "schema_version: got 2, expected 1"),
        ("[1, 8]", "[1.5, 8]", "performance.decode_batches[0]: got 1.5, expected an integer"),
        (
            "[1, 8]",
            "[1, 2026-01-01]",
            "decode_batches[1]: got the date or time 2026-01-01, expected an integer",
        ),
        (
            'id = "kimi-k3-specialized-decode"',
            "id = 2026-01-01",
            "change.id: got the date or time 2026-01-01, expected a string in quotes",
        ),
        ("max_batch = 8", "max_batch = true", "scope.max_batch: got true, expected an integer"),
        ("max_batch = 8", "max_batch = nan", "scope.max_batch: got nan, expected an integer"),
        ("[1, 8]", '"1, 8"', 'performance.decode_batches: got "1, 8", expected a list, each item an integer'),
        (
            'platforms = ["cpu"]',
            "platforms = []",
            "scope.platforms: got an empty list, expected a list of at least 1",
        ),
        (
            "tensor_parallel = [1]",
            "tensor_parallel = {a = 1}",
            "scope.tensor_parallel: got a table, expected a list",
        ),
    ],
)
def test_a_value_of_the_wrong_kind_is_never_converted(old: str, new: str, expected: str) -> None:
    assert expected in refusal(edited(old, new)).message


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            'owned = ["',
            'owned = ["harness/x/**", "',
            'paths.owned[0]: got "harness/x/**", expected a glob outside the protected harness/**',
        ),
        ('owned = ["', 'owned = ["vllm/**", "', "paths.owned[0]"),
        ('owned = ["', 'owned = ["**", "', "paths.owned[0]"),
        (
            'owned = ["',
            'owned = ["[ab]", "',
            'paths.owned[0]: got "[ab]" with "[", expected only the wildcards',
        ),
        ('docs = ["', 'docs = ["**/*.py", "', "paths.docs[0]"),
        ('tests = ["', 'tests = ["**", "', "paths.tests[0]"),
        (
            "[switch]",
            '[[paths.hooks]]\nfile = "vllm/v1/core/x.py"\nmax_added_lines = 1\nwhy = "w"\n[switch]',
            "paths.hooks[0].file",
        ),
        (
            'target = "specialized_path.',
            'target = "torch.',
            "expected a module below paths.import_roots (specialized_path, nano_training)",
        ),
        (
            'specialized_code = ["specialized_path.',
            'specialized_code = ["specialized_path_evil.',
            "dispatch.specialized_code[0]",
        ),
        ("DecodeExecutor.run", "DecodeExecutor run", 'expected "module:function"'),
        ('off = ["specialized_path.runtime"', 'off = ["torch"', "dispatch.never_imported_when_off[0]"),
        ('when_off = ["specialized_path.plugin"', 'when_off = ["torch"', "dispatch.imported_when_off[0]"),
        (
            'when_off = ["specialized_path.plugin"',
            'when_off = ["specialized_path.runtime.plan"',
            "expected modules apart from dispatch.never_imported_when_off",
        ),
        (
            'caches = ["model.layers.*.self_attn.attn"',
            'caches = ["*"',
            'state.caches[0]: got "*", expected a glob in which one name between dots is written out',
        ),
        ('caches = ["model.layers.*.self_attn.attn"', 'caches = ["model*"', 'state.caches[0]: got "model*"'),
        (
            'caches = ["model.layers.3.self_attn*"',
            'caches = ["model.layers.3.self_attn*", "?.*"',
            "models.slice.state.caches[1]",
        ),
        ('on = "latency_specialized"', 'on = "auto"', "switch.on"),
        ('"{out}"', '"out"', "models.nano.build"),
        ("[1, 8]", "[1, 16]", "performance.decode_batches[1]: got 16, expected 1 to scope.max_batch (8)"),
        ("[1, 8]", "[]", "performance.decode_batches"),
        (
            "[1, 8, 64]",
            "[1, 8, 65]",
            "models.slice.performance.decode_batches[2]: got 65, expected 1 to models.slice.scope.max_batch (64)",
        ),
        (
            "[performance]",
            '[performance]\nclaims = [{metric = "decode_itl_speedup", batch = 4, value = 2.0, hardware = "h"}]',
            "performance.claims[0].batch: got 4",
        ),
    ],
)
def test_fields_that_contradict_each_other_are_errors(old: str, new: str, expected: str) -> None:
    assert expected in refusal(edited(old, new)).message


def test_broken_toml_is_named_by_line() -> None:
    assert "at line 4" in refusal('schema_version = 1\n\n[change]\nid = "x\n').message


def test_bytes_that_are_no_utf8_are_named_by_line() -> None:
    assert "not UTF-8: byte 0xe9 in line 2" in refusal(b'a = 1\nb = "\xe9"\n').message


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 5000 + "]" * 5000, "a = " + "9" * 10_000, "x" * (2**20 + 1), ""]
)
def test_hostile_or_empty_text_is_a_clear_error(text: str) -> None:
    assert refusal(text).slug == "bad-manifest"


def test_a_byte_order_mark_is_no_error() -> None:
    assert load_manifest(b"\xef\xbb\xbf" + MANIFEST.encode())


@settings(deadline=None)
@given(st.text(max_size=60))
def test_no_text_raises_anything_but_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError):
        load_manifest(text)


@settings(deadline=None)
@given(st.integers(0, len(MANIFEST) - 2), st.integers(1, 40))
def test_a_manifest_with_a_piece_missing_loads_or_says_what_is_wrong(start: int, length: int) -> None:
    try:
        load_manifest(MANIFEST[:start] + MANIFEST[start + length :])
    except FasttrackError as error:
        assert error.message
        assert error.exit_code is ExitCode.USAGE


def test_a_policy_that_requires_an_unknown_check_names_the_nearest() -> None:
    with pytest.raises(
        ConfigurationError, match=r'required\.static\[0\]: got "ISO01".*did you mean "ISO001"'
    ):
        load_policy(POLICY.replace('"ISO001"', '"ISO01"'), known_checks={"ISO001": Tier.STATIC})


def test_a_policy_that_requires_a_check_at_another_tier_is_refused() -> None:
    text = 'schema_version = 1\nversion = "1"\n[required]\ngpu = ["ISO001"]\n'
    with pytest.raises(ConfigurationError, match="ISO001 under static, its own tier"):
        load_policy(text, known_checks={"ISO001": Tier.STATIC})


def test_an_unknown_tier_in_a_policy_is_named() -> None:
    text = 'schema_version = 1\nversion = "1"\n[required]\nstatik = ["ISO001"]\n'
    with pytest.raises(ConfigurationError, match=r'required\.statik: got "statik"'):
        load_policy(text)


def test_a_margin_outside_its_range_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"alpha: got 0\.7, expected less than 0\.5"):
        load_policy(POLICY.replace("alpha = 0.05", "alpha = 0.7"))


def test_a_missing_file_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_configuration(tmp_path / "fasttrack.toml", "manifest")
    assert caught.value.slug == "no-manifest"
    assert str(tmp_path) in caught.value.message
    assert "docs/manifest.md" in caught.value.advice


def test_a_folder_in_the_place_of_the_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_configuration(tmp_path, "policy")


def keys_of(model: type[BaseModel]) -> set[str]:
    """Every key of a model and of the models in its fields."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(name)
        for inner in (field.annotation, *get_args(field.annotation)):
            if isinstance(inner, type) and issubclass(inner, BaseModel):
                keys |= keys_of(inner)
    return keys


@pytest.mark.parametrize(("model", "page"), [(Manifest, "docs/manifest.md"), (Policy, "docs/policy.md")])
def test_every_key_is_described_in_the_documentation(model: type[BaseModel], page: str) -> None:
    words = set(re.findall(r"\w+", (ROOT / page).read_text(encoding="utf-8")))
    assert keys_of(model) - words == set()
