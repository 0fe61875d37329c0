"""The error type of bundles: says which file, what is wrong with it, and what to do."""

from __future__ import annotations

from harness.model.errors import EvidenceError

GET_AGAIN = (
    "Get the bundle again from where it was made, or read it with the fasttrack version that wrote it."
)


class BundleError(EvidenceError):
    """A bundle cannot be read, or is not what it says it is; `where` is a path in the bundle or empty."""

    def __init__(self, slug: str, where: str, message: str, advice: str = GET_AGAIN) -> None:
        super().__init__(slug, f"{where}: {message}" if where else message, advice)
        self.where = where
        self.problem = message
        """The message without the place."""
