"""The loss of a planted document under a schedule with its slopes, by one backward pass.

A pass keeps all that layers compute where memory allows, or else only their inputs, and computes
the layers again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.evaluation.scoring import LOGITS_AT_ONCE, Scorer, memory_of
from ropewalk.models.heads import head_layouts
from ropewalk.models.install import applied
from ropewalk.models.slopes import differentiable
from ropewalk.schedule import FloatArray, RotarySchedule
from ropewalk.searching.model.objectives import _out_of_memory
from ropewalk.searching.model.planted import Planted
from ropewalk.searching.model.settings import Kind

NUMBERS_A_TOKEN = (12, 4)
"""About how many numbers a layer keeps for each token: so many times the hidden size, and so many
times that of the MLP."""
TAPPED = 4  # float32 copies of queries and keys while their gradients are summed
LOGITS = 4  # as many times what a scorer computes at once, in float32


T = TypeVar("T")
Hearing = AbstractContextManager[T]


class Pass(NamedTuple):
    """What a backward pass needs."""

    recompute: bool
    bytes: int


def cheapest_pass(model: Any, length: int) -> Pass:
    """Without computing layers again if half of what the weights leave is enough for that."""
    there = memory_of(model.device)
    weights = sum(each.numel() * each.element_size() for each in model.parameters())
    needs = {again: needed(model.config.get_text_config(), model.dtype, length, again)
             for again in (False, True)}  # fmt: skip
    if there is None or 2 * needs[False] < there - weights:
        return Pass(False, needs[False])
    if needs[True] > there - weights:
        raise Unsupported(
            f"a backward pass over {length:,} tokens takes about {needs[True] / 2**30:.3g} GiB, "
            f"and {model.device} has {max(0, there - weights) / 2**30:.3g} GiB beside the weights"
        )
    return Pass(True, needs[True])


def needed(config: Any, dtype: torch.dtype, length: int, recompute: bool) -> int:
    hidden, layers = config.hidden_size, config.num_hidden_layers
    inner = getattr(config, "intermediate_size", None) or 4 * hidden
    by_hidden, by_inner = NUMBERS_A_TOKEN
    layer = (by_hidden * hidden + by_inner * inner) * dtype.itemsize
    kept = layers * hidden * dtype.itemsize + layer if recompute else layers * layer
    return int(length * (kept + TAPPED * 4 * hidden) + LOGITS * 4 * LOGITS_AT_ONCE)


class BackwardPasses:
    """Backward passes over documents, which go on where one of them fails."""

    def __init__(
        self,
        model: torch.nn.Module,
        kind: Kind,
        notice: Callable[[str], None] = lambda text: None,
        *,
        recompute: bool = False,
    ) -> None:
        self._model, self._kind, self._notice = model, kind, notice
        self._recompute = recompute
        self._scorer = Scorer(model)

    def heard(
        self, plan: ContextPlan, hear: Callable[..., Hearing[T]], shown: Sequence[Planted]
    ) -> tuple[float, T] | None:
        """The summed loss of documents under a plan, and what was heard of its slopes.

        None where the pass fails. From the first that runs out of memory on, layers are computed
        again.
        """
        try:
            return self._pass(plan, hear, shown)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
        except RopewalkError as error:
            self._notice(f"a pass failed on {shown[0].source}: {error}")
            return None
        if self._recompute:
            self._notice(f"a pass ran out of memory on {shown[0].source}")
            return None
        self._recompute = True
        self._notice("out of memory; layers are computed again in backward passes from here on")
        return self.heard(plan, hear, shown)

    def _pass(
        self, plan: ContextPlan, hear: Callable[..., Hearing[T]], shown: Sequence[Planted]
    ) -> tuple[float, T]:
        total = 0.0
        with (
            applied(self._model, plan, check=False),
            hear(self._model, recompute=self._recompute) as heard,
        ):
            for planted in shown:
                weights = weights_of(planted, self._kind)
                loss = self._scorer.loss(planted.tokens, planted.scored_from, weights)
                loss.backward()  # type: ignore[no-untyped-call]
                total += loss.item()
        return total, heard


class ModelSlopes:
    """What a search by gradient asks of a model in this process."""

    def __init__(
        self,
        model: torch.nn.Module,
        layer_type: str,
        documents: Sequence[Planted],
        plan_of: Callable[[RotarySchedule], ContextPlan],
        kind: Kind,
        notice: Callable[[str], None] = lambda text: None,
        *,
        recompute: bool = False,
        beside: Sequence[Planted] = (),
    ) -> None:
        """`beside`: a document for each, whose loss and slopes are added to its own."""
        self._documents, self._beside, self._plan_of = documents, beside, plan_of
        self._layouts = head_layouts(model, layer_type)
        self._passes = BackwardPasses(model, kind, notice, recompute=recompute)

    def each(self, schedule: RotarySchedule, documents: Sequence[int]) -> FloatArray:
        """[documents, 2 + pairs]"""
        return np.stack([self.one(schedule, document) for document in documents])

    def one(self, schedule: RotarySchedule, document: int) -> FloatArray:
        """[loss, slopes by log λ of every pair that turns, slope by log m]; NaN where it fails."""
        shown = [each[document] for each in (self._documents, self._beside) if each]
        hear = partial(differentiable, schedule=schedule, layouts=self._layouts)
        found = self._passes.heard(self._plan_of(schedule), hear, shown)
        if found is None:
            return np.full(2 + schedule.geometry.turning_pairs, np.nan)
        loss, coordinates = found
        *factors, scaling = coordinates.slopes().tolist()
        return np.array([loss, *factors[: schedule.geometry.turning_pairs], scaling])


def weights_of(document: Planted, kind: Kind) -> FloatArray:
    """Of the tokens from the first scored one on, so that their weighted losses add up to the
    objective's."""
    start, end = document.scored_from, len(document.tokens)
    weights = np.zeros(end - start)
    if kind != "needle":
        text = slice(document.text.start - start, document.text.stop - start)
        weights[text] = 1 / (text.stop - text.start)
    if kind != "perplexity":
        asked = [np.arange(answer.start, answer.stop) - start for answer in document.answers]
        if asked:
            places = np.concatenate(asked)
            weights[places] = 1 / len(places)
    return weights
