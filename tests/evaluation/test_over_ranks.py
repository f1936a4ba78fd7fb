"""An evaluation over the ranks of torchrun: the records of one process, whoever answered."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

import ropewalk as rw
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.costs import refusals
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.evaluation.answerers.in_process import load_to_read
from ropewalk.evaluation.served.fingerprint import Answers, Fingerprint
from ropewalk.models.dividing import check_divides
from ropewalk.models.ranks import StoreRanks
from ropewalk.models.source import Loading, resolve
from ropewalk.run_directory import RECORDS, read_journal
from ropewalk.schedule import LogN, RotarySchedule
from tests.evaluation import tiny
from tests.forks import Fork, Forks
from tests.models.tiny import tiny_config, tiny_model
from tests.searching.model.test_ranks import processes

PROGRAM = """
import json, os, sys
import torch
import ropewalk as rw
from ropewalk.evaluation import chunks

torch.set_num_threads(1)
rank, held, update = os.environ["RANK"], [0], chunks._CacheLayer.update

def watched(self, *given, **named):
    found = update(self, *given, **named)
    held.append(sum(kept.numel() for kept in self._kept))
    return found

chunks._CacheLayer.update = watched
asked = json.loads(sys.argv[1])
own = asked if isinstance(asked, list) else [asked]
for each in own:
    each.update(each.pop("of rank", {}).get(rank, {}))
if own[0].pop("unheeding", None) == rank:
    from ropewalk.models.install import Installation
    Installation._set = lambda *_: None
found = [rw.evaluate(**each) for each in own]
whole = {"found": [each.to_json() for each in found], "held": max(held)}
json.dump(whole, open(f"{sys.argv[2]}/{rank}.json", "w"))
"""
ASKED: dict[str, Any] = {
    "methods": ["none", "yarn"],
    "to": "512",
    "tasks": ["perplexity", "kv", "passkey"],
    "lengths": ["256", "512"],
    "samples": 6,
    "device": "cpu",
}


LLAMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 64}


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder_of(tiny.model(**LLAMA), tmp_path_factory.mktemp("models") / "llama")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    for document in tiny.documents(lines=160):
        (folder / f"{document.name}.txt").write_text(document.text)
    return folder


def started(fresh: Forks, count: int, out: Path, asked: Any, program: str = PROGRAM) -> list[Fork]:
    out.mkdir(exist_ok=True, parents=True)
    words = [json.dumps(asked, default=str), str(out)]
    return processes(fresh, program, words, count)


def over(
    fresh: Forks, count: int, out: Path, asked: Any, program: str = PROGRAM
) -> list[dict[str, Any]]:
    """What each of so many ranks returned."""
    for process in started(fresh, count, out, asked, program):
        ended = process.wait()
        assert ended.returncode == 0, ended.stderr
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(count)]


def check_same(run: Path, alone: Path) -> None:
    """First choices are identical, losses equal to 1e-5."""
    names = ("method", "task", "metric", "length", "sample")
    ours, theirs = (
        {tuple(r[name] for name in names): r for r in read_journal(place / RECORDS)}
        for place in (run, alone)
    )
    assert list(ours) == list(theirs)
    for key, own in ours.items():
        assert own["score"] == pytest.approx(theirs[key]["score"], rel=1e-5)
        assert own.get("answer") == theirs[key].get("answer")
        assert own["weights"] == theirs[key]["weights"]


@pytest.mark.parametrize(
    ("count", "per_copy", "mode"),
    [
        (2, 2, "generate"),
        (2, 1, "teacher_forced"),
        *(
            pytest.param(count, per_copy, mode, marks=pytest.mark.slow)
            for count, per_copy in ((2, 2), (2, 1), (4, 2))
            for mode in ("teacher_forced", "generate", "shared_context")
        ),
    ],
)
def test_ranks_keep_the_records_of_one_process(
    count: int, per_copy: int, mode: str, llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    asked = {**ASKED, "model": llama, "corpus": corpus, "mode": mode}
    rw.evaluate(**{**asked, "run": tmp_path / "alone"})
    run = tmp_path / "run"
    found = over(fresh, count, tmp_path, {**asked, "run": run, "ranks_per_copy": per_copy})
    check_same(run, tmp_path / "alone")
    assert all(each["found"] == found[0]["found"] for each in found)
    assert found[0]["found"] == [json.loads((run / "results.json").read_text())]
    # The run goes on in one process, and has nothing left to do.
    before = (run / RECORDS).read_bytes()
    rw.evaluate(**{**asked, "run": run})
    assert (run / RECORDS).read_bytes() == before


def test_a_process_evaluates_twice(llama: Path, corpus: Path, tmp_path: Path, fresh: Forks) -> None:
    """Nothing of the first evaluation is left in the store that ranks meet in."""
    own: dict[str, Any] = {
        "model": llama,
        "corpus": corpus,
        "tasks": ["kv"],
        "lengths": [256],
        "device": "cpu",
    }
    seeds = (0, 1)
    for seed in seeds:
        rw.evaluate(**{**own, "samples": 4, "seed": seed, "run": tmp_path / f"alone-{seed}"})
    both = [{**own, "samples": 4, "seed": seed, "run": tmp_path / f"{seed}"} for seed in seeds]
    found = over(fresh, 2, tmp_path, both)
    for seed in seeds:
        check_same(tmp_path / f"{seed}", tmp_path / f"alone-{seed}")
        kept = json.loads((tmp_path / f"{seed}" / "results.json").read_text())
        assert [each["found"][seed] for each in found] == [kept, kept]


FAMILIES = (
    *("gemma3_text", "mixtral", "deepseek_v3", "smollm3", "qwen2", "qwen3", "gpt_neox"),
    *("qwen3_5_text", "phi3", "olmo2"),
)
"""Two kinds of rotation and windows, experts, latents, layers without positions, biased and normed
queries, partial rotation, a hybrid, joined projections, gathered heads."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 4])
def test_families_of_different_structure(
    count: int, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    """The unmodified model, and a plan."""
    asked: list[dict[str, Any]] = []
    for family in FAMILIES:
        heads = {"num_key_value_heads": 4, "num_attention_heads": 8, "vocab_size": 257}
        heads |= {"hidden_size": 64} if family != "gpt_neox" else {"hidden_size": 128}
        heads |= {"num_key_value_heads": 8} if family == "deepseek_v3" else {}
        model = tiny_model(family, max_position_embeddings=128, pad_token_id=None, **heads)
        folder = tiny.folder_of(model, tmp_path / family)
        asked.append(
            {
                "model": folder,
                "corpus": corpus,
                "methods": ["none", "linear"],
                "to": 256,
                "tasks": ["perplexity", "kv"],
                "lengths": [128, 256],
                "samples": 2,
                "device": "cpu",
                "mode": "generate",
            }
        )
    for each in asked:
        rw.evaluate(**{**each, "run": tmp_path / "alone" / Path(each["model"]).name})
    ranked = [
        {**each, "run": tmp_path / "over" / Path(each["model"]).name, "ranks_per_copy": count}
        for each in asked
    ]
    over(fresh, count, tmp_path / "out", ranked)
    for family in FAMILIES:
        check_same(tmp_path / "over" / family, tmp_path / "alone" / family)


def test_plans_of_every_kind_take_effect_on_every_rank(
    llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    """One that keeps initial positions and scales queries, and one that changes with the length."""
    planned = rw.plan(llama, 512, "ntk").plan
    full = planned.longest()
    kept = replace(full, kept_initial_positions=16, log_n=LogN("beyond", 128))
    short = replace(RotarySchedule.plain(full.geometry), length=256)
    plans = {"kept": (PlanStep(512, kept),), "steps": (PlanStep(256, short), PlanStep(512, full))}
    for name, steps in plans.items():
        plan = ContextPlan(planned.model, {FULL_ATTENTION: steps}, {"methods": name})
        (tmp_path / f"{name}.json").write_text(plan.dumps())
    asked = {
        "model": llama,
        "corpus": corpus,
        "device": "cpu",
        "tasks": ["perplexity", "kv"],
        "lengths": [256, 512],
        "samples": 3,
        "mode": "generate",
        "plans": [str(tmp_path / f"{name}.json") for name in plans],
    }
    over(fresh, 1, tmp_path / "one", {**asked, "run": tmp_path / "alone"})
    both = {**asked, "run": tmp_path / "run", "ranks_per_copy": 2}
    over(fresh, 2, tmp_path / "two", both)
    check_same(tmp_path / "run", tmp_path / "alone")
    losses = {
        (line["method"], line["length"], line["sample"]): line["score"]
        for line in read_journal(tmp_path / "run" / RECORDS)
        if line["metric"] == "nll"
    }
    assert len(set(losses.values())) == len(losses), "else a plan had no effect"


def test_each_rank_keeps_its_part_of_a_long_cache(
    llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    """Text beyond 4,096 tokens is read in chunks, in step."""
    asked = {
        "model": llama,
        "corpus": corpus,
        "methods": ["yarn"],
        "to": "5k",
        "tasks": ["kv", "perplexity"],
        "lengths": ["5k"],
        "samples": 1,
        "device": "cpu",
    }
    [alone] = over(fresh, 1, tmp_path / "one", {**asked, "run": tmp_path / "alone"})
    both = {**asked, "run": tmp_path / "run", "ranks_per_copy": 2}
    first, second = over(fresh, 2, tmp_path / "two", both)
    check_same(tmp_path / "run", tmp_path / "alone")
    assert alone["held"] > 0
    assert max(first["held"], second["held"]) <= 0.55 * alone["held"]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"seed": 7}, "rank 1 sees another seed than rank 0"),
        ({"model": "other"}, "rank 1 sees another .*weights_sha256"),
    ],
)
def test_ranks_that_see_something_else_are_told_before_the_first_question(
    other: dict[str, Any], told: str, llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    if "model" in other:
        model = tiny.model(**LLAMA, initializer_range=0.2)
        other = {"model": str(tiny.folder_of(model, tmp_path / "other"))}
    run = tmp_path / "run"
    asked = {**ASKED, "model": llama, "corpus": corpus, "run": run, "of rank": {"1": other}}
    ends = [process.wait() for process in started(fresh, 2, tmp_path / "out", asked)]
    assert [end.returncode for end in ends] == [1, 1]
    assert any(re.search(told, end.stderr) for end in ends)
    assert not (run / RECORDS).exists() or not read_journal(run / RECORDS)


def test_a_rank_that_dies_ends_all_within_a_minute_by_name(
    llama: Path, corpus: Path, tmp_path: Path
) -> None:
    """Under the real torchrun, whose run goes on with one process."""
    run = tmp_path / "run"
    words = ["evaluate", llama, "--corpus", corpus, "--tasks", "kv", "--lengths", 512]
    words += ["--method", "none", "--samples", 400, "--device", "cpu", "--run", run]
    start = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "--"]
    ranked = [*start, "ropewalk", *map(str, words), "--ranks-per-copy", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        ranked, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        while not (run / RECORDS).exists() or len(read_journal(run / RECORDS)) < 20:
            assert process.poll() is None
            time.sleep(0.05)
        listed = subprocess.run(
            ["ps", "--ppid", str(process.pid), "-o", "pid="], capture_output=True, text=True
        )
        os.kill(int(listed.stdout.split()[1]), signal.SIGKILL)
        began = time.monotonic()
        _, errors = process.communicate(timeout=60)
    assert time.monotonic() - began < 60
    assert process.returncode != 0
    assert "local_rank: 1" in errors
    assert "rank 1 has ended without a word, as if it had been killed" in errors
    assert "please report" not in errors
    kept = read_journal(run / RECORDS)
    assert 20 <= len(kept) < 400 * 2
    alone = subprocess.run(
        [sys.executable, "-m", "ropewalk", *map(str, words)], env=environment, check=False
    )
    assert alone.returncode == 0
    assert read_journal(run / RECORDS)[: len(kept)] == kept


@pytest.mark.parametrize(
    ("family", "changes", "ranks", "told"),
    [
        ("llama", {}, 3, "4 query heads cannot be divided .* give 1 or 2; further ranks"),
        ("llama", {}, 4, "2 key heads cannot be divided .* give 1 or 2; further ranks"),
        ("llama", {"num_key_value_heads": 4}, 8, "4 query heads .* give 1 or 2 or 4; further"),
        ("llama", {"num_key_value_heads": 1}, 2, "1 key heads .* give 1; further ranks"),
        ("stablelm", {}, 2, "no tensor-parallel plan for model type 'stablelm'"),
        ("lfm2", {}, 2, "no tensor-parallel plan"),
        ("gpt_oss", {}, 2, "no tensor-parallel plan"),
        ("cohere", {"use_qk_norm": True}, 2, "does not divide the norms of its queries"),
    ],
)
def test_divisions_that_there_are_not(
    family: str, changes: dict[str, Any], ranks: int, told: str
) -> None:
    config = tiny_config(family, **changes)
    if told == "no tensor-parallel plan" and getattr(config, "base_model_tp_plan", None):
        pytest.skip("this transformers has one")
    with pytest.raises((InvalidValue, Unsupported), match=told):
        check_divides(config, ranks)


def test_what_stays_whole_is_said() -> None:
    assert not check_divides(tiny_config("llama"), 2)
    for family in ("deepseek_v3", "phi3", "olmo2"):
        assert "keeps the whole cache" in check_divides(tiny_config(family), 2)


def test_ranks_without_torchrun_and_for_a_server(llama: Path) -> None:
    with pytest.raises(InvalidValue, match="--nproc-per-node 2 -m -- ropewalk evaluate"):
        rw.evaluate(llama, ranks_per_copy=2)
    with pytest.raises(Unsupported, match="`ranks_per_copy` is for a model in process"):
        rw.evaluate(server="http://localhost:1", ranks_per_copy=2)
    with pytest.raises((InputError, Unsupported), match="read from files"):
        rw.evaluate(tiny.loaded(), ranks_per_copy=2)


def test_ranks_of_a_gguf_file_are_refused_before_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"GGUF, and nothing that could be read")
    with pytest.raises(Unsupported, match="`ranks_per_copy` is for a model in process"):
        rw.evaluate(file, ranks_per_copy=2)
    own = {"WORLD_SIZE": "2", "RANK": "0", "LOCAL_RANK": "0"}
    for key, value in {**own, "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(key, value)
    for other in ({"model": file}, {"server": "http://localhost:1"}):
        with pytest.raises(
            Unsupported, match="ranks can only share a model that runs in their own"
        ):
            rw.evaluate(**other, ranks_per_copy=2)


class Met(Exception):
    """Loading would begin."""


class Meeting(StoreRanks):
    def meet(self, device: object) -> NoReturn:
        raise Met


def test_a_length_is_refused_before_loading_with_the_cache_of_a_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a cache that is divided, and all of one that stays whole, of 512 MiB each."""
    monkeypatch.setattr(refusals, "main_memory", lambda: 700 * 2**20)
    told: list[str] = []

    def read(family: str, ranks: int) -> None:
        folder = tmp_path / family
        tiny_config(family).save_pretrained(folder)  # without weights: reading these would fail
        load_to_read(
            *(str(folder), resolve(str(folder)), 2**20, "to"),
            Meeting(None, 0, ranks, per_copy=ranks),
            Loading("auto", "cpu", False),
            told.append,
        )

    with pytest.raises(InvalidValue, match=r"to = 1048576: .* GiB \(cache 0\.5, .*"):
        read("llama", 1)
    with pytest.raises(Met):
        read("llama", 2)
    assert not told
    with pytest.raises(InvalidValue, match=r"to = 1048576: .* GiB \(cache 0\.5, .*"):
        read("phi3", 2)
    assert "each rank keeps the whole cache" in told[0]
    with pytest.raises(InvalidValue, match=r"4 query heads cannot be divided .* give 1 or 2"):
        read("llama", 3)


def test_quantised_weights_count_with_the_bytes_of_their_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its sizes the model would take 16 GiB; its file is small."""
    monkeypatch.setattr(refusals, "main_memory", lambda: 700 * 2**20)
    model = tiny.model(num_attention_heads=4, num_key_value_heads=2)
    folder = tiny.folder_of(model, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text()) | {"vocab_size": 2**26}

    def read(**more: object) -> None:
        (folder / "config.json").write_text(json.dumps(config | more))
        load_to_read(
            *(str(folder), resolve(str(folder)), 512, "to", Meeting(None, 0, 2, per_copy=2)),
            Loading("auto", "cpu", False),
            lambda _: None,
        )

    with pytest.raises(InvalidValue, match=r"to = 512: .* GiB \(weights"):
        read()
    with pytest.raises(Met):
        read(quantization_config={"quant_method": "fp8"})


def test_a_plan_that_fails_to_take_effect_on_one_rank_ends_both_by_name(
    llama: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    """One rank goes on to turn as before; the other would wait in the next sum over both."""
    run = tmp_path / "run"
    asked = {**ASKED, "model": llama, "corpus": corpus, "run": run, "ranks_per_copy": 2}
    began = time.monotonic()
    first, second = (
        process.wait()
        for process in started(fresh, 2, tmp_path / "out", {**asked, "unheeding": "1"})
    )
    assert time.monotonic() - began < 60
    assert "GateFailed" in second.stderr
    assert first.stderr.strip().endswith("rank 1 failed; see its output")
    assert not {record["method"] for record in read_journal(run / RECORDS)} - {"none"}


FINGERPRINT = """
import json, os, sys
import torch
import ropewalk as rw

torch.set_num_threads(1)
asked = json.loads(sys.argv[1])
asked.update(asked.pop("of rank", {}).get(os.environ["RANK"], {}))
if asked.pop("unheeding", False):
    from ropewalk.models.install import Installation
    Installation._set = lambda *_: None
made = rw.fingerprint(**asked)
json.dump(made.to_json(), open(f"{sys.argv[2]}/{os.environ['RANK']}.json", "w"))
"""


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of which each of two ranks holds whole blocks of 32 numbers."""
    sizes = {**LLAMA, "hidden_size": 128, "intermediate_size": 64}
    return tiny.folder_of(tiny.model(**sizes), tmp_path_factory.mktemp("models") / "blocks")


@pytest.mark.parametrize(
    ("count", "per_copy"), [(2, 2), (2, 1), pytest.param(4, 2, marks=pytest.mark.slow)]
)
def test_a_fingerprint_over_ranks_is_that_of_one_process(
    count: int, per_copy: int, blocks: Path, corpus: Path, tmp_path: Path, fresh: Forks
) -> None:
    plan = rw.plan(blocks, 512, "yarn").plan
    (tmp_path / "plan.json").write_text(plan.dumps())
    asked: dict[str, Any] = {"model": blocks, "plan": str(tmp_path / "plan.json"), "corpus": corpus}
    alone = rw.fingerprint(**asked, device="cpu")
    ranked = {**asked, "device": "cpu", "ranks_per_copy": per_copy}
    told = over(fresh, count, tmp_path, ranked, FINGERPRINT)
    assert all(each == told[0] for each in told)
    found = Fingerprint.from_json(told[0])
    assert found.probes == alone.probes
    assert [each.told for each in found.candidates] == [each.told for each in alone.candidates]
    pairs = [(found.answers, alone.answers, 1e-4)]
    # A number that stands between two steps may be rounded to the other one.
    both = zip(found.healthy, alone.healthy, strict=True)
    pairs += [(ours, theirs, 0.05) for ours, theirs in both]
    candidates = zip(found.candidates, alone.candidates, strict=True)
    pairs += [(ours.answers, theirs.answers, 0.05) for ours, theirs in candidates]
    for ours, theirs, most in pairs:
        assert apart(ours, theirs) < most
    assert apart(found.answers, found.healthy[0]) > 1e-3, "else rounding had no effect"


def apart(ours: Answers, theirs: Answers) -> float:
    """The largest difference of two log-probabilities of the likeliest token."""
    differences = []
    rows = zip(ours.tokens, ours.log_probabilities, strict=True)
    others = zip(theirs.tokens, theirs.log_probabilities, strict=True)
    for (tokens, row), (theirs_of, other) in zip(rows, others, strict=True):
        known = dict(zip(tokens, row, strict=True))
        differences += [abs(known[theirs_of[0]] - other[0])]
    return max(differences)


@pytest.mark.parametrize(
    ("model", "changed", "told"),
    [
        (
            "llama",
            {},
            "the 48 inputs of a layer cannot be divided among 2 ranks in whole blocks of 32",
        ),
        ("blocks", {"seed": 7}, "rank 1 sees another seed than rank 0"),
        ("blocks", {"unheeding": True}, "GateFailed"),
    ],
)
def test_a_fingerprint_is_refused_before_its_probes(
    model: str,
    changed: dict[str, Any],
    told: str,
    corpus: Path,
    tmp_path: Path,
    fresh: Forks,
    request: pytest.FixtureRequest,
) -> None:
    place = request.getfixturevalue(model)
    (tmp_path / "plan.json").write_text(rw.plan(place, 512, "yarn").plan.dumps())
    asked = {"model": place, "plan": str(tmp_path / "plan.json"), "corpus": corpus}
    asked |= {"device": "cpu", "ranks_per_copy": 2, "of rank": {"1": changed}}
    ends = [each.wait() for each in started(fresh, 2, tmp_path, asked, FINGERPRINT)]
    assert [end.returncode for end in ends] == [1, 1]
    assert any(re.search(told, end.stderr) for end in ends)
