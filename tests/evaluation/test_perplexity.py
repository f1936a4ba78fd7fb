"""Our perplexity, and those of others against straightforward versions of what they do."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ropewalk.errors import InputError
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.perplexity import (
    DEFINITIONS,
    LONGROPE_WINDOWS,
    Request,
    ScoredWindow,
    Text,
    position_bins,
    scored_tokens,
    texts,
)
from ropewalk.evaluation.results import summarise
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from tests.evaluation import tiny
from tests.evaluation.scored import known

LENGTH = 600
BOS = 0
DOCUMENTS = tiny.documents(3, lines=40)


def _request(tokens: list[int], length: int, **changes: Any) -> Request:
    return Request(
        **{
            "texts": [Text(f"text {i}", np.arange(1, n + 1)) for i, n in enumerate(tokens)],
            "bos": (BOS,),
            "start_token": (BOS,),
            "length": length,
            "longest": length,
            "scored": 8,
            "samples": 10,
            "seed": 0,
            "original_length": 32,
            **changes,
        }
    )


def _windows(name: str, request: Request) -> list[ScoredWindow]:
    return DEFINITIONS[name].windows(request)


def test_the_same_final_tokens_are_scored_at_every_length() -> None:
    scored = [
        [
            window.tokens[window.scored_from :].tolist()
            for window in _windows("perplexity", _request([200, 90], length, longest=64))
        ]
        for length in (16, 32, 64)
    ]
    assert scored[0] == scored[1] == scored[2]
    assert len(scored[0]) == 10
    assert all(len(tokens) == 8 for tokens in scored[0])
    assert len({tuple(tokens) for tokens in scored[0]}) == 10


@pytest.mark.parametrize("name", ["perplexity", "repetition"])
def test_windows_are_as_long_as_asked_and_begin_with_bos(name: str) -> None:
    for window in _windows(name, _request([200], 64)):
        assert len(window) == len(window.tokens) == 64
        assert window.tokens[0] == BOS
        assert BOS not in window.tokens[1:]


def test_fewer_samples_are_the_beginning_of_more() -> None:
    few, more = (_windows("perplexity", _request([400], 64, samples=n)) for n in (3, 9))
    assert [window.end for window in few] == [window.end for window in more[:3]]


@pytest.mark.parametrize("name", ["perplexity", "repetition"])
def test_windows_keep_apart_where_the_text_has_room_for_five(name: str) -> None:
    windows = _windows(name, _request([400, 300], 64, samples=100))
    assert 5 <= len({window.layout for window in windows}) == len(windows)
    reads = 32 if name == "repetition" else 63
    for text in {window.text.name for window in windows}:
        ends = sorted(window.end for window in windows if window.text.name == text)
        assert all(later - reads > earlier for earlier, later in pairwise(ends))


def test_windows_that_overlap_or_touch_are_one_stretch_of_text() -> None:
    """One document has room for two windows that keep apart: so there are more, of one stretch."""
    long = _windows("perplexity", _request([150], 64, samples=100))
    assert len(long) > 2
    assert len({window.layout for window in long}) == 1
    # The same places, 8 tokens apart, read from so near that nothing is shared.
    short = _windows("perplexity", _request([150], 8, longest=64, samples=100))
    assert [window.end for window in short] == [window.end for window in long]
    assert len({window.layout for window in short}) == len(short)
    touching = _windows("perplexity", _request([150], 9, longest=64, samples=100))
    assert len({window.layout for window in touching}) == 1
    two = _windows("perplexity", _request([150, 150], 64, samples=100))
    assert len({window.layout for window in two}) == 2


def test_repeated_text_repeats_and_ends_as_the_text_does() -> None:
    for window in _windows("repetition", _request([200], 100)):
        tokens = window.tokens[1:]
        np.testing.assert_array_equal(tokens[32:], tokens[:-32])
        np.testing.assert_array_equal(tokens[-32:], np.arange(window.end - 31, window.end + 1))


def test_a_text_that_is_just_long_enough_is_read() -> None:
    """63 tokens, and BOS before them."""
    [window] = _windows("perplexity", _request([63], 64))
    assert (window.begin, window.end, len(window)) == (0, 63, 64)


def test_a_corpus_of_short_documents_says_how_short() -> None:
    with pytest.raises(InputError, match="the longest holds 20"):
        _windows("perplexity", _request([20, 7], 64))


@given(st.integers(2, 5000), st.integers(1, 300))
def test_position_bins_cover_every_scored_position_once(length: int, scored: int) -> None:
    bins = position_bins(length, scored)
    assert [p for low, high in bins for p in range(low, high)] == list(range(1, length))


def test_what_is_scored_has_as_much_before_it() -> None:
    assert scored_tokens([128, 1024]) == 64
    assert scored_tokens([4096]) == 256
    assert scored_tokens([2]) == 1


def _evaluation(name: str, lengths: tuple[int, ...], samples: int) -> Evaluation:
    answerer = InProcess(tiny.loaded(), [Condition("none", "", None)])
    return Evaluation(answerer, DOCUMENTS, EvaluationSettings((name,), lengths, samples))


def _loss(model: Any, tokens: torch.Tensor, targets: torch.Tensor) -> float:
    """The loss that transformers itself computes for labels."""
    with torch.inference_mode():
        return float(model(tokens, labels=targets).loss)


def _sliding(tokens: list[int], length: int, stride: int, bos: bool) -> list[tuple[Any, Any, int]]:
    """Input, labels and trg_len of each window, written as the scripts write them."""
    found = []
    previous_end = 0
    inner = length - bos
    for begin in range(0, len(tokens), stride):
        end = min(begin + inner, len(tokens))
        target_length = end - previous_end
        row = torch.tensor([[BOS] * bos + tokens[begin:end]])
        labels = row.clone()
        labels[:, :-target_length] = -100
        found.append((row, labels, target_length))
        previous_end = end
        if end == len(tokens):
            break
    return found


def _naive(name: str, model: Any, encoder: Encoder) -> float:
    rows = [text.tokens.tolist() for text in texts(DOCUMENTS, encoder)]
    if name == "perplexity-hf":
        total, count = 0.0, 0
        for row in rows:
            for tokens, labels, _ in _sliding(row, LENGTH, 512, bos=False):
                loss_tokens = int((labels != -100).sum()) - 1
                total += _loss(model, tokens, labels) * loss_tokens
                count += loss_tokens
        return math.exp(total / count)
    if name == "perplexity-base-bound":
        windows = [torch.tensor([[BOS, *row[: LENGTH - 1]]]) for row in rows]
        return float(np.mean([math.exp(_loss(model, window, window)) for window in windows]))
    if name in ("perplexity-256", "perplexity-256k"):
        stride = 256 if name == "perplexity-256" else LENGTH - 1  # no longer than a window
        parts = [
            (_loss(model, tokens, labels), new)
            for row in rows
            if len(row) >= LENGTH
            for tokens, labels, new in _sliding(row, LENGTH, stride, bos=True)
        ]
        losses, counts = zip(*parts, strict=True)
        return math.exp(np.average(losses, weights=counts))
    means = []
    for row in rows:
        for tokens, labels, _ in _sliding(row, LENGTH, 256, bos=True):
            if name == "perplexity-longrope" and tokens.shape[1] < LENGTH:
                continue
            means.append(_loss(model, tokens, labels))
    if name == "perplexity-longrope":
        means = means[:LONGROPE_WINDOWS]
    return math.exp(np.mean(means))


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if "-" in name])
def test_perplexities_of_others_are_what_their_scripts_compute(name: str) -> None:
    model = tiny.model()
    evaluation = _evaluation(name, (LENGTH,), 5)
    [result] = summarise(evaluation.run())
    assert result.metric == "perplexity"
    assert result.value == pytest.approx(_naive(name, model, evaluation.encoder), rel=1e-5)


def test_the_definitions_differ() -> None:
    """Else the test above could not tell them apart."""
    encoder = Encoder(tiny.tokenizer())
    values = [_naive(name, tiny.model(), encoder) for name in DEFINITIONS if "-" in name]
    assert len({round(value, 3) for value in values}) == len(values)


def test_our_perplexity_is_the_token_weighted_mean_over_windows() -> None:
    model = tiny.model()
    evaluation = _evaluation("perplexity", (64, 256), 5)
    results = {(r.metric, r.length): r for r in summarise(evaluation.run())}
    for length in (64, 256):
        losses, right = [], []
        for window in DEFINITIONS["perplexity"].windows(
            _request(
                [],
                length,
                texts=texts(DOCUMENTS, evaluation.encoder),
                longest=256,
                scored=32,
                samples=5,
            )
        ):
            tokens = torch.from_numpy(window.tokens)[None]
            with torch.inference_mode():
                logits = model(tokens).logits[0, :-1].double()
            targets = tokens[0, 1:]
            nll = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
            losses += nll[-32:].tolist()
            right += (logits.argmax(-1) == targets)[-32:].tolist()
        perplexity = results["perplexity", length]
        assert perplexity.value == pytest.approx(math.exp(np.mean(losses)), rel=1e-5)
        assert perplexity.samples == 5
        accuracy = results["next_token_accuracy", length]
        assert accuracy.value == pytest.approx(np.mean(right))
        assert known(perplexity.estimate.low) < perplexity.value < known(perplexity.estimate.high)


def test_loss_by_position_adds_up_to_the_loss_of_the_window() -> None:
    records = _evaluation("perplexity", (64, 256), 3).run()
    placed = [record for record in records if record.positions is not None]
    assert {record.length for record in placed} == {256}
    for sample in {record.sample for record in placed}:
        own = [record for record in placed if record.sample == sample]
        assert sum(record.weight for record in own) == 255
        [whole] = [r for r in records if (r.sample, r.metric, r.positions) == (sample, "nll", None)]
        # The last bin, from 128 on, contains the 32 tokens that are scored at every length.
        assert own[-1].positions == (128, 256)
        assert whole.weight == 32


@pytest.mark.parametrize("name", ["perplexity-256", "perplexity-256k"])
@pytest.mark.parametrize("bos", [(), (0,)])
def test_strides_count_every_token_of_long_documents_once(name: str, bos: tuple[int, ...]) -> None:
    texts = [Text(f"{size}", np.arange(size)) for size in (900, 1500, 2100, 3000)]
    for length in (500, 1000):
        request = Request(texts, bos, bos, length, 1000, 1, samples=2, seed=0, original_length=128)
        windows = DEFINITIONS[name].windows(request)
        assert len({window.text.name for window in windows}) == 2
        assert "900" not in {window.text.name for window in windows}
        for text in texts:
            own = [window for window in windows if window.text == text]
            counted = [t for w in own for t in w.tokens[w.scored_from :].tolist()]
            assert len(counted) == len(set(counted)) == sum(window.weight for window in own)
            # Without BOS nothing predicts the first token of a window.
            assert not own or len(counted) >= len(text.tokens) - (0 if bos else len(own))
