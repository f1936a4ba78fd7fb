"""The command on the bundled model: killed, started again, and what is on disk afterwards.

The tour of docs/python.md ends in the same run, so it stands here and recalls it.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.data import corpora
from ropewalk.data.corpora import HELD_OUT_FOLDER
from ropewalk.errors import InputError
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDER, BUNDLED_FOLDERS
from ropewalk.pipeline import cost
from tests.cli.calling import result_of
from tests.stock_process import StockProcess

STAGES = ("inspect", "first", "export", "verify")
SMALL = ("--to", "1k", "--budget", "6")


_extend = partial(result_of, "extend")


@pytest.fixture(
    scope="module", autouse=True, params=["small", pytest.param("own", marks=pytest.mark.slow)]
)
def bundled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """The folder of the bundled model, or of one in its place that is much smaller.

    With it the text that ships is less too, and an estimate does not wait for transformers.
    """
    if request.param == "own":
        yield BUNDLED_FOLDER
        return
    folder = tmp_path_factory.mktemp("models") / "bundled"
    shutil.copytree(BUNDLED_FOLDER, folder)
    config = AutoConfig.from_pretrained(folder)
    sizes = {"hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    for name, value in {**sizes, "intermediate_size": 48, "num_hidden_layers": 1}.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    for path in sorted(HELD_OUT_FOLDER.glob("*.txt")):
        (folder.parent / path.name).write_text(path.read_text(encoding="utf-8")[:20_000], "utf-8")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(BUNDLED_FOLDERS, BUNDLED, folder)
        patched.setattr(corpora, "HELD_OUT_FOLDER", folder.parent)
        patched.setattr(cost, "_IMPORTS", "")
        yield folder


COMMAND = """
import sys
from pathlib import Path
from ropewalk.__main__ import main
from ropewalk.data import corpora
from ropewalk.models.config import BUNDLED_FOLDERS
from tests.cli.calling import result_of
BUNDLED_FOLDERS["bundled"], corpora.HELD_OUT_FOLDER = map(Path, sys.argv[1:3])
del sys.argv[1:3]
main()
"""


@pytest.fixture(scope="module")
def done(
    bundled: Path, tmp_path_factory: pytest.TempPathFactory, stock: StockProcess
) -> tuple[Path, str]:
    """A run that was killed while it was judged and started again."""
    run = tmp_path_factory.mktemp("extended") / "run"
    killed = stock.forks.start(
        ["-c", COMMAND, bundled, corpora.HELD_OUT_FOLDER, "extend", *SMALL, "--run", run]
    )
    journal = run / "first.jsonl"
    while not (journal.exists() and journal.stat().st_size > 600):
        assert killed.poll() is None, "it ended before it could be killed"
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert (run / "inspect.json").exists()
    assert not (run / "export.json").exists()
    return run, _extend(*SMALL, "--run", run).stdout


def test_the_last_lines_say_what_where_how_and_whether_it_works(done: tuple[Path, str]) -> None:
    run, said = done
    example, before, after, price, where, how, own = said.strip().splitlines()[-7:]
    judged = json.loads((run / "first.json").read_text())["result"]
    assert judged["example"]["question"] in example
    assert before.startswith("before: retrieval ")
    assert "within its own 512" in before
    assert after.startswith(f"after: yarn: {judged['verdict']} at 1k: retrieves ")
    assert price.startswith("price: ")
    assert "within 512" in price
    assert str(run / "model") in where
    assert str(run / "model.gguf") in where
    assert how == f"load it: AutoModelForCausalLM.from_pretrained('{run / 'model'}')"
    assert own.startswith("for your own model: ropewalk extend ")


def test_every_stage_leaves_its_result(done: tuple[Path, str]) -> None:
    run, said = done
    for name in STAGES:
        kept = json.loads((run / f"{name}.json").read_text())
        assert kept["stage"] == name
        assert f"{name}  " in said
    exported = json.loads((run / "export.json").read_text())["result"]["written"]
    assert [each["target"] for each in exported] == ["transformers", "llama.cpp"]
    assert all(each["agreement"]["passed"] for each in exported)


def test_what_was_written_turns_by_the_chosen_plan(done: tuple[Path, str]) -> None:
    """Both files are opened without ropewalk's own writers."""
    run, _ = done
    schedule = ContextPlan.read(run / "plan.json").longest()
    assert schedule.length == 1024
    rotary = AutoModelForCausalLM.from_pretrained(run / "model").model.rotary_emb
    frequencies = rotary.inv_freq.double().numpy()
    np.testing.assert_allclose(frequencies, schedule.inverse_frequencies, rtol=1e-6)
    assert rotary.attention_scaling == pytest.approx(schedule.attention_scaling)

    file = GGUFReader(run / "model.gguf")
    fields = {name: field.contents() for name, field in file.fields.items()}
    base = fields["llama.rope.freq_base"]
    turned = base ** (-np.arange(schedule.geometry.pairs) / schedule.geometry.pairs)
    turned /= fields.get("llama.rope.scaling.factor", 1.0)
    for tensor in file.tensors:
        if tensor.name == "rope_freqs.weight":
            turned /= tensor.data
    np.testing.assert_allclose(turned, schedule.inverse_frequencies, rtol=1e-5)
    assert fields["llama.context_length"] == 1024


def test_a_run_that_is_done_is_only_told_again(done: tuple[Path, str]) -> None:
    run, _ = done
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.json")}
    again = json.loads(_extend(*SMALL, "--run", run, "--json").stdout)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.json")} == before
    assert again["target_length"] == 1024
    assert again["verdict"] == again["results"]["first"]["verdict"]
    told = rw.extend("bundled", "1k", budget=6, run=run)  # the function on the command's run
    assert json.loads(json.dumps(told.to_json())) == again


def test_a_damaged_export_is_not_claimed(done: tuple[Path, str], tmp_path: Path) -> None:
    run = Path(shutil.copytree(done[0], tmp_path / "run"))
    with (run / "model.gguf").open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(InputError, match=r"model.gguf: has changed since .* directory \(--run\)"):
        _extend(*SMALL, "--run", run)


def test_a_run_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    corpus = tmp_path / "short.txt"
    corpus.write_text("too short\n" * 30)
    with pytest.raises(InputError, match=r"documents \(--corpus\), or a shorter target \(--to\)"):
        _extend("--corpus", corpus, "--run", tmp_path / "run")
    with pytest.raises(InputError, match="--corpus: is empty"):
        _extend("--corpus", "", "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_setting_on_the_same_directory_is_refused(done: tuple[Path, str]) -> None:
    with pytest.raises(InputError, match="documents was 6, now 7"):
        _extend(*SMALL[:2], "--budget", 7, "--run", done[0])


def test_a_target_that_is_served_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match="must be above 512, the length that the model already serves"
    ):
        _extend("--to", 512, "--run", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_every_block_of_the_python_tour_runs(
    done: tuple[Path, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In order, as a reader would paste them; the last run is the command's, which has moved."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(done[0], tmp_path / "runs" / "extend")
    namespace: dict[str, Any] = {}
    page = Path(__file__).parents[2] / "docs" / "python.md"
    text = page.read_text(encoding="utf-8")
    for match in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        line = text[: match.start()].count("\n") + 1
        exec(compile("\n" * line + match[1], str(page), "exec"), namespace)
    said = capsys.readouterr().out
    assert "llama-3.1-8b (catalogue" in said
    assert "did you mean 'yarn'?" in said
    assert namespace["extended"].load == "AutoModelForCausalLM.from_pretrained('runs/extend/model')"
    assert (tmp_path / "extended" / "config.json").exists()
    assert (tmp_path / "factors.png").stat().st_size > 10_000
