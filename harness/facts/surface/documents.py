"""Settings that documents tell users to give, and every other mention of a name."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from harness.model.surface import SettingKind, SettingUse

DOCUMENT_NAMES = (".md", ".rst", ".txt", ".adoc")
_MAX_TEXT = 160
_NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+"
_ASSIGNED = re.compile(rf"(?:^|[\s`;&(]|export |-e |--env[ =])({_NAME})=(?!=)")
_ENTRY = re.compile(rf"^\s*(?:- name:\s*[\"']?({_NAME})[\"']?\s*$|(?:ENV|setenv)\s+({_NAME})\s+\S)")
"""A variable in a container's specification or recipe."""
_IN_CODE = re.compile(rf"`\$?\{{?({_NAME})\}}?(?:=[^`]*)?`")
_ABOUT_VARIABLES = re.compile(r"\b(environment|env|variables?|export)\b", re.IGNORECASE)
_FLAG = re.compile(r"(?<![\w-])(--[a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
_JSON = re.compile(r"additional[-_]config[\"']?\s*[:=]?\s*[\"'`]?(?=\{)")
_DOTTED = re.compile(r"additional[-_]config[.\[][\"']?([\w-]+)")
_KEYED = re.compile(r"""["']?([A-Za-z_][\w-]*)["']?\s*[:=]""")


def document_uses(
    files: Mapping[str, bytes], names: Collection[tuple[SettingKind, str]], *, commands: Collection[str]
) -> Iterator[SettingUse]:
    """What documents say of settings.

    Args:
        files: documents by path.
        names: settings of the code, of which any mention counts.
        commands: programs and packages; flags are looked at where a command line starts one of them.
    """
    command = _command(commands)
    words = {
        name.rpartition(".")[2] if kind is SettingKind.FIELD else name: (kind, name) for kind, name in names
    }
    known = (
        re.compile("|".join(rf"(?<![\w-]){re.escape(w)}(?![\w-])" for w in sorted(words))) if words else None
    )
    for path, content in files.items():
        text = content.decode("utf-8", errors="replace")
        heading = ""
        is_continued = False
        for number, line in enumerate(text.split("\n"), 1):
            heading = (heading or line) if line.lstrip().startswith("|") else ""
            named = _IN_CODE.finditer(line) if _ABOUT_VARIABLES.search(line + heading) else ()
            for match in (*_ASSIGNED.finditer(line), *_ENTRY.finditer(line), *named):
                name = next(filter(None, match.groups()))
                if _is_of_another(name, line, commands):
                    continue
                yield _use(path, number, line, SettingKind.ENVIRONMENT, name, "documents")
            given = [line] if is_continued else [c["rest"] for c in command.finditer(line)]
            for match in (found for part in given for found in _FLAG.finditer(part)):
                yield _use(path, number, line, SettingKind.FLAG, match[1], "documents")
            is_continued = bool(given) and line.rstrip().endswith("\\")
            for match in known.finditer(line) if known else ():
                kind, word = words[match[0]]
                yield _use(path, number, line, kind, word, "mentions")
        yield from _config_keys(path, text)


def _command(names: Collection[str]) -> re.Pattern[str]:
    """Where a line starts one of the programs, or a module of one of the packages, and what it is given."""
    known = "|".join(map(re.escape, sorted(names))) or "(?!)"
    before = r"(?:^[\s>$]*|[`;&|$]\s*|-m\s+|\w=\S*\s+)"
    return re.compile(rf"{before}(?:{known})(?:\.[\w.]+)?\s(?P<rest>[^`|;&]*)")


def _is_of_another(variable: str, line: str, commands: Collection[str]) -> bool:
    """Whether a line names another project whose name the variable begins with."""
    project = variable.partition("_")[0].lower()
    words = re.findall(r"[a-z0-9]+", line.replace(variable, "").lower())
    return project in words and project not in commands


def _config_keys(path: str, text: str) -> Iterator[SettingUse]:
    """Keys of `--additional-config '{...}'`, also over several lines, and of `additional_config.key`."""
    lines = text.split("\n")
    for match in _JSON.finditer(text):
        start = match.end()
        line = text.count("\n", 0, start) + 1
        for key in top_keys(text[start : start + 4000]):
            yield _use(path, line, lines[line - 1], SettingKind.CONFIG_KEY, key, "documents")
    for match in _DOTTED.finditer(text):
        if match[1] != "get":
            line = text.count("\n", 0, match.start()) + 1
            yield _use(path, line, lines[line - 1], SettingKind.CONFIG_KEY, match[1], "documents")


def top_keys(text: str) -> list[str]:
    """The keys of the JSON object, or of the Python or escaped one, that the text begins with."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except ValueError:
        depth, end = 0, len(text)
        for place, character in enumerate(text):
            depth += (character == "{") - (character == "}")
            if not depth:
                end = place
                break
        body = re.sub(r"\{[^{}]*\}", "0", text[1:end].replace("\\", ""))
        return [m[1] for m in _KEYED.finditer(body)]
    return [str(key) for key in value] if isinstance(value, dict) else []


def _use(
    path: str, line: int, text: str, kind: SettingKind, name: str, role: Literal["documents", "mentions"]
) -> SettingUse:
    return SettingUse(kind=kind, name=name, role=role, path=path, line=line, text=text.strip()[:_MAX_TEXT])
