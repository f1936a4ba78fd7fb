"""Options that several verbs have, and the plans that they take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias

from ropewalk.arguments import Length, as_length, as_list, as_name, as_path
from ropewalk.context_plan import ContextPlan
from ropewalk.data.documents import Corpus
from ropewalk.errors import InvalidValue
from ropewalk.gguf.llama_cpp_run import CACHES
from ropewalk.models.source import Model
from ropewalk.options import Advanced, Argument, Option
from ropewalk.scaling import names
from ropewalk.untrusted import one_of


class HasPlan(Protocol):
    @property
    def plan(self) -> ContextPlan: ...


PlanLike: TypeAlias = ContextPlan | HasPlan | str | Path
"""A plan, the result of `plan` or `search`, or the path of a plan.json."""

SERVER, GGUF = "Of a server", "Of a GGUF file"
"""The headings of these options in help."""

# Options that several verbs have.
ModelToRun: TypeAlias = Annotated[Model, Argument("A model's folder, or `bundled`.", "MODEL")]
ModelToRead: TypeAlias = Annotated[
    Model,
    Argument(
        "A model's folder, a config.json, a GGUF file, or a known name such as llama-3-8b.", "MODEL"
    ),
]
TargetLength: TypeAlias = Annotated[Length, Option("Target length, such as 32768 or 32k.")]
Layers: TypeAlias = Annotated[
    Sequence[str] | None,
    Option("Layer types to change (default: full attention); others keep their schedule.", "TYPE"),
]
FromOriginal: TypeAlias = Annotated[
    bool, Option("Start from the plain frequencies, without the model's present scaling.")
]
TrainedLength: TypeAlias = Annotated[
    Length | None,
    Option("The length that the model was trained at, where its config leaves that open."),
]
AfterTraining: TypeAlias = Annotated[
    bool, Option("Rank for use after fine-tuning at the target length (default: without it).")
]
CorpusToUse: TypeAlias = Annotated[
    Corpus,
    Option(
        "Text to use: a file, a folder, .jsonl, .parquet, `python` (its standard library) or "
        "`held-out` (text that ships with ropewalk).",
        "FILE",
    ),
]
TextField: TypeAlias = Annotated[str, Option("The field of rows that holds the text.", "NAME")]
WeightsField: TypeAlias = Annotated[
    str | None,
    Advanced(
        "The field of rows of tokens with the loss weights of parts of them: [[start, end, "
        "weight], …]; the rest weighs 1.",
        "NAME",
    ),
]
ShortLimit: TypeAlias = Annotated[
    float,
    Option(
        "The most loss that a schedule may add within the original length, in nats per token; one "
        "that adds more is chosen only if all do.",
        "NATS",
    ),
]
ThroughChat: TypeAlias = Annotated[
    Literal["auto", "on", "off"],
    Option(
        "Put questions through the model's chat template (auto: if it has one and ends its "
        "answers as the template does, as instruct models do)."
    ),
]
Dtype: TypeAlias = Annotated[
    str, Option("Number format of the model: auto, float32, bfloat16 or float16.", "FORMAT")
]
Device: TypeAlias = Annotated[str, Option("Where to compute: auto, cpu, cuda or mps.", "DEVICE")]
AllowDownload: TypeAlias = Annotated[
    bool, Option("Allow downloads from the hub, for models and data sets given by their id.")
]
Timeout: TypeAlias = Annotated[
    float, Option("The longest time for one request.", "SECONDS", group=SERVER)
]
RanksPerCopy: TypeAlias = Annotated[
    int, Advanced("Under torchrun: number of processes for one copy of the model.")
]
OnMachine: TypeAlias = Annotated[
    str | None,
    Advanced(
        "The machine that `preview` calculates for, such as 8xh100 (default: this one).", "MACHINE"
    ),
]
Strict: TypeAlias = Annotated[
    bool, Option("Refuse a model whose config does not state its rotation completely.")
]


def as_plan(value: PlanLike) -> ContextPlan:
    """The plan itself, that of an object that bears one, or that in a file."""
    if isinstance(value, str | Path):
        path = as_path(value, "plan")
        if path.name.lower() in names() and not path.exists():
            raise InvalidValue(
                "plan",
                str(value),
                "is the name of a method, not a file",
                f"write the plan first: ropewalk plan MODEL --to LENGTH --method {value} "
                "-o plan.json",
            )
        return ContextPlan.read(path)
    plan = value if isinstance(value, ContextPlan) else getattr(value, "plan", None)
    if not isinstance(plan, ContextPlan):
        raise InvalidValue(
            "plan",
            value,
            "must be a plan",
            "give a plan, the result of plan() or search(), or the path of a plan.json",
        )
    return plan


def as_plans(values: Iterable[PlanLike], key: str) -> tuple[ContextPlan, ...]:
    """The plans, each once."""
    return tuple(map(as_plan, as_list(values, key)))


# Options of several verbs whose values are converted.
Plans: TypeAlias = Annotated[
    Sequence[PlanLike],
    Option("A plan of `ropewalk plan`.", "FILE", shell=("--plan",), convert=as_plans),
]
MethodNames: TypeAlias = Annotated[
    Sequence[str],
    Option(
        "A method of `ropewalk methods`, or `none` for the unmodified model.",
        "METHOD",
        shell=("--method",),
        convert=as_list,
    ),
]
Target: TypeAlias = Annotated[
    Length | None, Option("Target length of the methods.", convert=as_length)
]


def as_caches(values: Iterable[str], key: str) -> tuple[str, ...]:
    """Types of llama.cpp's cache."""
    types = as_list(values, key)
    for value in types:
        one_of(value, CACHES, key)
    return types


Caches: TypeAlias = Annotated[
    Sequence[str],
    Option(
        "Types of llama.cpp's cache of keys and values to compare, such as f16,q8_0,q4_0.",
        "TYPE",
        group=GGUF,
        convert=as_caches,
    ),
]
CacheType: TypeAlias = Annotated[
    str, Option("Type of llama.cpp's cache, such as f16, q8_0 or q4_0.", "TYPE", group=GGUF)
]
LlamaServer: TypeAlias = Annotated[
    str | Path | None,
    Option(
        "Your own `llama-server`, for a build with a GPU (default: llama.cpp of `xllamacpp`).",
        "FILE",
        group=GGUF,
        convert=as_path,
    ),
]
Threads: TypeAlias = Annotated[
    int | None, Option("Threads of llama.cpp (default: half of the processors).", group=GGUF)
]
GpuLayers: TypeAlias = Annotated[
    int | None,
    Option("Layers that llama.cpp puts on a GPU (default: all, if it was built so).", group=GGUF),
]
OwnTokenizer: TypeAlias = Annotated[
    str | Path | None,
    Option(
        "The folder with the tokenizer of the planned model.", "DIR", group=SERVER, convert=as_path
    ),
]
ServedName: TypeAlias = Annotated[
    str | None,
    Option(
        "The model's name on the server (default: the only one it lists).",
        "NAME",
        group=SERVER,
        convert=as_name,
    ),
]
