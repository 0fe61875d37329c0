"""Errors about us, never about the change: each has a slug, a message and advice."""

from __future__ import annotations

from harness.model.words import ExitCode


class FasttrackError(Exception):
    """The harness cannot go on; `advice` says what the user can do about it."""

    exit_code = ExitCode.HARNESS

    def __init__(self, slug: str, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.slug = slug
        self.message = message
        self.advice = advice

    def __reduce__(self) -> tuple[object, ...]:
        """Errors cross processes with all that they say."""
        return type(self), (self.slug, self.message, self.advice), dict(self.__dict__)


class ConfigurationError(FasttrackError):
    """The user's input (command line, manifest, policy, revision) cannot be used."""

    exit_code = ExitCode.USAGE


class EvidenceError(FasttrackError):
    """Evidence cannot be read, or is not what it says it is."""


class EngineError(FasttrackError):
    """An engine did not start, died, or did not answer; `log_tail` holds its last lines."""

    def __init__(self, slug: str, message: str, advice: str = "", log_tail: str = "") -> None:
        super().__init__(slug, message, advice)
        self.log_tail = log_tail


class EngineRefused(EngineError):
    """An engine raised, as it was made, that it does not take the deployment: `arm` is whose, by its own word."""

    arm: str = ""
