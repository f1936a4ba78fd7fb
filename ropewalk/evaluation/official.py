"""RULER's own inputs, as its scripts write them, from a folder that the user gives with a manifest.

    manifest.json    {"files": [{"path": "4096/vt/validation.jsonl", "task": "vt", "length": 4096,
                     "sha256": "…"}, …]}

A line of a file is {"index", "input", "outputs", "length", …}. What the files say is scored by
RULER's definitions, and is official as far as the manifest is: each file must have its hash.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ropewalk.errors import InputError, InvalidValue
from ropewalk.evaluation import tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.randomness import identity
from ropewalk.evaluation.samples import Sample
from ropewalk.lengths import check_measured
from ropewalk.untrusted import Fields, one_of, parse_json, read_json, text_value

MANIFEST = "manifest.json"
LARGEST_FILE, LONGEST_LINE, LONGEST_PATH = 2**30, 64 * 2**20, 255


def _task(name: str) -> tasks.Task:
    own = tasks.named(f"{name}-syn")
    return tasks.Task(
        name,
        "RULER's own inputs.",
        _drafts_nothing,
        own.score,
        metric=own.metric,
        allowance=own.allowance,
    )


def _drafts_nothing(scene: tasks.Scene, units: int) -> tasks.Draft:
    raise AssertionError("official inputs are read, not made")


def groups() -> Mapping[str, tuple[str, ...]]:
    """The official tasks by the name of their mean."""
    return {
        name.removesuffix("-syn"): tuple(member.removesuffix("-syn") for member in members)
        for name, members in tasks.groups().items()
        if name.startswith("ruler")
    }


def every() -> Mapping[str, tasks.Task]:
    return {name: _task(name) for name in groups()["ruler"]}


@dataclass(frozen=True)
class Official:
    """The files of a manifest, by task and length."""

    folder: Path
    digest: str
    """A SHA-256 of the manifest's content."""
    files: Mapping[tuple[str, int], tuple[str, str]]
    """Path and hash."""

    def lengths(self, names: Sequence[str]) -> tuple[int, ...]:
        """The lengths at which all of these tasks have a file."""
        by_name = [{length for task, length in self.files if task == name} for name in names]
        found = set.intersection(*by_name)
        if not found:
            raise InvalidValue(
                "official",
                str(self.folder),
                f"has no length at which there is a file for each of {', '.join(names)}",
                "add the files, or ask for fewer tasks",
            )
        return tuple(sorted(found))

    def check(self, names: Sequence[str], lengths: Sequence[int], count: int) -> None:
        """Read every file that is needed once, and refuse what does not match the manifest."""
        for name in names:
            for length in lengths:
                self._lines(name, length, count)

    def check_tokens(
        self, names: Sequence[str], lengths: Sequence[int], encoder: Encoder, count: int
    ) -> None:
        """Refuse prompts that are too long for this tokenizer, before anything is measured."""
        for name in names:
            for length in lengths:
                for _ in self.samples(name, length, encoder, count):
                    pass

    def samples(self, name: str, length: int, encoder: Encoder, count: int) -> Iterator[Sample]:
        """The first of a file. A sample may take BOS besides, which RULER does not count."""
        path, digest = self.files[name, length]
        allowance = every()[name].allowance
        for number, (prompt, references) in enumerate(self._lines(name, length, count)):
            tokens = encoder.sequence(prompt)
            size = len(tokens) - len(encoder.bos) + allowance
            if size > length:
                raise InputError(
                    f"{path}, line {number + 1}: takes {size} tokens with this tokenizer, but is "
                    f"for a length of {length}; make the inputs with the tokenizer of this model"
                )
            sample = identity("official", name, digest, number, length, encoder.sha256)
            yield Sample(
                id=sample,
                length=length,
                prompt=tokens,
                answer=np.zeros(0, dtype=np.int64),
                answer_text=references[0],
                parts=(),
                references=references,
                distractors=(),
                depth=None,
                layout=sample,
                allowance=allowance,
                context=sample,
            )

    def _lines(self, name: str, length: int, count: int) -> list[tuple[str, tuple[str, ...]]]:
        if (name, length) not in self.files:
            known = ", ".join(str(at) for task, at in self.files if task == name) or "none"
            raise InvalidValue(
                "official",
                f"{name} at {length}",
                f"is not in the manifest, which has this task at the lengths: {known}",
                "add the file with its hash, or leave out the task or the length",
            )
        path, digest = self.files[name, length]
        kept = self._kept(path, digest, count)
        return [_read(line, f"{path}, line {number}") for number, line in kept]

    def _kept(self, path: str, digest: str, count: int) -> list[tuple[int, bytes]]:
        """The first lines with content of a file that has this hash, by their numbers."""
        place = self.folder / path
        if not place.resolve().is_relative_to(self.folder.resolve()):
            raise InvalidValue("path", path, "leads out of the folder", "keep the files inside it")
        if not place.is_file():
            raise InputError(f"{place}: there is no such file, but the manifest names it")
        found, size, number = hashlib.sha256(), 0, 0
        kept: list[tuple[int, bytes]] = []
        with place.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                size, number = size + len(line), number + 1
                if len(line) > LONGEST_LINE or size > LARGEST_FILE:
                    raise InputError(
                        f"{place}: has more than {LARGEST_FILE:,} bytes, or {LONGEST_LINE:,} in a "
                        "line; check that it is the right file"
                    )
                found.update(line)
                if len(kept) < count and line.strip():
                    kept.append((number, line))
        if found.hexdigest() != digest:
            raise InputError(
                f"{place}: its SHA-256 is {found.hexdigest()}, and the manifest says {digest}; "
                "give the file that the manifest was made for"
            )
        if not kept:
            raise InputError(f"{place}: is empty; give a file with a sample in each line")
        return kept


def read(folder: Path) -> Official:
    """The manifest of a folder. The files are read when they are needed."""
    value = read_json(folder / MANIFEST)
    fields = Fields(value, f"{folder / MANIFEST}: ")
    names = {task.replace("-", "_"): task for task in groups()["ruler"]}
    files: dict[tuple[str, int], tuple[str, str]] = {}
    for i, item in enumerate(fields.items("files")):
        own = Fields(item, f"{fields.of('files')}[{i}]")
        path, task, length = own.text("path"), own.text("task"), own.integer("length")
        digest = own.text("sha256")
        own.close()
        _check_path(path, own.of("path"))
        one_of(task, tuple(names), own.of("task"))
        check_measured(length, own.of("length"))
        if not re.fullmatch(r"[0-9a-f]{64}", digest):
            raise InvalidValue(
                own.of("sha256"), digest, "must be 64 hex digits", "write the file's SHA-256"
            )
        if (names[task], length) in files:
            raise InvalidValue(own.path, task, f"is listed twice at {length}", "keep one of them")
        files[names[task], length] = path, digest
    fields.close()
    return Official(folder, identity(sorted([*key, *file] for key, file in files.items())), files)


def _check_path(path: str, key: str) -> None:
    if not path.strip() or "\0" in path or len(path) > LONGEST_PATH or Path(path).is_absolute():
        raise InvalidValue(
            key,
            path,
            f"must be the path of a file in this folder, of at most {LONGEST_PATH} characters",
            "write '4096/vt/validation.jsonl'",
        )


def _read(line: bytes, source: str) -> tuple[str, tuple[str, ...]]:
    """The prompt and the references of a line."""
    try:
        fields = Fields(parse_json(line.decode("utf-8"), source=source), f"{source}: ")
    except UnicodeDecodeError:
        raise InputError(f"{source}: is not UTF-8 text") from None
    # Newer versions of RULER keep what begins the answer apart.
    prefix = fields.text("answer_prefix") if fields.holds("answer_prefix") else ""
    prompt = fields.text("input") + prefix
    path = fields.of("outputs")
    references = tuple(text_value(each, path) for each in fields.items("outputs"))
    if not references or not all(references) or not prompt:
        raise InvalidValue(path, list(references), "must be answers to a prompt", "check the line")
    return prompt, references
