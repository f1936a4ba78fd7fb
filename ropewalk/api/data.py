"""`data`: text to tokens on disk, and how they fill training windows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from ropewalk.api.common import AllowDownload, TextField, WeightsField
from ropewalk.arguments import Length, as_length, as_path
from ropewalk.data.description import DataDescription, Fill, described
from ropewalk.data.documents import Corpus
from ropewalk.data.mixtures import Mixture
from ropewalk.data.packing import Filling, Overflow
from ropewalk.data.published_mixtures import named, shares_of
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import Arrangement, WindowSettings
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.source import Model, resolve
from ropewalk.options import Advanced, Argument, Option, RunFolder, called, command
from ropewalk.progress import Notice, Progress, log_notice, of_a_call, shown
from ropewalk.training.text import ALONE, TrainingText


@command(
    "data build",
    "For training",
    example="ropewalk data build path/to/model --corpus books.jsonl -o tokens",
)
def build_data(
    tokenizer: Annotated[Model, Argument("The folder of a tokenizer, or `bundled`.", "MODEL")],
    corpora: Annotated[
        Corpus | Mapping[str, Corpus],
        Option(
            "Text to tokenise: a file, a folder, .jsonl, .parquet, .npy, a data set saved by "
            "`datasets`, hub:NAME for a data set of the Hugging Face hub, or `python` for the "
            "standard library of this Python. If there are several, each needs its domain.",
            "[DOMAIN=]FILE",
            shell=("--corpus",),
        ),
    ],
    folder: Annotated[
        str | Path,
        RunFolder(
            "The folder to build, or whose interrupted build to finish.",
            shell=("--output", "-o"),
            command="data build",
        ),
    ],
    *,
    field: TextField = "text",
    weights: WeightsField = None,
    long_ce: Annotated[
        Length | None,
        Advanced(
            "Weigh each token by LongCE: by how much likelier MODEL finds it with a context of up "
            "to this length than with a short one."
        ),
    ] = None,
    allow_download: AllowDownload = False,
    progress: Progress | None = shown,
    notice: Notice = log_notice,
) -> DataDescription:
    """Tokenise text into a folder that training maps into memory.

    `tokenizer` is the model whose tokenizer to use. A build that was killed goes on where it was.
    Each corpus is a file, a folder, a data set, a list of texts, or `python`, the standard library
    of the running Python. `field` names what holds a row's text or tokens. Windows are made when
    they are read, so one store serves every length.

    With `long_ce` the model itself is run, and must read that far: its gain from a long context
    weighs each token, by at most 5.
    """
    if weights is not None and long_ce is not None:
        raise InputError(
            "token weights come from the rows or from LongCE, not from both; leave one of them out"
        )
    with called("data build", build_data, locals()) as (_, progress):
        source = resolve(tokenizer, allow_download=allow_download)
        named = corpora if isinstance(corpora, Mapping) else {ALONE: corpora}
        far = None if long_ce is None else as_length(long_ce, "long_ce")
        text = TrainingText(named, field, weights, allow_download, long_ce=far)
        return described(text.tokenised(source, as_path(folder, "folder"), progress, notice))


@command(
    "data describe",
    "For training",
    example="ropewalk data describe tokens --length 32k --plot lengths.png",
    plot="the lengths",
)
def describe_data(
    folder: Annotated[str | Path, Argument("What `data build` wrote.", "DIR")],
    *,
    length: Annotated[
        Length | None, Option("Also show how an epoch fills windows of this length.")
    ] = None,
    layout: Annotated[Arrangement, Option("How documents are placed in a window.")] = "anchor",
    shares: Annotated[
        Mapping[str, float] | str | None,
        Option(
            "Share of a domain in the tokens of an epoch; or the mixture of a paper, "
            "such as prolong-64k.",
            "DOMAIN=SHARE",
            shell=("--share",),
        ),
    ] = None,
    long_share: Annotated[
        float | None,
        Option("Share of the tokens of each domain that long documents get, such as 0.7.", "SHARE"),
    ] = None,
    long_from: Annotated[Length, Option("Length from which a document counts as long.")] = 4096,
    tokens: Annotated[int | None, Option("Tokens of an epoch (default: each token once).")] = None,
    target: Annotated[
        Length | None, Advanced("With `layout` skip: the length that positions reach.")
    ] = None,
    filling: Annotated[
        Filling, Advanced("Longest documents first, or documents in their order.")
    ] = "best_fit",
    overflow: Annotated[
        Overflow, Advanced("What to do with the part of a document that does not fit.")
    ] = "cut",
    check: Annotated[bool, Option("Compare every file with its checksum.")] = False,
    progress: Progress | None = shown,
) -> DataDescription:
    """Show the documents of a token folder, and how they fill training windows.

    `shares` of tokens by domain, or the name of a paper's mixture, and `long_share`, that of
    documents of at least `long_from` tokens in each domain, make documents be read more or less
    often. `check` compares every file with its checksum.
    """
    if isinstance(shares, str):
        named(shares)  # says which there are
    store = TokenStore(as_path(folder, "folder"))
    if check:
        with of_a_call(progress) as progress:
            store.check(progress)
    if length is None:
        options = (layout, filling, overflow, shares, tokens, long_from, long_share, target)
        if options != ("anchor", "best_fit", "cut", None, None, 4096, None, None):
            raise InvalidValue(
                "length", length, "is needed with settings of windows", "write '32k'"
            )
        return described(store)
    long = as_length(long_from, "long_from")
    settings = WindowSettings(
        as_length(length),
        layout,
        target=None if target is None else as_length(target, "target"),
        filling=filling,
        overflow=overflow,
        mixture=Mixture(tokens, shares_of(shares, store.with_text), long, long_share),
    )
    return described(store, Fill.of(store, settings))
