"""`extend` on a GGUF file: read by llama.cpp, exported as a GGUF file, cut off and gone on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from huggingface_hub import ModelCard as HubCard

import ropewalk as rw
from ropewalk.errors import InputError, Unsupported
from ropewalk.exporting.manifest import CARD
from ropewalk.gguf import provenance, rewriting
from ropewalk.gguf.parts import read_model, read_parts
from ropewalk.gguf.rotation import present_plan
from ropewalk.pipeline.extend import Extended
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.judge import JudgeFirst
from ropewalk.pipeline.stages.verify import Verify
from ropewalk.progress import unheard
from ropewalk.reports.commands.extend import _to_do
from ropewalk.run_on_disk import RunOnDisk
from tests.api.conformance import check_result
from tests.evaluation.served import made
from tests.pipeline.test_extend import judged_as
from tests.reports.test_markdown import Seen

TARGET, DOCUMENTS = 1024, 5
ROOT = Path(__file__).parents[2]
KEPT = ("plan.json", "first.json", "first.jsonl", "export.json", "model.gguf", "run.json")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that states a licence, and a link of a form that no card takes."""
    made_of = made.gguf(tmp_path_factory.mktemp("made") / "plain.gguf", made.plain(), length=512)
    path = tmp_path_factory.mktemp("gguf") / "plain.gguf"
    stated = {"general.license": "mit", "general.license.link": "javascript:alert(1)"}
    keys = {key: rewriting.text(value) for key, value in stated.items()}
    sealed = {provenance.SHA256, provenance.SIZE, provenance.PLAN}
    parts = read_parts(made_of)
    rewriting.join(
        parts, path, rewriting.Changes(keys=keys, without=frozenset(sealed)), lambda done: None
    )
    return path


SAID: list[str] = []
"""The notices of the run `whole`."""


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Extended, Path]:
    run = tmp_path_factory.mktemp("runs") / "run"
    # No price is too high, so that no race follows.
    asked: dict[str, Any] = {"budget": DOCUMENTS, "short_limit": 9.0, "notice": SAID.append}
    return rw.extend(file, TARGET, run=run, **asked), run


def test_the_verdict_and_the_file_are_those_of_a_folder(whole: tuple[Extended, Path]) -> None:
    found, run = whole
    check_result(found)
    judged = found.result(JudgeFirst)
    assert (judged.chosen, judged.window, judged.length) == ("yarn", 512, TARGET)
    at_target = {m: judged.shares(m, TARGET).rate for m in ("none", "yarn")}
    assert at_target["yarn"] > 0.7
    assert judged.example is not None
    assert judged.example.after.strip() == judged.example.answer
    [written] = found.result(Export).written
    assert (written.target, written.path) == ("llama.cpp", run / "model.gguf")
    assert written.agreement is not None
    assert written.agreement.passed
    assert "those of the source file with the plan as flags" in written.summary()
    assert written.warnings == ()
    assert "report.html next to it" in found.written
    header = read_model(written.path)
    assert header.get("rope.scaling.type") == "yarn"
    assert header.count("context_length") == TARGET
    assert present_plan(header, "").rotates_like(judged.plan)
    assert [each.verdict for each in found.result(Verify).verified] == ["OK"]
    assert "yarn" in (run / "report.html").read_text()


def test_few_documents_are_told_once_and_end_in_advice(whole: tuple[Extended, Path]) -> None:
    [told] = [each for each in SAID if "documents" in each and "used:" not in each]
    assert f"5 of 512 tokens, of 32 that it may need; 5 of {TARGET:,} tokens" in told
    assert told.endswith("give more text (`corpus`), or a larger `budget` of documents")
    assert whole[0].judged.verdict == "undecided"
    assert whole[0].told.endswith("; read more documents before you rely on yarn")


def test_its_card_has_the_figures_of_the_run(whole: tuple[Extended, Path]) -> None:
    found, run = whole
    text = (run / CARD).read_text(encoding="utf-8")
    data = HubCard(text).data
    assert (data.get("library_name"), data.get("license")) == ("gguf", "mit")
    assert data.get("license_link") is None
    assert "gguf" in data.get("tags", [])
    page = Seen(text.partition("\n---\n")[2])
    assert found.judged.evidence.replace("`", "") in page.text
    for line in (f"llama-server -m model.gguf -c {TARGET}", "ropewalk verify model.gguf"):
        assert line in page.text
    assert "from_pretrained" not in text
    assert "this folder" not in text
    assert str(run) not in text
    for tag, attributes in page.elements:
        assert tag != "img" or (run / str(attributes.get("src"))).is_file()
    card = check_result(rw.card(run, base_model="org/tiny"))
    assert (card.path, card.base_model) == (run / CARD, "org/tiny")
    assert rw.card(run / "model.gguf") == card


def test_its_advice_is_for_a_file(whole: tuple[Extended, Path]) -> None:
    """Neither a training, which is refused, nor the folder that is not there."""
    found, run = whole
    exports, on_disk = found.result(Export), RunOnDisk.read(run)
    first = found.result(JudgeFirst)
    failed = _to_do(judged_as(first, (1.0, 0.25)), on_disk, exports, over=False)
    assert "folder of safetensors" in failed.title
    assert failed.text == ""
    hard = _to_do(judged_as(first, (0.25, 0.0)), on_disk, exports, over=False)
    assert str(run / "model.gguf") in hard.text


def other_file(run: Path) -> None:
    shutil.copy(made.gguf(run / "q8.gguf", made.plain(), "Q8_0", length=512), run / "model.gguf")


def other_plan(run: Path) -> None:
    (run / "plan.json").write_text(rw.plan("bundled", TARGET, "linear").plan.dumps(), "utf-8")


def edited_record(run: Path) -> None:
    path = run / "export.json"
    path.write_text(path.read_text("utf-8").replace('model.gguf": "', 'model.gguf": "0'), "utf-8")


def no_run(run: Path) -> None:
    (run / "run.json").unlink()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (other_file, r"model\.gguf: is not the one that"),
        (other_plan, r"plan\.json"),
        (edited_record, r"export\.json"),
        (no_run, "not the GGUF file of a run"),
    ],
)
def test_a_card_that_its_records_contradict_is_refused(
    whole: tuple[Extended, Path], change: Callable[[Path], None], complaint: str, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(whole[1], tmp_path / "run"))
    (run / CARD).unlink()
    change(run)
    with pytest.raises(InputError, match=complaint):
        rw.card(run / "model.gguf")
    assert not (run / CARD).exists()


@pytest.mark.slow
def test_it_is_killed_and_ends_with_the_same_bytes(
    file: Path, whole: tuple[Extended, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["extend", str(file), "--to", str(TARGET), "--budget", str(DOCUMENTS)]
    words += ["--short-limit", "9", "--run", str(run)]
    command = [sys.executable, "-m", "ropewalk", *words]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
        journal, end = run / "first.jsonl", time.monotonic() + 300
        while not (journal.exists() and len(journal.read_bytes().splitlines()) >= 3):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    assert len(journal.read_bytes().splitlines()) >= 3
    assert not (run / "first.json").exists()
    other = tmp_path / "other.gguf"
    shutil.copy(made.gguf(tmp_path / "q8.gguf", made.plain(), "Q8_0", length=512), other)
    with pytest.raises(InputError, match=r"different configuration: .*weights_sha256"):
        rw.extend(other, TARGET, run=run, budget=DOCUMENTS, short_limit=9.0, notice=unheard)
    rw.extend(file, TARGET, run=run, budget=DOCUMENTS, short_limit=9.0, notice=unheard)
    for name in KEPT:
        one, two = ((each / name).read_bytes() for each in (run, whole[1]))
        if name == "export.json":
            one = one.replace(bytes(run), bytes(whole[1]))
        if name != "run.json":
            assert one == two, name


def test_what_is_refused_before_anything_is_kept(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused: tuple[tuple[dict[str, Any], str], ...] = (
        ({"train_steps": 1}, "llama.cpp runs this GGUF file, and does not train it"),
    )
    for changes, told in refused:
        with pytest.raises(Unsupported, match=told):
            rw.extend(file, TARGET, run=run, budget=DOCUMENTS, notice=unheard, **changes)
    factors = made.gguf(tmp_path / "factors.gguf")
    with pytest.raises(Unsupported, match=r"factors.gguf holds the tensor rope_freqs"):
        rw.extend(factors, 2048, run=run, budget=DOCUMENTS, notice=unheard)
    with pytest.raises(Unsupported, match="`threads` is for a GGUF file"):
        rw.extend("bundled", 2048, run=run, threads=2)
    assert not run.exists()
