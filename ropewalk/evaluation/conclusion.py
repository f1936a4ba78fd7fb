"""The conclusion of an evaluation, whoever answered: from scored samples to results and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from ropewalk.blocks import Block, Heading, Paragraph, Title
from ropewalk.errors import InputError
from ropewalk.evaluation import tables
from ropewalk.evaluation.charts import DepthGrid, depth_grids, pictures, tiles
from ropewalk.evaluation.effective_length import EffectiveLength, effective_lengths
from ropewalk.evaluation.results import (
    ComparedTogether,
    MethodComparison,
    SameChoices,
    compare_methods,
    follow,
    in_words,
    labels,
    means,
    same_choices,
    summarise,
)
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.served.fingerprint import Verdict
from ropewalk.evaluation.served.server import ServerInfo
from ropewalk.evaluation.settings import groups_of
from ropewalk.lengths import format_length
from ropewalk.progress import Progress, share
from ropewalk.records import (
    AS_IT_IS,
    AS_SERVED,
    PERPLEXITY,
    UNKNOWN,
    EvalRecord,
    EvalResult,
    Subject,
    is_compared,
    is_main_answer,
)
from ropewalk.run_directory import RECORDS, RESULTS, RunDirectory
from ropewalk.run_on_disk import RunOnDisk
from ropewalk.values import Charts

CURVES = "Each task by context length"


@dataclass(frozen=True, eq=False)
class Evaluated(ComparedTogether):
    """Results by subject, task and length; the scored samples are in the run directory.

    It also holds the number of right answers by depth.
    """

    rows_in = "results"
    never_empty = ("results",)

    model: str
    results: tuple[EvalResult, ...]
    means: tuple[EvalResult, ...]
    """The mean over a group of tasks, such as ruler-syn, if all of them were scored; `retrieval` is
    that of all retrieval tasks that were asked, without those that the mode leaves out."""
    effective_lengths: tuple[EffectiveLength, ...]
    """Each subject's effective length by these means: pass, fail or undecided at each length."""
    comparisons: tuple[MethodComparison, ...]
    """Each pair of subjects at the longest length, compared on the samples of both."""
    depth_grids: tuple[DepthGrid, ...]
    original_length: int
    dtype: str
    device: str
    key_tokens: str = field(default="", kw_only=True)
    """The rule of the key tokens of LongPPL and the model that chose them, if they were asked."""

    same_choices: tuple[SameChoices, ...] = field(default=(), kw_only=True)
    """Each pair of types of cache under one plan: how often they choose the same token first."""

    _optional = ("key_tokens", "same_choices")

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """The value made from this JSON; for a served model, an `EvaluatedServer`."""
        if cls is Evaluated and isinstance(value, dict) and "server" in value:
            result = EvaluatedServer.from_json(value, path)
            assert isinstance(result, cls)
            return result
        return super().from_json(value, path)

    def summary(self) -> str:
        standings = "; ".join(f"{name}: {standing}" for name, standing in self.standings.items())
        at = format_length(self.longest)
        return " ".join([f"{self.model} at {at} tokens: {standings}.", *self.remarks()])

    @property
    def longest(self) -> int:
        return max(result.length for result in self.results)

    @property
    def standings(self) -> dict[str, str]:
        """Each subject at the longest length, in words, by its name."""
        names = labels(result.subject for result in self.results)
        return {name: self._standing(subject, self.longest) for subject, name in names.items()}

    def remarks(self) -> list[str]:
        """What a reader should know of all these figures."""
        remarks = []
        if self.comparisons:
            remarks.append(
                f"{len(self.significant)} of {len(self.comparisons)} paired differences are "
                "significant at 5% after Holm's correction."
            )
        if self.untested:
            remarks.append(f"{self.untested} have too few samples for a test.")
        return remarks

    def _standing(self, subject: Subject, length: int) -> str:
        """One subject at one length: the mean over all answers or each task's, and perplexity."""
        scores, over_tasks = (
            [r for r in results if (r.subject, r.length) == (subject, length)]
            for results in (self.results, self.means)
        )
        answers = list(filter(is_main_answer, scores))
        of_all = [m for m in over_tasks if m.samples == sum(r.samples for r in answers)]
        shown = [*(of_all[:1] or answers), *(r for r in scores if r.metric == PERPLEXITY.name)]
        return ", ".join(map(in_words, shown)) or "no task fits"

    def blocks(self) -> Iterator[Block]:
        results = (*self.results, *self.means)
        yield Title(self.model, f", {self.dtype} on {self.device}")
        yield tables.scores(results)
        if self.key_tokens:
            yield Paragraph(self.key_tokens, "quiet")
        yield Heading(CURVES)
        yield from self.charts()
        if self.means:
            yield Heading("Effective length")
            yield from tables.effective(self.effective_lengths, results, self.original_length)
        if self.depth_grids:
            names = [grid.task for grid in self.depth_grids]
            task = "needle" if "needle" in names else names[0]
            yield from (tiles(grid) for grid in self.depth_grids if grid.task == task)
        if self.comparisons:
            yield Heading("Methods compared")
            yield tables.compared(self.comparisons)
            if self.undecided:
                yield Paragraph(f"{self.undecided} pairs show no significant difference")
            if self.untested:
                yield Paragraph(f"{self.untested} pairs have too few samples for a test")
            yield Paragraph(tables.HOW_COMPARED, "quiet")
        if self.same_choices:
            yield tables.agreement(self.same_choices)

    def charts(self) -> Charts:
        """Each task by context length, one curve per subject."""
        return self.pictures(())["by-length"]

    def pictures(self, records: Sequence[EvalRecord]) -> dict[str, Charts]:
        """The charts of all pictures, those that need the scored samples included."""
        return pictures(
            (*self.results, *self.means),
            records,
            effective=self.effective_lengths,
            original_length=self.original_length,
        )


@dataclass(frozen=True, eq=False)
class EvaluatedServer(Evaluated):
    """Results of a model as its server runs it, and whether it answers as planned."""

    server: ServerInfo
    verdict: Verdict | None
    """The verdict of the fingerprint; None if there was none to compare with."""

    def blocks(self) -> Iterator[Block]:
        title, *others = super().blocks()
        yield title
        if self.verdict is not None:
            yield Paragraph(self.verdict.summary(), "verdict")
        yield from others

    def remarks(self) -> list[str]:
        return super().remarks() + ([] if self.verdict is None else [self.verdict.summary()])


def measure(
    evaluation: Evaluation, run: Path | None, progress: Progress
) -> tuple[Evaluated, Sequence[EvalRecord]]:
    """Ask and sum up; a directory `run` keeps samples and results, and resumes."""
    evaluation.check_fits()
    answerer = evaluation.answerer
    ranks, root = answerer.ranks, answerer.ranks.rank == 0
    with ExitStack() as stack:
        # Rank 0 alone keeps records; on all ranks they answer the same questions.
        directory = journal = None
        if ranks.size > 1:
            ranks.check_same(evaluation.configuration)
        if run is not None and root:
            directory = stack.enter_context(
                RunDirectory(run, "evaluate", evaluation.configuration, apart_from=answerer.files)
            )
            journal = directory.journal(RECORDS)
        answerer.begin(directory)
        records = evaluation.run(journal, share(progress, "scoring"))
        # A record that no question of this run leads to would count in the means.
        others = (i for i, r in enumerate(records, start=1) if r.key not in evaluation.keys)
        if directory is not None and (line := next(others, None)) is not None:
            raise InputError(
                f"{directory.path / RECORDS}: line {line} scores sample {records[line - 1].sample} "
                f"at {records[line - 1].length}, which is not part of this run; remove the line, "
                "or restore the file"
            )
        answerer.end(directory)
        if root and not records:
            raise InputError(
                f"{evaluation.evaluator} finds no key tokens, so LongPPL has none to score; give "
                "longer lengths, more text, or another `evaluator`"
            )
        # Only rank 0 has all records, and so the results.
        result = concluded(evaluation, records) if root else None
        shared = ranks.broadcast(None if result is None else result.to_json())
        result = result or Evaluated.from_json(shared)
        if directory is not None:
            directory.keep(RESULTS, result.to_json())
    return result, records


def concluded(evaluation: Evaluation, records: Sequence[EvalRecord]) -> Evaluated:
    """The results of scored samples."""
    answerer, settings, evaluator = evaluation.answerer, evaluation.settings, evaluation.evaluator
    groups = groups_of(settings.tasks, settings.mode)
    longest, original = max(settings.lengths), answerer.original_length
    # Effective lengths refer to the unmodified model, or to a server whose plan is known.
    unmodified = (
        r.subject for r in records if r.method in (AS_IT_IS, AS_SERVED) and r.plan_id != UNKNOWN
    )
    base = next(unmodified, None)
    retrieved = dict.fromkeys(r.task for r in records if r.depth is not None)
    result = Evaluated(
        model=answerer.model,
        results=tuple(summarise(records)),
        means=tuple(means(records, groups)),
        effective_lengths=tuple(effective_lengths(records, groups, base, original)),
        comparisons=tuple(
            compare_methods((r for r in records if r.length == longest and is_compared(r)), groups)
        ),
        depth_grids=tuple(grid for task in retrieved for grid in depth_grids(records, task)),
        original_length=original,
        dtype=answerer.dtype,
        device=answerer.device,
        key_tokens="" if evaluator is None else evaluator.rule(original),
        same_choices=tuple(same_choices(records)),
    )
    if answerer.server is None:
        return result
    return EvaluatedServer(**vars(result), server=answerer.server, verdict=answerer.verdict)


def evaluated(run: RunOnDisk) -> Evaluated | None:
    """Its result, if it is finished. Files of two models in one folder are refused, and a result
    that does not follow from its records."""
    result = run.result(RESULTS, Evaluated)
    weights = run.configuration.get("weights_sha256")
    for name, scored in ((RECORDS, run.records), (RESULTS, result.results if result else ())):
        others = (s.weights for s in scored if isinstance(weights, str))
        if other := next((each for each in others if not str(weights).startswith(each)), None):
            raise InputError(
                f"{run.path / name}: holds scores of the weights {other}…, but the run is of the "
                f"weights {str(weights)[:16]}…; restore the file, or evaluate again"
            )
    if result is not None and not follow(result.results, run.records):
        raise InputError(
            f"{run.path}: is damaged: {RESULTS} does not follow from {RECORDS}; restore the files, "
            "or evaluate again"
        )
    return result
