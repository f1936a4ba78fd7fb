"""`evaluate`: a model's retrieval and perplexity by context length, under several plans."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from ropewalk.api.common import (
    AllowDownload,
    CorpusToUse,
    Device,
    Dtype,
    Length,
    MethodNames,
    OwnTokenizer,
    Plans,
    ServedName,
    Strict,
    Target,
    TextField,
    Timeout,
    as_documents,
    as_length,
    as_lengths,
    as_list,
    as_path,
    as_plan,
    runnable,
)
from ropewalk.api.report import keep_report
from ropewalk.errors import InputError
from ropewalk.evaluation.conditions import (
    AS_IT_IS,
    check_methods,
    check_reach,
    conditions_of,
    default_lengths,
)
from ropewalk.evaluation.effective_length import EffectiveLength, effective_lengths
from ropewalk.evaluation.results import (
    MethodComparison,
    compare_methods,
    in_words,
    labels,
    means,
    summarise,
)
from ropewalk.evaluation.statistics import is_significant
from ropewalk.lengths import check_measured, format_length
from ropewalk.models.source import Model, resolve
from ropewalk.options import Argument, Option, RunFolder, called
from ropewalk.progress import Notice, Progress, log_notice, share, silent
from ropewalk.records import PERPLEXITY, EvalResult, Mode, Subject, is_compared, is_main_answer
from ropewalk.reports.evaluation import DepthGrid, depth_grids, figures
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import RECORDS, RunDirectory
from ropewalk.values import Result, check_filled

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ropewalk.evaluation.served.fingerprint import Fingerprint

TASKS = ("perplexity", "passkey", "needle", "lines", "kv")
RESULTS = "results.json"
CONCURRENCY, TIMEOUT = 4, 600.0
"""Requests to a server at a time, and seconds for one of them."""


@dataclass(frozen=True, eq=False)
class Evaluated(Result):
    """Results by subject, task and length; the scored samples are in the run directory.

    It also holds the number of right answers by depth.
    """

    model: str
    results: tuple[EvalResult, ...]
    means: tuple[EvalResult, ...]
    """The mean over a group of tasks, such as ruler-syn, where all of them were scored; `retrieval`
    is that of all retrieval tasks that were asked, less those that the mode leaves out."""
    effective_lengths: tuple[EffectiveLength, ...]
    """How far each subject works by these means: pass, fail or undecided at each length."""
    comparisons: tuple[MethodComparison, ...]
    """Each pair of subjects at the longest length, compared on the samples of both."""
    depth_grids: tuple[DepthGrid, ...]
    original_length: int
    dtype: str
    device: str

    def __post_init__(self) -> None:
        super().__post_init__()
        check_filled(self.results, "results")

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """The value that this JSON was made of: of a served model, an `EvaluatedServer`."""
        if cls is Evaluated and isinstance(value, dict) and "server" in value:
            from ropewalk.api.evaluate_server import EvaluatedServer

            found = EvaluatedServer.from_json(value, path)
            assert isinstance(found, cls)
            return found
        return super().from_json(value, path)

    @property
    def significant(self) -> tuple[MethodComparison, ...]:
        """The comparisons whose adjusted p-value is below 0.05."""
        return tuple(c for c in self.comparisons if is_significant(c.adjusted_p))

    def summary(self) -> str:
        longest = max(result.length for result in self.results)
        names = labels(result.subject for result in self.results)
        parts = [f"{name}: {self._standing(subject, longest)}" for subject, name in names.items()]
        told = ""
        if self.comparisons:
            told = (
                f" {len(self.significant)} of {len(self.comparisons)} paired differences are "
                "significant at 5% after Holm's correction."
            )
        untested = sum(c.adjusted_p is None for c in self.comparisons)
        if untested:
            told += f" {untested} have too few samples for a test."
        return f"{self.model} at {format_length(longest)} tokens: {'; '.join(parts)}.{told}"

    def _standing(self, subject: Subject, length: int) -> str:
        """One subject at one length: the mean over all answers or each task's, and perplexity."""
        own, over_tasks = (
            [r for r in results if (r.subject, r.length) == (subject, length)]
            for results in (self.results, self.means)
        )
        asked = list(filter(is_main_answer, own))
        of_all = [m for m in over_tasks if m.samples == sum(r.samples for r in asked)]
        shown = [*(of_all[:1] or asked), *(r for r in own if r.metric == PERPLEXITY.name)]
        return ", ".join(map(in_words, shown)) or "no task fits"

    def figure(self) -> Figure:
        """Each task by context length, one curve per subject."""
        return figures(
            (*self.results, *self.means),
            (),
            effective=self.effective_lengths,
            original_length=self.original_length,
        )["by-length"]


def evaluate(
    model: Annotated[
        Model | None,
        Argument(
            "A model's folder, a GGUF file (run in llama.cpp), or `bundled`; with --server it may "
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
            "Some of passkey, needle, lines, kv, perplexity (default: all of them; of a server or "
            "a GGUF file, all but perplexity); or ruler-syn, RULER's thirteen; or ruler, the same "
            "with --official."
        ),
    ] = None,
    lengths: Annotated[
        Sequence[Length] | None,
        Option("Context lengths (default: doublings from a quarter of the window)."),
    ] = None,
    samples: Annotated[int, Option("Samples per task, length and method.")] = 20,
    mode: Annotated[
        Mode | None,
        Option(
            "Feed the answer and check that it was expected (default), generate it (default of a "
            "server or a GGUF file), or generate several answers on each context, which is read "
            "once.",
            advanced=True,
        ),
    ] = None,
    server: Annotated[
        str | None,
        Option(
            "Evaluate the model that this OpenAI-compatible server runs. Its key, if any, comes "
            "from the environment variable ROPEWALK_API_KEY.",
            "URL",
        ),
    ] = None,
    tokenizer: OwnTokenizer = None,
    model_name: ServedName = None,
    fingerprint: Annotated[
        Fingerprint | str | Path | None,
        Option(
            "A file of `ropewalk fingerprint` to compare the server with first (default: one "
            "computed from MODEL, if given)."
        ),
    ] = None,
    concurrency: Annotated[
        int, Option("Requests to a server at a time.", advanced=True)
    ] = CONCURRENCY,
    timeout: Timeout = TIMEOUT,
    corpus: CorpusToUse = "held-out",
    field: TextField = "text",
    seed: Annotated[int, Option("Seed of the samples.")] = 0,
    official: Annotated[
        str | Path | None,
        Option(
            "RULER's own inputs, with a manifest.json of their hashes (mode generate).",
            "DIR",
            advanced=True,
        ),
    ] = None,
    run: Annotated[
        str | Path | None,
        RunFolder(
            "Keep records and figures here, and resume (default: keep nothing).",
            "DIR",
            command="evaluate",
        ),
    ] = None,
    dtype: Dtype = "auto",
    device: Device = "auto",
    allow_download: AllowDownload = False,
    strict: Strict = False,
    progress: Progress = silent,
    notice: Notice = log_notice,
) -> Evaluated:
    """Measure retrieval and perplexity at several context lengths, with intervals.

    The model is scored under each of `methods`, which extend it to `to`, and under each of `plans`;
    "none" is the unchanged model, and the default if neither is given. `tasks` may name a group:
    "ruler-syn" are RULER's thirteen. "ruler" are the same with RULER's own inputs, from the folder
    `official` with its manifest of hashes; they are measured in mode "generate". The default
    `lengths` are doublings from a quarter of the window up to the target of the shortest plan. The
    directory `run` keeps all scored samples, results and figures, and an interrupted evaluation
    resumes there. `strict` refuses a config that leaves open how the model rotates, instead of
    warning. The default `tasks` are perplexity, passkey, needle, lines and kv, in mode
    "teacher_forced".

    `server` is the URL of an OpenAI-compatible server that runs the model: its answers are scored
    in mode "generate", `concurrency` at a time, and perplexity is left out. A `model` is then
    optional: it gives the tokenizer, and is run in process for a fingerprint of itself under the
    plan, with which the server is compared first. A `fingerprint` made before, and the folder of a
    `tokenizer`, do the same without weights. The key of a server comes from the environment
    variable ROPEWALK_API_KEY. The result is an `EvaluatedServer`.

    A `model` that is a GGUF file is measured as it is, by a private llama.cpp on the CPU (extra
    `gguf`), with llama.cpp's own tokens and defaults: in mode "generate", without perplexity. To
    measure it under a plan, export it with the plan first. The result is an `EvaluatedServer`.
    """
    with called("evaluate", evaluate, locals()):
        if server is not None:
            from ropewalk.api.evaluate_server import evaluate_server

            if tuple(methods) not in ((), (AS_IT_IS,)) or to is not None or official is not None:
                raise InputError(
                    "a server follows the plan that it was started with, and official inputs are "
                    "read in process; leave out methods, `to` and `official`"
                )
            return evaluate_server(
                server,
                model=model,
                plans=plans,
                tasks=tasks,
                lengths=lengths,
                samples=samples,
                mode=mode,
                corpus=corpus,
                field=field,
                seed=seed,
                run=run,
                dtype=dtype,
                device=device,
                allow_download=allow_download,
                strict=strict,
                tokenizer=tokenizer,
                model_name=model_name,
                fingerprint=fingerprint,
                concurrency=concurrency,
                timeout=timeout,
                progress=progress,
                notice=notice,
            )
        if model is None:
            raise InputError("nothing to evaluate; give a model, or the URL of a server (`server`)")
        found_source = resolve(model, allow_download=allow_download)
        if found_source.kind == "GGUF file":
            from ropewalk.api.evaluate_gguf import check_as_it_is, evaluate_gguf

            check_as_it_is(
                plans=plans,
                methods=methods,
                to=to,
                official=official,
                dtype=dtype,
                device=device,
                others={
                    "tokenizer": tokenizer is None,
                    "model_name": model_name is None,
                    "fingerprint": fingerprint is None,
                    "concurrency": concurrency == CONCURRENCY,
                    "timeout": timeout == TIMEOUT,
                },
            )
            return evaluate_gguf(
                found_source,
                tasks=tasks,
                lengths=lengths,
                samples=samples,
                mode=mode,
                corpus=corpus,
                field=field,
                seed=seed,
                run=run,
                strict=strict,
                progress=progress,
                notice=notice,
            )
        for key, value in (
            ("tokenizer", tokenizer),
            ("model_name", model_name),
            ("fingerprint", fingerprint),
        ):
            if value is not None:
                raise InputError(
                    f"`{key}` is for a server; give its URL (`server`), or leave it out"
                )
        mode = "teacher_forced" if mode is None else mode
        tasks = TASKS if tasks is None else tasks
        from ropewalk.evaluation.official import every, read
        from ropewalk.evaluation.settings import EvaluationSettings, expanded, groups_of

        # All that can be refused without a model is refused before one is loaded.
        target = None if to is None else as_length(to, "to")
        if target is not None and lengths is None:  # it is measured at the target
            check_measured(target, "to")
        methods, tasks = as_list(methods, "methods"), expanded(as_list(tasks, "tasks"))
        check_methods(methods, target)
        given = [as_plan(plan) for plan in as_list(plans, "plans")]
        chosen = None if lengths is None else as_lengths(lengths)
        inputs = None if official is None else read(as_path(official, "official"))
        named = [name for name in tasks if name in every()]
        if named and inputs is None:
            raise InputError(
                f"{named[0]} needs RULER's own inputs; give their folder (`official`), or ask for "
                f"{named[0]}-syn"
            )
        if inputs is not None and not named:
            raise InputError("official inputs are given and not asked for; add the task ruler")
        if inputs is not None and chosen is None:
            chosen = inputs.lengths(named)
        EvaluationSettings(tasks, (2,) if chosen is None else chosen, samples, seed, mode)
        if inputs is not None:
            inputs.check(named, chosen or (), samples)
        run = None if run is None else as_path(run, "run")
        documents = as_documents(corpus, field, notice)
        source = runnable(
            model,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            notice=notice,
            run=run,
        )
        from ropewalk.evaluation.identity import run_identity
        from ropewalk.evaluation.runner import Evaluation
        from ropewalk.models.load import load

        loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
        present = loaded.present_plan
        conditions = conditions_of(present, methods, given, target)
        if chosen is None:
            chosen = default_lengths(present.target_length, conditions, target)
        check_reach(conditions, chosen)
        settings = EvaluationSettings(tasks, chosen, samples, seed, mode)
        evaluation = Evaluation(loaded, documents, settings, notice, inputs)
        with ExitStack() as stack:
            journal = directory = None
            if run is not None:
                configuration = {
                    **run_identity(loaded, documents, evaluation.weights),
                    "conditions": [
                        {**condition._asdict(), "plan": condition.plan and condition.plan.to_json()}
                        for condition in conditions
                    ],
                    **asdict(settings),
                    **({} if inputs is None else {"official": inputs.digest}),
                }
                directory = stack.enter_context(
                    RunDirectory(run, "evaluate", configuration, apart_from=source.places)
                )
                journal = directory.journal(RECORDS)
            records = evaluation.run(conditions, journal, share(progress, "scoring"))
            if not records:
                raise InputError(
                    f"no task of {', '.join(tasks)} fits in {format_length(max(chosen))} tokens, "
                    "so there is nothing to measure; give longer lengths or other tasks"
                )
            results = summarise(records)
            groups = groups_of(tasks, mode)
            averaged = means(records, groups)
            compared = compare_methods(
                (r for r in records if r.length == max(chosen) and is_compared(r)), groups
            )
            base = next((r.subject for r in records if r.method == AS_IT_IS), None)
            effective = effective_lengths(records, groups, base, present.original_length)
            retrieved = dict.fromkeys(r.task for r in records if r.depth is not None)
            found = Evaluated(
                model=loaded.name,
                results=tuple(results),
                means=tuple(averaged),
                effective_lengths=tuple(effective),
                comparisons=tuple(compared),
                depth_grids=tuple(
                    grid for task in retrieved for grid in depth_grids(records, task)
                ),
                original_length=present.original_length,
                dtype=loaded.dtype,
                device=loaded.device,
            )
            if directory is not None:
                directory.write(RESULTS, json.dumps(found.to_json(), indent=2) + "\n")
                keep_figures(
                    lambda: figures(
                        [*results, *averaged],
                        records,
                        effective=effective,
                        original_length=present.original_length,
                    ),
                    directory.path / "figures",
                    notice,
                )
        if run is not None:
            keep_report(run, notice)
        return found
