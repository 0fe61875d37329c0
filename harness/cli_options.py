"""Options that several commands share, and how they become what `harness.app` takes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast, get_args

import click

from harness.model.words import Tier
from harness.options import ChangeOptions, Format, OutputOptions, Profile

FORMATS = ("text", "json", "md")
REPORT_FORMATS = (*FORMATS, "sarif", "annotations", "summary", "junit")
"""What a whole judgement can be shown as: also for code scanning, for the diff, for a job's summary page, and
for CI systems that collect test results."""
PATH = click.Path(path_type=Path)


def combined(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def apply(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return apply


def option(name: str, help_text: str, **settings: Any) -> Callable[[Any], Any]:
    """A click option that `FASTTRACK_<NAME>` gives as well."""
    variable = f"FASTTRACK_{name.lstrip('-').replace('-', '_').upper()}"
    return click.option(name, help=f"{help_text}  [env: {variable}]", envvar=variable, **settings)


repo_option = option("--repo", "The clone.", type=PATH, default=Path(), show_default="here")
policy_option = option(
    "--policy", "Policy file.", type=PATH, show_default=".github/fasttrack-policy.toml of the clone"
)
sigstore_root_option = option(
    "--sigstore-root",
    "Sigstore's trusted root, a JSON file.",
    type=PATH,
    show_default="the public instance's",
)
tier_option = option(
    "--tier",
    "The most expensive tier to run.",
    type=click.Choice([str(tier) for tier in Tier]),
    default=str(Tier.CPU),
    show_default=True,
)
change_options = combined(
    repo_option,
    option(
        "--base",
        "What the head is compared with; 'empty' judges it as wholly new.",
        show_default="the default branch, or the head's first parent when the head is part of it",
    ),
    option("--head", "The revision that is judged.", default="HEAD", show_default=True),
    option("--manifest", "Manifest file.", type=PATH, show_default="fasttrack.toml of the clone"),
    policy_option,
    option("--paths", "Judge only changed files that match this glob; repeatable.", multiple=True),
    tier_option,
)
python_option = option(
    "--python",
    "Interpreter that has the kernels' DSL.",
    type=PATH,
    default=Path(sys.executable),
    show_default="this one",
)
profile_option = option(
    "--profile",
    "How much the cpu tier asks: 'quick' leaves out the scripted runs and the timing, and decides less; 'smoke' shows "
    "that everything runs, and decides next to nothing.",
    type=click.Choice(get_args(Profile)),
    default="full",
    show_default=True,
)
_shown_options = (
    option(
        "--color",
        "Colours on a terminal.",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
    ),
    option("--quiet", "No progress on stderr.", is_flag=True),
    option("--debug", "Show the traceback of an unexpected error.", is_flag=True, expose_value=False),
)


def _format_option(formats: tuple[str, ...]) -> Callable[[Any], Any]:
    return option(
        "--format", "Form of the result.", type=click.Choice(formats), default="text", show_default=True
    )


output_options = combined(_format_option(FORMATS), *_shown_options)
report_output_options = combined(_format_option(REPORT_FORMATS), *_shown_options)


def change(options: Mapping[str, Any]) -> ChangeOptions:
    """The change that the shared options name."""
    names = ("repo", "base", "head", "manifest", "policy", "paths")
    return ChangeOptions(tier=Tier(options["tier"]), **{name: options[name] for name in names})


def output(options: Mapping[str, Any]) -> OutputOptions:
    """How the shared options ask for the result."""
    stdout = sys.stdout
    color = wants_color(options["color"], os.environ, stdout is not None and stdout.isatty())
    encoding = (getattr(stdout, "encoding", None) or "ascii").lower().replace("-", "")
    return OutputOptions(
        format=cast(Format, options["format"]),
        color=color,
        ascii_only=not encoding.startswith("utf"),
        quiet=options["quiet"],
    )


def wants_color(choice: str, environment: Mapping[str, str], is_terminal: bool) -> bool:
    """Whether to colour: the option, then `NO_COLOR`, then what forces colour, then the terminal."""
    if choice != "auto":
        return choice == "always"
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR", "0") != "0" or environment.get("CLICOLOR_FORCE", "0") != "0":
        return True
    return is_terminal and environment.get("CLICOLOR") != "0" and environment.get("TERM") != "dumb"
