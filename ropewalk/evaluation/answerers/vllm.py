"""vLLM's offline engine: `rw.evaluate(LLM("folder"))`, in Python alone. Never run on the engine.

Written against the calls of vLLM 0.33.0, and tested with a stand-in that has their signatures.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, RopewalkError
from ropewalk.evaluation.answerers.server import TASKS, served_subject
from ropewalk.evaluation.answering import Answer, Answerer, Batches, check_written
from ropewalk.evaluation.conditions import default_lengths
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.served.server import ServerInfo
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task
from ropewalk.models.config import present_plan
from ropewalk.records import Mode, Subject

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked

PLACE = 3
AT_ONCE = 64
"""Samples that the engine schedules among themselves, and that are recorded together."""
SETTINGS = ("dtype", "quantization", "hf_overrides", "enforce_eager", "seed")


def claims(asked: Asked) -> bool:
    kind = type(asked.model)
    return kind.__module__.partition(".")[0] == "vllm" and kind.__name__ == "LLM"


@contextmanager
def opened(asked: Asked) -> Iterator[Evaluation]:
    """The engine as it was made; the plan that it follows is that of its config."""
    asked.refuse(
        "methods to official server tokenizer model_name fingerprint concurrency timeout dtype "
        "device",
        "an engine has its own tokenizer, types and device, and follows the plan of the folder "
        "that it loaded; leave out {name}",
    )
    early = asked.settings(TASKS, "generate", lambda: (2,))
    check_written(
        early.tasks,
        early.mode,
        they="are not asked of an engine",
        instead="evaluate the folder itself",
    )
    answerer = Engine(asked.model)
    answerer.encoder = asked.in_chat(answerer.encoder)
    follows = answerer.follows
    if any(plan.id != follows.id for plan in asked.plans):
        raise InputError(
            f"the engine follows the plan {follows.id} of its config, and the plan given is "
            f"{asked.plans[0].id}; export the folder with that plan, and load it into the engine"
        )
    original, last = follows.original_length, answerer.longest
    settings = asked.settings(TASKS, "generate", lambda: default_lengths(original, (), last))
    yield Evaluation(answerer, asked.documents, asked.within_budget(settings, 1), asked.notice)


class Engine(Answerer):
    """A `vllm.LLM`."""

    chooses = True
    server: ServerInfo
    device = "vLLM's own"

    def __init__(self, engine: Any) -> None:
        self._engine, self._vllm = engine, importlib.import_module("vllm")
        config = engine.model_config
        self.model, self.dtype = str(config.model), str(config.dtype).removeprefix("torch.")
        self.longest = int(config.max_model_len)
        self.follows: ContextPlan = present_plan(config.hf_config, self.model)
        self.original_length = self.follows.original_length
        self.encoder = Encoder(engine.get_tokenizer())
        told = {name: str(getattr(config, name, None)) for name in SETTINGS}
        version = str(self._vllm.__version__)
        self.server = ServerInfo("this process", "vLLM", version, self.model, self.longest, told)

    @property
    def subjects(self) -> Sequence[Subject]:
        return [served_subject(self.server, self.follows)]

    @property
    def identity(self) -> Mapping[str, object]:
        return {
            "server": self.server.to_json(),
            "tokenizer_sha256": self.encoder.sha256,
            "plan": self.follows.to_json(),
        }

    def check(self, settings: EvaluationSettings) -> None:
        if max(settings.lengths) > self.longest:
            raise InvalidValue(
                "lengths",
                max(settings.lengths),
                f"the engine was made for {self.longest:,} tokens",
                "make it with a larger max_model_len, or give shorter lengths",
            )

    def batches(self, samples: Sequence[Sample], mode: Mode) -> Batches:
        return [samples[start : start + AT_ONCE] for start in range(0, len(samples), AT_ONCE)]

    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        for batch in batches:
            prompts = [{"prompt_token_ids": sample.prompt.tolist()} for sample in batch]
            greedily = [
                self._vllm.SamplingParams(temperature=0.0, max_tokens=sample.allowance)
                for sample in batch
            ]
            written = self._engine.generate(prompts, greedily, use_tqdm=False)
            yield [self._answer(*pair) for pair in zip(batch, written, strict=True)]

    def _answer(self, sample: Sample, written: Any) -> Answer:
        if list(written.prompt_token_ids) != sample.prompt.tolist():
            raise RopewalkError(
                f"{self.model}: the engine read {len(written.prompt_token_ids):,} tokens of a "
                f"prompt of {len(sample.prompt):,}; make it without truncation"
            )
        chosen = np.array(written.outputs[0].token_ids, dtype=np.int64)
        tokens = self.encoder.until_end(chosen)
        return Answer(self.encoder.text(tokens), tokens)
