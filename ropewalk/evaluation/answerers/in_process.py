"""A model in this process, unmodified and under plans: it is read token by token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ropewalk.errors import InputError
from ropewalk.evaluation.answerers import IN_PROCESS
from ropewalk.evaluation.answering import Answer, Answerer, Batches, TokenScores, at_once
from ropewalk.evaluation.conditions import (
    Condition,
    check_methods,
    check_reach,
    conditions_of,
    default_lengths,
)
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.official import Official, every, read
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task
from ropewalk.lengths import check_measured
from ropewalk.models.source import Source, runnable
from ropewalk.progress import Notice
from ropewalk.records import Mode, Subject
from ropewalk.run_directory import CONFIGURATION
from ropewalk.torchrun import check_ranks, own_device, started

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked
    from ropewalk.evaluation.forward_time import Timed
    from ropewalk.evaluation.scoring import Scorer
    from ropewalk.models.load import LoadedModel
    from ropewalk.models.ranks import Ranks

PLACE = IN_PROCESS
TASKS = ("perplexity", "passkey", "needle", "lines", "kv")


def claims(asked: Asked) -> bool:
    return True


class Settled(NamedTuple):
    """The facts of an evaluation that are known before the model is loaded."""

    source: Source
    conditions: Sequence[Condition]
    settings: EvaluationSettings
    inputs: Official | None


def settled(asked: Asked, *, weights: bool = True) -> Settled:
    """All that can be refused without the model is refused; without `weights`, of a config."""
    if asked.model is None:
        raise InputError("nothing to evaluate; give a model, or the URL of a server (`server`)")
    asked.refuse(
        "tokenizer model_name fingerprint",
        "{name} is for a server; give its URL (`server`), or leave it out",
    )
    if asked.to is not None and asked.lengths is None:  # it is measured at the target
        check_measured(asked.to, "to")
    check_methods(asked.methods, asked.to)
    early = asked.settings(TASKS, "teacher_forced", lambda: (2,))
    inputs = None if asked.official is None else read(asked.official)
    named = [name for name in early.tasks if name in every()]
    if named and inputs is None:
        raise InputError(
            f"{named[0]} needs RULER's own inputs; give their folder (`official`), or ask for "
            f"{named[0]}-syn"
        )
    if inputs is not None and not named:
        raise InputError("official inputs are given, but no task reads them; add the task ruler")
    if inputs is not None:
        inputs.check(named, asked.lengths or (), asked.samples)
    source = runnable(
        asked.model,
        dtype=asked.dtype,
        device=asked.device,
        allow_download=asked.allow_download,
        strict=asked.strict,
        notice=asked.notice,
        run=asked.run,
        weights=weights,
    )
    present = source.present_plan
    conditions = conditions_of(present, asked.methods, asked.plans, asked.to)

    def lengths() -> Sequence[int]:
        if inputs is not None:
            return inputs.lengths(named)
        return default_lengths(present.target_length, conditions, asked.to)

    settings = asked.settings(TASKS, "teacher_forced", lengths)
    check_reach(conditions, settings.lengths)
    return Settled(source, conditions, settings, inputs)


@contextmanager
def opened(asked: Asked) -> Iterator[Evaluation]:
    """The loaded model; all that can be refused without it is refused before."""
    source, conditions, settings, inputs = settled(asked)
    with ExitStack() as stack:
        ranks = _ranks(asked, stack)
        loaded = load_to_read(
            *(asked.model, source, max(settings.lengths), "lengths", ranks),
            dtype=asked.dtype,
            device=asked.device,
            allow_download=asked.allow_download,
            notice=asked.notice,
        )
        timed = _seconds(loaded, max(settings.lengths)) if ranks is None else None
        settings = asked.within_budget(settings, len(conditions), timed)
        answerer = InProcess(loaded, conditions, source.places)
        if ranks is not None:
            from ropewalk.evaluation.over_ranks import OverRanks

            answerer = OverRanks(loaded, conditions, source.places, ranks)
        answerer.encoder = asked.in_chat(answerer.encoder)
        evaluation = Evaluation(answerer, asked.documents, settings, asked.notice, inputs)
        evaluation.check_fits()  # what cannot be asked is not timed
        if ranks is None:  # each rank would time its own
            _announce(loaded, settings, len(conditions), asked)
        yield evaluation


def _seconds(loaded: LoadedModel, longest: int) -> Callable[[int], float]:
    """The longest that one forward of a length should take here, timed when it is first asked."""

    @cache
    def timed() -> Timed:
        from ropewalk.evaluation.forward_time import Timed

        return Timed.of(loaded.model, loaded.present_plan.target_length, longest)

    return lambda length: timed().range([(length, 1)]).high


def _ranks(asked: Asked, stack: ExitStack) -> Ranks | None:
    """The ranks that torchrun started; None for a process alone."""
    if not isinstance(asked.model, str | Path):  # a model in memory, perhaps of a rank that trains
        asked.refuse("ranks_per_copy", "{name} needs a model that is read from files; give them")
        return None
    check_ranks(asked.ranks_per_copy, "evaluate")
    if started() == 1:
        return None
    from ropewalk.models.ranks import Ranks

    return stack.enter_context(Ranks.of_environment(asked.ranks_per_copy))


def load_to_read(
    model: object,
    source: Source,
    longest: int,
    key: str,
    ranks: Ranks | None,
    *,
    dtype: str,
    device: str,
    allow_download: bool,
    notice: Notice,
) -> LoadedModel:
    """The model, or this rank's part of it; a length that does not fit is refused before.

    `longest` is the argument `key`.
    """
    from ropewalk.models.load import load

    device = own_device(device)
    parts = 1 if ranks is None else ranks.per_copy
    if isinstance(model, str | Path):
        from ropewalk.costs.here import check_config
        from ropewalk.models.dividing import check_divides
        from ropewalk.models.load import checked_weights, load_stock_config, placement

        whole = "" if parts == 1 else check_divides(load_stock_config(source.folder), parts)
        if whole:
            notice(whole)
        place, number = placement(dtype, device, source.config)
        read = partial(check_config, source.config, longest, key, place, number)
        held = None
        if "quantization_config" in source.config:  # sizes alone do not tell its weights' bytes
            held = sum(path.stat().st_size for path in checked_weights(source.folder)) / parts
        read(in_chunks=True, ranks=parts, cache_whole=bool(whole), held=held)
        if ranks is not None and parts > 1:
            ranks.meet(place)
    return load(model, dtype=dtype, device=device, allow_download=allow_download, parts=parts)


def _announce(
    loaded: LoadedModel, settings: EvaluationSettings, conditions: int, asked: Asked
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
        asked.notice,
        begun=None if asked.run is None else asked.run / CONFIGURATION,
        what="this evaluation",
        smaller=[(f"`samples` {samples}", forwards(samples)) for samples in fewer],
        otherwise="one with fewer `methods`, `tasks` or `lengths` may",
    )


class InProcess(Answerer):
    """A loaded model under each of some conditions."""

    chooses = True

    def __init__(
        self,
        loaded: LoadedModel,
        conditions: Sequence[Condition],
        files: Sequence[Path] = (),
    ) -> None:
        from ropewalk.evaluation.scoring import end_tokens

        self.loaded, self.conditions, self.files = loaded, conditions, tuple(files)
        self.model = loaded.name
        self.original_length = loaded.present_plan.original_length
        self.dtype, self.device = loaded.dtype, loaded.device
        self.encoder = Encoder(loaded.tokenizer, loaded.vocabulary, end_tokens(loaded.model))

    @cached_property
    def subjects(self) -> Sequence[Subject]:
        return [Subject(self._weights[:16], c.plan_id, c.method) for c in self.conditions]

    @cached_property
    def identity(self) -> Mapping[str, object]:
        from ropewalk.evaluation.identity import identity_of

        return {
            **identity_of(self.loaded, self._weights),
            "conditions": [
                {**each._asdict(), "plan": each.plan and each.plan.to_json()}
                for each in self.conditions
            ],
        }

    @cached_property
    def _weights(self) -> str:
        """Their fingerprint, as the evaluation began."""
        from ropewalk.evaluation.identity import digest_of_weights

        return digest_of_weights(self.loaded.model)

    @cached_property
    def _scorer(self) -> Scorer:
        from ropewalk.evaluation.scoring import Scorer

        return Scorer(self.loaded.model, in_chunks=True)

    def check(self, settings: EvaluationSettings) -> None:
        from ropewalk.costs.here import check_memory

        ranks = 1 if self.ranks is None else self.ranks.per_copy
        longest = max(settings.lengths)
        check_memory(self.loaded.model, longest, "lengths", in_chunks=True, ranks=ranks)

    def batches(self, samples: Sequence[Sample], mode: Mode) -> Batches:
        if mode == "shared_context":
            return _by(samples, lambda sample: sample.context)
        # Writing needs prompts of one length; reading does not.
        one = mode == "teacher_forced"
        groups = [samples] if one else _by(samples, lambda sample: len(sample.prompt))
        return [
            group[start : start + size]
            for group in groups
            if group and (size := at_once(group[0].length))
            for start in range(0, len(group), size)
        ]

    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        def ended(written: IntArray) -> bool:
            if self.encoder.is_end(int(written[-1])):
                return True
            return bool(task.ends) and re.search(task.ends, self.encoder.text(written)) is not None

        for batch in batches:
            prompts = [sample.prompt for sample in batch]
            if mode == "teacher_forced":
                # One token more, whichever: the choice in its place shows whether the answer ends.
                sequences = [np.append(sample.tokens, sample.tokens[-1]) for sample in batch]
                scores = self._scorer.score(sequences, list(map(len, prompts)))
                choices = [score.chosen for score in scores]
            else:
                most = max(sample.allowance for sample in batch)
                if mode == "generate":
                    written = self._scorer.write(prompts, most, ended)
                else:
                    written = self._scorer.write_on(_shared(prompts), prompts, most, ended)
                choices = [self.encoder.until_end(tokens) for tokens in written]
            kept = [
                chosen[: sample.allowance] for sample, chosen in zip(batch, choices, strict=True)
            ]
            forced = mode == "teacher_forced"
            yield [Answer(None if forced else self.encoder.text(own), own) for own in kept]

    def losses(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Sequence[TokenScores]:
        return self._scorer.score(sequences, starts)

    def under(self, subject: Subject, length: int) -> AbstractContextManager[object]:
        from ropewalk.models.install import applied

        plan = next(c.plan for c in self.conditions if c[:2] == (subject.method, subject.plan_id))
        if plan is None:
            plan = self.loaded.present_plan
            if all(len(plan.steps(layer_type)) == 1 for layer_type in plan.schedules):
                return nullcontext()
            # Stock modules would choose by the tokens so far, anew for each chunk and token.
            length = min(length, plan.target_length)
        return applied(self.loaded.model, plan, length=length)


def _by(own: Sequence[Sample], key: Callable[[Sample], object]) -> list[list[Sample]]:
    keys = dict.fromkeys(map(key, own))
    return [[sample for sample in own if key(sample) == one] for one in keys]


def _shared(prompts: Sequence[IntArray]) -> int:
    """The prompts' common beginning in tokens, minus those that the shortest needs for itself."""
    most = min(map(len, prompts)) - 1
    differs = np.any([prompt[:most] != prompts[0][:most] for prompt in prompts], axis=0)
    return int(np.argmax(differs)) if differs.any() else most
