"""A GGUF file that a llama.cpp of its own runs: under one plan and cache type at a time.

llama.cpp takes a schedule and the types of its cache when it starts, so another condition is
another start of it; the weights stay in the system's cache of files. It says the probabilities of
the next token alone: a text is read once, and each token that is scored is one step more.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.costs.llama_cpp import LlamaCppCost
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported, printable
from ropewalk.evaluation.answering import Answer, Answerer, Batches, TokenScores
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.forward_time import PROBED, Arithmetic, ForwardClock
from ropewalk.evaluation.planted import Planted
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.served.llama_cpp_tokens import encoder_of
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.evaluation.tasks import Task
from ropewalk.exporting.manifest import sha256
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.cache import TYPES, cache_bytes, free_memory
from ropewalk.gguf.facts import Facts
from ropewalk.gguf.flags import Flags, flags_of
from ropewalk.gguf.header import GGUFHeader
from ropewalk.gguf.llama_cpp_run import Engine, RunningLlamaCpp, absent, serving
from ropewalk.gguf.parts import read_parts, whole
from ropewalk.gguf.rewriting import spans
from ropewalk.gguf.settings import check_plan, only_schedule
from ropewalk.models.source import Loading, Source
from ropewalk.records import Mode, Subject
from ropewalk.run_directory import RunDirectory

_TOKENIZER = "tokenizer.ggml."
_TOKENS = "tokenizer.ggml.tokens"
SCORED = 128
"""The most tokens of a document's text that are scored, each by a step of its own."""
STEPS = 192
"""About as many tokens of a planted document are scored: those, and of its answers."""
TIMED_STEPS = 8
USED = "used"
"""The event of the tokens that llama.cpp has read."""


class LlamaCppSetting(NamedTuple):
    """The plan's flags, and the type of cache, with which llama.cpp runs a file."""

    flags: Flags | None
    cache: str


class FileInLlamaCpp:
    """The model of a GGUF file, and the llama.cpp that runs it, until the end of a `with` block."""

    where = "a private llama.cpp"

    def __init__(
        self,
        source: Source,
        engine: Engine,
        progress: Callable[[float], None] = lambda done: None,
    ) -> None:
        """All is refused that the file alone shows."""
        assert source.path is not None
        parts = read_parts(source.path)
        self.source, self.header = source, whole(parts)
        self.files = tuple(part.path for part in parts)
        _check_model(self.header)
        for part in parts:
            spans(part)  # refuses one that is cut
        if not engine.available:
            raise absent()
        self.engine = engine.on(self.files[0])
        self.present_plan = source.present_plan
        self.name = printable(source.path.name)
        facts = Facts.of(self.header)
        self.dtype = facts.mixture or next(iter(facts.types), "unknown dtype")
        self.device = f"{self.engine.name}, {self.engine.threads} threads"
        self._states = _states(self.files)
        self._progress = progress
        self._stack = ExitStack()
        self._now: tuple[LlamaCppSetting, int, bool] | None = None
        self._running: RunningLlamaCpp | None = None
        self._read_before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of the file; of several, that of their digests."""
        total, before, sums = sum(file.stat().st_size for file in self.files), 0, []
        for file in self.files:
            sums.append(sha256(file, self._progress, before, total))
            before += file.stat().st_size
        return sums[0] if len(sums) == 1 else hashlib.sha256("".join(sums).encode()).hexdigest()

    @property
    def identity(self) -> dict[str, object]:
        """The file, and the llama.cpp that runs it, for the configuration of a run."""
        return {
            "weights_sha256": self.sha256,
            **self.engine.used,
            "tokenizer_sha256": self.encoder.sha256,
            "bos": bool(self.encoder.bos),
        }

    @cached_property
    def encoder(self) -> Encoder:
        """The tokenizer, in the words of the llama.cpp that runs."""
        template = self.header.values.get("tokenizer.chat_template")
        names = (f"{_TOKENIZER}{kind}_token_id" for kind in ("eos", "eot"))
        return encoder_of(
            self,
            self.header.lengths[_TOKENS],
            _tokenizer_digest(self.header, self.engine.name),
            [end for name in names if type(end := self.header.values.get(name)) is int],
            None if template is None else str(template),
        )

    def post(self, endpoint: str, body: dict[str, object]) -> Any:
        """An answer of the llama.cpp that runs, under whichever setting."""
        assert self._running is not None, "`run` starts one"
        return self._running.post(endpoint, body)

    @property
    def read(self) -> int:
        """The tokens that the model has read so far."""
        return self._read_before + (0 if self._running is None else self._running.read)

    def setting(
        self, plan: ContextPlan | None, length: int, cache: str, method: str
    ) -> LlamaCppSetting:
        """The setting that follows a plan up to a length; without one, that of the file."""
        stated = self.header.count("context_length") or 0
        if (plan is None or plan.rotates_like(self.present_plan)) and length <= stated:
            return LlamaCppSetting(None, cache)
        try:
            if plan is None:
                schedule = only_schedule(self.present_plan)
            else:
                schedule = check_plan(self.header, plan)
            return LlamaCppSetting(flags_of(self.header, schedule, length), cache)
        except Unsupported as error:
            if plan is not None:
                raise Unsupported(f"{method}: {error}") from None
            raise InvalidValue(
                "lengths",
                length,
                f"{self.header.path} has a context of {stated:,} tokens, and {error}",
                "extend the file (`plan`, then `export`), or give shorter lengths",
            ) from None

    def run(
        self, setting: LlamaCppSetting, length: int, *, keeps_prompts: bool = False
    ) -> RunningLlamaCpp:
        """The llama.cpp that runs so; another one is ended before."""
        wanted = (setting, length, keeps_prompts)
        if self._running is None or self._now != wanted:
            self._read_before, self._running = self.read, None
            self._stack.close()
            served = serving(
                self.files[0],
                length=length,
                exact=False,  # a file is measured as it is served
                keeps_prompts=keeps_prompts,
                flags=setting.flags,
                cache=setting.cache,
                engine=self.engine,
            )
            running = RunningLlamaCpp(self.files[0], self._stack.enter_context(served))
            serves = running.serves
            if serves < length:
                raise RopewalkError(
                    f"{self.files[0]}: {self.engine.name} serves {serves:,} tokens of the "
                    f"{length:,} asked for; give shorter lengths, or update it: builds since 2026 "
                    "serve what YaRN's flags reach"
                )
            self._now, self._running = wanted, running
        return self._running

    def check_memory(
        self, length: int, cache: str, key: str, *, keeps_prompts: bool = False
    ) -> None:
        """Refuse a length whose cache memory does not hold."""
        kind, free = cache if cache in TYPES else "f16", free_memory()
        needed = cache_bytes(self.header, length, kind, keeps_prompts=keeps_prompts)
        if needed is not None and free is not None and needed > free:
            raise InvalidValue(
                key,
                length,
                f"the cache of llama.cpp takes {needed / 2**30:.3g} GiB at that length, and "
                f"{free / 2**30:.3g} GiB of memory are free",
                "give a shorter length, another type of cache (`cache`), or serve the file on a "
                "machine with more memory and give its address (`server`)",
            )

    def check_unchanged(self) -> None:
        """Refuse answers of a file that was written to meanwhile."""
        if _states(self.files) != self._states:
            raise RopewalkError(
                f"{self.source.path}: changed while it was measured, so the answers are those of "
                "two files; evaluate it again, into a new directory"
            )


class InLlamaCpp(Answerer):
    """A GGUF file under each of some conditions, each with a type of cache."""

    chooses = True

    def __init__(
        self,
        file: FileInLlamaCpp,
        conditions: Sequence[tuple[Condition, str]],
        settings: EvaluationSettings,
        notice: Callable[[str], None],
    ) -> None:
        self.file, self.conditions = file, conditions
        self.model, self.dtype, self.device = file.name, file.dtype, file.device
        self.files, self.original_length = file.files, file.present_plan.original_length
        self._length, self._notice = max(settings.lengths), notice
        self._keeps_prompts = settings.mode == "shared_context"
        for _, cache in conditions:
            file.check_memory(self._length, cache, "lengths", keeps_prompts=self._keeps_prompts)
        self._settings = [
            file.setting(condition.plan, self._length, cache, condition.method)
            for condition, cache in conditions
        ]
        self._llama = self._run(0)
        self.encoder = file.encoder

    def _run(self, number: int) -> RunningLlamaCpp:
        setting = self._settings[number]
        return self.file.run(setting, self._length, keeps_prompts=self._keeps_prompts)

    @cached_property
    def subjects(self) -> Sequence[Subject]:
        weights = self.file.sha256[:16]
        return [Subject(weights, c.plan_id, c.method) for c, _ in self.conditions]

    @cached_property
    def identity(self) -> Mapping[str, object]:
        return {
            **self.file.identity,
            "conditions": [
                {**each._asdict(), "plan": each.plan and each.plan.to_json(), "cache": cache}
                for each, cache in self.conditions
            ],
        }

    def batches(self, samples: Sequence[Sample], mode: Mode) -> Batches:
        if mode != "shared_context":
            return [[sample] for sample in samples]
        contexts = dict.fromkeys(sample.context for sample in samples)
        return [[each for each in samples if each.context == context] for context in contexts]

    @contextmanager
    def under(self, subject: Subject, length: int) -> Iterator[None]:
        self._llama = self._run(list(self.subjects).index(subject))
        yield

    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        for batch in batches:
            yield [self._answer(sample, mode, again=i > 0) for i, sample in enumerate(batch)]

    def _answer(self, sample: Sample, mode: Mode, *, again: bool) -> Answer:
        if mode == "teacher_forced":
            # One token more, whichever: the choice in its place shows whether the answer ends.
            tokens = np.append(sample.tokens, sample.tokens[-1])
            [scores] = self.losses([tokens], [len(sample.prompt)])
            return Answer(None, scores.chosen[: sample.allowance])
        written = self._llama.generate(sample.prompt.tolist(), sample.allowance, again=again)
        answer = self.encoder.until_end(np.array(written, dtype=np.int64))
        return Answer(self.encoder.text(answer), answer)

    def losses(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Sequence[TokenScores]:
        return [
            self._scores(tokens, range(start, len(tokens)), start)
            for tokens, start in zip(sequences, starts, strict=True)
        ]

    def read(self, document: Planted) -> TokenScores:
        few = document.with_scored(1)  # the answers say all that an evaluation asks
        return self._scores(document.tokens, few.scored.tolist(), document.scored_from)

    def _scores(self, tokens: IntArray, positions: Sequence[int], start: int) -> TokenScores:
        return scores_of(self._llama, tokens, positions, start)

    def end(self, directory: RunDirectory | None) -> None:
        self.file.check_unchanged()
        if directory is not None:
            directory.event(USED, tokens=self.file.read)
        self._notice(f"llama.cpp has read {self.file.read:,} tokens")


@dataclass(frozen=True)
class ReadInSteps(Arithmetic):
    """The multiplications of a planted document: of its tokens, and of a step for each that is
    scored, which takes as long as several tokens that are read at once."""

    cost: LlamaCppCost
    stepped: float
    """All steps, in tokens of the document's end."""

    def by_weight(self, length: int) -> float:
        return self.weights * (length + self.stepped)

    def by_position(self, length: int) -> float:
        whole = self.cost.compared(length)
        return whole + self.stepped * (whole - self.cost.compared(length - 1))


class FileClock(ForwardClock):
    """The time in which llama.cpp reads a planted document, and scores its tokens."""

    def __init__(self, file: FileInLlamaCpp, length: int, cache: str) -> None:
        self._file, self._length, self._cache = file, length, cache

    @property
    def _llama(self) -> RunningLlamaCpp:
        """One server for all lengths, as large as that of the run."""
        length, present = self._length, self._file.present_plan
        layer = present.extended_layer
        served = present.with_steps(layer, (PlanStep(length, present.longest(layer)),))
        setting = self._file.setting(served, length, self._cache, present.methods)
        return self._file.run(setting, length)

    @cached_property
    def arithmetic(self) -> ReadInSteps:
        cost, tried = LlamaCppCost.here(self._file.header), min(PROBED, self._length)
        self._once(tried)  # the first forward is slow
        reading, step = self._once(tried)
        return ReadInSteps(int(cost.active), 0, cost, STEPS * step / (reading / tried))

    def seconds(self, length: int, batch: int = 1) -> float:
        reading, step = self._once(length)
        return batch * (reading + STEPS * step)

    def _once(self, length: int) -> tuple[float, float]:
        """The seconds of reading so many tokens, and of a step after them."""
        at = [time.perf_counter()]
        steps = min(TIMED_STEPS, length - 1)
        positions = range(length - steps, length)
        self._llama.scores([0] * length, positions, lambda: at.append(time.perf_counter()))
        return at[1] - at[0], (at[-1] - at[1]) / max(1, steps - 1)


def scores_of(
    llama: RunningLlamaCpp, tokens: IntArray, positions: Sequence[int], start: int
) -> TokenScores:
    """The scores of some places, as of all from a start on; NaN and -1 where none was asked for."""
    scores = llama.scores(tokens, positions)
    if np.isnan(scores.losses).any():
        raise RopewalkError(
            "llama.cpp gives no number for the probability of a token: the model's logits overflow "
            "at that length; check that the unmodified file works there"
        )
    losses = np.full(len(tokens) - start, np.nan)
    chosen = np.full(len(tokens) - start, -1, dtype=np.int64)
    at = np.array(positions) - start
    losses[at], chosen[at] = scores
    return TokenScores(losses, chosen)


def check_own_types(how: Loading) -> None:
    """Refuse what llama.cpp decides by itself."""
    if how.dtype != "auto":
        rule = "a GGUF file is computed in its own types"
        raise InvalidValue("dtype", how.dtype, rule, "leave it out")
    if how.device != "auto":
        raise InvalidValue(
            "device",
            how.device,
            "llama.cpp puts the layers of a GGUF file where it was built to",
            "leave it out, or say how many layers a GPU takes (`gpu_layers`)",
        )


def _check_model(header: GGUFHeader) -> None:
    """Refuse what is no language model that rotates, with a vocabulary."""
    kind = architecture(header.architecture)
    if kind.known and not kind.rotates:
        raise Unsupported(
            f"{header.path}: architecture {kind.name} has no rotation, so there is no plan to "
            "measure; give a model with RoPE"
        )
    if not header.lengths.get(_TOKENS):
        raise InputError(
            f"{header.path}: holds no vocabulary ({_TOKENS}); convert the model again, with its "
            "tokenizer"
        )


def _tokenizer_digest(header: GGUFHeader, runtime: str) -> str:
    """A SHA-256 of the file's tokenizer, and of the code that follows it."""
    digest = hashlib.sha256(runtime.encode())
    with header.path.open("rb") as file:
        for key, (start, end) in sorted(header.spans.items()):
            if key.startswith(_TOKENIZER):
                file.seek(start)
                digest.update(file.read(end - start))
    return digest.hexdigest()


def _states(files: Sequence[Path]) -> list[tuple[int, int, int]]:
    """The state by which a file is known not to have been written to."""
    return [(s.st_ino, s.st_size, s.st_mtime_ns) for s in (file.stat() for file in files)]
