"""A model in this process, unmodified and under plans: it is read token by token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ropewalk.evaluation.answering import Answer, Answerer, Batches, TokenScores, at_once
from ropewalk.evaluation.conditions import Condition, at_length
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.samples import Sample, common_beginning
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task
from ropewalk.records import Mode, Subject

if TYPE_CHECKING:
    from ropewalk.evaluation.scoring import Scorer
    from ropewalk.models.load import LoadedModel


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
        from ropewalk.costs.refusals import check_memory

        longest, ranks = max(settings.lengths), self.ranks.per_copy
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
            yield [Answer(None if forced else self.encoder.text(answer), answer) for answer in kept]

    def losses(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Sequence[TokenScores]:
        return self._scorer.score(sequences, starts)

    def under(self, subject: Subject, length: int) -> AbstractContextManager[object]:
        from ropewalk.models.install import applied, unmodified

        plan = next(c.plan for c in self.conditions if c[:2] == (subject.method, subject.plan_id))
        if plan is None:
            plan = self.loaded.present_plan
            if all(len(plan.steps(layer_type)) == 1 for layer_type in plan.schedules):
                return unmodified(self.loaded.model)
            # Stock modules would choose by the tokens so far, anew for each chunk and token.
            plan = at_length(plan, length)
            length = min(length, plan.target_length)
        return applied(self.loaded.model, plan, length=length)


def _by(samples: Sequence[Sample], key: Callable[[Sample], object]) -> list[list[Sample]]:
    keys = dict.fromkeys(map(key, samples))
    return [[sample for sample in samples if key(sample) == one] for one in keys]


def _shared(prompts: Sequence[IntArray]) -> int:
    """The prompts' common beginning in tokens, minus those that the shortest needs for itself."""
    shared = min(common_beginning(prompts[0], prompt) for prompt in prompts)
    return min(shared, min(map(len, prompts)) - 1)
