"""Text to train on: corpora by domain, or the folder of tokens that was built of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ropewalk.arguments import as_path
from ropewalk.data.corpora import MANIFEST, Vocabulary
from ropewalk.data.documents import Corpus, documents_in
from ropewalk.data.store import TokenStore, Weigher, build
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.source import Loading, Source
from ropewalk.progress import Notice, Progress, unheard

ALONE = "text"
"""The domain of a corpus without one."""


@dataclass(frozen=True)
class TrainingText:
    """Text by domain, or a folder of tokens. Nothing of it is read yet."""

    corpora: Mapping[str, Corpus]
    field: str
    weights: str | None
    allow_download: bool
    tokens: Path | None = None
    """The folder of tokens, which has no corpora."""
    long_ce: int | None = None
    """The length at which the model weighs tokens by what a long context gains."""

    @classmethod
    def given(
        cls,
        corpus: Corpus | Mapping[str, Corpus] | None,
        field: str,
        weights: str | None,
        *,
        allow_download: bool,
    ) -> TrainingText:
        """The text of a training; what is no text, and no such folder, is refused."""
        if corpus is None:
            raise InputError("give text to train on, or a folder of tokens (`corpus`)")
        if isinstance(corpus, str | Path) and (as_path(corpus, "corpus") / MANIFEST).is_file():
            if weights is not None and not TokenStore(Path(corpus)).weighted:
                raise InvalidValue(
                    "weights",
                    weights,
                    f"{corpus} was built without weights",
                    "build it with them (`ropewalk data build`), or leave `weights` out",
                )
            return cls({}, field, weights, allow_download, Path(corpus))
        named = corpus if isinstance(corpus, Mapping) else {ALONE: corpus}
        for each in named.values():
            documents_in(each, field, weights, allow_download=allow_download, notice=unheard)
        return cls(named, field, weights, allow_download)

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.corpora) if self.tokens is None else TokenStore(self.tokens).with_text

    @property
    def places(self) -> list[Path]:
        """The files and folders that are read."""
        if self.tokens is not None:
            return [self.tokens]
        paths = [Path(each) for each in self.corpora.values() if isinstance(each, str | Path)]
        return [path for path in paths if path.exists()]

    def tokenised(
        self, source: Source, place: Path, progress: Progress, notice: Notice
    ) -> TokenStore:
        """Tokenise the text into a folder; a build that was killed goes on."""
        from ropewalk.evaluation.encoding import Encoder
        from ropewalk.models.load import load_tokenizer

        encoder = Encoder(load_tokenizer(source.folder))
        vocabulary = _vocabulary(source.folder, encoder.tokenizer)
        texts = {
            name: documents_in(
                each,
                self.field,
                self.weights,
                vocabulary,
                allow_download=self.allow_download,
                notice=notice,
            )
            for name, each in self.corpora.items()
        }
        return build(
            place,
            texts,
            encoder.batch,
            tokenizer=encoder.sha256,
            weighted=self.weights is not None,
            weigher=None if self.long_ce is None else _weigher(source, self.long_ce, notice),
            sources=[*source.places, *self.places],
            progress=progress,
        )


def _weigher(source: Source, length: int, notice: Notice) -> Weigher:
    """The model, unmodified, which must read so far."""
    from ropewalk.evaluation.answerers.in_process import evaluator_of
    from ropewalk.evaluation.perplexity import short_context

    short = short_context(source.present_plan.original_length)
    if length <= short:
        rule = f"is no longer than the short context of {short} tokens, so all tokens would weigh 1"
        raise InvalidValue("long_ce", length, rule, "give the length of the windows to train on")
    how = Loading("auto", "auto", allow_download=False)
    evaluator = evaluator_of(source.folder, source, length, "long_ce", how, notice)
    identity = {**evaluator.identity, "length": length}
    return Weigher(identity, lambda tokens: evaluator.weights(tokens, length))


def _vocabulary(folder: Path, tokenizer: Any) -> Vocabulary:
    """The model's, or that of a tokenizer which lies alone in its folder."""
    from ropewalk.models.load import load_stock_config

    size = len(tokenizer)
    if (folder / "config.json").is_file():
        size = int(load_stock_config(folder).get_text_config().vocab_size)
    return Vocabulary(size, tokenizer.bos_token_id, tokenizer.eos_token_id)
