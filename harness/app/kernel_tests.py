"""Takes records of `fasttrack kernels test` into evidence, with what the head commit holds of their sources."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from harness.app.recorder import Recorder
from harness.config import read_configuration
from harness.facts.git import Repository
from harness.facts.python_source.deep_stack import on_deep_stack
from harness.facts.python_source.must_import import conftests, must_import
from harness.facts.python_source.tree import SourceTree
from harness.model.errors import ConfigurationError
from harness.model.evidence import KernelTestsEvidence
from harness.model.kernel_tests import KernelTestRun
from harness.model.words import Tier

if TYPE_CHECKING:
    from harness.app.validate import Question


def record_kernel_tests(question: Question, files: Sequence[Path], recorder: Recorder) -> None:
    """Records each of the files, of whatever sources it is; a check says whether it counts.

    Names of sources are taken as relative to the top of the repository, as those of a manifest that lies there are.

    Raises:
        ConfigurationError: a file cannot be read or is no such record.
    """
    head = question.change.head
    for file in files:
        run = parse_kernel_tests(read_configuration(file, "record of the kernels' tests"), file.name)
        contents = question.repository.contents(head, run.sources.__contains__)
        recorder.record(
            KernelTestsEvidence(
                tier=Tier.GPU,
                recorded_at=run.recorded_at,
                hardware=run.machine.gpu if run.machine is not None else "",
                command=run.command,
                commit=head,
                run=run,
                files={path: hashlib.sha256(data).hexdigest() for path, data in contents.items()},
                imported=imported_by_tests(run, question.repository, head),
            )
        )


@on_deep_stack
def imported_by_tests(run: KernelTestRun, repository: Repository, commit: str) -> tuple[str, ...]:
    """The files of a commit that the tests which passed cannot have run without, but the judge's own.

    The file of such a test is one of them whether or not the commit has it.
    """
    tree = SourceTree(repository.contents(commit, lambda path: path.endswith(".py")))
    tests = {test.test.partition("::")[0] for test in run.tests if test.outcome == "passed"}
    found = must_import(tree, {*tests, *(path for test in tests for path in conftests(tree, test))})
    # The record leaves out the judge, which may lie in the repository that it judges.
    judge = __name__.partition(".")[0]
    return tuple(sorted(tests | {p for p in found if tree.module_of(p).partition(".")[0] != judge}))


def parse_kernel_tests(data: bytes, name: str) -> KernelTestRun:
    """The record in a file's bytes.

    Raises:
        ConfigurationError: it is none.
    """
    try:
        return KernelTestRun.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "it"
        message = f"{name} is no record of the kernels' tests: {where}: {first['msg']}"
        raise ConfigurationError(
            "not-kernel-tests", message, "Make one: `fasttrack kernels test --out FILE`."
        ) from error
