"""Decides one reach outside: harmless by what the code shows, declared and allowed, a breach, or open."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from harness.checks.isolation.reach_words import WORDS
from harness.model.effects import Effect, EffectKind, FoundName, NameSearch
from harness.model.manifest import Reach
from harness.model.words import Outcome

_NAMED = frozenset({EffectKind.REGISTRY, EffectKind.CONTAINER})
_NEVER_DECIDED = frozenset(
    {
        EffectKind.SHARED_OBJECT,
        EffectKind.DYNAMIC_CODE,
        EffectKind.NATIVE_CODE,
        EffectKind.UNREADABLE,
    }
)
"""Kinds whose text alone does not show that anything outside is changed for others."""
_NOT_AT_IMPORT = frozenset({EffectKind.PROCESS, EffectKind.ENVIRONMENT, EffectKind.NATIVE_CODE})
"""Kinds that a declaration covers only where they happen when the subject is called."""
_OF_OTHERS = re.compile(
    r"(CUDA|NCCL|TORCH|TORCHINDUCTOR|PYTORCH|TRITON|OMP|MKL|OPENBLAS|NVIDIA|NVTE|CUTE|HF|TRANSFORMERS|HUGGINGFACE|PYTHON"
    r"|LD|TOKENIZERS|RAY|UCX|GLOO|HIP|ROCM|HSA|MIOPEN|AITER|XLA|TF|CUBLAS|CUDNN|FLASHINFER|RAYON|NUMEXPR|KMP|GITHUB"
    r"|XDG|LC|NO|FORCE|CLICOLOR|SOURCE|GIT)_\w+"
    r"|PATH|HOME|TMPDIR|USER|LANG|TZ|http_proxy|https_proxy|no_proxy|CC|CXX|CUDAHOSTCXX|MASTER_(ADDR|PORT)"
    r"|PYTHONPATH|RANK|WORLD_SIZE|LOCAL_RANK"
)
RESERVED_NAMESPACES = re.compile(
    r"aten|prims?|prim_\w+|torch\w*|quantized|inductor|_?c10d\w*|_\w*C\w*|xla|mkl\w*|onednn"
)
"""Operator namespaces of PyTorch and of vLLM's compiled extensions."""
ENGINE_NAMESPACE = "vllm"
"""Where the engine, and models in its tree, define operators in Python."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """What is said of one effect."""

    outcome: Outcome
    reason: str
    """Why, as a sentence without the place."""
    declared: str = ""
    """The manifest's own reason, where a declaration decided."""


class ReachRules:
    """Rules over the effects of one change."""

    def __init__(
        self,
        effects: Iterable[Effect],
        *,
        searches: Iterable[NameSearch],
        searched: tuple[str, ...],
        declared: Iterable[Reach],
        declarable: Iterable[EffectKind],
    ) -> None:
        found = tuple(effects)
        self._searches: Mapping[str, NameSearch] = {search.name: search for search in searches}
        self._searched = searched
        self._declarable = frozenset(declarable)
        self.declared = {(reach.kind, reach.target): reach for reach in declared}
        self._own_operators = {
            e.target
            for e in found
            if e.kind is EffectKind.OPERATOR
            and e.is_sure
            and e.on_duplicate == "keeps"
            and not _is_reserved(e)
        }

    def decide(self, effect: Effect) -> Ruling:
        """What the effect is to others."""
        ruling = self._shown(effect)
        if ruling.outcome is Outcome.PASS:
            return ruling
        reach = self.declared.get((effect.kind, effect.target))
        if reach is None:
            return ruling
        if problem := self._why_not_declarable(effect):
            return Ruling(outcome=ruling.outcome, reason=f"{ruling.reason} It is declared, but {problem}.")
        return Ruling(outcome=Outcome.PASS, reason="Declared, and the policy allows it.", declared=reach.why)

    def _why_not_declarable(self, effect: Effect) -> str:
        if effect.kind not in self._declarable:
            return f"the policy does not let a change declare the kind {effect.kind}"
        if effect.kind in _NOT_AT_IMPORT and effect.when == "import":
            return "it happens while a module is imported, with the switch off as well"
        if effect.kind is EffectKind.ENVIRONMENT and self._variable_of_others(effect.target):
            return "the variable belongs to others"
        return ""

    def _shown(self, effect: Effect) -> Ruling:
        """The ruling without any declaration."""
        words = WORDS[effect.kind]
        if effect.is_restored and effect.kind in (EffectKind.GLOBAL_SETTING, EffectKind.ENVIRONMENT):
            return Ruling(outcome=Outcome.PASS, reason="The former value is put back.")
        if effect.kind in _NAMED and not effect.removes:
            return self._named(effect)
        if effect.kind is EffectKind.OPERATOR:
            return self._operator(effect)
        if effect.kind is EffectKind.ENTRY_POINT:
            return self._entry_point(effect)
        reason = f"It matters because {words.why}."
        if effect.kind is EffectKind.ENVIRONMENT and self._variable_of_others(effect.target):
            reason = f"The variable is read by others. {reason}"
        if effect.kind in _NEVER_DECIDED:
            return Ruling(outcome=Outcome.INCONCLUSIVE, reason=reason)
        if effect.kind is EffectKind.AT_IMPORT and not effect.is_sure:
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"Whether others notice, and where, is not in the text. {reason}",
            )
        if not effect.is_sure:
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"The text leaves open whether it is that object. {reason}",
            )
        return Ruling(outcome=Outcome.FAIL, reason=reason)

    def _named(self, effect: Effect) -> Ruling:
        """An entry under a name: new, guarded, or in the place of another's."""
        why = WORDS[effect.kind].why
        if effect.target.endswith(".register_oot"):
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason="It takes the place of the engine's layer of that name on its platform, for every model.",
            )
        if effect.key_is_own:
            return Ruling(outcome=Outcome.PASS, reason="The entry's key is the change's own object.")
        if effect.key_is_foreign:
            sure = effect.is_sure and effect.target.startswith("torch.")
            return Ruling(
                outcome=Outcome.FAIL if sure else Outcome.INCONCLUSIVE,
                reason=f"The entry is for {effect.key}, which is not the change's own, and {why}.",
            )
        if effect.is_guarded:
            return Ruling(outcome=Outcome.PASS, reason="It happens only where the name is missing.")
        if effect.key is None:
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason=f"The text does not show under which name, and {why}.",
            )
        search = self._searches.get(effect.key)
        places = ", ".join(f.place for f in search.found[:3]) if search else ""
        if search is not None and any(f.is_key for f in search.found):
            taken = next(f.place for f in search.found if f.is_key)
            return Ruling(
                outcome=Outcome.FAIL if effect.is_sure else Outcome.INCONCLUSIVE,
                reason=f'The name "{effect.key}" exists already ({taken}), and {why}.',
            )
        if search is not None and search.found:
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason=f'Other code knows the name "{effect.key}" ({places}); whether it is an entry cannot be told.',
            )
        if effect.on_duplicate == "keeps" and effect.kind is EffectKind.REGISTRY:
            return Ruling(
                outcome=Outcome.PASS, reason=f'"{effect.key}" cannot replace an entry: that raises.'
            )
        if search is not None and self._searched:
            where = " and ".join(self._searched)
            return Ruling(
                outcome=Outcome.PASS, reason=f'The name "{effect.key}" is new: {where} do not hold it.'
            )
        return Ruling(
            outcome=Outcome.INCONCLUSIVE,
            reason=f'Whether "{effect.key}" exists already is not known: no source of the engine was at hand.',
        )

    def _operator(self, effect: Effect) -> Ruling:
        why = WORDS[effect.kind].why
        if "…" in effect.target or not effect.is_sure:
            return Ruling(outcome=Outcome.INCONCLUSIVE, reason="The text does not show which operator it is.")
        namespace, _, name = effect.target.rpartition("::")
        search = self._searches.get(name) if namespace == ENGINE_NAMESPACE else None
        if search is not None and search.found and effect.target in self._own_operators:
            where = search.found[0].place
            return Ruling(
                outcome=Outcome.INCONCLUSIVE,
                reason=f'The engine names "{name}" ({where}); whether it is this operator cannot be told.',
            )
        if effect.target in self._own_operators:
            return Ruling(outcome=Outcome.PASS, reason="The change defines the operator itself.")
        if effect.on_duplicate == "keeps":
            return Ruling(
                outcome=Outcome.FAIL,
                reason="A new operator, but in a namespace that belongs to PyTorch or to vLLM's compiled code.",
            )
        return Ruling(outcome=Outcome.FAIL, reason=f"It matters because {why}.")

    def _entry_point(self, effect: Effect) -> Ruling:
        if effect.on_duplicate == "overwrites":
            return Ruling(outcome=Outcome.FAIL, reason="It changes or removes one that the base has.")
        if effect.target.startswith("console_scripts:"):
            return Ruling(outcome=Outcome.PASS, reason="A new command runs only when it is called.")
        return Ruling(outcome=Outcome.FAIL, reason=f"It matters because {WORDS[effect.kind].why}.")

    def _variable_of_others(self, name: str) -> bool:
        search = self._searches.get(name)
        known: tuple[FoundName, ...] = search.found if search else ()
        return is_variable_of_others(name) or name.startswith("VLLM_") or any(found.is_key for found in known)


def is_variable_of_others(name: str) -> bool:
    """Whether an environment variable belongs to the system, to CUDA, PyTorch or another library by its name."""
    return _OF_OTHERS.fullmatch(name) is not None


def _is_reserved(effect: Effect) -> bool:
    return RESERVED_NAMESPACES.fullmatch(effect.target.partition("::")[0]) is not None
