"""A GGUF file, by its header: all its tensors in the file, of the sizes and the count that it says.

llama.cpp refuses a file whose tensors do not follow each other, each at the next multiple of the
alignment. The sizes of its types are GGML's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ropewalk.audit.files.check import Checked, unknown, well, wrong
from ropewalk.audit.finding import Finding
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader
from ropewalk.gguf.sizes import bytes_of

EMBEDDING, TOKENS = "token_embd.weight", "tokenizer.ggml.tokens"
_ROTARY = {FREQUENCIES, LONG, SHORT}
_SPECIAL = ("bos", "eos", "unknown", "padding", "eot", "eom", "separator", "mask")
_AGAIN = "copy the file again, or convert it again"


def weights(header: GGUFHeader, parts: Sequence[GGUFHeader] = ()) -> Checked:
    """The tensors: where they lie, and whether they are those of the model that the keys state.

    `parts` are the files of a split model, whose tensors `header` lists together.
    """
    parts = parts or (header,)
    if not set(header.tensors) - _ROTARY:
        return unknown("weights", "the file holds none", "give the file of the whole model")
    sizes = {name: bytes_of(place) for name, place in header.tensors.items()}
    strange = [name for name, size in sizes.items() if size is None]
    misplaced = (said for part in parts for said in _misplaced(part, sizes))
    problems = list(misplaced) or list(_shapes(header))
    if problems:
        return wrong("weights", *map(_damaged, problems))
    if strange:
        kind = header.tensors[strange[0]].kind
        said = f"{strange[0]} is stored as type {kind}, whose size is not known here"
        return unknown("weights", said, "run it in llama.cpp (install ropewalk[gguf])")
    if beyond := sum(_beyond(part, sizes) for part in parts):
        said = f"{beyond:,} bytes follow the last tensor, which no writer leaves there"
        return unknown("weights", said, _AGAIN)
    where = "the file" if len(parts) == 1 else f"{len(parts)} files"
    return well("weights", f"{len(sizes):,} tensors, all within {where}")


def tokenizer(header: GGUFHeader) -> Checked:
    """The vocabulary: as large as the embedding, and holding its own special tokens."""
    count = header.lengths.get(TOKENS)
    if not count or not isinstance(header.values.get("tokenizer.ggml.model"), str):
        said = "the file holds no vocabulary"
        return unknown("tokenizer", said, "convert it again, with its tokenizer")
    place = header.tensors.get(EMBEDDING)
    rows = place.shape[-1] if place is not None and place.shape else None
    if rows is not None and rows != count:
        return wrong(
            "tokenizer",
            _broken(f"{count:,} tokens are in the file, and the embedding has {rows:,} rows"),
        )
    for name in _SPECIAL:
        token = header.values.get(f"tokenizer.ggml.{name}_token_id")
        # 2³² − 1 is GGUF's way to say that there is none.
        if isinstance(token, int) and not 0 <= token < count and token != 2**32 - 1:
            return wrong(
                "tokenizer", _broken(f"the {name} token is {token}, and there are {count:,} tokens")
            )
    return well("tokenizer", f"{count:,} tokens, as many as the embedding has rows")


def _misplaced(header: GGUFHeader, sizes: dict[str, int | None]) -> Iterator[str]:
    whole = header.path.stat().st_size
    expected: int | None = header.data
    for name, place in header.tensors.items():
        size = sizes[name]
        if expected is not None and place.start != expected:
            yield f"{name} begins at byte {place.start:,}, and {expected:,} is its place"
            return
        end = place.start + (size or 0)
        if end > whole:
            yield f"the file has {whole:,} bytes, and {name} would end at {end:,}"
            return
        expected = None
        if size is not None:
            padding = -(end - header.data) % header.alignment
            expected = end + padding


def ends_at(header: GGUFHeader, size: int) -> bool:
    """Whether the tensors end at that size, with padding or without, and the file goes on.

    A tool that writes a file anew leaves nothing behind the tensors, so something was appended.
    """
    sizes = {name: bytes_of(place) for name, place in header.tensors.items()}
    known = [place.start + own for name, place in header.tensors.items() if (own := sizes[name])]
    if len(known) < len(sizes) or not known:
        return False
    end = max(known)
    padded = end + -(end - header.data) % header.alignment
    return end <= size <= padded and size < header.path.stat().st_size


def _beyond(header: GGUFHeader, sizes: dict[str, int | None]) -> int:
    """How many bytes the file has after its last tensor and the padding that may follow it."""
    ends = (place.start + (sizes[name] or 0) for name, place in header.tensors.items())
    end = max(ends, default=header.data)
    padding = -(end - header.data) % header.alignment
    return max(0, header.path.stat().st_size - end - padding)


def _shapes(header: GGUFHeader) -> Iterator[str]:
    width, place = header.count("embedding_length"), header.tensors.get(EMBEDDING)
    if place is None:
        yield f"there is no tensor {EMBEDDING}"
    elif width is not None and place.shape[:1] != (width,):
        yield f"{EMBEDDING} is {place.shape[0]} wide, and embedding_length = {width}"
    stated = header.count("block_count")
    blocks = {name.split(".")[1] for name in header.tensors if name.startswith("blk.")}
    if stated is not None and blocks != {str(i) for i in range(min(stated, 10_000))}:
        yield f"{len(blocks)} blocks are there, and block_count = {stated}"


def _damaged(what: str) -> Finding:
    return Finding("weights-damaged", (), what, "it does not load, or loads garbage", _AGAIN)


def _broken(what: str) -> Finding:
    return Finding(
        "tokenizer-broken", (), what, "it does not load, or text becomes garbage", _AGAIN
    )
