"""A probe: a scripted run of an engine in one process, and what each of its steps computed, read and wrote."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import Field, model_validator

from harness.model.ledger import LedgerRow
from harness.model.record import Record

LORA = "lora"
"""The name of the engine that is started for adapters, which no scope declares."""


class ProbeRequest(Record):
    """One request of a scenario. Greedy; it ends at `max_tokens` and at nothing else."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    text: str
    """Tokenised by the served model; UTF-8 bytes where the model has no tokenizer."""
    num_tokens: int | None = Field(ge=1, default=None)
    """Tokens of the text that are kept; None keeps all."""
    short_of_block: int | None = Field(ge=-1, default=None)
    """Instead of `num_tokens`: this many tokens short of the end of one of the first cache blocks; -1 is one beyond."""
    max_tokens: int = Field(ge=1)
    drafts: tuple[tuple[int, int], ...] = ()
    """(length, right ones) of each draft, over and over; the right tokens are those that the request samples in a run
    without drafts, which comes first. Empty leaves drafting to the engine."""

    @model_validator(mode="after")
    def _right_drafts_exist(self) -> Self:
        for length, right in self.drafts:
            if not 0 <= right <= length:
                raise ValueError(f"{self.name}: a draft of {length} tokens cannot have {right} right ones")
        return self


class ProbeEvent(Record):
    """What is done to the engine before a step of the scenario."""

    before_step: int = Field(ge=0)
    add: tuple[ProbeRequest, ...] = ()
    abort: tuple[str, ...] = ()
    """Names of requests that their client gives up."""
    hold_free_blocks: bool = False
    """Takes every free cache block, so that the next request that needs one preempts another."""
    release_blocks: bool = False
    """Gives them back."""


class Scenario(Record):
    """A sequence of events; it ends when no request is left."""

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    events: tuple[ProbeEvent, ...]


class ProbeEngine(Record):
    """One engine of a probe."""

    name: str
    args: tuple[str, ...]
    """Arguments of vLLM's engine; `{model}` is the folder of the subject's checkpoint, `{bystander}` of another's."""
    scenarios: tuple[Scenario, ...]
    watches_state: bool = True
    """Whether its cache is compared before and after each step."""
    watches_buffers: bool = False
    """Whether every other tensor of the process is compared, too."""
    watches_pages: bool = False
    """Whether the pages of its cache are compared before and after each step; one that also `watches_state` is not."""
    watches_handover: bool = False
    """Whether what each step starts from is recorded by the scheduler's word, whatever runner computes it; no engine
    is watched in more than one of these ways."""
    gives_tokens: bool = False
    """Whether every request's tokens are given where the engine can replay them (vLLM 0.33's second model runner), so
    that two arms stay in step behind a tie. What the model would have sampled is recorded beside them."""
    watches_graphs: bool = False
    """Whether captured CUDA graphs and the memory that they point at are followed."""
    takes_snapshot: bool = False
    """Whether the process around it is described at the end."""
    may_refuse: bool = False
    """Whether the engine's refusal to start is something to record, and not a failure of the run."""
    within_scope: bool = True
    """Whether the scope declares such a deployment."""


DRAWN_FORMAT = "fasttrack_drawn"
"""vLLM's name for the load format whose weights a function of the head commit draws."""
DUMMY_LOADER = "the engine's dummy loader"


class WeightsSource(Record):
    """The function that draws the weights."""

    name: str
    """As the manifest names it."""
    file: str
    """Where the head commit's file lies on this machine."""


class DrawnWeights(Record):
    """Weights that no checkpoint holds."""

    by: str
    """The function that drew them, or `DUMMY_LOADER`."""
    source: str = ""
    """The sha256 of the function's file; empty where the engine drew them."""
    digest: str = ""
    """Of the parameters, as the function left them; empty where the engine drew them."""


class ProbePlan(Record):
    """What one probe process does, engine after engine."""

    engines: tuple[ProbeEngine, ...]
    model_dir: str
    bystander_dir: str = ""
    weights: WeightsSource | None = None
    """What draws the weights of engines that ask for them by their load format."""


class Place(StrEnum):
    """Where a specialised step wrote."""

    OWN_SLOT = "own slot"
    """A cache block or state slot that the engine gave the step to write."""
    BEYOND_TOKENS = "own slot, beyond the step's tokens"
    """There, but where the baseline's step writes nothing."""
    OTHER_SLOT = "own request, another slot"
    """A slot of a request of the step that the step was not given."""
    OTHER_REQUEST = "another request's slot"
    FREE_SLOT = "a slot that no request owns"
    """Free, cached for later requests, or the null block."""
    BUFFER = "a buffer"
    """Memory outside the engine's cache."""
    NEW_BUFFER = "a new buffer"
    """Memory that the step allocated and that outlived it."""


class Write(Record):
    """All that one step wrote into one buffer at one kind of place."""

    buffer: str
    """A layer's name in the engine's cache, or the attribute path of a tensor; empty where nothing names it."""
    place: Place
    owner: str = ""
    """The request whose slot it is."""
    num_bytes: int
    """Bytes that differ afterwards."""


class ProbeStep(Record):
    """One engine step."""

    engine: str
    scenario: str
    position: int
    """Call of the engine's step function within the scenario, from 0."""
    row: LedgerRow
    names: dict[str, str]
    """The scenario's name of each of its requests, by the engine's id."""
    writes: tuple[Write, ...] = ()


class Refusal(Record):
    """What the engine did not take."""

    engine: str
    scenario: str = ""
    """Empty when the whole deployment was refused."""
    request: str = ""
    num_prompt_tokens: int = 0
    within_scope: bool = False
    """Whether the scope declares what was refused."""
    message: str
    """Untrusted text."""


class ProbedEngine(Record):
    """One engine of a probe that was started."""

    name: str
    ready_s: float
    caches_prefixes: bool
    """Whether later requests can reuse the cache of earlier ones."""
    weights: DrawnWeights | None = None
    """None where a checkpoint holds them."""


class ScenarioResult(Record):
    """How a scenario ended."""

    engine: str
    scenario: str
    token_ids: dict[str, tuple[int, ...]]
    """By request, as handed to the client."""
    aborted: tuple[str, ...] = ()
    """Requests that were given up before they had all their tokens."""


class Distance(Record):
    """How far the words of some buffers of two arms are apart."""

    num_words: int
    """Compared numbers."""
    num_differing: int
    """Of them, with other bits."""
    largest: float
    """Largest difference, relative to the largest magnitude of the same buffer and request in the twin."""
    worst: str = ""
    """Request and buffer of the largest difference."""


class HandoverStep(Record):
    """What one step was handed by the steps before it, on an arm and on its twin."""

    engine: str
    scenario: str
    position: int
    same_work: bool
    """Whether both arms computed the same requests, tokens and drafts from the same slots."""
    num_starts: int
    """Requests that continue from something."""
    states: Distance
    """Recurrent states and convolution windows that the step starts from."""
    caches: Distance
    """Cache rows of the tokens before."""
    num_bytes_beyond: dict[str, int]
    """By cache layer: bytes that the arm's step wrote in its own blocks and the twin's did not, other than what the
    twin holds there."""
    largest_beyond: dict[str, float] = Field(default_factory=dict)
    """By cache layer: the largest difference of their numbers from the twin's, relative to the largest magnitude of the
    row that each lies in. Of a layer that is not named it is not known."""
    num_bytes_between: dict[str, int]
    """By cache layer or block: bytes that changed on the arm since the forward call before, in pages that did not on
    the twin."""
    other_token: str = ""
    """The first request whose sampled token differs; empty when all agree."""
    top_gap: float | None = None
    """Nats between the twin's two most likely tokens there."""


class ServedAnswer(Record):
    """What one request got, exactly."""

    request: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    """Of the sampled tokens, nats."""


class EngineSnapshot(Record):
    """A process that serves a model, as far as another change could alter it."""

    model: Literal["subject", "bystander"]
    answers: tuple[ServedAnswer, ...]
    repeats: tuple[tuple[ServedAnswer, ...], ...] = ()
    """The same requests, served again by the same engine, each time from an empty prefix cache."""
    modules: tuple[str, ...]
    """Every module in `sys.modules`."""
    ops: dict[str, str]
    """Registered operators: name to a digest of what is registered for every dispatch key."""
    custom_ops: dict[str, str]
    """vLLM's own registries: name to the class that serves it."""
    kv_cache: dict[str, str]
    """Number of blocks, and each layer's specification."""
    torch_settings: dict[str, str]
    interpreter: dict[str, str]
    """Threads by name with their number, handlers, limits and settings of the process."""
    replaced: dict[str, str]
    """Functions and classes that the engine's modules hold and that come from elsewhere: holder to file. The tracer's
    own are among them."""
    registries: dict[str, str]
    """Entries of vLLM's registries of classes: registry and key to the class."""
    environment: dict[str, str]
    """Digests of the environment variables, by name."""
    graph_kernels: dict[str, int]
    """Kernels in captured graphs, by name."""
    num_graphs: int


class OwnershipLoss(Record):
    """A captured address whose memory was given back before a replay."""

    graph: str
    kernel: str
    address: int
    block_bytes: int
    replay: int
    """Index of the first replay after the loss."""
    reused: bool
    """Whether somebody else got the memory by then."""


class CapturedGraph(Record):
    """One captured graph and its pointers."""

    name: str
    num_tokens: int = Field(ge=0, default=0)
    """That it was captured for; 0 where vLLM did not say."""
    num_kernels: int = Field(ge=0)
    num_addresses: int = Field(ge=0)
    """Distinct words of its parameters that lay in memory of the allocator at capture."""
    num_replays: int = Field(ge=0)
    num_replays_after_largest: int = Field(ge=0)
    """Of them, after the largest capture of the run."""
    num_replays_after_eager: int = Field(ge=0)
    """Of them, with an eager step since its replay before, or since its capture."""

    @model_validator(mode="after")
    def _counts_are_parts(self) -> Self:
        if max(self.num_replays_after_largest, self.num_replays_after_eager) > self.num_replays:
            raise ValueError(f"{self.name}: more replays of a kind than replays")
        return self
