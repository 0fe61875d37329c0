"""Settings against the values that are served: one table says what is expected, one form says what differs."""

from collections.abc import Mapping
from typing import Any


def list_differences(
    settings: Any, allowed: Mapping[str, tuple[object, ...]], *, prefix: str = ""
) -> tuple[str, ...]:
    """Returns "setting: got X, expected A or B" for each setting that has none of its values, in the table's order.

    Args:
        settings: An object with these attributes, or a mapping; what it lacks counts as None.
        allowed: The values by setting.
        prefix: Stands before each setting's name.
    """
    is_mapping = isinstance(settings, Mapping)
    found = ((name, settings.get(name) if is_mapping else getattr(settings, name, None)) for name in allowed)
    return tuple(
        f"{prefix}{name}: got {value!r}, expected {' or '.join(map(repr, allowed[name]))}"
        for name, value in found
        if value not in allowed[name]
    )
