"""What exllamav3's rotary class makes of settings, run on the code of a released wheel.

    python -m tests.external.exllamav3_rotary WHEEL              compare with the table
    python -m tests.external.exllamav3_rotary --write WHEEL      write it

`util/rope.py` alone is run, on a CPU; its compiled extension is not needed for the frequencies.
"""

from __future__ import annotations

import argparse
import json
import sys
import types
import zipfile
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_suffix(".json")
STATED, HEAD = 40960, 128
_LLAMA3 = {
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
_LISTS = {"short_factor": [1.0] * 64, "long_factor": [1 + i / 20 for i in range(64)]}
SETTINGS: list[dict[str, Any]] = [
    {"rope_type": "default"},
    {"rope_type": "linear", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "factor": 4.0},
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40960},
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 10240,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
    },
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 10240,
        "llama_4_scaling_beta": 0.1,
    },
    {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 10240,
        "attention_factor": 1.3,
        "truncate": False,
        "beta_fast": 16,
    },
    {"rope_type": "llama3", "factor": 8.0, **_LLAMA3},
    {"rope_type": "longrope", **_LISTS, "original_max_position_embeddings": 8192},
    {"rope_type": "dynamic", "factor": 2.0},
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    found = {"version": asked.wheel.name.split("-")[1], "rows": measure(asked.wheel)}
    text = json.dumps(found, indent=1) + "\n"
    if asked.write:
        TABLE.write_text(text, encoding="utf-8")
        return 0
    same = bool(json.loads(TABLE.read_text(encoding="utf-8"))["rows"] == found["rows"])
    print("as recorded" if same else "differs from the table")
    return int(not same)


def measure(wheel: Path) -> list[dict[str, Any]]:
    """Of each setting, the frequencies of some pairs and the attention factor, or the refusal."""
    module = types.ModuleType("exllamav3.util.rope")
    for name in ("exllamav3", "exllamav3.util", "exllamav3.ext"):
        sys.modules[name] = types.ModuleType(name)
    vars(sys.modules["exllamav3.ext"])["exllamav3_ext"] = None
    sys.modules[module.__name__] = module
    vars(module)["__package__"] = "exllamav3.util"
    with zipfile.ZipFile(wheel) as archive:
        exec(archive.read("exllamav3/util/rope.py").decode(), vars(module))
    rows = []
    for setting in SETTINGS:
        rope = {"rope_theta": 1e6, **setting}
        given = {"head_dim": HEAD, "rope_theta": 1e6, "rope_scaling": rope}
        try:
            own = vars(module)["RoPE"](
                "cpu", vars(module)["RopeSettings"](**given, max_position_embeddings=STATED)
            )
        except ValueError as error:
            rows.append({"setting": setting, "refused": str(error)})
            continue
        shown = own.inv_freq[::7].tolist()
        rows.append({"setting": setting, "frequencies": shown, "attention": own.attn_factor})
    return rows


if __name__ == "__main__":
    sys.exit(main())
