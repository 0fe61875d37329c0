"""The switch of the specialised path, as vLLM's `--additional-config` carries it."""

from enum import StrEnum

KEY = "decode_backend"


class DecodeBackend(StrEnum):
    """The values of the switch."""

    AUTO = "auto"
    """The plain forward; nothing of this package is imported."""

    LATENCY_SPECIALIZED = "latency_specialized"
    """Steps within the scope run on the specialised path, the others on the plain forward."""


def parse_decode_backend(additional_config: object) -> DecodeBackend:
    """Returns the requested backend, `AUTO` when the configuration does not mention it.

    Raises:
        ValueError: The value is none of the allowed ones, which the message lists.
    """
    if not isinstance(additional_config, dict) or KEY not in additional_config:
        return DecodeBackend.AUTO
    value = additional_config[KEY]
    try:
        return DecodeBackend(value)
    except ValueError:
        allowed = ", ".join(repr(str(backend)) for backend in DecodeBackend)
        raise ValueError(f"additional_config.{KEY}: got {value!r}, expected one of {allowed}") from None
