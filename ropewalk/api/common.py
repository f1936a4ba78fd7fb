"""Arguments and JSON that the verbs share: lengths, plans, corpora, and the form of a schedule."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Annotated, Literal, Protocol, TypeAlias, TypeVar

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import TEXT_FIELD, Document, Vocabulary, may_have_rows, read_documents
from ropewalk.errors import InvalidValue
from ropewalk.lengths import format_length, parse_length, parse_lengths
from ropewalk.models.source import Model, Source
from ropewalk.options import Advanced, Argument, Option
from ropewalk.progress import Notice, log_notice
from ropewalk.scaling import names
from ropewalk.schedule import RotarySchedule

T = TypeVar("T")

MOST_CHARACTERS = 32 * 2**20  # of a corpus, unless more are needed

Length: TypeAlias = int | str
"""131072 or "128k"."""


class HasPlan(Protocol):
    @property
    def plan(self) -> ContextPlan: ...


PlanLike: TypeAlias = ContextPlan | HasPlan | str | Path
"""A plan, the result of `plan` or `search`, or the path of a plan.json."""
Corpus: TypeAlias = str | Path | Iterable[str | Document]

SERVER = "Of a server"
"""The heading of these options in help."""

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
TextField: TypeAlias = Annotated[
    str,
    Option("The field of rows that holds the text.", "NAME"),
]
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


def as_length(value: Length, key: str = "length") -> int:
    """The number of tokens that `131072` or `"128k"` stands for."""
    if isinstance(value, bool) or not isinstance(value, Integral | str):
        raise InvalidValue(key, value, "must be a length", "write 131072 or '128k'")
    try:
        return parse_length(str(value))
    except InvalidValue as error:
        raise InvalidValue(key, value, error.rule, error.remedy) from None


def as_list(values: Iterable[T], key: str) -> tuple[T, ...]:
    """The given values, each once."""
    return tuple(dict.fromkeys(as_members(values, key)))


def as_members(values: Iterable[T], key: str) -> tuple[T, ...]:
    """The given values. A string is refused: it would be taken for its letters."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidValue(key, values, "must be a list", "write [a, b, …]")
    members = tuple(values)
    for i, member in enumerate(members):
        if not isinstance(member, Hashable):
            raise InvalidValue(f"{key}[{i}]", member, "is a list in a list", "write [a, b, …]")
    return members


def as_lengths(values: Iterable[Length], key: str = "lengths") -> tuple[int, ...]:
    """Lengths in rising order, each once; `1k … 8k` stands for the doublings between."""
    given = as_list(values, key)
    if {"…", "..."} & set(given):
        return tuple(sorted(set(parse_lengths([str(value) for value in given]))))
    return tuple(sorted({as_length(value, key) for value in given}))


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


def as_name(value: object, key: str) -> str:
    """The name of a served model."""
    if not isinstance(value, str) or not value.strip():
        raise InvalidValue(key, value, "must be a name", "write it as the server lists it")
    return value


def as_path(value: str | Path, key: str) -> Path:
    """A path. An empty text is refused: to the system, it is the current folder."""
    if not isinstance(value, str | Path) or "\0" in str(value):
        raise InvalidValue(key, value, "must be a path", "write 'folder/name'")
    if not str(value).strip():
        raise InvalidValue(key, value, "must not be empty", "write '.' for the current folder")
    return Path(value)


def as_documents(
    corpus: Corpus,
    field: str,
    notice: Notice,
    also: Corpus | None = None,
    most: float = MOST_CHARACTERS,
) -> list[Document]:
    """The texts to measure on; a corpus may be larger than memory, and little of it is needed.

    `also` is another corpus that the field is for; if there is none, this one must have rows.
    """
    if field != TEXT_FIELD and also is None and not may_have_rows(corpus):
        raise InvalidValue(
            "field",
            field,
            "is the name of a field of rows, and this text has no rows",
            "leave it out, or give a file with rows (`corpus`)",
        )
    taken: list[Document] = []
    characters = 0
    for document in documents_in(corpus, field, notice=notice):
        if characters > most:
            notice(f"using the first {len(taken):,} documents of {corpus}")
            break
        taken.append(document)
        characters += len(document.text)
    return taken


def documents_in(
    corpus: Corpus,
    field: str,
    weights: str | None = None,
    vocabulary: Vocabulary | None = None,
    *,
    allow_download: bool = False,
    notice: Notice = log_notice,
) -> Iterator[Document]:
    """All documents of a corpus, one after the other; tokens need the `vocabulary`."""
    if isinstance(corpus, str | Path):
        as_path(corpus, "corpus")
        return read_documents(
            corpus,
            field=field,
            weights=weights,
            vocabulary=vocabulary,
            allow_download=allow_download,
            notice=notice,
        )
    if not isinstance(corpus, Iterable):
        raise InvalidValue(
            "corpus", corpus, "must be a path or a list of texts", "write ['first text', …]"
        )
    return (
        item if isinstance(item, Document) else Document(f"text {i}", _text(item, i))
        for i, item in enumerate(corpus, start=1)
    )


def _text(item: object, number: int) -> str:
    if not isinstance(item, str):
        raise InvalidValue(f"corpus, text {number}", item, "must be a string", "give its text")
    return item


def known_as(source: Source, trained_length: Length | None) -> Source:
    """The model, with the trained length that the user states."""
    if trained_length is None:
        return source
    return source.with_trained_length(as_length(trained_length, "trained_length"))


def serves_already(present: ContextPlan, planned: ContextPlan, trained_length: int | None) -> str:
    """A sentence for a target that the model already serves."""
    length = present.target_length
    if trained_length is not None and trained_length < length:
        return (
            f"{present.model} states {format_length(length)} already, and was trained at "
            f"{format_length(trained_length)}."
        )
    same = planned.rotates_like(present)
    told = ": nothing needs to change." if same else "; this plan changes how it rotates."
    return f"{present.model} serves {format_length(length)} already{told}"


def changes_only_the_length(
    present: ContextPlan, planned: ContextPlan, layer: str, *, safe_base: bool = False
) -> str:
    """A sentence for a plan that changes nothing else; empty for any other.

    `safe_base`: the plan is that of the base which the bound asks for.
    """
    from ropewalk.planning.extension import only_the_length
    from ropewalk.theory.coverage import coverage

    if not only_the_length(present, planned):
        return ""
    length, schedule = format_length(planned.target_length), planned.longest(layer)
    if planned.target_length <= (trained := present.longest(layer).length):
        return (
            f"{length} is within the {format_length(trained)} that {present.model} was trained at: "
            "this plan changes nothing but the stated length."
        )
    start = RotarySchedule.plain(schedule.geometry)
    new = len(coverage(schedule, planned.target_length, trained=start).out_of_distribution)
    found = "no pair meets a new angle"
    if new:
        found = f"{new} of {schedule.geometry.turning_pairs} pairs meet angles new to them"
    base = f"its base is safe for {length} by the bound, and " if safe_base else ""
    return (
        f"This plan changes nothing in {present.model} but the stated length: {base}{found} there. "
        "Whether it works there, `ropewalk evaluate` measures; to slow its pairs, plan with "
        "another method, such as ntk."
    )


def geometry_json(plan: ContextPlan, trained_length: int | None) -> dict[str, object]:
    """The geometry of the main layers, and the model's three lengths."""
    return {
        **plan.longest(plan.main_layer).geometry.to_json(),
        "serves": plan.target_length,
        "trained_length": trained_length,
    }


def schedule_json(schedule: RotarySchedule) -> dict[str, object]:
    """A flat schedule, with its derived values."""
    return {
        "method": schedule.method,
        "rescale_factors": schedule.rescale_factors.tolist(),
        "inverse_frequencies": schedule.inverse_frequencies.tolist(),
        "attention_scaling": schedule.attention_scaling,
        "softmax_scaling": schedule.softmax_scaling,
        "kept_initial_positions": schedule.kept_initial_positions,
        "log_n_from": schedule.log_n.length if schedule.log_n else None,
        "log_n_form": schedule.log_n.form if schedule.log_n else None,
    }


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
