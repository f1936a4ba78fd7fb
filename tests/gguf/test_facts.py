"""The sizes of a model in a GGUF file, as `inspect` and `cost` tell them."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import numpy as np
import pytest

import ropewalk as rw
from ropewalk.errors import Unsupported
from ropewalk.gguf.facts import Facts
from ropewalk.gguf.header import read_header
from ropewalk.gguf.sizes import BLOCKS, NAMES
from tests.api.conformance import check_command, check_result
from tests.cli.calling import ropewalk
from tests.evaluation.served import made
from tests.gguf.gguf_files import finished, header_only
from tests.gguf.tiny_architectures import deep

BASE = 1e6


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gemma") / "gemma.gguf"
    return deep(path, "gemma3", 8, context_length=512, rope__freq_base=BASE)


def test_inspect_names_sizes_and_the_layers_with_a_window(gemma: Path) -> None:
    found = check_result(rw.inspect(gemma))
    assert found.file is not None
    assert (found.file.architecture, found.file.layers) == ("gemma3", 8)
    assert (found.file.window, found.file.windowed, found.file.window_base) == (16, 7, 10000)
    tensors = gguf.GGUFReader(gemma).tensors
    assert found.file.weights == sum(math.prod(map(int, tensor.shape)) for tensor in tensors)
    assert found.file.bytes == sum(tensor.n_bytes for tensor in tensors)
    assert found.file.types == {"F32": 1.0}
    shown = ropewalk("inspect", gemma)
    assert "architecture gemma3: 8 layers, 0.2" in shown
    assert (
        "7 of 8 layers have a sliding window of 16 and turn by a base of their own, 10,000" in shown
    )
    assert "base 1,000,000" in shown
    check_command(found, "inspect", gemma)


def test_a_mixture_is_told_by_its_name_and_its_types(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(2)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    writer.add_array("llama.attention.sliding_window_pattern", [True, False])
    rows = np.zeros((3, 34), dtype=np.uint8)
    writer.add_tensor("a", rows, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("b", np.zeros(32, dtype=np.float32))
    facts = Facts.of(read_header(finished(writer, path)))
    assert next(facts.sentences()).endswith("(Q4_K_M: Q8_0 75%, F32 25%)")
    assert facts.bytes == 3 * 34 + 4 * 32
    assert read_header(path).counts("attention.sliding_window_pattern") == (1, 0)


def test_types_have_ggmls_names() -> None:
    assert set(BLOCKS) <= set(NAMES)
    assert {kind: gguf.GGMLQuantizationType(kind).name for kind in NAMES} == NAMES


def test_the_cost_of_a_file_is_that_of_its_folder(tmp_path: Path) -> None:
    path = made.gguf(tmp_path / "m.gguf", dtype="F16")
    found = check_result(rw.cost(path, 2048))
    serve = rw.cost("bundled", 2048).rows[0]
    assert found.weights == pytest.approx(rw.cost("bundled").weights, rel=0.01)
    assert found.rows[0].parts["cache"] == serve.parts["cache"]
    assert found.rows[0].parts["weights"] == sum(t.n_bytes for t in gguf.GGUFReader(path).tensors)
    served = [row for row in found.rows if row.what.startswith("serve")]
    ratios = [row.parts["cache"] / serve.parts["cache"] for row in served]
    assert ratios == pytest.approx([1, 17 / 32, 9 / 32])
    shown = ropewalk("cost", path, "--to", "2k")
    assert "serve with a cache in Q4_0" in shown
    check_command(found, "cost", path, "--to", 2048)


def test_a_cache_that_is_too_large_is_told_with_one_that_fits(gemma: Path) -> None:
    first, *_, last = rw.cost(gemma, 2**26, on="80GiB").rows
    assert (first.fits, last.fits) == (False, True)
    assert first.change is not None
    assert first.change.told == "--cache-type-k q8_0 --cache-type-v q8_0"


def test_a_cache_that_is_not_known_has_no_cost(tmp_path: Path) -> None:
    path = header_only(tmp_path / "a.gguf", keys={"block_count": 2, "ssm.state_size": 16})
    with pytest.raises(Unsupported, match="the cache of architecture llama is not known here"):
        rw.cost(path)
