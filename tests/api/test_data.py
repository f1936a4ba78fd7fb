"""Building and describing token folders, as a function and as a command."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.data.description import lengths
from ropewalk.data.published_mixtures import named
from ropewalk.data.store import TokenStore, build
from ropewalk.errors import InputError, InvalidValue
from ropewalk.models.load import load_tokenizer
from ropewalk.models.source import resolve
from tests.api.conformance import check_command, check_result
from tests.forks import Forks

PROSE = [f"The rope number {i} is {'longer and ' * (i % 7)}long." for i in range(40)]


@pytest.fixture
def corpora(tmp_path: Path) -> dict[str, str]:
    code = tmp_path / "code"
    code.mkdir()
    for i in range(5):
        (code / f"{i}.py").write_text(f"def f{i}():\n    return {i}\n" * (4 ** (i + 1)))
    rows = tmp_path / "prose.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in PROSE))
    return {"code": str(code), "prose": str(rows)}


def test_command_and_function_build_and_describe_the_same(
    corpora: dict[str, str], tmp_path: Path
) -> None:
    given = [f"--corpus={name}={path}" for name, path in corpora.items()]
    built = check_result(rw.build_data("bundled", corpora, tmp_path / "tokens"))
    check_command(built, "data build", "bundled", *given, "-o", tmp_path / "tokens")
    assert {domain.name: domain.documents for domain in built.domains} == {"code": 5, "prose": 40}
    for domain in built.domains:
        assert sum(domain.by_length) == domain.tokens
    described = check_result(
        rw.describe_data(
            tmp_path / "tokens", length=512, shares={"code": 1, "prose": 3}, tokens=9999
        )
    )
    words = ("--length", 512, "--share", "code=1", "--share", "prose=3", "--tokens", 9999)
    assert "documents are cut" in described.summary()
    check_command(described, "data describe", tmp_path / "tokens", *words)
    assert described.fill is not None
    read = {group.name: group.tokens for group in described.fill.groups}
    assert read["prose"] == pytest.approx(7499, abs=100)  # a document more or less
    assert read["code"] > 0
    assert described.fill.groups[1].repeated > 1


def test_documents_are_tokenised_as_the_model_reads_them(
    corpora: dict[str, str], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(resolve("bundled").folder)
    spelled = f"It ends with {tokenizer.eos_token}, and goes on."
    rw.build_data("bundled", [*PROSE, spelled], tmp_path / "tokens")
    store = TokenStore(tmp_path / "tokens")
    assert tokenizer.eos_token_id not in store.tokens(-1)
    assert tokenizer.decode(store.tokens(-1).tolist()) == spelled
    for i, text in enumerate(PROSE):
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert store.tokens(i).tolist() == expected


KILLED = """
import os, signal, sys
from ropewalk.__main__ import main
from ropewalk.data import store

def die(event, words):
    if event == "os.rename" and "tokens-00002" in str(words[1]):
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(die)
store.build.__kwdefaults__["shard"] = int(sys.argv.pop(1))
store.BATCH = int(sys.argv.pop(1))
main()
"""
"""Its first two arguments are the tokens of a shard and of a batch; it dies at the third shard."""


def test_a_killed_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Forks
) -> None:
    assert build.__kwdefaults__ is not None
    monkeypatch.setitem(build.__kwdefaults__, "shard", 20_000)
    whole, killed, texts = tmp_path / "whole", tmp_path / "killed", tmp_path / "texts.jsonl"
    texts.write_text((json.dumps({"text": "rope " * 1000}) + "\n") * 80)
    rw.build_data("bundled", texts, whole)
    assert len(list(whole.glob("tokens-*.bin"))) > 3
    command = ["-c", KILLED, "20000", "10000", "data", "build", "bundled"]
    ended = fresh.run([*command, "--corpus", texts, "-o", killed])
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (killed / "tokens-00001.bin").exists()
    assert not (killed / "manifest.json").exists()
    with pytest.raises(InputError, match="is not finished; run the same `data build` again"):
        rw.describe_data(killed)
    rw.build_data("bundled", texts, killed)
    for file in whole.iterdir():
        if file.name not in ("events.jsonl", "lock"):
            assert (killed / file.name).read_bytes() == file.read_bytes()


def test_bad_input_is_one_line(corpora: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file or folder"):
        rw.build_data("bundled", "nowhere.txt", tmp_path / "tokens")
    assert not (tmp_path / "tokens").exists()
    with pytest.raises(InvalidValue):
        rw.build_data("bundled", corpora, Path(corpora["code"]) / "tokens")
    with pytest.raises(InputError, match="has no tokens; `ropewalk data build` writes"):
        rw.describe_data(tmp_path)
    rw.build_data("bundled", corpora, tmp_path / "tokens")
    with pytest.raises(InvalidValue, match="length = None: is needed with"):
        rw.describe_data(tmp_path / "tokens", long_share=0.5)
    with pytest.raises(InvalidValue, match=r"shares\.verse = 1: the corpus has no text of this"):
        rw.describe_data(tmp_path / "tokens", length=64, shares={"verse": 1})
    content = bytearray((tmp_path / "tokens" / "tokens-00000.bin").read_bytes())
    content[-1] ^= 1
    (tmp_path / "tokens" / "tokens-00000.bin").write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        rw.describe_data(tmp_path / "tokens", check=True)


def test_the_example_of_the_documentation_runs(
    corpora: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(__file__).parents[2] / "docs" / "training.md"
    examples = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    [example] = [own for own in examples if "TokenStore" in own]
    monkeypatch.chdir(tmp_path)
    rw.build_data("bundled", corpora, "tokens")
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["window"].tokens.shape == names["window"].labels.shape == (32_768,)
    assert names["window"].layout.length == 32_768


def test_answers_weigh_what_their_rows_say(tmp_path: Path) -> None:
    """The example of the documentation."""
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text("utf-8")
    [row] = re.findall(r"^    (\{.input_ids.*\})$", page, re.MULTILINE)
    corpus = tmp_path / "questions.jsonl"
    corpus.write_text(f"{row}\n")
    given: Any = {"field": "input_ids"}
    rw.build_data("bundled", corpus, tmp_path / "tokens", weights="answers", **given)
    store = TokenStore(tmp_path / "tokens")
    assert store.tokens(0).tolist() == json.loads(row)["input_ids"]
    assert store.weights(0).tolist() == [0, 0, 0, 0, 5, 5]
    assert rw.build_data("bundled", corpus, tmp_path / "plain", **given).tokens == 6
    assert not TokenStore(tmp_path / "plain").weighted
    with pytest.raises(InvalidValue):
        rw.train("bundled", corpus=tmp_path / "plain", to="1k", steps=1, weights="answers")


def test_a_picture_shows_where_the_window_ends(corpora: dict[str, str], tmp_path: Path) -> None:
    built = rw.build_data("bundled", corpora, tmp_path / "tokens")
    drawn = rw.describe_data(tmp_path / "tokens", length=128).figure()
    [axes] = drawn.axes
    assert [text.get_text() for text in axes.texts] == ["window of 128"]
    assert np.asarray(axes.lines[0].get_xdata())[0] == 128
    labels = [text.get_text() for text in drawn.legends[0].get_texts()]
    share = built.domains[0].tokens / built.tokens
    assert labels[0] == f"code ({100 * share:.0f}%)"
    by_domain = {"code": [0, 10, 30], "text": [0, 20, 40, 0]}
    series = lengths(by_domain, None).series
    heights = [(m.high or 0) - (m.low or 0) for own in series for m in own.marks[::2]]
    assert heights == pytest.approx([10, 30, 0, 20, 40, 0])
    assert [mark.x for mark in series[0].marks] == [2, 4, 4, 8, 8, 16]


def test_a_killed_stream_goes_on_with_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: Forks
) -> None:
    """By the code that streams data sets of the hub, which cannot be reached from a test."""
    assert build.__kwdefaults__ is not None
    monkeypatch.setitem(build.__kwdefaults__, "shard", 2_000)
    (tmp_path / "set").mkdir()
    for part in range(3):
        rows = [{"said": f"Add {i}: " + f"{i} " * 40} for i in range(part, 120, 3)]
        (tmp_path / "set" / f"{part}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    corpus, whole, killed = f"hub:{tmp_path / 'set'}", tmp_path / "whole", tmp_path / "killed"
    rw.build_data("bundled", corpus, whole, field="said")
    assert len(list(whole.glob("tokens-*.bin"))) > 3
    command = ["-c", KILLED, "2000", "1000", "data", "build", "bundled", "--field=said"]
    ended = fresh.run([*command, "--corpus", corpus, "-o", killed])
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (killed / "tokens-00001.bin").exists()
    rw.build_data("bundled", corpus, killed, field="said")
    for file in whole.iterdir():
        if file.name not in ("events.jsonl", "lock"):
            assert (killed / file.name).read_bytes() == file.read_bytes()


def test_tokens_of_another_model_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "shard.npy", np.array([5, 6, 2000]))
    with pytest.raises(InputError, match="holds the token 2000, and the model's vocabulary has"):
        rw.build_data("bundled", tmp_path / "shard.npy", tmp_path / "tokens")
    np.save(tmp_path / "shard.npy", np.array([5, 6, 7]))
    built = rw.build_data("bundled", tmp_path / "shard.npy", tmp_path / "others")
    assert built.tokens == 3
    assert TokenStore(tmp_path / "others").tokens(0).tolist() == [5, 6, 7]


def test_a_set_of_the_hub_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not read from the network"):
        rw.build_data("bundled", "hub:some/set", tmp_path / "tokens")
    with pytest.raises(InputError, match="is not read from the network"):
        rw.train("bundled", corpus="hub:some/set", to="1k", steps=1)


def test_a_mixture_of_a_paper_by_its_name(tmp_path: Path) -> None:
    """All its parts must have text: a name alone is not enough."""
    parts = named("wang-slimpajama-64k").parts
    texts = {part: [f"A text of {part}. " * 40] * 3 for part in parts}
    rw.build_data("bundled", texts, tmp_path / "tokens")
    words = ("--length", 64, "--share", "wang-slimpajama-64k", "--tokens", 99_999)
    given: dict[str, Any] = {"length": 64, "shares": "wang-slimpajama-64k", "tokens": 99_999}
    described = rw.describe_data(tmp_path / "tokens", **given)
    check_command(described, "data describe", tmp_path / "tokens", *words)
    assert described.fill is not None
    read = {group.name: group.tokens for group in described.fill.groups}
    for part, value in parts.items():
        assert read[part] / sum(read.values()) == pytest.approx(value.share, abs=0.01)
    rw.build_data("bundled", texts | {"books": [""]}, tmp_path / "without")
    with pytest.raises(InvalidValue, match=r"there is no text of books \(books of SlimPajama\)"):
        rw.describe_data(tmp_path / "without", **given)
    for corpus in (tmp_path / "without", {name: texts[name] for name in list(texts)[1:]}):
        with pytest.raises(InvalidValue):
            rw.train.preview("bundled", corpus=corpus, to="1k", steps=1, shares=given["shares"])
    with pytest.raises(InvalidValue, match=r"shares\.books = 0\.5: the corpus has no text of this"):
        rw.train.preview(
            "bundled", corpus=tmp_path / "without", to="1k", steps=1, shares={"books": 0.5}
        )
