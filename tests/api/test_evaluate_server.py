"""`rw.evaluate(server=…)` on the real llama.cpp, and on servers that misbehave midway."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any

import pytest

import ropewalk as rw
from benchmarks.llama_server import serving
from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.conclusion import EvaluatedServer
from ropewalk.evaluation.served.check import CANARY
from ropewalk.evaluation.tasks import passkey
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from ropewalk.records import EvalRecord
from ropewalk.run_directory import RECORDS, read_journal
from tests.api.conformance import check_command, check_result
from tests.api.served import (
    LENGTHS,
    REFUSED,
    SAMPLES,
    UNSUPPORTED,
    check_same_bytes,
    check_scores,
    without_figures,
)
from tests.evaluation.scored import resealed
from tests.evaluation.served import made
from tests.evaluation.served.bad_server import Reply, completed, listed, misbehaving, said
from tests.forks import Forks
from tests.gguf.gguf_cases import bundled_folder

TASKS = ["passkey", "needle"]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = made.gguf(tmp_path_factory.mktemp("gguf") / "planned.gguf")
    with serving(path, n_ctx=made.TARGET) as url:
        yield url


def evaluated(url: str, run: Path | None = None, **changes: Any) -> EvaluatedServer:
    found = rw.evaluate(
        **{
            "server": url,
            "tokenizer": "bundled",
            "plans": [made.plan()],
            "tasks": TASKS,
            "lengths": LENGTHS,
            "samples": SAMPLES,
            "run": run,
            **changes,
        }
    )
    assert isinstance(found, EvaluatedServer)
    return found


@pytest.fixture(scope="module")
def whole(llama: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[EvaluatedServer, Path]:
    run = tmp_path_factory.mktemp("runs") / "whole"
    return evaluated(llama, run), run


def test_the_scores_are_those_of_the_model_in_process(whole: tuple[EvaluatedServer, Path]) -> None:
    found, run = whole
    check_scores(found, TASKS)
    records = [EvalRecord.from_json(r) for r in read_journal(run / RECORDS)]
    assert len(records) == 16
    for record in records:
        assert record.server is not None
        assert record.server == found.server.line
        assert "llama.cpp" in record.server
        assert "ftype=all F32" in record.server
        assert record.plan_id == made.plan().id
    configuration = json.loads((run / "run.json").read_text())["configuration"]
    assert configuration["server"] == found.server.to_json()
    assert (run / "figures" / "by-length.svg").exists() or (run / "figures").is_dir()


def test_several_questions_on_each_context(llama: str) -> None:
    asked: dict[str, Any] = {"tasks": ["kv"], "lengths": [256], "mode": "shared_context"}
    found = evaluated(llama, **asked)
    here = rw.evaluate(
        BUNDLED, plans=[made.plan()], samples=4, dtype="float32", device="cpu", **asked
    )
    own = [r.value for r in here.results if r.metric == "task_score"]
    assert [r.value for r in found.results] == own
    assert {r.mode for r in found.results} == {"shared_context"}


def test_a_chat_is_put_to_a_server_as_in_process(llama: str, tmp_path: Path) -> None:
    folder = bundled_folder(tmp_path / "model")
    (folder / "chat_template.jinja").write_text(
        "{% for m in messages %}({{ m.role }}) {{ m.content }}\n{% endfor %}(assistant) "
    )
    asked: dict[str, Any] = {"tasks": ["needle"], "lengths": [256], "chat": "on", "system": "Hm."}
    evaluated(llama, tmp_path / "served", tokenizer=folder, **asked)
    here = tmp_path / "here"
    rw.evaluate(
        folder, plans=[made.plan()], samples=4, mode="generate", device="cpu", run=here, **asked
    )
    served, own = (
        {line["prompt"]: line["score"] for line in lines if line["metric"] == "task_score"}
        for lines in (read_journal(tmp_path / "served" / RECORDS), read_journal(here / RECORDS))
    )
    assert len(served) == 4
    assert served == own
    evaluated(llama, tmp_path / "plain", tokenizer=folder, **{**asked, "system": None})
    with pytest.raises(InputError, match="differ in chat"):
        rw.compare_runs(tmp_path / "served", tmp_path / "plain")


def test_the_command_prints_the_same(llama: str, whole: tuple[EvaluatedServer, Path]) -> None:
    found, _ = whole
    check_command(
        found,
        *(
            "evaluate",
            "--server",
            llama,
            "--tokenizer",
            BUNDLED_FOLDER,
            "--tasks",
            "passkey,needle",
        ),
        *("--lengths", "128,256", "--samples", 4, "--plan", _plan_file(whole[1].parent)),
    )


def _plan_file(folder: Path) -> Path:
    path = folder / "plan.json"
    path.write_text(made.plan().dumps(), "utf-8")
    return path


PROGRAM = """
import json, sys
import ropewalk as rw
url, plan, folder, run = sys.argv[1:]
rw.evaluate(server=url, tokenizer=folder, plans=[plan], tasks=["passkey", "needle"],
            lengths=[128, 256], samples=4, run=run, concurrency=1)
"""


def test_a_run_killed_midway_ends_with_the_same_bytes(
    llama: str, whole: tuple[EvaluatedServer, Path], tmp_path: Path, fresh: Forks
) -> None:
    for attempt in range(5):  # on a busy machine it may end before it is killed
        run = tmp_path / f"killed {attempt}"
        words = [llama, _plan_file(tmp_path), BUNDLED_FOLDER, run]
        process = fresh.start(["-c", PROGRAM, *words])
        while process.poll() is None:
            records = run / RECORDS
            if records.exists() and records.read_bytes().count(b"\n") >= 3:
                process.kill()
                break
            time.sleep(0.005)
        process.wait()
        if not (run / "results.json").exists():
            break
    left = (run / RECORDS).read_bytes()
    assert 3 <= left.count(b"\n") < 16
    evaluated(llama, run)
    check_same_bytes(run, whole[1])


def test_another_server_in_the_same_run_is_refused(
    whole: tuple[EvaluatedServer, Path], tmp_path: Path
) -> None:
    path = made.gguf(tmp_path / "other.gguf", made.plain())
    with (
        serving(path, n_ctx=made.TARGET) as url,
        pytest.raises(InputError, match=r"different configuration: configuration\.server\.url was"),
    ):
        evaluated(url, whole[1])


def test_a_server_with_another_scaling_is_another_one(tmp_path: Path) -> None:
    """Started again under the same address and name: the run's answers would be of two models."""
    with socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    asked = partial(evaluated, run=tmp_path / "run", tasks=["passkey"], samples=1, plans=[])
    other = replace(made.plan().longest(), attention_scaling=1.0)
    for schedule in (None, other):
        path = made.gguf(tmp_path / f"{schedule is None}.gguf", schedule)
        path = path.replace(tmp_path / "model.gguf")
        with serving(path, n_ctx=made.TARGET, port=port) as url:
            if schedule is None:
                assert asked(url).to_json() == asked(url).to_json()
            else:
                with pytest.raises(RopewalkError, match="answers otherwise than when this run"):
                    asked(url)


def test_the_fingerprint_comes_first(
    llama: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_figures(monkeypatch)
    file = tmp_path / "fingerprint.json"
    file.write_text(made.fingerprint().dumps(), "utf-8")
    said: list[str] = []
    found = evaluated(llama, tmp_path / "run", fingerprint=file, samples=1, notice=said.append)
    assert found.verdict is not None
    assert found.verdict.status == "same"
    assert "answers like bundled under yarn" in found.summary()
    assert said == []
    path = made.gguf(tmp_path / "plain.gguf", made.plain())
    with serving(path, n_ctx=made.TARGET) as url:
        found = evaluated(url, fingerprint=file, samples=1, notice=said.append)
    assert found.verdict is not None
    assert found.verdict.status == "deviates"
    assert len(said) == 1
    assert "it answers like the plan without any scaling" in said[0]
    check_result(found)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *REFUSED,
        ({"methods": ["yarn"]}, "a server follows the plan that it was started with"),
        ({"tokenizer": None}, r"give the folder that holds it \(`tokenizer`\)"),
        ({"tokenizer": "no/where"}, "there is no such folder"),
        ({"concurrency": 0}, "concurrency = 0"),
        ({"concurrency": 1000}, "must lie between 1 and 256"),
        ({"timeout": 0}, "timeout = 0"),
        ({"server": "localhost"}, "must begin with http"),
        ({"fingerprint": 3}, "must be a fingerprint"),
        ({"model_name": ""}, "model_name"),
    ],
)
def test_what_is_refused_before_a_server_is_asked(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        evaluated("http://127.0.0.1:9", **changes)


def test_what_only_a_server_takes() -> None:
    given = {"tokenizer": "x", "model_name": "x", "fingerprint": "x", "concurrency": 9}
    for key, value in given.items():
        with pytest.raises(InputError, match=f"`{key}` is for a server"):
            rw.evaluate(BUNDLED, **{key: value})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="nothing to evaluate"):
        rw.evaluate()


def test_longer_than_it_serves(llama: str) -> None:
    with pytest.raises(InvalidValue, match=r"lengths = 2048: http.* serves 1,024 tokens"):
        evaluated(llama, lengths=[2048])


@pytest.mark.parametrize(
    ("models", "told"),
    [
        ({"data": 7}, "lists no model"),
        ({"data": [{"id": "m", "max_model_len": 10**300}]}, "does not say how long a sequence"),
        ({"data": [{"id": "m", "max_model_len": True}]}, "does not say how long a sequence"),
        ({"data": [{"id": "m", "max_model_len": 2**39}]}, "must be at most 16777216"),
    ],
)
def test_a_server_that_says_nonsense_of_itself(models: object, told: str) -> None:
    with (
        misbehaving(lambda asked, n: said(completed(asked)), models=lambda: said(models)) as wire,
        pytest.raises(InputError, match=told),
    ):
        evaluated(wire.url, plans=[], lengths=None)


def test_a_canary_that_was_edited_or_removed(tmp_path: Path) -> None:
    """Without it, records of two models would be taken for those of one."""
    top = {"content": [{"top_logprobs": [{"id": 40, "logprob": -0.1}]}]}
    choices = [{"text": " 1", "logprobs": top}]
    canary = tmp_path / "run" / CANARY
    with misbehaving(lambda asked, n: said(completed(asked, choices=choices))) as wire:
        evaluated(wire.url, tmp_path / "run", tasks=["passkey"], samples=1)
        canary.write_text(json.dumps({"tops": [[[40, -9.5]]]}), "utf-8")
        for told in ("has been edited since it was written", "was removed, and nothing else shows"):
            with pytest.raises(RopewalkError, match=told):
                evaluated(wire.url, tmp_path / "run", tasks=["passkey"], samples=1)
            canary.unlink(missing_ok=True)


def test_two_servers_behind_one_address_of_which_one_differs() -> None:
    def complete(asked: dict[str, Any], n: int) -> Reply:
        top = {"content": [{"top_logprobs": [{"id": 40, "logprob": -0.1 - n % 2}]}]}
        return said(completed(asked, choices=[{"text": " 1", "logprobs": top}]))

    told = r"the same prompt in two ways.* try each"
    with misbehaving(complete) as wire, pytest.raises(RopewalkError, match=told):
        evaluated(wire.url, tasks=["passkey"], samples=1)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        ([[40, 10**350], [10**350, 1]], r"canary\.json.* is too large for float64"),
        ([[40, True], ["x", 1], [], 7], "answers otherwise than when this run began"),
    ],
)
def test_a_canary_that_was_damaged_and_sealed(
    pairs: list[object], told: str, tmp_path: Path
) -> None:
    """It is another answer, or no number, and no crash."""
    top = {"content": [{"top_logprobs": [{"id": 40, "logprob": -0.1}]}]}
    choices = [{"text": " 1", "logprobs": top}]
    with misbehaving(lambda asked, n: said(completed(asked, choices=choices))) as wire:
        evaluated(wire.url, tmp_path / "run", tasks=["passkey"], samples=1)
        for pair in pairs:
            (tmp_path / "run" / CANARY).write_text(json.dumps({"tops": [[pair]] * 8}), "utf-8")
            resealed(tmp_path / "run", CANARY)
            with pytest.raises(RopewalkError, match=told):
                evaluated(wire.url, tmp_path / "run", tasks=["passkey"], samples=1)


def test_a_server_that_names_no_likely_tokens_is_asked_all_the_same(tmp_path: Path) -> None:
    def refusing(asked: dict[str, Any], n: int) -> Reply:
        no = "logprobs" in asked
        return said({"error": "logprobs: no"}, 400) if no else said(completed(asked))

    with misbehaving(refusing) as wire:
        assert evaluated(wire.url, tmp_path / "run", tasks=["passkey"], plans=[]).results


def test_a_run_goes_on_with_the_fingerprint_that_it_began_with(tmp_path: Path) -> None:
    own, run = made.fingerprint(), tmp_path / "run"
    asked = {"plans": [], "tasks": ["passkey"], "samples": 1}
    with misbehaving(lambda asked, n: said(completed(asked))) as wire:
        found = evaluated(wire.url, run, fingerprint=own, **asked)
        assert found.verdict is not None
        assert evaluated(wire.url, run, fingerprint=own, **asked).verdict == found.verdict
        for other in (replace(own, plan_id="another"), replace(own, model="of other weights")):
            with pytest.raises(InputError, match="compared_sha256"):
                evaluated(wire.url, run, fingerprint=other, **asked)


@pytest.mark.parametrize(
    ("changes", "told"),
    [*UNSUPPORTED, ({"mode": "teacher_forced"}, "choose generate, or measure in process")],
)
def test_what_no_server_is_measured_by(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Unsupported, match=told):
        evaluated("http://127.0.0.1:9", **changes)


WORDS = " and so it goes on" * 40


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (lambda prompt, most: prompt + " 1", "repeats the prompt|at most 1 were asked for"),
        (lambda prompt, most: prompt[:most], "repeats the prompt"),
        (lambda prompt, most: prompt[-most:], "repeats the prompt"),
        (lambda prompt, most: _number(prompt) + WORDS, r"at most \d+ were asked for"),
        (lambda prompt, most: f"{_number(prompt)} " * 40, r"at most \d+ were asked for"),
    ],
    ids=["echo", "echo, cut", "end of the prompt", "200 words more", "a long list"],
)
def test_what_only_looks_like_an_answer_is_not_scored(
    answer: Any, told: str, tmp_path: Path
) -> None:
    """Each of them has the number first that is asked for."""
    tokenizer = load_tokenizer(BUNDLED_FOLDER)

    def complete(asked: dict[str, Any], number: int) -> Reply:
        prompt = tokenizer.decode(asked["prompt"], skip_special_tokens=True)
        return said(completed(asked, choices=[{"text": answer(prompt, asked["max_tokens"])}]))

    with misbehaving(complete) as wire, pytest.raises(RopewalkError, match=told):
        evaluated(wire.url, tmp_path / "run", tasks=["passkey"])
    kept = tmp_path / "run" / RECORDS
    assert not kept.exists() or not kept.read_bytes()


def test_a_list_of_all_numbers_is_no_answer(tmp_path: Path) -> None:
    """The prompt has its key twice, and no other number of five digits."""
    tokenizer = load_tokenizer(BUNDLED_FOLDER)

    def complete(asked: dict[str, Any], number: int) -> Reply:
        prompt = tokenizer.decode(asked["prompt"], skip_special_tokens=True)
        listed = " ".join(re.findall(r"\d{5}", prompt)) or "12345"
        return said(completed(asked, choices=[{"text": listed}]))

    with misbehaving(complete) as wire:
        found = evaluated(wire.url, tmp_path / "run", tasks=["passkey"])
    assert {result.value for result in found.results if result.metric == "task_score"} == {0}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (" 48213.\nand so on", 1),
        (" 48213. Remember it. 48213 is the pass key.", 1),
        (" **48213**\n\n1. The grass", 1),
        (" 48213\n2 + 2", 1),
        (" 48213 48213", 0),
        ("48213, 48213, 48213", 0),
        ("48213\n90211", 0),
        ("90211 48213", 0),
    ],
)
def test_the_pass_key_stands_alone(written: str, expected: float) -> None:
    assert passkey.score(written, (" 48213",)) == expected


def _number(prompt: str) -> str:
    found = re.search(r"\d{5}", prompt)
    return " 12345" if found is None else f" {found[0]}"


def test_a_server_that_says_that_it_wrote_more() -> None:
    def complete(asked: dict[str, Any], number: int) -> Reply:
        usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": 65}
        return said(completed(asked, usage=usage))

    told = "has 65 tokens, and at most 1 were asked for"
    with misbehaving(complete) as wire, pytest.raises(RopewalkError, match=told):
        evaluated(wire.url, tasks=["passkey"])


class Midway:
    """A server that answers well until a request, then badly, and well again when mended."""

    def __init__(self, bad: Any, after: int) -> None:
        self.bad, self.after, self.mended = bad, after, False

    def __call__(self, asked: dict[str, Any], number: int) -> Reply:
        if self.mended or number < self.after:
            return said(completed(asked))
        return self.bad(asked)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda asked: said({"error": {"message": "no"}}, 401), "answers 401: no"),
        (lambda asked: said({}, 429, Retry_After="999"), "asks to wait 999 s"),
        (lambda asked: (200, {}, b"oops"), "is not JSON"),
        (lambda asked: said(completed(asked, usage={})), "has no usage.prompt_tokens"),
        (lambda asked: said(completed(asked, usage={"prompt_tokens": 9})), "it cuts prompts"),
        (lambda asked: said(completed(asked, model="other")), "changed its model meanwhile"),
        (lambda asked: said({}, 302, Location="http://elsewhere.example/v1"), "not followed"),
    ],
)
def test_what_goes_wrong_midway_loses_nothing(
    bad: Any, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-secret-987654"
    monkeypatch.setenv("ROPEWALK_API_KEY", key)
    without_figures(monkeypatch)
    run = tmp_path / "run"
    server = Midway(bad, after=8)
    with misbehaving(server, models=lambda: listed("m")) as wire:
        with pytest.raises(RopewalkError) as caught:
            evaluated(wire.url, run, concurrency=1)
        assert told in str(caught.value)
        assert key not in str(caught.value)
        kept = read_journal(run / RECORDS)
        assert 3 <= len(kept) < 16
        server.mended = True
        evaluated(wire.url, run, concurrency=1)
        assert read_journal(run / RECORDS)[: len(kept)] == kept
        assert len(read_journal(run / RECORDS)) == 16
    assert set(wire.keys) == {f"Bearer {key}"}
    for file in run.rglob("*"):
        if file.is_file():
            assert key.encode() not in file.read_bytes(), file


def test_samples_that_do_not_all_fit_are_left_out_as_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six samples of 39 tokens five fit. Where nothing is left to ask, no run is kept."""
    without_figures(monkeypatch)
    asked: dict[str, Any] = {"tasks": ["lines"], "lengths": [39, 128], "samples": 6}
    told: list[str] = []
    here: list[str] = []
    rows = [{"id": 40, "logprob": -0.1}]
    choice = {"text": " 12345", "logprobs": {"content": [{"top_logprobs": rows}]}}
    with misbehaving(lambda asked, number: said(completed(asked, choices=[choice]))) as wire:
        found = evaluated(wire.url, notice=told.append, **asked)
        own = rw.evaluate(
            BUNDLED, plans=[made.plan()], mode="generate", dtype="float32", device="cpu",
            notice=here.append, **asked,
        )  # fmt: skip
        assert {(r.task, r.length, r.samples) for r in found.results} == {("lines", 128, 6)}
        assert {(r.task, r.length, r.samples) for r in own.results} == {("lines", 128, 6)}
        assert told == here
        assert told == ["left out: lines does not fit in 39 tokens: its shortest sample takes 41"]
        with pytest.raises(InputError, match="there is nothing to measure"):
            evaluated(wire.url, tmp_path / "run", **{**asked, "lengths": [39]})
    assert not (tmp_path / "run").exists()


def test_a_model_that_changed_while_nobody_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is the same, and so is all that the server says of itself."""
    without_figures(monkeypatch)
    top = {"likely": [(40, -0.1), (41, -3.0)], "other": [(50, -0.1), (51, -3.0)]}
    weights = ["likely"]

    def answer(asked: dict[str, Any], number: int) -> Reply:
        rows = [{"id": t, "logprob": v} for t, v in top[weights[0]]]
        choice = {"text": " 12345", "logprobs": {"content": [{"top_logprobs": rows}]}}
        return said(completed(asked, choices=[choice]))

    with misbehaving(answer) as wire:
        evaluated(wire.url, tmp_path / "run")
        evaluated(wire.url, tmp_path / "run")
        weights[0] = "other"
        with pytest.raises(RopewalkError, match="answers otherwise than when this run began"):
            evaluated(wire.url, tmp_path / "run")
