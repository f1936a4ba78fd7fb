"""Three hundred damaged inputs through the command's entry point, fifty of them as processes.

None may end in a traceback, in a status that docs/errors.md does not list, or in raw control
characters; each has a bound of time and memory; and none is judged better than its original.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

import ropewalk as rw
from ropewalk.__main__ import run
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.reports import figures
from tests.audit.files.folders import bundled
from tests.evaluation import tiny
from tests.examples import examples
from tests.forks import Forks
from tests.mutants.damage import BYTES, JSON, Mutant, Mutate, header, line, mutants

GOLDEN = Path(__file__).parents[1] / "golden" / "configs"
CONFIGS = ("llama-3.1-8b", "gemma-3-4b", "phi-3-mini-128k", "deepseek-v3", "gpt-oss-20b")
STATUSES = {0, 1, 2, 3}
# From the best judgement to the worst: OK, not established, wrong, cannot be read.
RANK = {0: 3, 3: 2, 1: 1, 2: 0}
BY_RULES = ("--runtime", "vllm", "--runtime", "sglang", "--no-run")
SECONDS, BYTES_OF_MEMORY = 4, 300 * 2**20

Call = Callable[[Path], list[str]]
"""The command's words for a copy of the case's folder."""


class Case(NamedTuple):
    """A file that is damaged, in its folder, and what is done with the folder then."""

    name: str
    folder: Path
    file: str
    ways: tuple[Mutate, ...]
    number: int
    calls: tuple[Call, ...]
    judges: bool = False
    """The calls give a verdict, which a mutant may not improve."""
    notices: bool = False
    """Every changed byte is told: the folder carries its checksums."""


def verify(folder: Path) -> list[str]:
    return ["verify", str(folder), *BY_RULES]


def verify_gguf(folder: Path) -> list[str]:
    return ["verify", str(folder / "model.gguf"), "--no-run"]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every kind of input, as it should be."""
    room = tmp_path_factory.mktemp("originals")
    for name in CONFIGS:
        (room / name).mkdir()
        shutil.copyfile(GOLDEN / f"{name}.json", room / name / "config.json")
    plan = rw.plan("bundled", "2k", "yarn").plan
    for name in ("plain", "whole"):
        (bundled(room / name) / "plan.json").write_text(rw.plan("bundled", "512").plan.dumps())
    Manifest.of(room / "whole").write(room / "whole")
    cut = shutil.copytree(room / "plain", room / "cut") / "model.safetensors"
    cut.write_bytes(cut.read_bytes()[:-100])
    (room / "planned").mkdir()
    (room / "planned" / "plan.json").write_text(plan.dumps())
    shutil.copyfile(room / "plain" / "config.json", room / "planned" / "config.json")
    (room / "gguf").mkdir()
    rw.export("bundled", plan, room / "gguf" / "model.gguf", "llama.cpp")
    return room


def cases(room: Path) -> Iterator[Case]:
    def read(verb: str, *more: str) -> Call:
        return lambda folder: [verb, str(folder / "config.json"), *more]

    for name in CONFIGS:
        target = "1M" if name == "phi-3-mini-128k" else "512k"
        calls = (read("inspect"), read("plan", "--to", target, "--method", "linear"))
        yield Case(name, room / name, "config.json", JSON, 12, calls)
        judged = (lambda folder: verify(folder / "config.json"),)
        # What vLLM does with Phi-3's own setting is wrong, so a mutant without it is better.
        better = name == "phi-3-mini-128k"
        alone = Case(f"{name} alone", room / name, "config.json", JSON, 6, judged)
        yield alone._replace(judges=not better)

    def preview(folder: Path) -> list[str]:
        return ["export", str(folder), "--plan", str(folder / "plan.json"), "--dry-run"]

    def follow(folder: Path) -> list[str]:
        return [*verify(folder / "config.json"), "--plan", str(folder / "plan.json")]

    planned = room / "planned"
    yield Case("plan", planned, "plan.json", JSON, 20, (preview,))
    yield Case("plan to follow", planned, "plan.json", JSON, 20, (follow,), judges=True)

    for name, file, ways, count in (
        ("config", "config.json", JSON, 20),
        ("tokenizer", "tokenizer.json", BYTES, 12),
        ("weights", "model.safetensors", BYTES, 20),
        ("header", "model.safetensors", (header,), 20),
        ("manifest", MANIFEST, JSON, 15),
    ):
        whole = Case(f"whole {name}", room / "whole", file, ways, count, (verify,), judges=True)
        yield whole._replace(notices=file != MANIFEST)
    for file, ways in (("config.json", JSON), ("model.safetensors", (header,))):
        yield Case(f"plain {file}", room / "plain", file, ways, 14, (verify,), judges=True)
        if file == "config.json":
            yield Case(f"cut {file}", room / "cut", file, ways, 14, (verify,), judges=True)

    inspect: Call = lambda folder: ["inspect", str(folder / "model.gguf")]  # noqa: E731
    gguf = Case("gguf", room / "gguf", "model.gguf", BYTES, 10, (inspect,))
    yield gguf
    yield gguf._replace(
        name="gguf judged", number=20, calls=(verify_gguf,), judges=True, notices=True
    )


NAMES = [case.name for case in cases(Path())]


def damaged(case: Case, place: Path, seed: int = 0) -> Iterator[Mutant]:
    """Each mutant of the case, while the folder at `place` holds it."""
    content = (case.folder / case.file).read_bytes()
    number = examples(case.number).max_examples  # all of them in the slow suite
    for mutant in mutants(content, case.ways, number, seed):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(case.folder, place)
        (place / case.file).write_bytes(mutant.content)
        yield mutant


def check_output(out: str, errors: str, status: int, told: str) -> None:
    assert status in STATUSES, f"{told}: status {status}: {errors}"
    for text in (out, errors):
        assert "Traceback" not in text, told
        assert all(c.isprintable() or c == "\n" for c in text), f"{told}: {text!r}"
    if status == 2:
        assert errors.splitlines()[-1].startswith("error: "), f"{told}: {errors!r}"
        assert len(errors) < 8_000, told


@pytest.mark.filterwarnings("default")  # the command shows them as sentences
@pytest.mark.parametrize("name", NAMES)
def test_a_mutant_is_refused_or_judged_and_never_judged_better(
    originals: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    [case] = [case for case in cases(originals) if case.name == name]
    statuses = [run(call(case.folder)) for call in case.calls]
    capsys.readouterr()
    if not name.endswith(" alone") and not case.judges:
        assert statuses == [0] * len(statuses)
    for mutant in damaged(case, tmp_path / case.folder.name):
        for call, original in zip(case.calls, statuses, strict=True):
            words = call(tmp_path / case.folder.name)
            told = f"{case.name}: {mutant.done}: {' '.join(words)}"
            began = time.process_time()
            status = run(words)
            spent = time.process_time() - began
            shown = capsys.readouterr()
            check_output(shown.out, shown.err, status, told)
            assert spent < SECONDS, f"{told}: took {spent:.1f} s"
            if case.judges:
                assert RANK[status] <= RANK[original], f"{told}: {original} became {status}"
            if case.notices:
                assert status != 0, f"{told}: nobody noticed"


def test_there_are_three_hundred() -> None:
    assert sum(case.number * len(case.calls) for case in cases(Path())) + RUNS >= 300


# The command, which leaves its CPU seconds and its peak memory behind. (What the kernel tells the
# parent of a child's memory includes the parent's own, from before the child became Python.)
MEASURED = """
import os, re, sys
def leave(path=sys.argv.pop(1)):
    [peak] = re.findall(r"VmHWM:\\s+(\\d+) kB", open("/proc/self/status").read())
    open(path, "w").write(f"{sum(os.times()[:2])} {peak}")
from ropewalk.__main__ import main
try:
    main()
finally:
    leave()
"""


@pytest.fixture(scope="module")
def forks() -> Iterator[Forks]:
    light = Forks("import numpy, typer.main, rich.console, rich.table")
    yield light
    light.close()


def process(forks: Forks, words: Sequence[str], room: Path) -> tuple[int, str, str, float, int]:
    """Status, both outputs, CPU seconds and peak memory of a fresh process."""
    (room / "measured.py").write_text(MEASURED)
    done = forks.run([str(room / "measured.py"), str(room / "left"), *words])
    seconds, peak = (room / "left").read_text().split()
    return done.returncode, done.stdout, done.stderr, float(seconds), int(peak) * 1024


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks the Linux kernel")
def test_fifty_mutants_as_processes(originals: Path, tmp_path: Path, forks: Forks) -> None:
    counts = {
        "llama-3.1-8b": 5, "phi-3-mini-128k": 5, "deepseek-v3": 5, "plan": 10, "plan to follow": 5,
        "whole config": 5, "plain model.safetensors": 5, "gguf": 5, "gguf judged": 5,
    }  # fmt: skip
    assert sum(counts.values()) == 50
    for case in cases(originals):
        chosen = case._replace(number=counts.get(case.name, 0))
        for mutant in damaged(chosen, tmp_path / case.folder.name, seed=1):
            words = case.calls[0](tmp_path / case.folder.name)
            told = f"{case.name}: {mutant.done}: {' '.join(words)}"
            status, out, errors, seconds, memory = process(forks, words, tmp_path)
            check_output(out, errors, status, told)
            assert seconds < SECONDS, f"{told}: took {seconds:.1f} s"
            assert memory < BYTES_OF_MEMORY, f"{told}: took {memory / 2**20:.0f} MiB"


RUNS = 24


@pytest.mark.filterwarnings("default")  # the command shows them as sentences
def test_a_damaged_run_gives_the_same_result_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "PICTURES", ())  # which takes longer than all that is tested
    model = tmp_path / "model"
    tiny.model().save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(document.text for document in tiny.documents(4)))
    words = ["evaluate", str(model), "--tasks", "passkey,kv", "--lengths", "64,128"]
    words += ["--samples", "3", "--corpus", str(corpus), "--json", "--run"]
    assert run([*words, str(tmp_path / "original")]) == 0
    original = json.loads(capsys.readouterr().out)
    for file in ("records.jsonl", "run.json", "events.jsonl", "results.json"):
        ways = JSON if file == "run.json" else (*BYTES, line, line)
        content = (tmp_path / "original" / file).read_bytes()
        for mutant in mutants(content, ways, examples(RUNS // 4).max_examples, seed=2):
            place = tmp_path / "run"
            shutil.rmtree(place, ignore_errors=True)
            shutil.copytree(tmp_path / "original", place)
            (place / file).write_bytes(mutant.content)
            status = run([*words, str(place)])
            shown = capsys.readouterr()
            told = f"{file}: {mutant.done}"
            check_output("", shown.err, status, told)
            assert ".py:" not in shown.err, told
            assert status in (0, 2), f"{told}: {shown.err}"
            if file in ("events.jsonl", "results.json"):
                assert status == 0, f"{told}: {shown.err}"
            if status == 0:
                assert json.loads(shown.out) == original, told
            # Whoever starts again finds the same: nothing was half mended.
            assert run([*words, str(place)]) == status, told
            capsys.readouterr()
