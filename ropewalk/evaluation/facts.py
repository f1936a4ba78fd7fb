"""The task `facts`: documents that hold eight facts, each read once for all of its questions.

They are the documents of a verdict (planted.py). A reading tells how many facts are answered
exactly, the loss of the answers, which still tells schedules apart where hardly a fact is answered,
and the share of the answers' tokens that are the first choice. The answers are fed to the model,
whatever the mode of the other tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.randomness import identity
from ropewalk.records import FACTS

if TYPE_CHECKING:
    from ropewalk.evaluation.planted import Planted
    from ropewalk.evaluation.settings import EvaluationSettings

VERSION = 1


def drawn(
    documents: Sequence[Document], encoder: Encoder, length: int, settings: EvaluationSettings
) -> list[tuple[Planted, str]]:
    """Documents of a length, each with its id; fewer than asked for if the text is short.

    As many facts as the shortest length has room for, so that all lengths are asked equally much.
    """
    from ropewalk.evaluation.planted import plant, stretches_of

    seed, corpus = settings.seed, corpus_digest(documents)
    stretches, _ = stretches_of(documents, encoder, length, settings.samples, seed)
    return [
        (
            plant(stretch, encoder, length, i, seed, mixed_within=min(settings.lengths)),
            identity(FACTS, VERSION, corpus, encoder.sha256, stretch.source, length, i, seed),
        )
        for i, stretch in enumerate(stretches)
    ]
