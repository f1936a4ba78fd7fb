"""`extend` over the ranks of torchrun: the schedule and the verdict of one process."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.pipeline.extend import Extended
from ropewalk.run_directory import EVENTS, read_journal
from tests.cli.test_search import close
from tests.evaluation import tiny
from tests.forks import Fork, Forks
from tests.pipeline.conftest import TARGET, extended
from tests.searching.model.test_ranks import processes

PROGRAM = """
import json, os, sys
import torch
import ropewalk as rw
from ropewalk.reports import figures
from tests.evaluation import tiny

torch.set_num_threads(1)
figures.keep_figures = lambda *_: None  # drawing takes most of the time
asked = json.loads(sys.argv[1])
last = asked.pop("last", None)

def done(stage, result):
    if stage.name == last:
        raise KeyboardInterrupt

found = rw.extend(**asked, corpus=tiny.documents(8), done=done)
json.dump(found.to_json(), open(f"{sys.argv[2]}/{os.environ['RANK']}.json", "w"))
"""


ASKED: dict[str, Any] = {
    "to": TARGET,
    "budget": 6,
    "search": True,
    "device": "cpu",
}


def started(fresh: Forks, count: int, per_copy: int, run: Path, asked: Any) -> list[Fork]:
    given = {**asked, "run": str(run), "ranks_per_copy": per_copy}
    return processes(fresh, PROGRAM, [json.dumps(given), str(run.parent)], count)


def check_same_run(run: Path, alone: Path) -> None:
    """Losses equal to 1e-5, first choices, the schedule and the verdict identical."""
    plans = [ContextPlan.read(place / "plan.json").longest() for place in (run, alone)]
    assert plans[0].rescale_factors.tolist() == plans[1].rescale_factors.tolist()
    assert plans[0].attention_scaling == plans[1].attention_scaling
    for name in ("first.jsonl", "search.jsonl", "search-measured.jsonl"):
        ours, theirs = (read_journal(place / name) for place in (run, alone))
        assert close(ours, theirs), name
    verdicts = [json.loads((place / "first.json").read_text())["result"] for place in (run, alone)]
    assert verdicts[0]["verdict"] == verdicts[1]["verdict"]
    assert close(*(each["readings"] for each in verdicts))


def test_copies_that_are_interrupted_end_as_one_process(
    done: Extended, folder: Path, run: Path, tmp_path: Path, fresh: Forks
) -> None:
    own, asked = tmp_path / "run", {**ASKED, "model": str(folder), "last": "search"}
    first, second = (process.wait() for process in started(fresh, 2, 1, own, asked))
    assert "KeyboardInterrupt" in first.stderr
    assert "rank 0 failed; see its output" in second.stderr
    before = {path.name: path.read_bytes() for path in own.glob("*.json*")}
    assert "search.json" in before
    assert "export.json" not in before
    again = extended(folder, own)
    assert again.judged.verdict == done.judged.verdict
    assert all((own / name).read_bytes() == before[name] for name in before if name != EVENTS)
    check_same_run(own, run)


@pytest.fixture(scope="module")
def divided(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model with heads to divide, and the run of one process."""
    place = tmp_path_factory.mktemp("divided")
    model = tiny.model(num_attention_heads=4, num_key_value_heads=2)
    folder = tiny.folder_of(model, place / "model")
    extended(folder, place / "run", device="cpu")
    return folder, place / "run"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "per_copy", "killed_in", "then"),
    [(2, 2, "first.jsonl", 1), (4, 2, "search-measured.jsonl", 2), (2, 2, "search.jsonl", 4)],
)
def test_a_killed_run_ends_on_another_number_of_ranks(
    count: int, per_copy: int, killed_in: str, then: int,
    divided: tuple[Path, Path], tmp_path: Path, fresh: Forks,
) -> None:  # fmt: skip
    folder, alone = divided
    run, asked = tmp_path / "run", {**ASKED, "model": str(folder)}
    ranks = started(fresh, count, per_copy, run, asked)
    while not (run / killed_in).exists() or len((run / killed_in).read_text().splitlines()) < 3:
        assert ranks[0].poll() is None, ranks[0].wait().stderr
        time.sleep(0.01)
    for rank in ranks:
        rank.kill()
        rank.wait()
    assert not (run / "export.json").exists()
    kept = (run / killed_in).read_bytes()
    if then > 1:
        for process in started(fresh, then, 2, run, asked):
            ended = process.wait()
            assert ended.returncode == 0, ended.stderr
        told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(then)]
        assert told == [told[0]] * then
    found = extended(folder, run, device="cpu")
    assert then == 1 or json.loads(json.dumps(found.to_json())) == told[0]
    assert (run / killed_in).read_bytes().startswith(kept[: kept.rindex(b"\n")])
    check_same_run(run, alone)


def test_what_ranks_cannot_do_together_is_refused_before_loading(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(**more: Any) -> None:
        rw.extend(str(folder), TARGET, corpus=tiny.documents(8), **more)

    with pytest.raises(InvalidValue, match="--nproc-per-node 2 -m -- ropewalk extend"):
        asked(ranks_per_copy=2)
    own = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    for key, value in {**own, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(Unsupported, match="does not train under torchrun; leave `train_steps` out"):
        asked(train_steps=3)
    with pytest.raises(
        InvalidValue, match=r"processes would stop at different points; give tokens"
    ):
        asked(budget="30m")
    with pytest.raises(Unsupported, match="one process"):
        rw.extend.preview(str(folder), TARGET, corpus=tiny.documents(8))
