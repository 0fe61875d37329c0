"""A process that runs a module of the harness around an engine."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harness.engine.arm_spec import ArmSpec
from harness.engine.engine_process import EngineProcess
from harness.engine.supervised import Supervised


class DrivenProcess(EngineProcess):
    """Runs a driver of the harness in the environment of an arm."""

    def __init__(
        self, spec: ArmSpec, driver: str, argument: str, program: Sequence[str] | None = None
    ) -> None:
        """`argument` stands for the program's in the public command; `program` takes the place of the driver."""
        super().__init__(spec)
        self.command = (*spec.public_settings, "python", "-P", "-m", driver, argument)
        self._driver = tuple(program or (sys.executable, "-P", "-m", driver))

    def launch_driver(self, *arguments: str) -> Supervised | None:
        """Starts the driver; None where it could not be run."""
        return self.launch((*self._driver, *arguments))
