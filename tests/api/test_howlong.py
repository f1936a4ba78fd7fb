"""`rw.howlong` in process, on llama.cpp, and on servers that are cut, refuse, stream or charge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from benchmarks.llama_server import serving
from ropewalk.blocks import Table
from ropewalk.budget import as_budget
from ropewalk.errors import GateFailed, InputError, RopewalkError
from ropewalk.evaluation.served.client import Client, address
from ropewalk.evaluation.usable.readers import Askable
from ropewalk.evaluation.usable.request import HowLong, planned
from ropewalk.evaluation.usable.result import UsableLength
from ropewalk.evaluation.usable.run import BADGE, JOURNAL
from ropewalk.models.config import BUNDLED
from ropewalk.models.source import Loading
from ropewalk.progress import silent, unheard
from ropewalk.run_directory import read_journal
from tests.api.conformance import check_command, check_result
from tests.api.served import check_same_bytes, without_figures
from tests.cli.calling import result_of
from tests.evaluation.served import made
from tests.evaluation.served.bad_server import Reply, listed, misbehaving, said
from tests.evaluation.usable.ideal import KNOWN, LENGTH, answered, chatted
from tests.forks import Forks

KEPT = (JOURNAL, BADGE)
AS_TEXT = (
    "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}\n{% endif %}{% endfor %}"
)
"""A chat template of a model that only continues text."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[UsableLength, Path]:
    run = tmp_path_factory.mktemp("runs") / "whole"
    return rw.howlong(BUNDLED, run=run), run


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = made.gguf(tmp_path_factory.mktemp("gguf") / "plain.gguf", made.plain())
    with serving(path, n_ctx=512, chat_template=AS_TEXT, use_jinja=True) as url:
        yield url


def test_the_bundled_model_works_up_to_its_window(whole: tuple[UsableLength, Path]) -> None:
    found, run = check_result(whole[0]), whole[1]
    told = "answers as well as at 256 at every length up to the 512 that it claims"
    assert found.summary() == f"bundled: claims 512; {told}."
    difference = found.readings[-1].difference
    assert difference is not None
    low, high = (100 * (end or 0) for end in (difference.low, difference.high))
    [table] = (each for each in found.blocks() if isinstance(each, Table))
    shown = f"{100 * difference.value:+.1f} ({low:+.1f} to {high:+.1f}) points"
    assert table.rows[-1][2].text == shown
    assert found.usable is not None
    assert found.usable.low == found.usable.high == 512
    assert found.asked == "single"
    assert not found.causes
    assert "usable context: 512 of 512" in (run / BADGE).read_text()
    assert rw.report(run).verdict == found.summary()
    check_command(found, "howlong", BUNDLED)


def test_a_run_killed_midway_ends_with_the_same_bytes(
    whole: tuple[UsableLength, Path], tmp_path: Path, fresh: Forks
) -> None:
    program = "import sys, ropewalk as rw; rw.howlong('bundled', run=sys.argv[1])"
    for attempt in range(5):  # on a busy machine it may end before it is killed
        run = tmp_path / f"killed {attempt}"
        process = fresh.start(["-c", program, run])
        while process.poll() is None:
            if (run / JOURNAL).exists() and (run / JOURNAL).read_bytes().count(b"\n") >= 20:
                process.kill()
                break
            time.sleep(0.005)
        process.wait()
        if not (run / "results.json").exists():
            break
    left = (run / JOURNAL).read_bytes()
    assert 20 <= left.count(b"\n") < len(read_journal(whole[1] / JOURNAL))
    rw.howlong(BUNDLED, run=run)
    check_same_bytes(run, whole[1], (*KEPT, "results.json", "run.json"))


def test_a_server_is_read_as_the_model_in_process(
    llama: str, whole: tuple[UsableLength, Path]
) -> None:
    """This one has room for half of what its file states."""
    found = check_result(rw.howlong(llama))
    own = {r.length: r.rate.value for r in whole[0].readings}
    for reading in found.readings:
        assert reading.rate.value == pytest.approx(own[reading.length], abs=0.05)
    assert (found.claimed, found.serves) == (made.TARGET, 512)
    assert found.summary() == (
        "plain.gguf: claims 1k; answers as well as at 256 at every length up to 512; has room for "
        "512 of the 1k tokens."
    )
    assert [cause.name for cause in found.causes] == ["context"]


def test_a_server_that_only_chats_is_read_as_the_model_in_process(
    llama: str, whole: tuple[UsableLength, Path]
) -> None:
    """A gateway that passes on conversations, as OpenAI defines them, and nothing else."""
    behind = Client(address(llama))

    def passed_on(asked: dict[str, Any], number: int) -> Reply:
        if not asked.keys() <= KNOWN:
            return said({"error": "no such page"}, 404 if "prompt" in asked else 400)
        return said(behind.post("/v1/chat/completions", asked))

    def got(path: str) -> Reply:
        return said(behind.get(path))

    with misbehaving(passed_on, models=lambda: got("/v1/models"), other=got) as wire:
        found = check_result(rw.howlong(wire.url, need=512))
    assert (found.status, found.badge_text) == ("met", "at least 512 of 1k")
    assert "asked through its chat template" in found.runs
    assert not {"template", "unknown"} & {cause.name for cause in found.causes}
    own = {r.length: r.rate.value for r in whole[0].readings}
    for reading in found.readings:
        assert reading.rate.value == pytest.approx(own[reading.length], abs=0.05)
        assert 0.6 * reading.length < reading.tokens < reading.length


def test_a_gguf_file_is_read_as_the_model_in_process(
    whole: tuple[UsableLength, Path], tmp_path: Path
) -> None:
    found = rw.howlong(made.gguf(tmp_path / "plain.gguf", made.plain()), claimed=512)
    assert [r.rate for r in found.readings] == [r.rate for r in whole[0].readings]
    assert (found.bounds, found.causes) == (whole[0].bounds, ())


def test_a_lost_setting_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server runs the model without its plan."""
    without_figures(monkeypatch)
    file = tmp_path / "fingerprint.json"
    file.write_text(made.fingerprint().dumps(), "utf-8")
    path = made.gguf(tmp_path / "plain.gguf", made.plain())
    with serving(path, n_ctx=made.TARGET) as url:
        found = rw.howlong(url, need=512, against=file, run=tmp_path / "run")
        assert found.causes[0].name == "no scaling"
        assert "answers like the plan without any scaling" in found.summary()
        assert rw.howlong(url, need=512, against=file, run=tmp_path / "run") == found
    file.write_text(f"{file.read_text('utf-8')} ", "utf-8")  # any other file of that name
    with serving(path, n_ctx=made.TARGET) as url, pytest.raises(InputError, match="against_sha256"):
        rw.howlong(url, need=512, against=file, run=tmp_path / "run")


def ideal(**how: Any) -> Any:
    return misbehaving(lambda asked, n: answered(asked, **how), models=models)


def models() -> Reply:
    return listed("m", max_model_len=LENGTH)


@pytest.mark.parametrize(
    ("how", "cause", "told"),
    [
        ({}, "", "that it claims"),
        ({"reads": 2400}, "truncation", "cuts prompts to 2,400 tokens"),
        (
            {"reads": 2400, "counts": lambda sent, read: sent},
            "truncation",
            "prompts are cut, and counted as sent",
        ),
        ({"uses": 2400}, "model", "though it reads them: a scaling is lost"),
        ({"counts": lambda sent, read: read + 9}, "template", "adds about 10 tokens"),
    ],
    ids=["sound", "cut", "cut, and counted as sent", "read in vain", "template"],
)
def test_servers_without_a_tokenizer(how: dict[str, Any], cause: str, told: str) -> None:
    with ideal(**how) as wire:
        found = rw.howlong(wire.url)
    assert [each.name for each in found.causes] == [cause] * bool(cause)
    assert told.replace("10", "9") in found.summary() or told in found.summary()
    assert found.asked == "multikey", "single facts are at the ceiling, and shared words are needed"
    assert found.server is not None


def test_a_filter_that_refuses_some_questions_is_no_limit_of_length() -> None:
    def reply(asked: dict[str, Any], n: int) -> Reply:
        filtered = n % 9 == 4 and len(asked["prompt"]) > 4000
        return said({"error": "content policy"}, 400) if filtered else answered(asked)

    with misbehaving(reply, models=models) as wire:
        found = rw.howlong(wire.url, claimed=2048)
    assert "context" not in {each.name for each in found.causes}
    assert min(reading.rate.value for reading in found.readings) > 0.5


def test_a_tokenizer_that_counts_more_than_is_read_makes_no_document_shorter() -> None:
    def reply(asked: dict[str, Any], n: int) -> Reply:
        if "max_tokens" in asked:
            return answered(asked, uses=300)
        return said({"tokens": [0] * 8 * len(asked["prompt"].split())})

    with misbehaving(reply, models=models) as wire:
        found = rw.howlong(wire.url, need=2048)
    assert found.usable is None, "its documents of 2,048 tokens would have 256"


@pytest.mark.parametrize(
    ("thinks", "marks"), [(0, ""), (100, "apart"), (100, "hidden"), (100, " </think>")]
)
def test_servers_that_only_chat(thinks: int, marks: str) -> None:
    """A reasoning model is not judged by its thoughts, and has room for them."""
    with misbehaving(
        lambda asked, n: chatted(asked, thinks=thinks, marks=marks), models=models
    ) as wire:
        found = check_result(rw.howlong(wire.url))
    assert [reading.rate.value for reading in found.readings] == [1.0] * len(found.readings)
    assert (found.runs[-31:], found.causes) == ("asked through its chat template", ())
    talks = [asked["messages"] for asked in wire.asked if asked.get("max_tokens", 0) > 64]
    assert (len(talks) > 100) == (thinks > 0)
    talks = [asked["messages"] for asked in wire.asked if len(asked.get("messages", ())) > 1]
    assert all(after[:-2] == before for before, after in pairwise(talks) if len(after) > 3)
    assert 0.75 * LENGTH < found.readings[-1].tokens <= LENGTH - (LENGTH // 8 if thinks else 0)


def test_thoughts_without_end_are_a_cause() -> None:
    with misbehaving(lambda asked, n: chatted(asked, thinks=10**6), models=models) as wire:
        found = rw.howlong(wire.url)
    assert [cause.name for cause in found.causes] == ["thoughts"]
    assert "turn its thinking off" in found.summary()


def test_a_server_that_only_chats_has_no_fingerprint(tmp_path: Path) -> None:
    file = tmp_path / "fingerprint.json"
    file.write_text(made.fingerprint().dumps(), "utf-8")
    with misbehaving(lambda asked, n: chatted(asked), models=models) as wire:
        with pytest.raises(InputError, match="only chat completions, and `against` compares"):
            rw.howlong(wire.url, against=file)
        assert len(wire.asked) < 20, "before minutes of reading"


def test_it_is_asked_for_in_one_prefix_after_the_other() -> None:
    with ideal() as wire:
        rw.howlong(wire.url, need=2048)
    prompts = [asked["prompt"] for asked in wire.asked if asked.get("max_tokens", 1) > 1]
    again = sum(after.startswith(before) for before, after in pairwise(prompts))
    assert again / len(prompts) > 0.8


def test_needs_are_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with ideal(reads=1500) as wire:
        assert result_of("howlong", wire.url, "--need", "1k").exit_code == 0
        found = result_of("howlong", wire.url, "--need", "4k")
        assert found.exit_code == 1
        assert "The 4k needed: not met" in found.stdout
        with pytest.raises(GateFailed, match="claims 4,096 tokens, and 8,192 are needed"):
            rw.howlong(wire.url, need="8k")
    with misbehaving(lambda asked, n: answered(asked, reads=20), models=models) as wire:
        found = result_of("howlong", wire.url, "--need", "4k")
        assert found.exit_code == 3
        assert "cannot be judged" in found.stdout


def test_a_run_goes_on_with_the_model_that_it_began_with(tmp_path: Path) -> None:
    """Though another one has the same name, and says the same of itself."""
    best, turns = -0.1, 10**9

    def complete(asked: dict[str, Any], n: int) -> Reply:
        status, headers, content = answered(asked)
        answer = json.loads(content)
        tops = [{"top_logprobs": [{"id": 40, "logprob": best if n < turns else -2.5}]}]
        answer["choices"][0]["logprobs"] = {"content": tops}
        return status, headers, json.dumps(answer).encode()

    with misbehaving(complete, models=models) as wire:
        found = rw.howlong(wire.url, need="512", run=tmp_path / "run")
        assert rw.howlong(wire.url, need="512", run=tmp_path / "run") == found
        best = -2.5
        with pytest.raises(RopewalkError, match="answers otherwise than when this run began"):
            rw.howlong(wire.url, need="512", run=tmp_path / "run")
    best, turns = -0.1, 40
    again = pytest.raises(RopewalkError, match="answers otherwise than when this run began")
    with misbehaving(complete, models=models) as wire, again:
        rw.howlong(wire.url, need="512")


STREAM = 200, {"Content-Type": "text/event-stream"}, b'data: {"choices": []}\n\ndata: [DONE]\n'


@pytest.mark.parametrize(
    ("complete", "told"),
    [
        (lambda asked, n: STREAM, "check that it is an OpenAI-compatible server"),
        (lambda asked, n: said({"error": "no"}, 429, Retry_After="999"), "asks to wait 999 s"),
        (lambda asked, n: said({"error": "pay"}, 402), "answers 402: pay"),
        (
            lambda asked, n: said({"error": "no such page"}, 404),
            "continues no text .* 404 no such page.* and does not chat .* 404 no such page",
        ),
        (lambda asked, n: said({"choices": [{"text": ""}]}), "has no usage.prompt_tokens"),
        (lambda asked, n: said({"error": "short"}, 400), "answers 400 short"),
        (
            lambda asked, n: answered(asked, counts=lambda _, read: 1),
            "read 32 tokens .* and finds their facts; so it counts wrong",
        ),
        (
            lambda asked, n: answered(asked, counts=lambda _, read: read if read < 800 else 400),
            "read 12,800 tokens .* and finds their facts; so it counts wrong",
        ),
        (
            lambda asked, n: answered(asked, counts=lambda _, read: read * (1, 4)[read > 2200]),
            "and finds their facts; so it counts wrong",
        ),
    ],
    ids=["streams", "429", "charges", "neither way", "no counts", "refuses all", "1", "400", "4x"],
)
def test_servers_that_cannot_be_asked(complete: Any, told: str) -> None:
    with misbehaving(complete, models=models) as wire, pytest.raises(RopewalkError, match=told):
        rw.howlong(wire.url)


@pytest.mark.parametrize(
    ("length", "changes", "told"),
    [
        (None, {}, "does not say how long a sequence it serves"),
        (10**9, {}, "m reports a length of 1000000000, which must be a whole number of tokens"),
        (0, {}, r"reports a length of 0, .* give the length that it is said to serve"),
        (-5, {}, "reports a length of -5"),
        ("8k", {}, "reports a length of '8k'"),
        (8192.5, {}, "reports a length of 8192.5"),
        (float("nan"), {}, "max_model_len = 'NaN'"),
        (LENGTH, {"claimed": "2g"}, "2g"),
        (LENGTH, {"claimed": 10**9}, "must be at most 16777216"),
        (100, {}, "claimed = 100: must be at least 256"),
        (LENGTH, {"need": "100"}, "need = 100"),
        (LENGTH, {"budget": "10m"}, "must be of tokens"),
        (LENGTH, {"budget": "1000tok"}, "the first length alone takes"),
    ],
)
def test_lengths_and_budgets_that_are_none(
    length: object, changes: dict[str, Any], told: str
) -> None:
    more: dict[str, Any] = {} if length is None else {"max_model_len": length}
    with (
        misbehaving(lambda asked, n: answered(asked), models=lambda: listed("m", **more)) as wire,
        pytest.raises(RopewalkError, match=told),
    ):
        rw.howlong(wire.url, **changes)
    assert wire.completions == 0


def test_a_length_that_is_none_can_be_given() -> None:
    with misbehaving(
        lambda asked, n: answered(asked), models=lambda: listed("m", max_model_len=10**9)
    ) as wire:
        assert rw.howlong.preview(wire.url, claimed="8k").claimed == 8192


def test_a_server_elsewhere_is_sent_much_only_if_that_is_allowed() -> None:
    far = Askable("m", 131072, False, is_remote=True)

    def asked(budget: str | None) -> HowLong:
        most = None if budget is None else as_budget(budget)
        return HowLong(
            "https://example.org", (), None, None, None, most, 0, None,
            None, 600.0, Loading("auto", "auto", False), False, silent, unheard,
        )  # fmt: skip

    with pytest.raises(InputError, match=r"may send [\d,]+ tokens to https://example.org"):
        planned(asked(None), far)
    plan = check_result(planned(asked("9e6tok"), far))
    assert plan.tokens == 9_000_000
    assert "sends at most 9,000,000 tokens, each document 8 times" in plan.summary()
    assert planned(asked(None), far._replace(is_remote=False)).sweep * 8 == plan.sweep


def test_a_preview_asks_nothing() -> None:
    with ideal() as wire:
        plan = rw.howlong.preview(wire.url)
    assert plan.claimed == LENGTH
    assert wire.completions == 0
    assert rw.howlong.preview(BUNDLED).lengths == (384, 512)
