"""The manifest `fasttrack.toml`: what a change declares about itself."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

from pydantic import Field

from harness.model.effects import EffectKind
from harness.model.errors import ConfigurationError
from harness.model.evals import EvalsSection
from harness.model.features import FEATURES, Feature
from harness.model.kernels import KernelsSection
from harness.model.ledger import CodeTargets
from harness.model.record import Record
from harness.model.step_kind import StepKind
from harness.model.words import Tier


class ChangeSection(Record):
    """Who the change is."""

    id: str
    title: str
    model: str
    vllm: str
    """The engine version or commit that the change targets."""


class Hook(Record):
    """A file outside the owned paths that the change may edit, within a budget."""

    file: str
    max_added_lines: int = Field(ge=0)
    why: str


class PathsSection(Record):
    """Which files the change owns, may touch, and must not touch. Globs as in `.gitignore` (`**` crosses folders)."""

    owned: tuple[str, ...] = Field(min_length=1)
    hooks: tuple[Hook, ...] = ()
    preset: Literal["vllm-core", "none"] = "vllm-core"
    """Named list of protected globs; `vllm-core` is what the fast track keeps out of reach."""
    protected: tuple[str, ...] = ()
    """Further protected globs."""
    tests: tuple[str, ...] = ()
    docs: tuple[str, ...] = ()
    import_roots: tuple[str, ...] = Field(min_length=1)
    """Top-level packages of the subject; engines import them from the head commit's files."""


class SwitchSection(Record):
    """How the candidate is switched on."""

    kind: Literal["additional_config", "env", "flag"] = "additional_config"
    """A key of vLLM's additional config, an environment variable, or an option of the server's command line."""
    key: str
    on: str
    off: str
    """The value that means off; leaving the key out must mean the same."""
    with_on: dict[str, str] = Field(default_factory=dict)
    """Further keys of the additional config that go with `on`, such as one that takes a deployment on trial."""
    reads: tuple[str, ...] = ()
    """What shared code may import of the subject, switch on or off, to learn the switch: `module:name`."""


class ScopeSection(Record):
    """Where the candidate may serve."""

    platforms: tuple[str, ...] = Field(min_length=1)
    """"cpu" or CUDA compute capabilities such as "sm_103a"."""
    tensor_parallel: tuple[int, ...] = (1,)
    max_batch: int = Field(ge=1)
    max_context: int = Field(ge=1)
    max_draft_tokens: int = Field(ge=0, default=0)
    steps: tuple[StepKind, ...] = Field(min_length=1, default=(StepKind.DECODE, StepKind.VERIFY))
    """Kinds of steps that the path takes; every other goes where `outside` says."""
    outside: Literal["refuse", "fall back"] = "fall back"
    """Where a step beyond the scope goes. An engine that is started for more may refuse to start, either way."""

    @property
    def edge_batches(self) -> tuple[int, ...]:
        """Powers of two up to the limit, the limit, and one more."""
        powers = [1 << i for i in range(self.max_batch.bit_length())]
        return tuple(sorted({*powers, self.max_batch, self.max_batch + 1}))

    @property
    def nvidia_platforms(self) -> tuple[str, ...]:
        """The declared platforms that are NVIDIA GPUs."""
        return tuple(p for p in self.platforms if p != "cpu" and not p.startswith("gfx"))

    @property
    def why_no_nvidia_gpu(self) -> str:
        """Why nothing of the candidate can be shown on an NVIDIA GPU; empty when it can."""
        if self.nvidia_platforms:
            return ""
        return f"no deployment that it declares has an NVIDIA GPU (platforms: {', '.join(self.platforms)})"


class DecisionPoint(Record):
    """A function that decides the path of a step, and how to read its result."""

    target: str = Field(pattern=r"^[\w.]+:[\w.]+$")
    """`module:Class.method` or `module:function`."""
    value: str
    """Attribute of the result that holds the decision; empty when the result itself is."""
    specialized: str
    """The value that means: specialised."""
    reason: str = ""
    """Attribute of the result that holds the reason."""


class DispatchSection(Record):
    """Where the path is decided, and which functions are its code."""

    decisions: tuple[DecisionPoint, ...] = Field(min_length=1)
    specialized_code: tuple[str, ...] = Field(min_length=1)
    baseline_code: tuple[str, ...] = Field(min_length=1)
    """Functions that are the other path: a step that runs one of them was not served by the specialised path."""
    never_imported_when_off: tuple[str, ...] = ()
    """Module prefixes that a worker must not import while the switch is off."""
    imported_when_off: tuple[str, ...] = ()
    """Module prefixes that a worker may import while the switch is off though the base has no such module."""

    @cached_property
    def targets(self) -> CodeTargets:
        """The code targets, as the ledger's joins want them."""
        return CodeTargets(
            specialized_code=frozenset(self.specialized_code), baseline_code=frozenset(self.baseline_code)
        )


class StateSection(Record):
    """What a specialised step may write. Names are globs in which `*` matches anything."""

    caches: tuple[str, ...] = ()
    """Layers of the engine's KV cache, by name: the rows of the step's own tokens."""
    states: tuple[str, ...] = ()
    """Layers whose state the engine keeps in slots, by name: the slots that the engine gave the step."""
    mailboxes: tuple[str, ...] = ()
    """Tensors for words between kernels or ranks, by attribute path from the served model: as a whole."""
    workspaces: tuple[str, ...] = ()
    """Tensors that hold nothing from one step to the next, by attribute path from the served model: as a whole."""
    max_relative_difference: float = Field(ge=0, default=0.0)
    """How far states and cache rows may be from the baseline's, relative to the largest; 0 means bit for bit."""


class Reach(Record):
    """One thing outside its own files that the subject's code does on purpose."""

    kind: EffectKind
    target: str = Field(min_length=1)
    """Exactly what the finding names: a variable, a function; no pattern."""
    why: str = Field(min_length=10)


class ServedModel(Record):
    """A model that the harness serves."""

    engine_args: tuple[str, ...] = ()
    """Further arguments of vLLM's API server, the same for every arm."""
    max_model_len: int = Field(ge=16)


class NanoModel(ServedModel):
    """The miniature model that a CPU can serve."""

    build: tuple[str, ...] = Field(min_length=1)
    """Arguments of `python` that write the checkpoint; `{out}` is the folder."""


class Claim(Record):
    """A number that the change states; it must resolve to a cell of the evidence."""

    metric: Literal["decode_itl_speedup"]
    batch: int = Field(ge=1)
    value: float = Field(gt=0)
    """Ratio baseline time / candidate time."""
    hardware: str


class PerformanceSection(Record):
    """Performance cells and claims."""

    decode_batches: tuple[int, ...] = (1, 8)
    claims: tuple[Claim, ...] = ()

    @property
    def batches(self) -> tuple[int, ...]:
        """Every batch that is named, once, in rising order."""
        return tuple(sorted({*self.decode_batches, *(claim.batch for claim in self.claims)}))


class SliceModel(ServedModel):
    """A slice of the real model that one GPU can serve, with drawn weights, and the deployment around it."""

    config: str = Field(min_length=1)
    """The checkpoint's `config.json`: a file of the head commit."""
    weights: str = Field(pattern=r"^$|^[\w./-]+\.py:\w+$", default="")
    """`path.py:function` of the head commit: fills the loaded model with weights. The file stands alone. Empty: the
    engine's dummy loader draws them."""
    opt_in_args: tuple[str, ...] = ()
    """Further arguments with which a deployment asks for the change's own class, switch on or off."""
    graph_batches: tuple[int, ...] = ()
    """Sizes that CUDA graphs are captured for; empty: every batch of the scope, and one more."""
    scope: ScopeSection
    dispatch: DispatchSection
    state: StateSection | None = None
    """None when the change does not say what it writes in this deployment."""
    performance: PerformanceSection | None = None
    """None: the cells of the whole manifest, whose claims count in any case."""


class ModelsSection(Record):
    """Models by tier."""

    nano: NanoModel | None = None
    """None when the change can be served on no CPU; the cpu tier then leaves a gap."""
    slice: SliceModel | None = None
    """None when the gpu tier serves the miniature model, within `scope`."""


class CoverageSection(Record):
    """Which files of the subject the CPU tier is expected to execute."""

    cpu: tuple[str, ...] = ()
    """Globs; lines of these files that no evaluation executed are findings."""


class Manifest(Record):
    """The whole manifest. Unknown keys are errors."""

    schema_version: Literal[1]
    change: ChangeSection
    paths: PathsSection
    switch: SwitchSection
    scope: ScopeSection
    features: tuple[Feature, ...] = FEATURES
    dispatch: DispatchSection
    state: StateSection | None = None
    """None when the change does not say what it writes."""
    kernels: KernelsSection = KernelsSection()
    reaches: tuple[Reach, ...] = ()
    """What the policy allows to be declared; ISO005 shows each beside its lines."""
    models: ModelsSection = ModelsSection()
    evals: EvalsSection = EvalsSection()
    coverage: CoverageSection = CoverageSection()
    performance: PerformanceSection = PerformanceSection()

    @property
    def nano_model(self) -> NanoModel:
        """The miniature model; raises `ConfigurationError` when there is none."""
        if self.models.nano is None:
            raise ConfigurationError(
                "no-nano-model", "The manifest names no miniature model ([models.nano])."
            )
        return self.models.nano

    def at(self, tier: Tier) -> Manifest:
        """The manifest as a tier takes it: from the gpu tier on with the slice's scope, dispatch, state and cells.

        A claim that stands beside the slice is a claim still.
        """
        found = self.models.slice
        if found is None or tier.rank < Tier.GPU.rank:
            return self
        own: dict[str, object] = {name: getattr(found, name) for name in ("scope", "dispatch", "state")}
        if found.performance is not None:
            claims = dict.fromkeys((*self.performance.claims, *found.performance.claims))
            own["performance"] = found.performance.model_copy(update={"claims": tuple(claims)})
        return self.model_copy(update=own)

    @property
    def gpu_model(self) -> ServedModel:
        """What the gpu tier serves; raises `ConfigurationError` when there is nothing."""
        return self.models.slice or self.nano_model

    @property
    def why_not_on_a_cpu(self) -> str:
        """Why the cpu tier cannot serve the change; empty when it can."""
        if self.models.nano is None:
            return "the manifest names no miniature model ([models.nano])"
        if self.switch.kind != "additional_config":
            return (
                f"the arms of this tier set additional_config, and the switch is of kind {self.switch.kind}"
            )
        return ""
