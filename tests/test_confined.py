"""Work that a stranger's file asks for keeps its limits, and is otherwise done as in process."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk import confined
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import InputError
from ropewalk.evaluation.chat import chat_of, rendered_by
from ropewalk.evaluation.encoding import Encoder
from ropewalk.models.load import load_tokenizer
from ropewalk.models.source import resolve

NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLING = (
    "{% set all = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(40) %}"
    "{% set all.x = all.x + all.x %}{% endfor %}{{ all.x }}"
)


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are reached soon."""
    monkeypatch.setattr(confined, "MEMORY", 2**28)
    monkeypatch.setattr(confined, "SECONDS", 1)
    monkeypatch.setattr(confined, "PATIENCE", 60)  # on a busy machine, a second takes long
    confined._shared.cache_clear()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(resolve("bundled").folder, tmp_path / "model"))


def edit(path: Path, change: Callable[[Any], object]) -> None:
    value = json.loads(path.read_text(encoding="utf-8"))
    change(value)
    path.write_text(json.dumps(value), encoding="utf-8")


def growing(steps: int, letter: str) -> Callable[[Any], object]:
    """Each step makes a hundred of every such letter."""
    step = {"type": "Replace", "pattern": {"String": letter}, "content": letter * 100}
    return lambda value: value.update(
        normalizer={"type": "Sequence", "normalizers": [step] * steps}
    )


def test_a_tokenizer_that_grows_text_is_wrong_within_the_limits(folder: Path, tight: None) -> None:
    edit(folder / "tokenizer.json", growing(4, "e"))
    found = rw.verify(folder, run=False)
    (finding,) = found.wrong
    assert finding.trap == "tokenizer-broken"
    assert "more than 256 MiB of memory" in finding.what


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize("beside", [False, True], ids=["the text has it", "an added token has it"])
def test_a_tokenizer_that_grows_text_builds_nothing(
    folder: Path, tmp_path: Path, beside: bool
) -> None:
    """Loading reads the tokens that the settings add, and a text may have what no trial had."""
    edit(folder / "tokenizer.json", growing(5, "ß"))
    if beside:
        token = {"content": "ß", "normalized": True, "special": False, "lstrip": False}
        own = {"1023": {**token, "rstrip": False, "single_word": False}}
        edit(folder / "tokenizer_config.json", lambda value: value.update(added_tokens_decoder=own))
    with pytest.raises(InputError, match="its tokenizer takes more than"):
        rw.build_data(folder, {"all": ["Straße"]}, folder=tmp_path / "store")


@pytest.mark.usefixtures("tight")
def test_a_long_text_without_any_joint_is_refused() -> None:
    encoder = Encoder(load_tokenizer(resolve("bundled").folder))
    with pytest.raises(InputError, match=r"its tokenizer .* split texts without line breaks"):
        encoder.batch(["x" * 5_000_000])
    assert encoder.pieces("and the next text is read").size, "by a new child"


@pytest.mark.usefixtures("tight")
@pytest.mark.parametrize(("template", "limit"), [(NESTED, "1 s"), (DOUBLING, "memory")])
def test_a_chat_template_without_end_is_refused(template: str, limit: str) -> None:
    tokenizer = load_tokenizer(resolve("bundled").folder)
    tokenizer.chat_template = template
    render = rendered_by(tokenizer)
    assert render is not None
    with pytest.raises(InputError, match=f"chat template takes more than .*{limit}.*`chat` off"):
        chat_of(render, None)


def test_a_template_that_is_too_large_to_load_is_refused(folder: Path) -> None:
    with (folder / "chat_template.jinja").open("wb") as file:
        file.truncate(2**27)
    with pytest.raises(InputError, match=r"chat_template\.jinja: is larger than the limit of"):
        load_tokenizer(folder)


def test_tokens_are_those_of_the_tokenizer_itself() -> None:
    own = load_tokenizer(resolve("bundled").folder)
    words = confined.confined(own)
    texts = [next(read_documents(HELD_OUT)).text[:5000], "Straße, naïve 東京 🙂👍🏽\r\n", ""]
    for split in (False, True):
        how = {"add_special_tokens": not split, "split_special_tokens": split}
        for one, other in zip(
            words(texts, **how)["input_ids"], own(texts, **how)["input_ids"], strict=True
        ):
            assert one.tolist() == other
    ids = own(texts[0])["input_ids"]
    assert words(texts[0])["input_ids"] == ids
    assert words.decode(np.array(ids)) == own.decode(ids)
    assert words.batch_decode([ids[:9], ids[9:20]]) == own.batch_decode([ids[:9], ids[9:20]])


def test_a_forked_process_asks_a_child_of_its_own() -> None:
    encoder = Encoder(load_tokenizer(resolve("bundled").folder))
    expected = encoder.pieces("one text").tolist()
    child = os.fork()
    if not child:
        os._exit(int(encoder.pieces("one text").tolist() != expected))
    assert os.waitpid(child, 0)[1] == 0
    assert encoder.pieces("one text").tolist() == expected


@pytest.mark.usefixtures("tight")
def test_a_process_forked_while_a_thread_waits_for_an_answer_gets_its_own() -> None:
    encoder = Encoder(load_tokenizer(resolve("bundled").folder))
    expected = encoder.pieces("one text").tolist()

    def ask() -> None:
        with pytest.raises(InputError):
            encoder.tokenizer._child.rendered(NESTED, [], {})

    thread = threading.Thread(target=ask)
    thread.start()
    while not encoder.tokenizer._child._lock.locked():
        time.sleep(0.001)
    child = os.fork()
    if not child:
        signal.alarm(20)
        os._exit(int(encoder.pieces("one text").tolist() != expected))
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    assert encoder.pieces("one text").tolist() == expected


def descriptors() -> int:
    return len(os.listdir("/dev/fd"))


@pytest.mark.usefixtures("tight")
def test_an_interrupted_request_leaves_no_answer_for_the_next() -> None:
    encoder = Encoder(load_tokenizer(resolve("bundled").folder))
    expected = encoder.pieces("one text").tolist()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        encoder.tokenizer._child.rendered(NESTED, [], {})
    assert encoder.pieces("one text").tolist() == expected


@pytest.mark.usefixtures("tight")
def test_children_that_end_leave_nothing_open_and_nobody_is_blamed() -> None:
    child = confined.Confined("a file")
    opened = []
    for _ in range(3):
        with pytest.raises(InputError, match="its chat template takes more than"):
            child.rendered(NESTED, [], {})
        opened.append(descriptors())
    assert len(set(opened)) == 1
    assert child.rendered("{{ 1 + 1 }}", [], {}) == "2"
    os.kill(child._process.pid, signal.SIGKILL)  # as a system without memory does
    os.waitid(os.P_PID, child._process.pid, os.WEXITED | os.WNOWAIT)
    assert child.rendered("{{ 1 + 2 }}", [], {}) == "3"


def test_a_machine_that_has_limits_of_its_own_is_no_fault_of_a_file() -> None:
    words = confined.confined(load_tokenizer(resolve("bundled").folder))
    expected = words("one text")
    child = os.fork()
    if not child:
        for kind, most in ((resource.RLIMIT_CPU, 10**5), (resource.RLIMIT_DATA, 2**31)):
            resource.setrlimit(kind, (most, most))
        os._exit(int(words("one text") != expected))
    assert os.waitpid(child, 0)[1] == 0
