"""Text for the log of a GitHub job, in which the runner must find no command that a bundle wrote.

The runner carries out `::command::` at the start of a line, spaces before it not counted, and `##[command]` anywhere in
one (`ActionCommand.TryParseV2` and `TryParse` of actions/runner).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping

_AT_START = re.compile(r"((?:^|[\r\n])\s*:)(?=:)")


def in_github_job() -> bool:
    """Whether what is printed goes into a job's log."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def break_commands(text: str, form: str | None = None) -> str:
    """`text` without a command in it.

    Args:
        text: What is to be printed.
        form: The format of `text`: JSON and XML say the same afterwards, of annotations, which are commands themselves,
            only the anywhere form is broken; other text is shown with a space inside the command's mark.
    """
    if (lossless := _LOSSLESS.get(form or "")) is not None:
        return lossless(text)
    text = text.replace("##[", "## [")
    return text if form == "annotations" else _AT_START.sub(r"\1 ", text)


_LOSSLESS: Mapping[str, Callable[[str], str]] = {
    "json": lambda text: text.replace("##[", "#\\u0023["),
    "sarif": lambda text: text.replace("##[", "#\\u0023["),
    "junit": lambda text: text.replace("##[", "#&#35;["),
}
"""A JSON document holds that mark in strings only, an XML one in texts and attributes."""
