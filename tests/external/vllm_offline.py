"""The calls of vLLM's offline engine, read in a released wheel: what `answerers/vllm.py` relies on.

    python -m tests.external.vllm_offline WHEEL              compare with the table
    python -m tests.external.vllm_offline --write WHEEL      write it

No code of the wheel is run.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
import zipfile
from pathlib import Path

TABLE = Path(__file__).with_suffix(".json")
FUNCTIONS = (
    ("vllm/entrypoints/llm.py", "LLM", "generate"),
    ("vllm/entrypoints/llm.py", "LLM", "get_tokenizer"),
    ("vllm/outputs.py", "RequestOutput", "__init__"),
)
FIELDS = {
    ("vllm/outputs.py", "CompletionOutput"): ("text", "token_ids"),
    ("vllm/sampling_params.py", "SamplingParams"): ("temperature", "max_tokens"),
    ("vllm/inputs/llm.py", "TokensPrompt"): ("prompt_token_ids",),
    ("vllm/config/model.py", "ModelConfig"): (
        *("model", "dtype", "max_model_len", "hf_config"),
        *("quantization", "hf_overrides", "enforce_eager", "seed"),
    ),
}
"""Those that the answerer reads or sets."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = read(asked.wheel)
    if asked.write:
        TABLE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    for key, value in found.items():
        if key != "version" and kept[key] != value:
            print(f"{key}\n  was {kept[key]}\n  is  {value}")
    return int(any(kept[key] != value for key, value in found.items() if key != "version"))


def read(wheel: Path) -> dict[str, object]:
    """The signatures and the fields, by their names."""
    found: dict[str, object] = {"version": wheel.name.split("-")[1]}
    with zipfile.ZipFile(wheel) as archive:
        for file, kind, function in FUNCTIONS:
            body = _class(archive, file, kind).body
            named = [n for n in body if isinstance(n, ast.FunctionDef) and n.name == function]
            found[f"{kind}.{function}"] = _arguments(named[-1].args)
        for (file, kind), wanted in FIELDS.items():
            body = _class(archive, file, kind).body
            own = {n.target.id for n in body if isinstance(n, ast.AnnAssign)}  # type: ignore[union-attr]
            found[kind] = [name for name in wanted if name in own]
    return found


def _class(archive: zipfile.ZipFile, file: str, name: str) -> ast.ClassDef:
    tree = ast.parse(archive.read(file).decode())
    return next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == name)


def _arguments(given: ast.arguments) -> dict[str, object]:
    """The names of the parameters, in order, and of those by keyword alone."""
    return {
        "positional": [each.arg for each in (*given.posonlyargs, *given.args)],
        "keyword": [each.arg for each in given.kwonlyargs],
        "optional": len(given.defaults),
    }


if __name__ == "__main__":
    sys.exit(main())
