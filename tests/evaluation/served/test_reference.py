"""How a fingerprint is made: probes, causes, and the rounding of healthy servers."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import gguf
import numpy as np
import pytest
import torch

import ropewalk as rw
from ropewalk.context_plan import FULL_ATTENTION, PlanStep
from ropewalk.data.corpora import Document
from ropewalk.errors import InvalidValue
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.served import rounding
from ropewalk.evaluation.served.causes import FORGOTTEN, causes
from ropewalk.evaluation.served.probes import CONTEXTS, SHORTEST, Probe, draft, probe_lengths
from ropewalk.evaluation.served.reference import _Asking, _Way
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDER, present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from ropewalk.planning.extension import extend_plan
from tests.evaluation.served import made

PRESENT = present_plan(BUNDLED_FOLDER)


@pytest.fixture(scope="module")
def bundled() -> LoadedModel:
    return load(BUNDLED, dtype="float32", device="cpu")


@pytest.mark.parametrize(
    ("original", "target"), [(512, 4096), (8192, 131072), (512, 512), (512, 64)]
)
def test_lengths_reach_the_target_and_the_original_length(original: int, target: int) -> None:
    lengths = probe_lengths(original, target)
    assert lengths == tuple(sorted(set(lengths)))
    assert lengths[-1] == target - 1
    assert lengths[0] > SHORTEST
    assert len(lengths) <= CONTEXTS
    assert min(original, target - 1) in lengths


def test_probes_end_at_the_length_that_is_asked_for() -> None:
    """Of a model whose forwards are slow, a shorter fingerprint is what can be had."""
    own, whole = rw.fingerprint(BUNDLED, plan=made.plan(), length=128), made.fingerprint()
    assert max(probe.length for probe in own.probes) == 127 == len(own.sequence)
    assert (own.target_length, own.plan_id) == (made.TARGET, made.plan().id)
    assert [cause.name for cause in own.candidates] == [cause.name for cause in whole.candidates]
    with pytest.raises(InvalidValue, match="length = 2048: the plan ends at 1,024 tokens"):
        rw.fingerprint(BUNDLED, plan=made.plan(), length="2k")


def test_a_target_too_short_is_refused() -> None:
    with pytest.raises(InvalidValue, match="a fingerprint needs 33 tokens"):
        probe_lengths(512, 16)


def test_a_draft_is_a_function_of_its_seed(bundled: LoadedModel) -> None:
    encoder = Encoder(bundled.tokenizer)
    documents = [Document("a", "def main(argument):\n    return argument + 1\n" * 100)]
    one, again, other = (draft(encoder, Haystack(documents), 512, 1024, seed) for seed in (0, 0, 1))
    assert one == again != other
    assert len(one.tokens) == 1023
    text = encoder.text(np.array(one.tokens))
    # Each question asks for what was said before it.
    said = re.findall(r"^# key ([A-Z]+)(\d+)$", text, re.MULTILINE)
    assert len({name for name, _ in said}) > 5
    for name, _ in said:
        assert text.count(f"\n# key {name}") in (1, 2)
    assert encoder.bos == one.tokens[:1]


def test_rows_are_those_of_the_model(bundled: LoadedModel) -> None:
    tokens = np.random.default_rng(0).integers(2, 1024, 80)
    ends = [1, 17, 80]
    rows = list(Scorer(bundled.model, in_chunks=True).log_probabilities(tokens, ends))
    with torch.inference_mode():
        logits = bundled.model(torch.from_numpy(tokens)[None]).logits[0].double()
    expected = logits.log_softmax(-1)[[end - 1 for end in ends]].numpy()
    np.testing.assert_allclose(np.array(rows), expected, atol=1e-5)


def test_a_probe_at_the_end_of_a_step_is_asked_under_that_step(bundled: LoadedModel) -> None:
    plan = extend_plan(PRESENT, 1024, "dynamic_ntk")
    assert [step.up_to_length for step in plan.steps()] == [512, 1024]
    tokens = np.random.default_rng(0).integers(2, 1024, 600)
    asking = _Asking(bundled, Encoder(bundled.tokenizer))
    found = asking._along(plan, tuple(tokens.tolist()), [512, 513])
    rows = asking._scorer.distributions(found, 513)
    for row, end in zip(rows, (512, 513), strict=True):
        with applied(bundled.model, plan, length=end):
            [expected] = Scorer(bundled.model).log_probabilities(tokens, [end])
        np.testing.assert_allclose(row, expected, atol=1e-4)


def test_contexts_are_answered_in_whatever_order_they_were_chosen(bundled: LoadedModel) -> None:
    """At short lengths, a probe that is no text gives way to an earlier end than the next one's."""
    tokens = tuple(np.random.default_rng(0).integers(2, 1024, 64).tolist())
    asking, way = _Asking(bundled, Encoder(bundled.tokenizer)), _Way("", "", PRESENT)
    rising = [Probe("context", end) for end in (20, 40, 60)]
    mixed = [rising[1], rising[2], rising[0]]
    own, other = asking.answers(way, tokens, rising), asking.answers(way, tokens, mixed)
    assert other.tokens == tuple(own.tokens[i] for i in (1, 2, 0))
    assert other.log_probabilities == tuple(own.log_probabilities[i] for i in (1, 2, 0))


def test_rounding_is_that_of_gguf() -> None:
    values = np.random.default_rng(1).normal(0, 1, (6, 64)).astype(np.float32)
    values[0, :32] = 0
    for ours, kind in (
        (rounding.eight_bits, gguf.GGMLQuantizationType.Q8_0),
        (rounding.five_bits, gguf.GGMLQuantizationType.Q5_0),
        (rounding.four_bits, gguf.GGMLQuantizationType.Q4_0),
    ):
        packed = gguf.quants.quantize(values, kind)
        theirs = gguf.quants.dequantize(packed, kind)
        step = np.abs(values).max() / (127 if kind.name == "Q8_0" else 8)
        found = ours(torch.from_numpy(values)).numpy()
        # Theirs keeps the scale in float16.
        np.testing.assert_allclose(found, theirs, rtol=1e-3, atol=1e-6)
        assert np.abs(found - values).max() <= step


def test_rounded_weights_are_put_back(bundled: LoadedModel) -> None:
    before = {k: v.clone() for k, v in bundled.model.state_dict().items()}
    tokens = torch.arange(2, 40)[None]
    with torch.inference_mode():
        own = bundled.model(tokens).logits
        with rounding.rounded_weights(bundled.model, rounding.four_bits):
            coarse = bundled.model(tokens).logits
        with rounding.rounded_cache(bundled.model, rounding.four_bits):
            cached = bundled.model(tokens).logits
        again = bundled.model(tokens).logits
    assert all(torch.equal(before[k], v) for k, v in bundled.model.state_dict().items())
    assert torch.equal(own, again)
    assert not torch.allclose(own, coarse, atol=0.1)
    assert not torch.allclose(own, cached, atol=0.1)


def test_a_vocabulary_is_rounded_once_for_all_probes(bundled: LoadedModel) -> None:
    """One of 262,144 tokens took an hour, a rounding for each probe."""
    rounded = 0

    def counting(values: torch.Tensor) -> torch.Tensor:
        nonlocal rounded
        rounded += values.numel()
        return rounding.four_bits(values)

    model, width = bundled.model, bundled.model.config.hidden_size
    tokens = tuple(np.random.default_rng(0).integers(2, 1024, 64).tolist())
    probes = [Probe("token", 1, tokens[:1]), Probe("text", 8, tokens[:8], "a text")]
    probes += [Probe("context", end) for end in (20, 40, 60)]
    asking = _Asking(bundled, Encoder(bundled.tokenizer))
    way = _Way("", "", PRESENT, partial(rounding.rounded_weights, model, counting))
    found = asking.answers(way, tokens, probes)
    head = model.get_output_embeddings().weight.numel()
    every = sum(each.weight.numel() for each in rounding._layers(model))
    layers = every - 2 * head
    assert rounded <= 2 * layers + head + 2 * 64 * width
    # The same as each probe alone.
    with rounding.rounded_weights(model, rounding.four_bits):
        rows = [asking._row(each.tokens or tokens[: each.length]) for each in probes]
    for row, ids, values in zip(rows, found.tokens, found.log_probabilities, strict=True):
        np.testing.assert_allclose(values, row[list(ids)], atol=1e-4)


def test_causes_differ_from_the_plan_and_each_other() -> None:
    found = causes(made.plan(), PRESENT)
    ids = [cause.plan.id for cause in found]
    assert len(set(ids)) == len(ids)
    assert made.plan().id not in ids
    names = {cause.name for cause in found}
    assert {"no scaling", "attention factor", "base", "factor", "original length"} <= names
    assert {"another method", "applied twice", "factors dropped"} <= names
    by_words = {cause.words: cause.plan.longest() for cause in found}
    own = made.plan().longest()
    assert by_words["without its attention factor"].attention_scaling == 1
    base = by_words["with base 500,000"]
    expected = replace(own, geometry=replace(own.geometry, base=5e5)).inverse_frequencies
    np.testing.assert_allclose(base.inverse_frequencies, expected)
    twice = extend_plan(PRESENT, 2 * made.TARGET, "yarn").longest()
    np.testing.assert_allclose(
        by_words["with 2 times its factor"].rescale_factors, twice.rescale_factors
    )


def test_causes_of_an_unmodified_model_and_of_steps() -> None:
    names = {cause.name for cause in causes(PRESENT, PRESENT)}
    assert "base" in names
    assert "no scaling" not in names
    assert FORGOTTEN in names
    assert FORGOTTEN not in {cause.name for cause in causes(made.plan(), PRESENT)}
    own, plain = made.plan().longest(), PRESENT.longest()
    steps = (PlanStep(512, plain), PlanStep(made.TARGET, own))
    plan = replace(made.plan(), schedules={FULL_ATTENTION: steps})
    told = [cause.words for cause in causes(plan, PRESENT) if cause.name == "step"]
    assert told == [
        "with its schedule up to 512 at every length",
        "with its schedule up to 1k at every length",
    ]
