"""What each kind of reach does, why it matters to others, and what to do instead."""

from __future__ import annotations

from dataclasses import dataclass

from harness.model.effects import EffectKind


@dataclass(frozen=True, slots=True)
class Words:
    """The sentences of one kind; `{target}` stands for what is reached."""

    does: str
    why: str
    remedy: str


WORDS = {
    EffectKind.ATTRIBUTE: Words(
        "replaces or changes {target}",
        "every model of the process gets the changed object, whatever the switch says",
        "Subclass it, or copy what is needed into an owned file; what the core needs goes through an ordinary review.",
    ),
    EffectKind.SHARED_OBJECT: Words(
        "writes to {target}",
        "the engine hands out one such object and other code reads it",
        "Work on a copy, or keep the value in an object of the subject.",
    ),
    EffectKind.CONTAINER: Words(
        "changes {target}",
        "the list or table belongs to another module, whose other users read it",
        "Keep an own table, or use the registration that the module offers.",
    ),
    EffectKind.MODULES: Words(
        "changes how Python finds or holds modules: {target}",
        "other code then imports something else than it names",
        "Import by the module's own name; give the subject's modules names of their own.",
    ),
    EffectKind.OPERATOR: Words(
        "gives {target} another implementation",
        "the operator is not the change's own, and every model that calls it gets the new code",
        "Define an operator in a namespace of the subject and call that.",
    ),
    EffectKind.REGISTRY: Words(
        "registers at {target}",
        "an entry that exists is replaced for every user of the registry",
        "Register under a name of the subject's own, and only where it is missing.",
    ),
    EffectKind.ENTRY_POINT: Words(
        "announces the entry point {target}",
        "vLLM loads it in every process, for every model",
        "Declare it in [[reaches]]; let it register names and nothing else.",
    ),
    EffectKind.ENVIRONMENT: Words(
        "writes the environment variable {target}",
        "the whole process and its children read it, whatever model they serve",
        "Pass the value as an argument, or put the former value back in a finally.",
    ),
    EffectKind.GLOBAL_SETTING: Words(
        "changes a setting of the whole process: {target}",
        "it changes results or speed of code outside the subject",
        "Set it for the subject's own tensors or calls, in a with that ends, or not at all.",
    ),
    EffectKind.EXIT_HOOK: Words(
        "hooks into the end of the process: {target}",
        "it runs in every process that imports the subject, also when it served another model",
        "Release resources where they are owned, or declare the hook in [[reaches]].",
    ),
    EffectKind.SIGNAL: Words(
        "takes over signals: {target}",
        "the engine's own handlers shut workers down; a replaced one leaves them behind",
        "Leave signals to the engine.",
    ),
    EffectKind.PROCESS: Words(
        "starts or ends processes: {target}",
        "a process that the engine does not know outlives it, and forking after CUDA started breaks it",
        "Build ahead of time, or declare the program and the reason in [[reaches]].",
    ),
    EffectKind.NETWORK: Words(
        "uses the network: {target}",
        "serving then depends on a host outside, and data may leave the machine",
        "Ship what is needed with the model or the package.",
    ),
    EffectKind.FILES: Words(
        "writes files while it is imported: {target}",
        "every process that imports the subject writes them, with the switch off as well",
        "Write when it is first needed, into a folder of the subject.",
    ),
    EffectKind.DEVICE: Words(
        "initialises a GPU or starts a thread while it is imported: {target}",
        "vLLM forks and imports plugins before it chooses devices; a CUDA context from before breaks its children",
        "Do it in the function that needs it.",
    ),
    EffectKind.AT_IMPORT: Words(
        "does more than define things while it is imported: {target}",
        "what reads the switch and what plugins load is imported in every process: what such an import refuses or does"
        " meets users who never switch the path on",
        "Ask or do it in the function that needs it, behind the switch.",
    ),
    EffectKind.NATIVE_CODE: Words(
        "loads or builds machine code: {target}",
        "what that code does cannot be read here",
        "Declare the library and the reason in [[reaches]], and commit its source.",
    ),
    EffectKind.DYNAMIC_CODE: Words(
        "runs or reaches code that is not in the text: {target}",
        "what it does cannot be read here",
        "Write the code as code; use data formats that hold no code, such as safetensors or JSON.",
    ),
    EffectKind.BINARY: Words(
        "is {target}",
        "nobody can review what it does",
        "Commit the source that it is built from, and build it with the package.",
    ),
    EffectKind.UNREADABLE: Words(
        "cannot be read: {target}",
        "what it does is unknown",
        "Commit Python that this fasttrack's Python can parse.",
    ),
}
