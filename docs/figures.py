"""The measured figures of the pages, made from committed raw results.

    python -m docs.figures            writes them
    python -m docs.figures --check    changes nothing, and fails if anything differs

Nothing is measured here. A module that keeps results may offer:

- `blocks()`: by page, the text between `<!-- written by MODULE -->` and `<!-- until here -->`;
- `sentences()`: figures in prose, and comparisons in words with what the results say of them;
- `pictures()`: by file, what is drawn. A PNG carries a digest of the values drawn in it, which is
  compared, since its bytes differ between machines.

Modules are found by these functions' names, so a new one needs no entry here.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ropewalk.outputs import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", "benchmarks/README.md", "docs/*.md", "studies/*.md", "studies/*/README.md")
FOLDERS = ("benchmarks", "docs", "studies", "tools")
OFFERS = re.compile(r"^def (blocks|sentences|pictures|screenshots)\(\)", re.MULTILINE)
BLOCK = re.compile(r"(?<=<!-- written by )(\S+)( -->\n)(.*?)(?=<!-- until here -->)", re.DOTALL)
SHOWN = re.compile(r"!\[[^]]*\]\(([^)]+\.png)\)")
DIGEST = "ropewalk-drawn"
"""The key of a picture's digest in its file."""


class Sentence(NamedTuple):
    """Words of a page that rest on results."""

    page: str
    words: str
    """`{}` stands for a figure; line breaks of the page count as spaces."""
    figures: tuple[str, ...] = ()
    holds: bool = True
    """True if the results support the comparison that the words make."""


def paragraph(text: str) -> str:
    """Prose of a block, in lines as pages have them."""
    return textwrap.fill(text, 106, break_long_words=False, break_on_hyphens=False)


class Picture(NamedTuple):
    figure: Figure
    dpi: int = 150


class Source(NamedTuple):
    """The figures that a module offers."""

    name: str
    blocks: Mapping[str, str]
    sentences: Sequence[Sentence]
    pictures: Mapping[str, Picture]
    screenshots: Mapping[str, str] = MappingProxyType({})
    """The expected digest of each: taken by the module itself, and only compared here."""


def pages(root: Path = ROOT) -> dict[str, str]:
    found = sorted(path for pattern in PAGES for path in root.glob(pattern))
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in found}


def sources(*, pictures: bool = True) -> Iterator[Source]:
    """Every module that offers something, in the order of their names."""
    named = {name for page, text in pages().items() for name in _modules_of(page, text)}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            if OFFERS.search(path.read_text(encoding="utf-8")):
                named.add(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for name in sorted(named):
        yield source_of(importlib.import_module(name), pictures=pictures)


def source_of(module: ModuleType, *, pictures: bool = True) -> Source:
    def offered(name: str, otherwise: Any) -> Any:
        return getattr(module, name, lambda: otherwise)()

    drawn = offered("pictures", {}) if pictures else {}
    return Source(
        module.__name__,
        offered("blocks", {}),
        offered("sentences", []),
        drawn,
        offered("screenshots", {}),
    )


def _modules_of(page: str, text: str) -> set[str]:
    """The modules that blocks of a page name."""
    return {_module_name(marker, page) for marker, _, _ in BLOCK.findall(text)}


def _module_name(marker: str, page: str) -> str:
    """Markers name a module, or its file from the root or next to the page."""
    if marker.endswith(".py"):
        beside = f"{Path(page).parent.as_posix()}/{marker}"
        path = marker if (ROOT / marker).exists() else beside
        return path.removesuffix(".py").replace("/", ".")
    return marker


def with_figures(
    texts: Mapping[str, str], offered: Sequence[Source], complain: Callable[[str], None]
) -> dict[str, str]:
    """The pages with the figures of the results; complains of those that cannot be written."""
    blocks = {(page, s.name): text for s in offered for page, text in s.blocks.items()}
    written = {}
    for page, text in texts.items():
        held = _modules_of(page, text)
        for name in sorted(held):
            if (page, name) not in blocks:
                complain(f"{page}: {name} offers no block for this page")
        for of, name in blocks:
            if of == page and name not in held:
                complain(f"{page}: has no markers for the block of {name}")

        def block(found: re.Match[str], page: str = page) -> str:
            name, end, old = found.groups()
            new = blocks.get((page, _module_name(name, page)))
            return f"{name}{end}{old if new is None else new.strip() + chr(10)}"

        written[page] = BLOCK.sub(block, text)
    for sentence in (sentence for source in offered for sentence in source.sentences):
        if not sentence.holds:
            complain(f"{sentence.page}: the results do not support {sentence.words!r}")
        new = _with_sentence(written.get(sentence.page, ""), sentence)
        if new is None:
            complain(f"{sentence.page}: does not say (once) {sentence.words!r}")
        else:
            written[sentence.page] = new
    return written


def _with_sentence(text: str, sentence: Sentence) -> str | None:
    """The page with the sentence's figures; None unless it holds the sentence once."""
    parts = [re.sub(r"(\\\s|\s)+", r"\\s+", re.escape(part)) for part in sentence.words.split("{}")]
    if len(parts) != len(sentence.figures) + 1 or not (parts[0] and parts[-1]):
        raise ValueError(f"a figure for every {{}}, and words on both sides of it: {sentence}")
    found = list(re.finditer(r"([^][|]{1,80}?)".join(parts), text))
    if len(found) != 1:
        return None
    [match] = found
    for i in reversed(range(len(sentence.figures))):
        if " ".join(match[i + 1].split()) != sentence.figures[i]:
            text = text[: match.start(i + 1)] + sentence.figures[i] + text[match.end(i + 1) :]
    return text


def drawn(figure: Figure) -> str:
    """A digest of the values drawn in a figure, rounded to a 10,000th of the largest of each part,
    and of its words; not of how it is laid out."""
    digest = hashlib.sha256()
    for axes in figure.axes:
        words = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()]
        words += [text.get_text() for text in axes.texts]
        legend = axes.get_legend()
        words += [text.get_text() for text in legend.get_texts()] if legend else []
        digest.update("\n".join(words).encode())
        for values in _values(axes):
            kept: np.ndarray = np.ma.filled(np.ma.asarray(values, dtype=float), np.nan)
            finite = kept[np.isfinite(kept)]
            scale = np.abs(finite).max() if finite.size else 1.0
            rounded = np.round(kept / (scale or 1.0), 4) + 0.0  # + 0: no negative zero
            digest.update(str(rounded.shape).encode() + rounded.astype("<f8").tobytes())
    return digest.hexdigest()


def _values(axes: Any) -> Iterator[Any]:
    for line in axes.lines:
        yield line.get_xydata()
    for collection in axes.collections:
        yield collection.get_offsets()
        for path in collection.get_paths():
            yield path.vertices
    for patch in axes.patches:
        yield patch.get_patch_transform().transform(patch.get_path().vertices)
    for image in axes.images:
        yield image.get_array()


def save_picture(picture: Picture, path: Path) -> None:
    """Write a PNG with the digest of its values."""
    content = BytesIO()
    picture.figure.savefig(
        content, format="png", dpi=picture.dpi, metadata={DIGEST: drawn(picture.figure)}
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, content.getvalue())


def digest_in(path: Path) -> str | None:
    """The digest that a picture carries."""
    from PIL import Image

    if not path.exists():
        return None
    with Image.open(path) as image:
        found = image.info.get(DIGEST)
    return None if found is None else str(found)


def shown_pictures(texts: Mapping[str, str]) -> set[str]:
    """The files of all pictures that pages show."""
    return {
        (ROOT / page).parent.joinpath(target).resolve().relative_to(ROOT).as_posix()
        for page, text in texts.items()
        for target in SHOWN.findall(text)
    }


def differences(offered: Sequence[Source], texts: Mapping[str, str] | None = None) -> list[str]:
    """The differences from the results, a line each; empty if there are none."""
    texts = pages() if texts is None else texts
    found: list[str] = []
    for page, written in with_figures(texts, offered, found.append).items():
        if written != texts[page]:
            found += [f"{page}: {line}" for line in _changed_lines(texts[page], written)]
    pictures = {name: picture for s in offered for name, picture in s.pictures.items()}
    for name, picture in pictures.items():
        if digest_in(ROOT / name) != drawn(picture.figure):
            found.append(f"{name}: other values are drawn in it than the results have")
    screenshots = {name: digest for s in offered for name, digest in s.screenshots.items()}
    for name, digest in screenshots.items():
        if digest_in(ROOT / name) != digest:
            found.append(f"{name}: shows an older page; run python -m docs.make_screenshots")
    for name in sorted(shown_pictures(texts) - {*pictures, *screenshots}):
        found.append(f"{name}: no module offers this picture")
    return found


def _changed_lines(old: str, new: str) -> Iterator[str]:
    """The lines of the page that are to change."""
    kept = {*new.splitlines()}
    changed = [line for line in old.splitlines() if line not in kept]
    yield from (f"differs from the results: {line}" for line in changed)
    if not changed:
        yield "lacks lines of the results"


def write(offered: Sequence[Source]) -> list[str]:
    """Write everything, and return the failures."""
    texts, found = pages(), list[str]()
    for page, text in with_figures(texts, offered, found.append).items():
        if text != texts[page]:
            write_atomically(ROOT / page, text)
            print(f"{page}: written")
    for source in offered:
        for name, picture in source.pictures.items():
            if digest_in(ROOT / name) != drawn(picture.figure):
                save_picture(picture, ROOT / name)
                print(f"{name}: drawn")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    check = parser.parse_args().check
    offered = list(sources())
    found = differences(offered) if check else write(offered)
    for line in found:
        print(line)
    if check:
        counts = [sum(len(getattr(s, kind)) for s in offered) for kind in Source._fields[1:]]
        print(
            "{} blocks, {} sentences, {} pictures: ".format(*counts)
            + (f"{len(found)} differences" if found else "as the results have them")
        )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
