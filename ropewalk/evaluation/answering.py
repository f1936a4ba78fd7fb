"""The interface of an answerer: all that a run has to know of it. No torch.

An answerer is a model in process, a server, or a GGUF file that llama.cpp runs; each is one file of
`answerers/`. The run (runner.py) draws samples, asks, scores and records, and the conclusion
(conclusion.py) sums up; neither knows who answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ropewalk.errors import Unsupported
from ropewalk.evaluation import perplexity
from ropewalk.evaluation.encoding import Encoder, IntArray
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.tasks import Task
from ropewalk.records import FACTS, Mode, Subject
from ropewalk.run_directory import RunDirectory
from ropewalk.torchrun import Ranks

if TYPE_CHECKING:
    from ropewalk.evaluation.planted import Planted
    from ropewalk.evaluation.served.fingerprint import Verdict
    from ropewalk.evaluation.served.server import ServerInfo
    from ropewalk.evaluation.settings import EvaluationSettings

TOKENS_PER_BATCH = 4096

Batches = Sequence[Sequence[Sample]]


class Answer(NamedTuple):
    """A model's answer to one sample."""

    text: str | None
    """The written answer; None if the answer was fed to the model."""
    tokens: IntArray | None = None
    """Its choice in each place of the answer; None if only the text is known."""


class TokenScores(NamedTuple):
    """One value per scored token."""

    losses: NDArray[np.float64]
    """-log p of the token, in nats."""
    chosen: IntArray
    """The token that the model would have chosen in its place."""


class Answerer(Protocol):
    """One or more subjects that answer samples. The defaults are those of one that writes text."""

    model: str
    encoder: Encoder
    original_length: int
    dtype: str
    device: str
    chooses: bool = False
    """True if its choices are known token by token, not its text alone."""
    files: tuple[Path, ...] = ()
    """The files of the model, which a run directory must be apart from."""
    server: ServerInfo | None = None
    """The server; None for a model in this process."""
    verdict: Verdict | None = None
    """True if it answers as planned, if it was compared."""
    ranks: Ranks = Ranks()
    """The ranks of torchrun that answer together; rank 0 alone keeps records."""

    @property
    @abstractmethod
    def subjects(self) -> Sequence[Subject]:
        """The subjects whose answers are asked for, one after the other."""

    @property
    @abstractmethod
    def identity(self) -> Mapping[str, object]:
        """The part of a run's configuration that identifies whose answers they are."""

    @abstractmethod
    def answers(self, task: Task, mode: Mode, batches: Batches) -> Iterator[Sequence[Answer]]:
        """The answers to each batch, in order."""

    def check(self, settings: EvaluationSettings) -> None:
        """Refuse what it cannot answer, before anything is asked."""
        return

    def batches(self, samples: Sequence[Sample], mode: Mode) -> Batches:
        """The samples that are answered, and recorded, together."""
        return [[sample] for sample in samples]

    def losses(self, sequences: Sequence[IntArray], starts: Sequence[int]) -> Sequence[TokenScores]:
        """The loss of each token of a sequence from a start on."""
        raise Unsupported(
            f"{self.model}: the server does not return probabilities of a prompt's tokens, which "
            "this measurement needs; run the model in this process, or leave perplexity out"
        )

    def read(self, document: Planted) -> TokenScores:
        """The scores of a document's tokens from its first scored one on."""
        [scores] = self.losses([document.tokens], [document.scored_from])
        return scores

    def under(self, subject: Subject, length: int) -> AbstractContextManager[object]:
        """The state in which this subject answers at a length."""
        return nullcontext()

    def begin(self, directory: RunDirectory | None) -> None:
        """Called before the first sample."""
        return

    def end(self, directory: RunDirectory | None) -> None:
        """Called after the last one."""
        return


def at_once(length: int) -> int:
    """The number of sequences of a length in one batch of a model in process."""
    return max(1, TOKENS_PER_BATCH // length)


def check_written(tasks: Iterable[str], mode: Mode) -> None:
    """Refuse what cannot be scored from a server's text alone."""
    needs = "needs the probabilities of prompt tokens, which servers do not give, or give wrong"
    instead = "measure in process, without a server"
    if mode == "teacher_forced":
        raise Unsupported(f"mode teacher_forced {needs}; choose generate, or {instead}")
    for name in tasks:
        if name in (*perplexity.DEFINITIONS, FACTS):
            raise Unsupported(f"{name} {needs}; leave the task out, or {instead}")
