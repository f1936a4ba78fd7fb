"""A GGUF file: all tensors in it, by the names and shapes that llama.cpp asks for, each of finite
numbers.

llama.cpp refuses a file whose tensors do not follow each other, each at the next multiple of the
alignment. The sizes of its types are GGML's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ropewalk.audit.files.check import Checked, fault, passed, unknown, wrong
from ropewalk.audit.files.finite import Blocks, Numbers, Report, all_zero, not_numbers, odd
from ropewalk.audit.files.tokenizer import broken_templates
from ropewalk.errors import shortened
from ropewalk.gguf import tensors
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT, GGUFHeader, TensorPlace
from ropewalk.gguf.sizes import BLOCKS, SCALES, bytes_of
from ropewalk.gguf.tensors import EMBEDDING
from ropewalk.values import table_in

_TOKENIZERS = table_in(Path(tensors.__file__).with_name("tokenizers.json"))
"""The kinds of tokenizers that llama.cpp has, those that merge, and the names of their ways to cut
a text into words."""
TOKENS, MERGES = "tokenizer.ggml.tokens", "tokenizer.ggml.merges"
TEMPLATES = "tokenizer.chat_template"
_FLOATS = {0: "F32", 1: "F16", 28: "F64", 30: "BF16"}  # by GGML's numbers
_ROTARY = {FREQUENCIES, LONG, SHORT}
_SPECIAL = ("bos", "eos", "unknown", "padding", "eot", "eom", "separator", "mask")
_AGAIN = "copy the file again, or convert it again"
_damaged = fault("weights-damaged", "it does not load, or loads garbage", _AGAIN)
_broken = fault("tokenizer-broken", "it does not load, or text becomes garbage", _AGAIN)


def weights(
    header: GGUFHeader, parts: Sequence[GGUFHeader] = (), progress: Report = lambda done: None
) -> Checked:
    """The tensors: their places, whether they are those of the model that the keys state, and
    whether their numbers are finite.

    `parts` are the files of a split model, whose tensors `header` lists together.
    """
    parts = parts or (header,)
    if not set(header.tensors) - _ROTARY:
        return unknown("weights", "the file holds none", "give the file of the whole model")
    # llama.cpp refuses a file by the places of its tensors: nothing else matters then.
    sizes = {name: bytes_of(place) for name, place in header.tensors.items()}
    strange = [name for name, size in sizes.items() if size is None]
    misplaced = (said for part in parts for said in _misplaced(part, sizes))
    problems = list(misplaced) or list(tensors.problems(header))
    if problems:
        return wrong("weights", *map(_damaged, problems))
    # The numbers of all tensors are read, whatever their places say.
    all_numbers = [
        numbers(part, name, place) for part in parts for name, place in part.tensors.items()
    ]
    read = odd(all_numbers, progress)
    if read.not_finite:
        return wrong("weights", not_numbers(read.not_finite))
    zero = all_zero(read.zero, all_numbers)
    if any(each.wrong for each in zero):
        return wrong("weights", *zero)
    # What is left open is no fault, but not established either.
    if strange:
        kind = header.tensors[strange[0]].kind
        said = f"{strange[0]} is stored as type {kind}, whose size is not known here"
        return unknown("weights", said, "run it in llama.cpp (install ropewalk[gguf])")
    if beyond := sum(_beyond(part, sizes) for part in parts):
        said = f"{beyond:,} bytes follow the last tensor, which no writer leaves there"
        return unknown("weights", said, _AGAIN)
    if unknown_here := tensors.unjudged(header) or tensors.unfamiliar(header):
        return unknown("weights", unknown_here, "run it in llama.cpp (leave --no-run away)")
    where = "the file" if len(parts) == 1 else f"{len(parts)} files"
    said = f"{len(sizes):,} tensors, all within {where}"
    return passed("weights", said, *zero)


def tokenizer(header: GGUFHeader) -> Checked:
    """The vocabulary: as large as the embedding, of the types that llama.cpp loads, and holding its
    own special tokens."""
    count = header.lengths.get(TOKENS)
    kind = header.values.get("tokenizer.ggml.model")
    if not count or not isinstance(kind, str) or kind in ("none", "no_vocab"):
        said = "the file holds no vocabulary"
        return unknown("tokenizer", said, "convert it again, with its tokenizer")
    if problem := _misread(header, kind, count):
        return wrong("tokenizer", _broken(problem))
    cuts = header.values.get("tokenizer.ggml.pre", "")
    if kind in _TOKENIZERS["merged"] and cuts not in _TOKENIZERS["cuts"]:
        said = f"how {shortened(cuts)} (tokenizer.ggml.pre) cuts words is not known here"
        return unknown("tokenizer", said, "run it in llama.cpp (leave --no-run away)")
    place = header.tensors.get(EMBEDDING)
    rows = place.shape[1] if place is not None and len(place.shape) > 1 else None
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
    texts = {k: v for k, v in header.values.items() if k.startswith(TEMPLATES) and type(v) is str}
    if broken := broken_templates(header.path, texts):
        return wrong("tokenizer", *broken)
    return passed("tokenizer", f"{count:,} tokens, as many as the embedding has rows")


def _misread(header: GGUFHeader, kind: str, count: int) -> str:
    """The reason for which llama.cpp does not load a vocabulary; empty without one."""
    if kind not in _TOKENIZERS["kinds"]:
        return f"tokenizer.ggml.model = {shortened(kind)} is no tokenizer that llama.cpp has"
    if header.items[TOKENS] != "s":
        return f"{TOKENS} must be a list of text"
    merges = header.items.get(MERGES)
    if kind in _TOKENIZERS["merged"] and merges is None:
        return f"byte-level BPE ({kind}) needs {MERGES}, which is missing"
    if kind in _TOKENIZERS["merged"] and merges != "s":
        return f"{MERGES} must be a list of text"
    for key, types in (("tokenizer.ggml.scores", "fi"), ("tokenizer.ggml.token_type", "i")):
        if key in header.spans and header.items.get(key, " ") not in types:
            return f"{key} must be a list of {'float32' if 'f' in types else 'int32'}"
        if header.lengths.get(key, count) < count:
            return f"{key} has {header.lengths[key]:,} items, and there are {count:,} tokens"
    tokens = [text for text in header.texts(TOKENS) if text]
    if len(set(tokens)) < len(tokens):
        (token, times), *_ = Counter(tokens).most_common(1)
        return f"the token {shortened(token.decode(errors='replace'))} is there {times} times"
    return ""


def _misplaced(header: GGUFHeader, sizes: dict[str, int | None]) -> Iterator[str]:
    whole = header.path.stat().st_size
    if header.data % 32:  # llama.cpp, which maps the file, ends its process
        yield f"the tensors begin at byte {header.data:,}, which must be a multiple of 32"
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
        expected = None if size is None else _padded(header, end)


def ends_at(header: GGUFHeader, size: int) -> bool:
    """True if the tensors end at that size, with padding or without, and the file goes on.

    A tool that writes a file anew leaves nothing behind the tensors, so something was appended.
    """
    sizes = {name: bytes_of(place) for name, place in header.tensors.items()}
    ends = [place.start + n for name, place in header.tensors.items() if (n := sizes[name])]
    if len(ends) < len(sizes) or not ends:
        return False
    end = max(ends)
    return end <= size <= _padded(header, end) and size < header.path.stat().st_size


def _beyond(header: GGUFHeader, sizes: dict[str, int | None]) -> int:
    """The number of bytes the file has after its last tensor and the padding that may follow it."""
    ends = (place.start + (sizes[name] or 0) for name, place in header.tensors.items())
    end = max(ends, default=header.data)
    return max(0, header.path.stat().st_size - _padded(header, end))


def _padded(header: GGUFHeader, end: int) -> int:
    """The place of the next tensor, after one that ends here."""
    return end + -(end - header.data) % header.alignment


def numbers(header: GGUFHeader, name: str, place: TensorPlace) -> Numbers:
    """The place of a tensor's numbers, and how they are stored."""
    _, size = BLOCKS.get(place.kind, (0, 0))
    kind = _FLOATS.get(place.kind) or Blocks(size, SCALES.get(place.kind, ()))
    path = place.path or header.path
    matrix = len(place.shape) > 1
    return Numbers(name, path, place.start, bytes_of(place) or 0, kind, matrix)
