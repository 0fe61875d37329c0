"""The MRCR task of lm-eval: a conversation reaches the model as the messages that it consists of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lm_eval.api.task import ConfigurableTask

from harness.graders.mrcr import grade_mrcr
from harness.model.errors import ConfigurationError


def mrcr(response: str, answer: str, prefix: str) -> float:
    """The score by the published rule; lm-eval finds metrics that are not its own by function."""
    return grade_mrcr(response, answer, prefix)


class MrcrTask(ConfigurableTask):
    """`doc_to_text` cannot give several messages, so that the context is made here."""

    def __init__(self, config: dict[str, Any] | None = None, **others: Any) -> None:
        # lm-eval leaves the key by which it found this class in the configuration, and then refuses it.
        super().__init__(config={k: v for k, v in (config or {}).items() if k != "class"}, **others)

    def fewshot_context(
        self, doc: dict[str, Any], *_: Any, chat_template: Callable[..., str] | None = None, **__: Any
    ) -> str:
        """The document's messages, rendered by the model that is asked."""
        if chat_template is None:
            raise ConfigurationError("lm-eval-chat", "The task mrcr asks messages: set chat = true.")
        return chat_template(json.loads(doc["prompt"]))

    def process_results(self, doc: dict[str, Any], results: list[str]) -> dict[str, float]:
        """The one metric."""
        return {"mrcr": mrcr(results[0], doc["answer"], doc["random_string_to_prepend"])}
