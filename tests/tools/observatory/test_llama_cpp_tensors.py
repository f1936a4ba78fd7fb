"""llama.cpp is asked again for the shapes of two architectures, and for the types of their keys."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from ropewalk.gguf.tensors import TYPES
from ropewalk.values import table_in
from tests.gguf.tiny_architectures import LoadingProcess
from tools.observatory.llama_cpp_tensors import contradictions, key_types, shapes

WANTED = ("granite", "qwen2moe")
"""One that takes other tensors when it has experts, and one that has them always."""


def test_the_tables_agree_with_llama_cpp_asked_again(tmp_path: Path) -> None:
    with closing(LoadingProcess(tmp_path)) as loading:
        found = shapes(WANTED, loading, tmp_path)
        types = key_types(WANTED[:1], loading, tmp_path)
    assert list(contradictions(found, types, WANTED)) == []
    experts = found["blk.ffn_gate_exps.weight"]
    assert experts == {
        "width × expert × experts": ["qwen2moe"],
        "width × feed × experts": ["granite with experts"],
    }
    assert len(types["uint32"]) > len(table_in(TYPES)["uint32"]) // 2
    # What another llama.cpp would say is reported.
    experts["width × expert × experts"].remove("qwen2moe")
    types["bool"].append(types["text"].pop())
    said = list(contradictions(found, types, WANTED))
    assert len(said) == 2
    assert said[0] == "blk.ffn_gate_exps.weight of qwen2moe: width × expert × experts -> None"
    assert said[1].endswith(": text -> bool")
