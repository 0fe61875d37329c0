"""What holds for every test."""

import signal

import pytest
from hypothesis import settings

# A test states a law about results; how long an example takes on a loaded machine is none.
settings.register_profile("fasttrack", deadline=None)
settings.load_profile("fasttrack")


def pytest_configure(config: pytest.Config) -> None:
    """Lets tests interrupt themselves and what they start: pytest-xdist makes its processes deaf to SIGINT."""
    if hasattr(config, "workerinput"):
        signal.signal(signal.SIGINT, signal.default_int_handler)
