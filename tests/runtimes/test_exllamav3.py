"""exllamav3: what its rotary class computed from each setting, and what `verify` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ropewalk.context_plan import FULL_ATTENTION
from ropewalk.runtimes import every
from ropewalk.runtimes.exllamav3 import read
from tests.audit.verified import verified
from tests.external.exllamav3_rotary import HEAD, SETTINGS, STATED, TABLE

ROWS = json.loads(TABLE.read_text("utf-8"))["rows"]
QWEN3 = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "head_dim": HEAD,
    "hidden_size": 256,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "num_hidden_layers": 1,
    "intermediate_size": 64,
    "vocab_size": 64,
    "max_position_embeddings": STATED,
}


def test_every_setting_was_run() -> None:
    assert [row["setting"] for row in ROWS] == SETTINGS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: json.dumps(row["setting"])[:60])
@pytest.mark.parametrize("key", ["rope_parameters", "rope_scaling"])
def test_the_rules_are_those_of_its_rotary_class(row: dict[str, Any], key: str) -> None:
    config = {**QWEN3, key: {"rope_theta": 1e6, **row["setting"]}, "rope_theta": 1e6}
    found = read(config)
    if "refused" in row:
        assert found.refused is not None
        return
    own = found.layers[FULL_ATTENTION][-1]
    np.testing.assert_allclose(own.inverse_frequencies[::7], row["frequencies"], rtol=5e-7)
    assert own.attention_scaling == pytest.approx(row["attention"], rel=1e-6)


def test_it_does_not_go_by_the_factor_that_the_card_of_qwen3_states(tmp_path: Path) -> None:
    rope = {"rope_theta": 1e6, **SETTINGS[2]}
    audit = verified(tmp_path, {**QWEN3, "rope_parameters": rope}, "exllamav3")
    assert audit.verdict_in("exllamav3") == "wrong"
    assert audit.runtimes["exllamav3"].basis == "by its rules"
    raised = {**QWEN3, "max_position_embeddings": 131072, "rope_parameters": rope}
    assert verified(tmp_path, raised, "exllamav3").verdict_in("exllamav3") == "OK"


def test_a_class_that_was_not_examined_is_not_judged() -> None:
    other = {**QWEN3, "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text"}
    assert "was not examined" in str(read({**other, "rope_parameters": {}}).unread)


def test_a_runtime_that_is_only_read_is_one_file() -> None:
    """The registry has all that `verify` needs; nothing is exported for it."""
    own = every()["exllamav3"]
    assert (own.cell, own.serve, own.writer) == (None, None, "")
