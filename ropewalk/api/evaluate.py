"""`evaluate`: a model's retrieval and perplexity by context length, under several plans."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from ropewalk.api.common import (
    SERVER,
    AllowDownload,
    Caches,
    CorpusToUse,
    Device,
    Dtype,
    GpuLayers,
    LlamaServer,
    MethodNames,
    OnMachine,
    OwnTokenizer,
    Plans,
    RanksPerCopy,
    ServedName,
    Strict,
    Target,
    TextField,
    Threads,
    ThroughChat,
    Timeout,
)
from ropewalk.api.cost import Cost, by_length, calculated, check_divided
from ropewalk.api.fingerprint import TIMEOUT, as_fingerprint
from ropewalk.api.report import keep_report
from ropewalk.arguments import Length, as_lengths, as_list, as_path
from ropewalk.budget import as_budget
from ropewalk.costs.forwards import Forwards
from ropewalk.costs.machines import HERE, machine
from ropewalk.costs.memory_and_time import Way, Workload, answering
from ropewalk.data.documents import as_documents
from ropewalk.evaluation.answerers import Asked, check_in_process, opened
from ropewalk.evaluation.conclusion import Evaluated, measure
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.source import Loading, Model
from ropewalk.options import (
    Advanced,
    Argument,
    Option,
    RunFolder,
    called,
    check_previewed,
    command,
    preview_ends,
    previewed_by,
    request,
)
from ropewalk.progress import Notice, Progress, log_notice, shown, silent, unheard
from ropewalk.records import Mode
from ropewalk.reports.figures import keep_figures
from ropewalk.torchrun import check_ranks, first

if TYPE_CHECKING:
    from ropewalk.evaluation.served.fingerprint import Fingerprint

CONCURRENCY = 4
"""Requests to a server at a time."""


def _as_tasks(value: Any, key: str) -> tuple[str, ...]:
    """The named tasks, and those of named groups; `auto` is one of all retrieval tasks."""
    from ropewalk.evaluation import tasks as retrieval
    from ropewalk.evaluation.able import AUTO
    from ropewalk.evaluation.settings import expanded

    names = tuple(as_list(value, key))
    return retrieval.names() if names == (AUTO,) else expanded(names)


def _preview(options: Asked, on: str | None) -> Cost:
    """The cost of the forwards at each length."""
    from ropewalk.evaluation.answerers.in_process import settled

    check_in_process(options)
    source, conditions, settings = settled(options, weights=False)
    settings = options.within_budget(settings, len(conditions))
    devices = machine(HERE if on is None else on).devices
    check_ranks(options.ranks_per_copy, "evaluate", devices)
    count = len(conditions) * len(settings.tasks) * settings.samples

    def ways(work: Workload) -> dict[str, Callable[[Workload], Iterator[Way]]]:
        check_divided(work, options.ranks_per_copy)
        forwards = [Forwards(length, count) for length in settings.lengths]
        return by_length(answering, forwards, options.ranks_per_copy)

    return calculated(source, max(settings.lengths), on, ways, options.how.dtype)


@command(
    "evaluate",
    "On a model",
    example="ropewalk evaluate path/to/model --to 32k --method none --method yarn",
)
@previewed_by(_preview)
def evaluate(
    model: Annotated[
        Model | None,
        Argument(
            "A model's folder, a GGUF file (run in llama.cpp), or `bundled`; with `server` it may "
            "be left out.",
            "[MODEL]",
        ),
    ] = None,
    *,
    plans: Plans = (),
    methods: MethodNames = (),
    to: Target = None,
    tasks: Annotated[
        Sequence[str] | None,
        Option(
            "Some of passkey, needle, lines, kv, perplexity (default: all of these; for a server "
            "or a GGUF file, all but perplexity); facts, eight of them in one reading; ruler-syn, "
            "RULER's thirteen tasks; mrcr-syn, nolima-syn, graphwalks-syn, oolong-syn; longppl; or "
            "auto, all that the model can do within its window.",
            convert=_as_tasks,
        ),
    ] = None,
    lengths: Annotated[
        Sequence[Length] | None,
        Option(
            "Context lengths (default: doublings from a quarter of the window).",
            convert=as_lengths,
        ),
    ] = None,
    samples: Annotated[int, Option("Samples per task, length and method.")] = 20,
    budget: Annotated[
        int | str | None,
        Option(
            "Instead of `samples`: 200 answers in all, 1e9tok tokens or 30m of time.",
            "BUDGET",
            convert=as_budget,
        ),
    ] = None,
    mode: Annotated[
        Mode | None,
        Advanced(
            "Feed the answer and check that the model expected it (default); generate the answer "
            "(default for a server or a GGUF file); or read each context once and generate several "
            "answers on it."
        ),
    ] = None,
    chat: ThroughChat = "auto",
    system: Annotated[
        str | None, Advanced("The system text of a chat (default: none).", "TEXT")
    ] = None,
    server: Annotated[
        str | None,
        Option(
            "Evaluate the model that this OpenAI-compatible server runs. Its key, if any, comes "
            "from the environment variable ROPEWALK_API_KEY.",
            "URL",
            group=SERVER,
        ),
    ] = None,
    tokenizer: OwnTokenizer = None,
    model_name: ServedName = None,
    fingerprint: Annotated[
        Fingerprint | str | Path | None,
        Option(
            "A file of `ropewalk fingerprint` to compare the server with first (default: one "
            "computed from `model`, if given).",
            group=SERVER,
        ),
    ] = None,
    evaluator: Annotated[
        Model | None,
        Advanced(
            "For the task longppl: the model that chooses its key tokens (default: MODEL itself, "
            "under the first plan that is given).",
            "MODEL",
        ),
    ] = None,
    concurrency: Annotated[
        int, Option("Number of simultaneous requests to a server.", group=SERVER)
    ] = CONCURRENCY,
    timeout: Timeout = TIMEOUT,
    cache: Caches = ("f16",),
    llama_server: LlamaServer = None,
    threads: Threads = None,
    gpu_layers: GpuLayers = None,
    corpus: CorpusToUse = "held-out",
    field: TextField = "text",
    seed: Annotated[int, Option("Seed of the samples.")] = 0,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep records and figures here, and resume from here (default: keep nothing).",
            command="evaluate",
            convert=as_path,
        ),
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    ranks_per_copy: RanksPerCopy = 1,
    on: OnMachine = None,
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> Evaluated:
    """Measure retrieval and perplexity at several context lengths, with intervals.

    The model is scored under each of `methods`, which extend it to `to`, and under each of `plans`;
    "none" is the unchanged model, and the default if neither is given. `tasks` may name a group:
    "ruler-syn" are RULER's thirteen. "auto" are all retrieval tasks of which the unmodified model
    answers a quarter of eight other samples right, at the shortest of `lengths` or the end of its
    window. The default `lengths` are doublings from a quarter of the window up to the target of the
    shortest plan. The directory `run` keeps all scored samples, results and figures, and an
    interrupted evaluation resumes there. `strict` refuses a config that leaves open how the model
    rotates, instead of warning. The default `tasks` are perplexity, passkey, needle, lines and kv,
    in mode "teacher_forced".

    A `budget` of answers, of tokens ("1e9tok") or of time ("30m", by forwards timed here) decides
    how many `samples` are drawn; a run that resumes within a time keeps the number it began with.

    With `chat`, questions go through the model's own template, after the `system` text if one is
    given, with thinking off where the template can.

    The task "longppl" is the perplexity of key tokens, which need a long context. An `evaluator`
    chooses them, or else the model itself under the first plan; the result says which.

    Under torchrun, `ranks_per_copy` ranks hold one copy of the model, each with its heads and their
    part of the cache; copies share the samples, and every rank returns the result.

    `server` is the URL of an OpenAI-compatible server that runs the model: its answers are scored
    in mode "generate", `concurrency` at a time, and perplexity is left out. A `model` is then
    optional: it gives the tokenizer, and is run in process for a fingerprint of itself under the
    plan, with which the server is compared first. A `fingerprint` made before, and the folder of a
    `tokenizer`, do the same without weights. The key of a server comes from the environment
    variable ROPEWALK_API_KEY. The result is an `EvaluatedServer`.

    A `model` that is a GGUF file is run by a private llama.cpp (extra `gguf`), or by your own
    `llama_server`, with llama.cpp's own tokens: by default in mode "generate", without perplexity,
    which takes a step for each token scored. Methods and plans become llama.cpp's flags, and no
    file is written; what needs a factor for each pair is refused. Each is measured with each type
    of `cache`. The task "facts" reads a document once for all its questions.

    `evaluate.preview(…)` calculates what the forwards would take, here or `on` another machine, by
    the formulas of `cost`; a config is enough for it.
    """
    values = locals()
    with called("evaluate", evaluate, values) as (given, progress):
        check_previewed(on)
        from ropewalk.evaluation.able import AUTO, with_able_tasks

        named_fingerprint = None
        if server is not None and fingerprint is not None:
            named_fingerprint = as_fingerprint(fingerprint)
        options = request(
            Asked,
            evaluate,
            values,
            documents=as_documents(corpus, field, notice),
            given=given,
            how=Loading(dtype, device, allow_download),
            engine=request(Engine, evaluate, values),
            fingerprint=named_fingerprint,
            progress=progress if first() else silent,
            notice=notice if first() else unheard,
        )
        preview_ends(options, on)
        with opened(options) as evaluation:
            if tasks is not None and tuple(as_list(tasks, "tasks")) == (AUTO,):
                evaluation = with_able_tasks(evaluation, progress)
            result, records = measure(evaluation, options.run, progress)
        if options.run is not None and first():
            keep_figures(result.pictures(records), options.run / "figures", notice)
            keep_report(options.run, notice)
        return result
