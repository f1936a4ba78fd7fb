"""Every engine against the reference in float64: the output and all three gradients.

A new engine is one row in `CONFORMING`. Where there is a GPU, the same suite runs there.
"""

from __future__ import annotations

import functools
import itertools
import math
import shutil
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ropewalk.attention import (
    ENGINES,
    AttentionLayout,
    choose,
    flex,
    per_document,
    reference,
    varlen,
)
from ropewalk.attention.engines import Attend
from ropewalk.attention.layout import PADDING
from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from tests.attention.layouts import PARADIGMS, Case, cases, layouts
from tests.examples import examples

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
ANY_LAYOUT = AttentionLayout.anchor([5, 3])

many = functools.partial(
    examples, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)


class Result(NamedTuple):
    output: Tensor
    query: Tensor
    key: Tensor
    value: Tensor


def run(attend: Attend, case: Case, dtype: torch.dtype, device: torch.device = CPU) -> Result:
    *inputs, output_gradient = (t.to(device, dtype, copy=True) for t in case.tensors)
    query, key, value = (tensor.requires_grad_() for tensor in inputs)
    output = attend(query, key, value, case.layout, scale=case.scale)
    assert output.dtype == dtype
    gradients = torch.autograd.grad(output, (query, key, value), output_gradient)
    return Result(*(t.detach().double().cpu() for t in (output, *gradients)))


def dense_sdpa(
    query: Tensor, key: Tensor, value: Tensor, layout: AttentionLayout, *, scale: float
) -> Tensor:
    """What a user without these engines would call, except that padding gives 0 here."""
    mask = torch.tensor(layout.mask(), device=query.device)
    padding = torch.tensor(layout.document_ids == PADDING, device=query.device)
    output = scaled_dot_product_attention(
        query, key, value, attn_mask=mask | torch.diag(padding), scale=scale, enable_gqa=True
    )
    return output.masked_fill(padding[:, None], 0)


def sizes(case: Case, truth: Result) -> Result:
    """How large each result is, to compare errors with.

    The gradients of query and key are differences. Where they all but vanish, as in documents of
    one token, what counts is a hundredth of their terms' size.
    """
    query, key, value, output_gradient = case.tensors
    terms = case.scale * output_gradient.norm(dim=-1).max() * value.norm(dim=-1).max()
    output, *largest = (tensor.abs().max() for tensor in truth)
    return Result(
        output,
        torch.maximum(largest[0], 0.01 * terms * key.abs().max()),
        torch.maximum(largest[1], 0.01 * terms * query.abs().max()),
        largest[2],
    )


def check_float32(attend: Attend, case: Case, truth: Result, device: torch.device = CPU) -> None:
    got = run(attend, case, torch.float32, device)
    for name, a, b, size in zip(Result._fields, got, truth, sizes(case, truth), strict=True):
        assert float((a - b).abs().max()) <= 1e-5 * float(size), name


def check_bfloat16(attend: Attend, case: Case, truth: Result, device: torch.device = CPU) -> None:
    """No further from the truth than 1.1 times where a dense mask in bfloat16 gets."""
    ours = run(attend, case, torch.bfloat16, device)
    dense = run(dense_sdpa, case, torch.bfloat16, device)
    everything = zip(Result._fields, ours, dense, truth, sizes(case, truth), strict=True)
    for name, a, usual, b, size in everything:
        assert float((a - b).norm()) <= 1.1 * float((usual - b).norm()) + 1e-5 * float(size), name


# --- conformance -----------------------------------------------------------------------------


def check_per_document(case: Case) -> None:
    attend = ENGINES["per_document"].attend
    truth = run(reference.attend, case, torch.float64)
    check_float32(attend, case, truth)
    check_bfloat16(attend, case, truth)


@many(100)
@given(cases())
def test_per_document_conforms(case: Case) -> None:
    check_per_document(case)


@pytest.mark.slow
@many(300)
@given(cases())
def test_per_document_conforms_in_300_cases(case: Case) -> None:
    check_per_document(case)


@many(50)
@given(cases(), st.integers(1, 40))
def test_per_document_conforms_in_small_blocks(
    monkeypatch: pytest.MonkeyPatch, case: Case, block: int
) -> None:
    """Of which a sliding window sees several."""
    monkeypatch.setattr(per_document, "BLOCK", block)
    check_float32(per_document.attend, case, run(reference.attend, case, torch.float64))


@many(50)
@given(cases())
def test_per_document_is_exact_in_float64(case: Case) -> None:
    truth = run(reference.attend, case, torch.float64)
    got = run(ENGINES["per_document"].attend, case, torch.float64)
    for a, b in zip(got, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["varlen", "flex", "per_document"])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo
@many(200)
@given(case=cases())
def test_engines_conform_on_a_gpu(name: str, case: Case) -> None:
    attend = ENGINES[name].attend
    assume(ENGINES[name].obstacle(CUDA, torch.bfloat16, case.layout) is None)
    truth = run(reference.attend, case, torch.float64)
    if ENGINES[name].obstacle(CUDA, torch.float32, case.layout) is None:
        check_float32(attend, case, truth, CUDA)
    # Kernels round in different places. In a few tokens that says nothing of which is nearer.
    if case.layout.length >= 64:
        check_bfloat16(attend, case, truth, CUDA)


@many(30)
@given(cases(layouts(max_tokens=150, max_documents=20)))
def test_the_reference_is_softmax_under_the_mask(case: Case) -> None:
    """Written out once more, head by head and query by query, in plain Python sums."""
    queries, keys, values, _ = case.tensors
    output = reference.attend(queries, keys, values, case.layout, scale=case.scale)
    mask = case.layout.mask()
    head = queries.shape[1] - 1
    for query in {0, case.layout.length // 2, case.layout.length - 1}:
        seen = np.flatnonzero(mask[query])
        k, v = keys[0, -1, seen], values[0, -1, seen]  # the last head asks the last key head
        logits = [math.fsum((queries[0, head, query] * row).tolist()) * case.scale for row in k]
        weights = [math.exp(logit - max(logits)) for logit in logits]
        expected = torch.zeros_like(queries[0, 0, 0])
        for weight, row in zip(weights, v, strict=True):
            expected += weight / sum(weights) * row
        torch.testing.assert_close(output[0, head, query], expected, rtol=1e-10, atol=1e-10)


# --- varlen: the gather and its backward, with the kernel played by the reference ------------


def play_varlen(monkeypatch: pytest.MonkeyPatch, *, with_gqa: bool) -> None:
    """A stand-in for torch's varlen_attn with its contract, so that the rest runs on a cpu."""

    def sequences(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seq_q: Tensor,
        cu_seq_k: Tensor,
        max_q: int,
        max_k: int,
        scale: float,
        window_size: tuple[int, int],
    ) -> Tensor:
        assert window_size == (-1, 0)
        assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
        assert cu_seq_q.diff().max() == max_q
        assert cu_seq_k.diff().max() == max_k
        outputs = []
        for (q0, q1), (k0, k1) in zip(
            itertools.pairwise(cu_seq_q.tolist()),
            itertools.pairwise(cu_seq_k.tolist()),
            strict=True,
        ):
            q, k, v = (t.transpose(0, 1) for t in (query[q0:q1], key[k0:k1], value[k0:k1]))
            mask = torch.ones(q1 - q0, k1 - k0, dtype=torch.bool).tril(k1 - k0 - (q1 - q0))
            scores = (q @ k.transpose(1, 2) * scale).masked_fill(~mask, -torch.inf)
            outputs.append((scores.softmax(-1) @ v).transpose(0, 1))
        return torch.cat(outputs)

    def old(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        assert query.shape[1] == key.shape[1], "torch 2.11 refuses grouped heads"
        return sequences(query, key, value, *args, **kwargs)

    def new(
        query: Tensor, key: Tensor, value: Tensor, *args: Any, enable_gqa: bool = False, **kw: Any
    ) -> Tensor:
        assert enable_gqa == (query.shape[1] != key.shape[1])
        group = query.shape[1] // key.shape[1]
        key, value = (t.repeat_interleave(group, dim=1) for t in (key, value))
        return sequences(query, key, value, *args, **kw)

    monkeypatch.setattr(varlen, "varlen_attn", new if with_gqa else old)
    monkeypatch.setattr(varlen, "obstacle", lambda device, dtype, layout: None)


@pytest.mark.parametrize("with_gqa", [True, False], ids=["torch 2.12", "torch 2.11"])
@many(60)
@given(case=cases(layouts(slides=False)))
def test_varlen_hands_the_kernel_the_right_sequences(
    monkeypatch: pytest.MonkeyPatch, with_gqa: bool, case: Case
) -> None:
    play_varlen(monkeypatch, with_gqa=with_gqa)
    truth = run(reference.attend, case, torch.float64)
    for got, expected in zip(run(varlen.attend, case, torch.float64), truth, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


def test_varlen_adds_up_the_anchors_gradient_in_float32() -> None:
    """In bfloat16, a sum of ones stops growing at 256."""
    documents = 2000
    index = varlen._sequences(AttentionLayout.anchor([1] * documents), 1, CPU)
    rows = torch.zeros(documents + 1, 1, 8, dtype=torch.bfloat16, requires_grad=True)
    torch.autograd.backward(varlen._gather(rows, index).sum())
    assert rows.grad is not None
    assert rows.grad[0].tolist() == [[2000.0] * 8]  # 2001, of which bfloat16 holds eight bits
    assert (rows.grad[1:] == 1).all()


def test_per_document_adds_up_the_anchors_gradient_in_float32() -> None:
    case = Case(AttentionLayout.anchor([1] * 390))
    truth = run(reference.attend, case, torch.float64)
    check_bfloat16(ENGINES["per_document"].attend, case, truth)


def test_varlen_names_head_sizes_that_its_kernel_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    play_varlen(monkeypatch, with_gqa=True)
    for head_dim in (20, 264):
        with pytest.raises(Unsupported, match=f"steps of 8, not {head_dim}"):
            run(varlen.attend, Case(ANY_LAYOUT, head_dim=head_dim), torch.float32)


# --- flex: its blocks, and its forward on a cpu ----------------------------------------------


@many(100)
@given(layouts(max_tokens=900))
def test_flex_visits_the_blocks_in_which_something_is_seen(layout: AttentionLayout) -> None:
    tokens, size = layout.order.size, flex.BLOCK
    side = -(-layout.length // size)
    packed = np.zeros((side * size, side * size), dtype=bool)
    packed[:tokens, :tokens] = layout.mask()[np.ix_(layout.order, layout.order)]
    by_block = packed.reshape(side, size, side, size)
    # Rows beyond the last token are computed for nothing: what they see does not matter.
    real_rows = np.arange(side * size).reshape(side, size) < tokens
    all_seen = (by_block | ~real_rows[:, :, None, None]).all(axis=(1, 3))
    some, every = flex.visited_blocks(layout)
    if layout.sliding_window is None:
        assert (some == by_block.any(axis=(1, 3))).all()
        assert (every == (all_seen & some)).all()
    else:  # by the positions at the ends of a block, so that a few too many are visited
        assert (some >= by_block.any(axis=(1, 3))).all()
        assert (every <= all_seen).all()
        whole, _ = flex.visited_blocks(replace(layout, sliding_window=None))
        assert (some <= whole).all()

    block_mask = flex.block_mask(layout, CPU)
    grid = torch.arange(layout.length)
    sees = block_mask.mask_mod(grid[:1], grid[:1], grid[:, None], grid[None])
    assert (sees.numpy() == packed[: layout.length, : layout.length]).all()
    assert (block_mask.to_dense()[0, 0].bool().numpy() == some).all()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, while it compiles
def test_flex_conforms_forward_on_a_cpu() -> None:
    """One compiled kernel, many layouts: none of them makes torch compile again."""
    kernels = []

    @many(60)
    @given(layouts(), st.integers(0, 2**32 - 1))
    def conforms(layout: AttentionLayout, seed: int) -> None:
        case = Case(layout.padded_to(400), batch=2, heads=8, key_heads=2, head_dim=32, seed=seed)
        query, key, value, _ = case.tensors
        expected = reference.attend(query, key, value, case.layout, scale=case.scale)
        query, key, value = query.float(), key.float(), value.float()
        got = flex.attend(query, key, value, case.layout, scale=case.scale)
        assert (got - expected).abs().max() <= 1e-5 * expected.abs().max()
        kernels.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])

    conforms()
    assert kernels[-1] == kernels[0]


def test_flex_refuses_to_train_on_a_cpu() -> None:
    with pytest.raises(Unsupported, match=r"no backward pass on the CPU; use per_document"):
        run(flex.attend, Case(ANY_LAYOUT), torch.float32)


# --- long windows ----------------------------------------------------------------------------


def blocked_reference(case: Case, block: int = 256) -> Result:
    """The reference, some queries at a time, for windows whose scores do not fit in memory."""
    query, key, value = (tensor.clone().requires_grad_() for tensor in case.tensors[:3])
    ids = torch.tensor(case.layout.document_ids)
    index = torch.arange(case.layout.length)
    outputs = []
    for rows in torch.split(index, block):
        same_document = ids[rows][:, None] == ids
        seen = (rows[:, None] >= index) & (same_document | (index < case.layout.anchor_length))
        keys, values = (t.repeat_interleave(case.heads // case.key_heads, 1) for t in (key, value))
        scores = query[:, :, rows] @ keys.transpose(-1, -2) * case.scale
        part = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ values
        part = part.masked_fill((ids[rows] == PADDING)[:, None], 0)
        torch.autograd.backward(part, case.tensors[3][:, :, rows])
        outputs.append(part.detach())
    gradients = [tensor.grad for tensor in (query, key, value) if tensor.grad is not None]
    return Result(torch.cat(outputs, dim=2), *gradients)


def test_the_blocked_reference_is_the_reference() -> None:
    layout = AttentionLayout.interleaved([90, 5, 40], chunks=3, seed=0).padded_to(150)
    case = Case(layout, heads=4, key_heads=2)
    truth = run(reference.attend, case, torch.float64)
    for got, expected in zip(blocked_reference(case, block=32), truth, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("paradigm", ["anchor", "intra_document_reset", "interleaved"])
def test_long_windows_conform(paradigm: str) -> None:
    generator = np.random.default_rng(0)
    lengths = generator.multinomial(19_000, generator.dirichlet([0.5] * 30)).tolist()
    case = Case(PARADIGMS[paradigm](lengths).padded_to(20_000))
    check_float32(ENGINES["per_document"].attend, case, blocked_reference(case))


# --- choosing --------------------------------------------------------------------------------


def test_the_fastest_exact_engine_is_chosen() -> None:
    packed, single = ANY_LAYOUT, AttentionLayout.full([9])
    assert choose("cpu", torch.float32, packed).name == "per_document"
    assert choose("cpu", torch.float64, packed).name == "per_document"
    assert choose("cuda", torch.bfloat16, packed).name == "varlen"
    assert choose("cuda", torch.bfloat16, single).name == "per_document"
    for dtype, name in ((torch.bfloat16, "per_document"), (torch.float32, "flex")):
        assert choose("cuda", dtype, AttentionLayout.anchor([16_000, 500, 4000])).name == name
    assert choose("cuda", torch.float32, packed).name == "flex"
    assert choose("cuda", torch.float64, packed).name == "reference"
    assert choose("mps", torch.float32, packed).name == "per_document"
    assert choose("cpu", torch.float32, packed, engine="flex").name == "flex"


@pytest.mark.parametrize(
    ("device", "dtype", "engine", "says"),
    [
        ("cpu", torch.bfloat16, "varlen", r"cuda only.*on cpu; engines that can: flex, per_doc"),
        ("cuda", torch.float32, "varlen", r"bfloat16 or float16.*float32; engines that can: flex"),
        ("cuda", torch.float64, "varlen", r"float64; engines that can: reference"),
        ("cpu", torch.float64, "flex", r"float64; engines that can: per_document, reference"),
        ("mps", torch.float32, "flex", r"cuda and cpu, the tensors are on mps"),
        ("cuda", torch.float64, "per_document", r"float64 without a dense mask"),
    ],
)
def test_an_engine_that_cannot_run_here_says_why(
    device: str, dtype: torch.dtype, engine: str, says: str
) -> None:
    with pytest.raises(Unsupported, match=says):
        choose(device, dtype, ANY_LAYOUT, engine=engine)


def test_an_unknown_engine_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownName, match=r"did you mean 'varlen'.*per_document"):
        choose("cpu", torch.float32, ANY_LAYOUT, engine="varlens")


def test_an_engine_called_by_itself_refuses_what_it_cannot_run() -> None:
    with pytest.raises(Unsupported, match=r"cuda only.*attention.choose"):
        run(varlen.attend, Case(ANY_LAYOUT), torch.bfloat16)
    with pytest.raises(Unsupported, match="float64"):
        run(flex.attend, Case(ANY_LAYOUT), torch.float64)


@pytest.mark.parametrize("name", sorted(ENGINES))
@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ([(1, 2, 8, 16)] * 3, r"query.shape\[2\] = 8: the layout has 9 tokens"),
        ([(1, 2, 9, 16), (1, 2, 8, 16), (1, 2, 9, 16)], r"key.shape\[2\] = 8"),
        ([(2, 9, 16)] * 3, r"query.shape = \(2, 9, 16\)"),
        ([(1, 3, 9, 16), (1, 2, 9, 16), (1, 2, 9, 16)], r"= 3: must be a multiple of the 2 key"),
        ([(1, 2, 9, 16), (1, 0, 9, 16), (1, 0, 9, 16)], r"multiple of the 0 key"),
        ([(1, 2, 9, 16), (2, 2, 9, 16), (2, 2, 9, 16)], r"query.shape is \(1, 2, 9, 16\)"),
        ([(1, 2, 9, 16), (1, 2, 9, 32), (1, 2, 9, 32)], r"query.shape is \(1, 2, 9, 16\)"),
        ([(1, 2, 9, 16), (1, 2, 9, 16), (1, 1, 9, 16)], r"\(1, 1, 9, 16\)"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_with_both_values(
    name: str, shapes: list[tuple[int, ...]], says: str
) -> None:
    query, key, value = (torch.zeros(shape) for shape in shapes)
    with pytest.raises(InvalidValue, match=says):
        ENGINES[name].attend(query, key, value, ANY_LAYOUT, scale=1.0)


def test_tensors_of_two_kinds_are_refused() -> None:
    query = torch.zeros(1, 1, 9, 16)
    with pytest.raises(InvalidValue, match=r"key.dtype = torch.float64: query.dtype is torch.flo"):
        reference.attend(query, query.double(), query, ANY_LAYOUT, scale=1.0)
    with pytest.raises(InvalidValue, match=r"value.device = .*meta.*query.device is cpu"):
        reference.attend(query, query, query.to("meta"), ANY_LAYOUT, scale=1.0)
