"""The commands that make a cell of a bundle again, from what the bundle says of how it was made."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from bundles.archive import SUFFIX
from bundles.contents import Bundle
from bundles.layout import POLICY, SUBJECT_MANIFEST
from harness.model.change import EMPTY_TREE
from harness.model.evidence import AnyEvidence, EnvironmentEvidence
from harness.model.words import Tier
from harness.options import ChangeOptions, Profile, ReproduceOptions


def change_options(bundle: Bundle, repo: Path, folder: Path, tier: Tier) -> ChangeOptions:
    """The change of the bundle in a clone, with the manifest and the policy that the bundle holds."""
    change = bundle.change
    return ChangeOptions(
        repo=repo,
        base="empty" if change.merge_base == EMPTY_TREE else change.base,
        head=change.head,
        manifest=folder / SUBJECT_MANIFEST,
        policy=folder / POLICY,
        paths=change.limited_to,
        tier=tier,
    )


def profile_of(bundle: Bundle) -> Profile:
    """The profile that the bundle was collected with, as its machine's record says."""
    words = [word for r in bundle.records if isinstance(r, EnvironmentEvidence) for word in r.command]
    profiles: tuple[Profile, ...] = get_args(Profile)
    return next((profile for profile in profiles if profile in words), "full")


def _whole_command(options: ReproduceOptions, bundle: Bundle, tier: Tier) -> str:
    """What collects a whole tier again; an archive is unpacked first, since manifest and policy are in it."""
    folder, first = options.bundle, ""
    if options.bundle.is_file():
        folder = options.bundle.with_name(options.bundle.name.removesuffix(SUFFIX))
        place, archive = shlex.quote(str(folder)), shlex.quote(str(options.bundle))
        first = f"mkdir {place} && tar -xzf {archive} -C {place} && "
    change = change_options(bundle, options.repo, folder, tier)
    words = ["fasttrack", "validate", "--repo", str(change.repo), "--base", change.base or ""]
    words += ["--head", change.head, *(word for glob in change.paths for word in ("--paths", glob))]
    words += ["--manifest", str(change.manifest), "--policy", str(change.policy)]
    words += ["--tier", str(tier), "--profile", profile_of(bundle), "--out", "again"]
    return first + shlex.join(words)


def render_commands(options: ReproduceOptions, bundle: Bundle, cells: Mapping[str, AnyEvidence]) -> str:
    """How each cell was made, how it is made again alone and with its tier, and with what software it was made."""
    documents = [
        {
            "cell": name,
            "evidence": record.id,
            "recorded_at": record.recorded_at,
            "hardware": record.hardware,
            "seed": record.seed,
            "recorded_command": shlex.join(record.command),
            "this_cell": shlex.join(
                [
                    "fasttrack",
                    "bundle",
                    "reproduce",
                    str(options.bundle),
                    name,
                    "--run",
                    "--repo",
                    str(options.repo),
                ]
            ),
            "whole_tier": _whole_command(options, bundle, record.tier),
        }
        for name, record in cells.items()
    ]
    pins = [r.model_dump(mode="json") for r in bundle.records if isinstance(r, EnvironmentEvidence)]
    if options.output.format == "json":
        return json.dumps(
            {"schema_version": 1, "cells": documents, "made_with": pins}, indent=2, allow_nan=False
        )
    lines = []
    for document in documents:
        lines += [f"{document['cell']}  {document['evidence']}"]
        lines += [
            f"  {label}: {document[key]}"
            for label, key in (
                ("recorded", "recorded_at"),
                ("on", "hardware"),
                ("seed", "seed"),
                ("its own command", "recorded_command"),
                ("this cell again", "this_cell"),
                ("its whole tier again", "whole_tier"),
            )
            if document[key] not in ("", None)
        ]
    for record in bundle.records:
        if isinstance(record, EnvironmentEvidence):
            packages = ", ".join(f"{name} {number}" for name, number in sorted(record.packages.items()))
            lines += [f"made with: {record.python}; {packages}"]
            lines += [
                f"sources of fasttrack {record.harness_sha256[:12]}, engine {record.engine_sha256[:12] or '-'}"
            ]
    return "\n".join(lines)
