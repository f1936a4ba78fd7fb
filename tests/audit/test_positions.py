"""Traps beside the rotation, and configs as published that nothing is wrong with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

from ropewalk.audit.result import Audit
from ropewalk.errors import Unsupported
from ropewalk.models.config import Config, load_config, present_plan
from ropewalk.models.families import FAMILIES
from ropewalk.models.stock_config import COMPUTED_HEAD_DIM
from ropewalk.planning.extension import extend_plan
from ropewalk.runtimes import engines, targets
from ropewalk.runtimes.trials import stock_rotary
from tests.audit.corpus import BASE, TARGET, WINDOW, source
from tests.audit.verified import PUBLISHED, verified
from tests.models.truth import rotary_class

BETA = 0.1
YARN = {
    "rope_type": "yarn",
    "rope_theta": BASE,
    "factor": 8.0,
    "original_max_position_embeddings": WINDOW,
    "llama_4_scaling_beta": BETA,
}

SWITCHED = {"sliding_window": 256, "use_sliding_window": True}


def found(audit: Audit) -> dict[str, set[str]]:
    """The runtimes of every finding, by its name."""
    traps: dict[str, set[str]] = {}
    for finding in audit.warnings:
        traps.setdefault(finding.trap, set()).update(finding.runtimes)
    return traps


@pytest.mark.parametrize(
    ("family", "more", "warned"),
    [
        ("mistral", {"sliding_window": 256}, True),
        ("mistral", {"sliding_window": None}, False),
        ("mistral", {"sliding_window": TARGET}, False),
        ("mistral", {"max_position_embeddings": 32768}, True),  # its class has a window of 4096
        ("starcoder2", {"sliding_window": 256}, True),
        ("qwen3_moe", SWITCHED, True),  # whatever max_window_layers says
        ("qwen3_moe", {"sliding_window": 256}, False),
        ("qwen2", {**SWITCHED, "use_sliding_window": False}, False),
        (
            "qwen2",
            {"sliding_window": 256, "use_sliding_window": True, "max_window_layers": 0},
            True,
        ),
        ("qwen2", {"sliding_window": 256, "use_sliding_window": True}, False),
        ("llama", {"sliding_window": 256}, False),
    ],
)
def test_a_window_in_every_layer_is_warned_of(
    family: str, more: Config, warned: bool, tmp_path: Path
) -> None:
    config = source(family, **more)
    length = max(TARGET, config["max_position_embeddings"])
    plan = extend_plan(present_plan(config), length, "ntk")
    audit = verified(tmp_path / "out", engines()["vllm"].written_config(config, plan), plan=plan)
    assert ("window-in-every-layer" in found(audit)) == warned
    # Llama's code has no window, but transformers' cache cuts by the key all the same.
    cut = [(finding.trap, finding.runtimes) for finding in audit.wrong]
    assert cut == ([("window-missing", ("transformers",))] if family == "llama" else [])


def test_a_window_of_no_positions_does_not_run(tmp_path: Path) -> None:
    audit = verified(tmp_path / "out", source("mistral", sliding_window=0), "transformers")
    assert [each.trap for each in audit.wrong] == ["window-in-every-layer"]


def test_where_generate_stops_is_told(tmp_path: Path) -> None:
    config = source()
    plan = extend_plan(present_plan(config), TARGET, "ntk")
    written = engines()["vllm"].written_config(config, plan)
    verified(tmp_path, written)
    (tmp_path / "generation_config.json").write_text(json.dumps({"max_length": WINDOW}))
    (told,) = verified(tmp_path, written, plan=plan).wrong
    assert (told.trap, told.runtimes) == ("generation-limit", ("transformers",))
    assert str(WINDOW) in told.what
    (tmp_path / "generation_config.json").write_text(json.dumps({"max_length": TARGET}))
    assert not verified(tmp_path, written, plan=plan).wrong


def test_phimoe_takes_its_short_list_at_every_length(tmp_path: Path) -> None:
    """No false accusation: its module, called far beyond the original length, says so itself."""
    config = load_config(PUBLISHED / "phi-3.5-moe.json")
    audit = verified(tmp_path, config, "transformers")
    (told,) = audit.wrong
    assert (told.trap, told.runtimes) == ("wrong-step", ("transformers",))
    stock = CONFIG_MAPPING["phimoe"].from_dict(config)
    position = torch.tensor([[2**16]])
    cos, _ = rotary_class(stock)(stock)(torch.zeros(1), position)
    short, long = (
        step.schedule.cos_sin(position.numpy())[0] for step in present_plan(config).steps()
    )
    # The two lists begin alike, and both scalings are the same.
    assert np.abs(cos[..., :64].numpy() - short).max() < 0.02
    assert np.abs(cos[..., :64].numpy() - long).max() > 1
    # So nothing is served by two lists there; one list is.
    with pytest.raises(Unsupported, match="switching by length"):
        targets()["transformers"].expressible(present_plan(config), config, approximate=True)


def ministral(**more: Any) -> Config:
    return source("ministral3", rope_theta=None, rope_parameters=YARN, **more)


def test_queries_that_grow_with_their_position_are_lost_under_another_name(tmp_path: Path) -> None:
    lost = "position-scaling-lost"
    config = {**ministral(), "max_position_embeddings": TARGET}
    # SGLang reads the growth, and takes the length of a step beside rope_parameters.
    assert found(verified(tmp_path / "step", config))[lost] == {"vllm", "sglang"}
    config["original_max_position_embeddings"] = WINDOW
    assert found(verified(tmp_path / "beta", config))[lost] == {"vllm"}
    both = {"beta": BETA, "original_max_position_embeddings": WINDOW}
    config["llama_4_scaling"] = both
    assert lost not in found(verified(tmp_path / "both", config))
    config["rope_parameters"] = {"rope_type": "default", "rope_theta": BASE}
    assert found(verified(tmp_path / "vllm's", config))[lost] == {"transformers", "sglang"}
    foreign = {**ministral(), "max_position_embeddings": TARGET}
    foreign["original_max_position_embeddings"] = 2 * WINDOW
    (told,) = verified(tmp_path / "foreign", foreign, "sglang").wrong
    assert f"in steps of {WINDOW} positions, but SGLang takes {2 * WINDOW}" in told.what
    stock = source("llama", rope_theta=None, rope_parameters=YARN)
    assert {"vllm", "sglang"} <= found(verified(tmp_path / "llama", stock))[lost]


def test_dual_chunks_are_found_and_no_runtime_has_them(tmp_path: Path) -> None:
    chunks = {"chunk_size": 256, "local_size": 8, "original_max_position_embeddings": WINDOW}
    config = source("qwen2", max_position_embeddings=TARGET, dual_chunk_attention_config=chunks)
    audit = verified(tmp_path / "long", {**config, "rope_theta": 1e8})
    assert found(audit)["dual-chunk"] == {"transformers", "vllm", "sglang"}
    config["max_position_embeddings"] = WINDOW
    assert found(verified(tmp_path / "short", config))["dual-chunk"] == {"vllm", "sglang"}
    del config["dual_chunk_attention_config"]
    assert not verified(tmp_path / "plain", config).wrong


def test_a_cache_in_eight_bits_is_noted(tmp_path: Path) -> None:
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor"}
    config = source(quantization_config={"kv_cache_scheme": scheme})
    audit = verified(tmp_path / "fp8", config)
    assert "eight-bit-keys" in found(audit)
    assert not audit.wrong


INNOCENT: dict[str, Config] = json.loads(
    Path(__file__).with_name("as_published.json").read_text(encoding="utf-8")
)
"""Sizes of a toy; what is set besides is as in the published config."""


@pytest.mark.parametrize("name", INNOCENT)
def test_a_config_as_published_is_not_accused(name: str, tmp_path: Path) -> None:
    audit = verified(tmp_path / "published", INNOCENT[name], "transformers")
    reading = audit.runtimes["transformers"]
    assert not reading.refused
    assert not reading.unread
    assert "full_attention" in reading.layers
    assert not audit.wrong


def test_a_package_that_is_missing_without_a_word_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(config: Config) -> Any:
        raise ImportError

    monkeypatch.setattr(stock_rotary, "_rotaries", fails)
    reading = verified(tmp_path, source(), "transformers").runtimes["transformers"]
    assert reading.unread == "ImportError"


@pytest.mark.parametrize(("length", "lacking"), [(8192, False), (16384, True), (32768, True)])
def test_a_base_far_below_its_length_lacks_its_scaling(
    length: int, lacking: bool, tmp_path: Path
) -> None:
    """Llama 2, fine-tuned with scaled positions and published without its scaling."""
    config = source(rope_theta=10000.0, max_position_embeddings=length)
    audit = verified(tmp_path, config, "vllm")
    assert ("unscaled-length" in found(audit)) == lacking


def test_text_positions_of_sections_are_plain(tmp_path: Path) -> None:
    """Qwen2.5-VL: what is measured is the language model, and at equal positions plain RoPE."""
    config = source("qwen2_5_vl", rope_scaling={"type": "mrope", "mrope_section": [2, 3, 3]})
    reading = verified(tmp_path / "vl", config, "transformers").runtimes["transformers"]
    plain = present_plan(source()).longest()
    (step, *_) = reading.layers["full_attention"]
    assert step.inverse_frequencies == pytest.approx(plain.inverse_frequencies, rel=2e-6)


def test_the_types_whose_class_computes_the_head_size_are_known() -> None:
    stock = [kind for kind in FAMILIES if kind in transformers.CONFIG_MAPPING]
    assert len(stock) > len(FAMILIES) / 2
    classes = {kind: transformers.CONFIG_MAPPING[kind] for kind in stock}
    own = {kind: getattr(known, "head_dim", None) for kind, known in classes.items()}
    computed = {kind for kind, value in own.items() if isinstance(value, property)}
    assert computed == COMPUTED_HEAD_DIM
