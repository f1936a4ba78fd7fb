"""llama.cpp, run on a file: what it says, and how it fails."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from ropewalk.errors import InputError, InvalidValue, RopewalkError, Unsupported
from ropewalk.exporting.llama_cpp import export
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.llama_cpp_run import RunningLlamaCpp, log_probabilities, running
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import LoadedModel, load, load_tokenizer
from tests.gguf.gguf_cases import plan_of, start_of, tiny_folder, unproven
from tests.gguf.tiny_architectures import deep

LENGTH = 256


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    unproven(export)(BUNDLED, plan_of(start_of(), LENGTH), path)
    return path


@pytest.fixture(scope="module")
def llama(file: Path) -> Iterator[RunningLlamaCpp]:
    with running(file, length=LENGTH) as llama:
        yield llama


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load(BUNDLED, dtype="float32", device="cpu")


def some_tokens(count: int) -> list[int]:
    return [int(token) for token in np.random.default_rng(0).integers(2, 1024, count)]


def test_rows_are_what_may_follow_each_token(bundled: LoadedModel, file: Path) -> None:
    tokens = some_tokens(20)
    said = log_probabilities(file, tokens, start=5, top=1024)
    assert said.tokens.shape == said.values.shape == (15, 1024)
    np.testing.assert_allclose(np.exp(said.values).sum(axis=1), 1, rtol=1e-5)
    with torch.inference_mode():
        logits = bundled.model(torch.tensor([tokens])).logits[0, 5:].double()
    rows = logits.log_softmax(-1).gather(1, torch.from_numpy(said.tokens)).numpy()
    np.testing.assert_allclose(said.values, rows, atol=1e-4)


def test_the_likeliest_come_first(llama: RunningLlamaCpp) -> None:
    tokens = some_tokens(10)
    few = llama.log_probabilities(tokens, top=3)
    many = llama.log_probabilities(tokens, top=50)
    assert few.tokens.shape == (10, 3)
    assert (np.diff(many.values, axis=1) <= 0).all()
    np.testing.assert_array_equal(few.tokens, many.tokens[:, :3])


def test_half_a_character_is_a_token_like_others(tmp_path: Path) -> None:
    """llama.cpp on its own gives no probabilities where it cannot go on with whole text."""
    folder = tiny_folder(tmp_path / "model")
    unproven(export)(folder, plan_of(start_of(folder), LENGTH), tmp_path / "model.gguf")
    likeliest = log_probabilities(tmp_path / "model.gguf", some_tokens(100), top=1).tokens[:, 0]
    decode = load_tokenizer(folder).decode
    assert any("\ufffd" in decode(token) for token in likeliest)


def test_it_writes_the_likeliest_tokens(bundled: LoadedModel, llama: RunningLlamaCpp) -> None:
    tokens = bundled.tokenizer("def main(argument):\n    return")["input_ids"]
    written = bundled.model.generate(
        torch.tensor([tokens]), do_sample=False, max_new_tokens=12, pad_token_id=1
    )[0, len(tokens) :].tolist()
    assert llama.generate(tokens, 12) == written


def test_it_goes_back_to_an_earlier_prompt(llama: RunningLlamaCpp) -> None:
    """What one request leaves in the cache changes nothing of the next."""
    first, other = some_tokens(30), some_tokens(40)[10:]
    before = llama.log_probabilities(first, start=28)
    llama.generate(other, 5)
    np.testing.assert_allclose(
        llama.log_probabilities(first, start=28).values, before.values, atol=1e-4
    )


def test_every_few_positions_are_the_same_rows_and_told_as_they_are_read(file: Path) -> None:
    tokens, heard = some_tokens(40), list[int]()
    whole = log_probabilities(file, tokens, top=8)
    some = log_probabilities(file, tokens, start=9, step=10, top=8, report=heard.append)
    assert [*some.positions] == [9, 19, 29, 39]
    assert heard == [10, 20, 30, 40]
    np.testing.assert_allclose(some.values, whole.values[9::10], atol=1e-4)


def test_a_model_with_windows_reads_no_token_twice(tmp_path: Path) -> None:
    """With a cache of the windows alone, prompts shorter than these are read again as a whole."""
    keys = {"context_length": 512, "attention__sliding_window": 512}
    path = deep(tmp_path / "a.gguf", "gemma3", 6, **keys)
    with running(path, length=512) as llama:
        for length in (300, 340):
            asked = {"response_fields": ["timings"]}
            timings = llama._complete([3 + i % 29 for i in range(length)], 1, **asked)["timings"]
        assert timings["prompt_n"] == 40


def test_a_start_outside_the_tokens_is_refused(llama: RunningLlamaCpp) -> None:
    for start in (-1, 5):
        with pytest.raises(InvalidValue, match="there are 5 tokens"):
            llama.log_probabilities(some_tokens(5), start=start)


def test_more_tokens_than_the_file_states_are_refused(file: Path) -> None:
    with pytest.raises(RopewalkError, match=f"exceeds the available context size .{LENGTH}"):
        log_probabilities(file, some_tokens(LENGTH + 1), start=LENGTH)


def test_tokens_that_do_not_exist_are_refused(llama: RunningLlamaCpp) -> None:
    with pytest.raises(RopewalkError, match=r"llama\.cpp refuses: .*invalid tokens"):
        llama.generate([0, 5000], 1)


def test_a_file_that_is_none_is_refused_in_llama_cpps_words(tmp_path: Path, file: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        log_probabilities(tmp_path / "absent.gguf", [0])
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(InputError, match=r"llama\.cpp cannot load it: gguf.*invalid magic"):
        log_probabilities(tmp_path / "text.gguf", [0])
    torn = file.read_bytes()[: file.stat().st_size // 2]
    (tmp_path / "torn.gguf").write_bytes(torn)
    with pytest.raises(InputError, match=r"llama\.cpp cannot load it: "):
        log_probabilities(tmp_path / "torn.gguf", [0])


def test_an_end_of_its_process_is_an_error_of_ours(file: Path) -> None:
    with running(file, length=LENGTH) as llama:
        llama._served.process.kill()
        with pytest.raises(RopewalkError, match=r"llama\.cpp stopped unexpectedly: .*by SIGKILL"):
            llama.generate([0], 1)


@pytest.mark.slow
def test_it_answers_after_a_pause(llama: RunningLlamaCpp) -> None:
    """llama.cpp closes a connection that was idle for five seconds."""
    before = llama.generate([0], 1)
    time.sleep(6)
    assert llama.generate([0], 1) == before


def test_a_broken_answer_is_no_end_of_its_process(file: Path) -> None:
    with running(file, length=LENGTH) as llama, closing(socket.create_server(("", 0))) as broken:
        port = broken.getsockname()[1]
        broken.close()  # nobody answers there
        served = llama._served._replace(address=f"http://127.0.0.1:{port}")
        with pytest.raises(RopewalkError, match=r"llama\.cpp is running, but .*ConnectionRefused"):
            RunningLlamaCpp(file, served).generate([0], 1)
        assert llama.generate([0], 1)


def test_its_process_ends_with_the_block(file: Path) -> None:
    with running(file, length=LENGTH) as llama:
        process = llama._served.process
        assert process.poll() is None
    assert process.returncode is not None


def test_a_llama_cpp_that_lacks_a_library_is_not_the_fault_of_a_file(
    file: Path, tmp_path: Path
) -> None:
    """As it fails where the system has no libgomp, though one that torch brings would do."""
    lack = "libgomp.so.1: cannot open shared object file"
    (tmp_path / "xllamacpp.py").write_text(f"raise ImportError({lack!r})")
    path = f"{tmp_path}:{Path(llama_cpp_run.__file__).parents[2]}"
    call = [sys.executable, "-m", "ropewalk", "howlong", str(file)]
    done = subprocess.run(
        call, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert lack in done.stderr
    assert "install what it lacks" in done.stderr
    assert str(file) not in done.stderr


def test_the_extra_is_named_where_llama_cpp_is_missing(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llama_cpp_run, "available", lambda: False)
    with pytest.raises(Unsupported, match=r"pip install 'ropewalk\[gguf\]'"):
        log_probabilities(file, [0])
