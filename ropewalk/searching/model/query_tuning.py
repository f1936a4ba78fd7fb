"""Scales of queries that lower the loss under a schedule that is chosen already.

One positive number for each query head and rotary pair folds into the weights of the query
projection, so this is a tuning of weights, by few numbers. It lowers the loss for two reasons: the
longer context, and the text itself. What the text alone brings is told by scales that are tuned in
the same way within the original length, and are then tried at the target.

The walk is Adam's in the logarithms, over as many documents a step as descent.py takes, and returns
the mean over the second half of its steps.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, Unsupported
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.select import Paired, paired
from ropewalk.models.heads import QUERY_NORMS, Layouts, head_layouts
from ropewalk.models.load import LoadedModel
from ropewalk.models.slopes import query_slopes
from ropewalk.progress import Notice, Progress, Status
from ropewalk.query_scales import QueryScales
from ropewalk.run_directory import Journal
from ropewalk.schedule import FloatArray
from ropewalk.searching.descent import (
    DOCUMENTS_A_STEP,
    FORWARDS_A_PASS,
    MEAN_DECAY,
    SQUARE_DECAY,
    order_of,
)
from ropewalk.searching.model.gradient import BackwardPasses, cheapest_pass
from ropewalk.searching.model.objectives import LocalMeasure, loss_of
from ropewalk.searching.model.planted import Planted, split_corpus, text_of
from ropewalk.searching.model.results import QueryTuning
from ropewalk.searching.model.settings import SearchSettings
from ropewalk.searching.model.shortened import shortened

PASSES = 48
RATE = 0.01


def check_foldable(layouts: Layouts) -> None:
    """Refuse layers that no export could fold scales into, before anything is tuned."""
    for layer in layouts:
        kind = type(layer.module).__name__
        norms = [name for name in QUERY_NORMS if getattr(layer.module, name, None) is not None]
        if norms:
            raise Unsupported(
                f"{kind} norms its queries after their projection ({norms[0]}), so scales of "
                "queries cannot be folded into its weights; search without them"
            )
        if not hasattr(layer.module, "q_proj"):
            raise Unsupported(
                f"{kind} has no query projection of its own (q_proj) to fold scales of queries "
                "into; search without them"
            )


def tune_queries(
    loaded: LoadedModel,
    corpus: Sequence[Document],
    settings: SearchSettings,
    plan: ContextPlan,
    *,
    journal: Callable[[str], Journal | None],
    progress: Progress,
    notice: Notice,
) -> tuple[ContextPlan, QueryTuning]:
    """The plan with scales of its queries where these are shown to help, and what was measured.

    They are tuned on the documents that the search saw, accepted by those that it chose by, and
    reported on the others.
    """
    layer, length = plan.extended_layer, plan.target_length
    schedule = plan.longest(layer)
    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    sets = split_corpus(corpus, encoder, length, settings.sizes, settings.seed)
    original = schedule.geometry.original_length
    search, reporting = (
        shortened(each, corpus, encoder, original, settings.seed)
        for each in (sets.search, sets.reporting)
    )
    tuner = Tuner(loaded, layer, settings, length, notice)
    scales = tuner.tuned(plan, sets.search, journal("query-scales.jsonl"), progress)
    within = None
    if search:
        within = tuner.tuned(
            loaded.present_plan, search, journal("query-scales-short.jsonl"), progress
        )

    def losses(documents: Sequence[Planted], of: QueryScales | None) -> FloatArray:
        measure = LocalMeasure(
            loaded.model, documents, lambda _: replace(plan, query_scales=of), notice
        )
        return loss_of(measure([schedule], range(len(documents)))[0], settings.objective)

    def less(
        documents: Sequence[Planted], first: QueryScales, second: QueryScales | None
    ) -> Paired | None:
        own, other = losses(documents, first), losses(documents, second)
        if not np.isfinite([own, other]).all():
            return None
        return paired(own, other, [text_of(document.source) for document in documents])

    selection = less(sets.selection, scales, None)
    tuning = QueryTuning(
        adopted=selection is not None and selection.verdict == "better",
        selection=selection,
        held_out=less(sets.reporting, scales, None),
        beyond_text=less(sets.reporting, scales, within) if within else None,
        at_original_length=less(reporting, scales, None) if reporting else None,
        passes=PASSES,
        tokens=PASSES * tuner.forwards_a_pass * (length + (original if within else 0)),
    )
    if not tuning.adopted:
        notice(
            "scales of queries were not shown to help on documents that no search had seen "
            f"({selection or 'the model failed on some'}), so the plan has none"
        )
        return plan, tuning
    return replace(plan, query_scales=scales), tuning


class Tuner:
    """A model whose queries are scaled."""

    def __init__(
        self, loaded: LoadedModel, layer: str, settings: SearchSettings, length: int, notice: Notice
    ) -> None:
        self._layouts = head_layouts(loaded.model, layer)
        self._seed, self._notice = settings.seed, notice
        recompute = cheapest_pass(loaded.model, length).recompute
        self.forwards_a_pass = FORWARDS_A_PASS + recompute
        self._passes = BackwardPasses(loaded.model, settings.objective, notice, recompute=recompute)

    def tuned(
        self,
        plan: ContextPlan,
        documents: Sequence[Planted],
        journal: Journal | None,
        progress: Progress,
    ) -> QueryScales:
        """Scales that lower the loss of documents under a plan."""
        logs = {
            layer.index: torch.zeros(layout.heads, layout.pairs, dtype=torch.float64)
            for layer, layout in self._layouts.items()
        }
        adam = torch.optim.Adam(
            [log.requires_grad_() for log in logs.values()],
            lr=RATE,
            betas=(MEAN_DECAY, SQUARE_DECAY),
        )
        steps = PASSES // DOCUMENTS_A_STEP
        order = order_of(len(documents), PASSES, self._seed)
        told = iter(list(journal.records) if journal else [])
        sums = {index: torch.zeros_like(log) for index, log in logs.items()}
        for step in range(steps):
            progress(Status("tuning queries", step / steps))
            shown = order[step * DOCUMENTS_A_STEP :][:DOCUMENTS_A_STEP]
            line = {"step": step, "documents": shown, "seed": self._seed, "plan": plan.id}
            record = next(told, None)
            if record is None:
                slopes = self._slopes(plan, logs, [documents[i] for i in shown])
                if journal:
                    journal.append([line | {"slopes": _written(slopes)}])
            else:
                slopes = _read(record, line, logs, journal)
            for index, log in logs.items():
                log.grad = slopes[index]
            adam.step()
            if step >= steps // 2:
                for index, log in logs.items():
                    sums[index] += log.detach()
        counted = steps - steps // 2
        return QueryScales({i: np.exp(each.numpy() / counted) for i, each in sums.items()})

    def _slopes(
        self, plan: ContextPlan, logs: Mapping[int, Tensor], shown: Sequence[Planted]
    ) -> dict[int, Tensor]:
        """The mean of the passes that succeed; zero where none does."""
        scales = QueryScales({i: log.detach().exp().numpy() for i, log in logs.items()})
        scaled = replace(plan, query_scales=scales)
        hear = partial(query_slopes, layouts=self._layouts)
        found = [self._passes.heard(scaled, hear, [document]) for document in shown]
        heard = [(each[0], each[1].slopes()) for each in found if each is not None]
        good = [
            slopes
            for loss, slopes in heard
            if np.isfinite(loss) and all(bool(own.isfinite().all()) for own in slopes.values())
        ]
        if len(good) < len(shown):
            self._notice(
                f"{len(shown) - len(good)} of {len(shown)} passes failed, and were skipped"
            )
        return {
            i: torch.stack([slopes[i] for slopes in good]).mean(0)
            if good
            else torch.zeros_like(log)
            for i, log in logs.items()
        }


def _written(slopes: Mapping[int, Tensor]) -> dict[str, object]:
    """Slopes have the form of scales in a file, but any sign and size."""
    return {str(i): base64.b64encode(each.numpy().tobytes()).decode() for i, each in slopes.items()}


def _read(
    record: Mapping[str, object],
    line: dict[str, object],
    logs: Mapping[int, Tensor],
    journal: Journal | None,
) -> dict[int, Tensor]:
    """What the journal has of a step."""
    assert journal
    written = record.get("slopes")
    try:
        if {**record, **line} != record or not isinstance(written, dict):
            raise ValueError
        found = {i: np.frombuffer(base64.b64decode(written[str(i)])) for i in logs}
        return {i: torch.from_numpy(found[i].reshape(log.shape).copy()) for i, log in logs.items()}
    except (KeyError, TypeError, ValueError):  # ValueError: also no base64, or another size
        raise InputError(
            f"{journal.path}: is the journal of another tuning; give the same settings, or a new "
            "directory"
        ) from None
