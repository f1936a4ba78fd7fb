"""Whoever answers in this process: the model is loaded, over ranks under torchrun."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.evaluation.answerers import IN_PROCESS
from ropewalk.evaluation.conditions import (
    Condition,
    check_methods,
    check_reach,
    conditions_of,
    default_lengths,
)
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.key_tokens import Evaluator
from ropewalk.evaluation.over_ranks import OverRanks
from ropewalk.evaluation.perplexity import have_keys
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.lengths import check_measured
from ropewalk.models.dividing import all_ranks
from ropewalk.models.source import Loading, Source
from ropewalk.progress import Notice
from ropewalk.records import AS_IT_IS
from ropewalk.run_directory import CONFIGURATION
from ropewalk.torchrun import Ranks, device_of_rank, started

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked
    from ropewalk.evaluation.forward_time import Timed
    from ropewalk.models.load import LoadedModel

PLACE = IN_PROCESS
TASKS = ("perplexity", "passkey", "needle", "lines", "kv")


def claims(call: Asked) -> bool:
    return True


class Settled(NamedTuple):
    """The facts of an evaluation that are known before the model is loaded."""

    source: Source
    conditions: Sequence[Condition]
    settings: EvaluationSettings


def settled(call: Asked, *, weights: bool = True) -> Settled:
    """All that can be refused without the model is refused; without `weights`, of a config."""
    if call.model is None:
        raise InputError("nothing to evaluate; give a model, or the URL of a server (`server`)")
    call.refuse_llama_cpp()
    call.refuse(
        "tokenizer model_name fingerprint concurrency timeout",
        "{name} is for a server; give its URL (`server`), or leave it out",
    )
    if call.to is not None and call.lengths is None:  # it is measured at the target
        check_measured(call.to, "to")
    check_methods(call.methods, call.to)
    if call.plans and set(call.methods) <= {AS_IT_IS}:
        call.refuse("to", "plans have a length of their own; leave out {name}, or give `methods`")
    call.settings(TASKS, "teacher_forced", lambda: (2,))  # refuses all but the lengths
    source = call.source(weights=weights)
    present = source.present_plan
    conditions = conditions_of(present, call.methods, call.plans, call.to)

    def lengths() -> Sequence[int]:
        return default_lengths(present.target_length, conditions, call.to)

    settings = call.settings(TASKS, "teacher_forced", lengths)
    check_reach(conditions, settings.lengths)
    if call.evaluator is not None and not have_keys(settings.tasks):
        raise InputError(
            "`evaluator` only chooses the key tokens of longppl: add longppl to `tasks`, or leave "
            "`evaluator` out"
        )
    return Settled(source, conditions, settings)


@contextmanager
def opened(call: Asked) -> Iterator[Evaluation]:
    """The loaded model; all that can be refused without it is refused before."""
    source, conditions, settings = settled(call)
    with ExitStack() as stack:
        ranks = stack.enter_context(_ranks(call))
        loaded = load_to_read(
            *(call.model, source, max(settings.lengths), "lengths", ranks),
            *(call.how, call.notice),
        )
        timed = _seconds(loaded, max(settings.lengths)) if ranks.size == 1 else None
        settings = call.within_budget(settings, len(conditions), timed)
        model = loaded, conditions, source.places
        answerer = InProcess(*model) if ranks.size == 1 else OverRanks(ranks, *model)
        answerer.encoder = call.in_chat(answerer.encoder)
        evaluation = Evaluation(
            *(answerer, call.documents, settings, call.notice),
            _evaluator(call, max(settings.lengths)),
        )
        evaluation.check_fits()  # what cannot be asked is not timed
        if ranks.size == 1:  # each rank would time its own
            _announce(loaded, settings, len(conditions), call)
        yield evaluation


def _evaluator(call: Asked, longest: int) -> Evaluator | None:
    """The model that chooses key tokens; None if it is the one that is measured."""
    if call.evaluator is None:
        return None
    if started() > 1:
        raise Unsupported("an `evaluator` reads all texts in one process; run without torchrun")
    source = replace(call, model=call.evaluator).source()
    how = call.how, call.notice
    return evaluator_of(call.evaluator, source, longest, "lengths", *how)


def evaluator_of(
    model: object, source: Source, longest: int, key: str, how: Loading, notice: Notice
) -> Evaluator:
    """A model, unmodified, that judges tokens of texts as long as the argument `key` says."""
    reach = source.present_plan.target_length
    if longest > reach:
        raise InvalidValue(
            key,
            longest,
            f"{source.name}, which judges tokens, reads up to {reach}",
            "give a model that reads as far (`export` writes an extended one), or less",
        )
    loaded = load_to_read(model, source, longest, key, Ranks(), how, notice)
    present = Condition(AS_IT_IS, source.present_plan.id, None)
    return Evaluator(InProcess(loaded, [present], source.places))


def _seconds(loaded: LoadedModel, longest: int) -> Callable[[int], float]:
    """The longest that one forward of a length should take here, timed when it is first asked."""

    @cache
    def timed() -> Timed:
        from ropewalk.evaluation.forward_time import Timed

        return Timed.of(loaded.model, loaded.present_plan.target_length, longest)

    return lambda length: timed().range([(length, 1)]).high


def _ranks(call: Asked) -> Ranks:
    """The ranks that answer together."""
    if not isinstance(call.model, str | Path):  # a model in memory, perhaps of a rank that trains
        call.refuse("ranks_per_copy", "{name} needs a model that is read from files; give them")
        return Ranks()
    return all_ranks(call.ranks_per_copy, "evaluate")


def load_to_read(
    model: object,
    source: Source,
    longest: int,
    key: str,
    ranks: Ranks,
    how: Loading,
    notice: Notice,
) -> LoadedModel:
    """The model, or this rank's part of it; a length that does not fit is refused before.

    `longest` is the argument `key`.
    """
    from ropewalk.models.load import load

    how = how._replace(device=device_of_rank(how.device))
    parts = ranks.per_copy
    if isinstance(model, str | Path):
        from ropewalk.costs.refusals import check_config
        from ropewalk.models.dividing import check_divides
        from ropewalk.models.load import checked_weights, load_stock_config, placement

        whole = "" if parts == 1 else check_divides(load_stock_config(source.folder), parts)
        if whole:
            notice(whole)
        place, number = placement(how.dtype, how.device, source.config)
        read = partial(check_config, source.config, longest, key, place, number)
        held = None
        if "quantization_config" in source.config:  # sizes alone do not tell its weights' bytes
            held = sum(path.stat().st_size for path in checked_weights(source.folder)) / parts
        read(in_chunks=True, ranks=parts, cache_whole=bool(whole), held=held)
        if parts > 1:
            ranks.meet(place)
    return load(model, **how._asdict(), parts=parts)


def _announce(
    loaded: LoadedModel, settings: EvaluationSettings, conditions: int, call: Asked
) -> None:
    """Say before the first forward of a long evaluation what it takes and what would fit."""
    from ropewalk.evaluation.forward_time import announce

    def forwards(samples: int) -> list[tuple[int, int]]:
        each = conditions * len(settings.tasks) * samples
        return [(length, each) for length in settings.lengths]

    fewer = [samples for samples in (10, 5, 2, 1) if samples < settings.samples]
    announce(
        loaded.model,
        loaded.present_plan.target_length,
        forwards(settings.samples),
        call.notice,
        begun=None if call.run is None else call.run / CONFIGURATION,
        what="this evaluation",
        smaller=[(f"`samples` {samples}", forwards(samples)) for samples in fewer],
        otherwise="one with fewer `methods`, `tasks` or `lengths` may",
    )
