"""The answerers, one file each. To add one, add a file here of this form:

    '''Who answers, and how it is run.'''

    PLACE = 1

    def claims(asked: Asked) -> bool:
        ...                 # whether it is the one that is asked; of several, the lowest PLACE wins

    @contextmanager
    def opened(asked: Asked) -> Iterator[Evaluation]:
        ...                 # refuse what it has no place for, then load or connect
        yield Evaluation(MyAnswerer(…), asked.documents, settings, asked.notice)

Nothing else needs to know of it.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ropewalk.budget import Budget
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.gguf.llama_cpp_run import Engine
from ropewalk.models.source import Loading, Source, runnable
from ropewalk.progress import Notice, Progress
from ropewalk.records import AS_IT_IS, Mode
from ropewalk.run_directory import CONFIGURATION, read_configuration
from ropewalk.torchrun import started

if TYPE_CHECKING:
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.evaluation.runner import Evaluation
    from ropewalk.evaluation.served.fingerprint import Fingerprint
    from ropewalk.evaluation.settings import EvaluationSettings


IN_PROCESS = 9
"""The place of the answerer for what no other one claims."""


@dataclass(frozen=True, eq=False)
class Asked:
    """An evaluation as it is asked for: the arguments of `evaluate`, converted."""

    model: Any
    """A path or a config; None with a server alone."""
    documents: Sequence[Document]
    given: frozenset[str]
    """The names of the arguments that are not their defaults."""
    tasks: tuple[str, ...] | None
    lengths: tuple[int, ...] | None
    samples: int
    budget: Budget | None
    seed: int
    mode: Mode | None
    chat: Literal["auto", "on", "off"]
    system: str | None
    plans: tuple[ContextPlan, ...]
    methods: tuple[str, ...]
    to: int | None
    server: str | None
    tokenizer: Path | None
    model_name: str | None
    fingerprint: Fingerprint | None
    evaluator: Any
    """The model that chooses key tokens, as `model`; None for that one."""
    concurrency: int
    timeout: float
    ranks_per_copy: int
    run: Path | None
    how: Loading
    strict: bool
    progress: Progress
    notice: Notice
    cache: tuple[str, ...]
    engine: Engine
    """The llama.cpp that runs a GGUF file."""

    def source(self, *, weights: bool = True) -> Source:
        """The folder of the model, or its config alone without `weights`."""
        strict, notice, run = self.strict, self.notice, self.run
        return runnable(
            self.model, self.how, strict=strict, notice=notice, run=run, weights=weights
        )

    def settings(
        self, tasks: Sequence[str], mode: Mode, lengths: Callable[[], Sequence[int]]
    ) -> EvaluationSettings:
        """The settings, with these tasks, mode and lengths by default."""
        from ropewalk.evaluation.settings import EvaluationSettings

        return EvaluationSettings(
            tuple(tasks) if self.tasks is None else self.tasks,
            tuple(lengths()) if self.lengths is None else self.lengths,
            self.samples,
            self.seed,
            mode if self.mode is None else self.mode,
        )

    def within_budget(
        self,
        settings: EvaluationSettings,
        subjects: int,
        seconds: Callable[[int], float] | None = None,
    ) -> EvaluationSettings:
        """Settings with the samples that the budget holds; `seconds` of one sample, if known."""
        if self.budget is None:
            return settings
        if "samples" in self.given:
            raise InputError("samples follow from the budget; give `samples` or `budget`, not both")
        unit, rounds = self.budget.unit, subjects * len(settings.tasks)
        if unit == "seconds":
            if seconds is None:
                raise InvalidValue(
                    "budget",
                    str(self.budget),
                    "the time of an answer is only known for a model in one process",
                    "give a number of answers, or tokens such as 1e9tok",
                )
            # Another timing would give another number, and so another run.
            kept = self._samples_begun()
            if kept is not None:
                self.notice(f"goes on with the {kept:,} samples of this run, whatever the budget")
                return replace(settings, samples=kept)
            each = rounds * sum(map(seconds, settings.lengths))
        else:
            lengths = settings.lengths
            # A sample takes one answer, and about as many tokens as its length.
            each = float(rounds * (sum(lengths) if unit == "tokens" else len(lengths)))
        samples = int(self.budget.amount / each)
        if samples < 1:
            least = Budget(math.ceil(each), unit)
            raise InvalidValue(
                "budget",
                str(self.budget),
                f"one sample of each task, length and method takes {least}",
                "give at least that, or fewer tasks, lengths or methods",
            )
        self.notice(f"{samples:,} samples for each task, length and method fit into the budget")
        return replace(settings, samples=samples)

    def _samples_begun(self) -> int | None:
        """The samples of the run that goes on here: another timing would give another number."""
        if self.run is None or not (self.run / CONFIGURATION).is_file():
            return None
        _, kept = read_configuration(self.run)
        samples = kept.get("samples")
        return samples if type(samples) is int and samples > 0 else None

    def in_chat(self, encoder: Encoder) -> Encoder:
        """The encoder that puts questions through the model's chat template, if it should."""
        from ropewalk.evaluation.chat import chosen

        chat = chosen(encoder, self.chat, self.system, self.notice)
        return encoder.with_chat(chat)

    def refuse_llama_cpp(self) -> None:
        """Refuse what is for the llama.cpp of a GGUF file alone."""
        for cache in self.cache:
            self.engine.refuse(cache)

    def refuse(self, names: str, why: str) -> None:
        """Refuse arguments that the answerer has no place for; `why` may name one by {name}."""
        for name in names.split():
            unchanged = name == "methods" and self.methods == (AS_IT_IS,)
            if name in self.given and not unchanged:
                raise Unsupported(why.format(name=f"`{name}`"))


def check_in_process(call: Asked) -> None:
    """Refuse what cannot be previewed."""
    if _chosen(call).PLACE != IN_PROCESS:
        raise Unsupported(
            "a preview is only for a model that runs in this process, not for a server or a GGUF "
            "file; run without `--dry-run`, or use `ropewalk cost`"
        )


def _chosen(call: Asked) -> Any:
    names = (module.name for module in pkgutil.iter_modules(__path__))
    files = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return min((file for file in files if file.claims(call)), key=lambda file: file.PLACE)


def opened(call: Asked) -> AbstractContextManager[Evaluation]:
    """The evaluation by the answerer that is asked, ready until the end of the `with` block."""
    chosen = _chosen(call)
    if chosen.PLACE != IN_PROCESS:
        if started() > 1:
            raise Unsupported(
                "ranks can only share a model that runs in their own processes; run a server or a "
                "GGUF file without torchrun"
            )
        call.refuse("ranks_per_copy", "{name} is for a model in process, under torchrun")
        call.refuse("evaluator", "{name} is for longppl, which needs a model in process")
    evaluation: AbstractContextManager[Evaluation] = chosen.opened(call)
    return evaluation
