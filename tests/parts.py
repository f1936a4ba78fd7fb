"""The slow suite in parts by name, each meant for ten minutes of two cores.

    python -m tests.parts          the names
    python -m tests.parts NAME     the files of one

A part is a folder of tests, or a share of its files; a file that is too long for one part has its
tests dealt out among several. So a new file is in a part by itself.
"""

from __future__ import annotations

import sys
import zlib
from pathlib import Path

TESTS = Path(__file__).parent
TOP = "top"
"""The part of the files that are in no folder."""
FOLDERS = {
    "api": 4, "attention": 2, "audit": 2, "cli": 3, "evaluation": 4, "exporting": 3, "gguf": 2,
    "models": 3, "pipeline": 3, "runtimes": 2, "searching": 2, "studies": 3, "tools": 2, TOP: 3,
    "training": 3,
}  # fmt: skip
"""The number of parts of a folder; others are one."""
FILES = {"runtimes/test_following.py": 6}
"""The number of parts of a file whose tests, one for each family, take a minute each."""


def files_of_tests() -> list[str]:
    """All files of tests but those of the browser, which have a target of their own."""
    found = sorted(path.relative_to(TESTS).as_posix() for path in TESTS.rglob("test_*.py"))
    return [name for name in found if not name.startswith("browser/")]


def part_of(file: str, test: str = "") -> str:
    """The part of a test, by its file's path under tests/ and by its name."""
    if file in FILES:
        return _shares(file)[zlib.crc32(test.encode()) % FILES[file]]
    folder = _folder(file)
    count = FOLDERS.get(folder, 1)
    if count == 1:
        return folder
    own = [name for name in files_of_tests() if _folder(name) == folder and name not in FILES]
    return f"{folder}-{own.index(file) % count + 1}"


def _folder(file: str) -> str:
    return file.partition("/")[0] if "/" in file else TOP


def parts() -> dict[str, list[str]]:
    """The files of each part, by its name."""
    found: dict[str, list[str]] = {}
    for file in files_of_tests():
        for name in _shares(file) if file in FILES else [part_of(file)]:
            found.setdefault(name, []).append(file)
    return dict(sorted(found.items()))


def _shares(file: str) -> list[str]:
    stem = Path(file).stem.removeprefix("test_")
    return [f"{stem}-{number + 1}" for number in range(FILES[file])]


def is_in(part: str, nodeid: str) -> bool:
    """True if pytest's name of a test, `tests/FILE::TEST`, is in the part."""
    file, _, test = nodeid.partition("::")
    return part_of(file.removeprefix("tests/"), test) == part


def main(words: list[str]) -> int:
    known = parts()
    if not words:
        print(*known, sep="\n")
        return 0
    if words[0] not in known:
        print(f"PART={words[0]}: is not a part; parts are {', '.join(known)}", file=sys.stderr)
        return 2
    print(*(f"tests/{file}" for file in known[words[0]]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
