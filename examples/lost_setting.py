"""A setting that is silently lost: two copies of the bundled model, one without one key.

python examples/lost_setting.py           writes plan.json and the folders kept and lost; no torch
ropewalk verify kept --plan plan.json --runtime vllm
ropewalk verify lost --plan plan.json --runtime vllm
"""

import json
import shutil
from pathlib import Path

import ropewalk as rw

planned = rw.plan("bundled", "2k", "yarn")
Path("plan.json").write_text(planned.plan.dumps())
for folder in map(Path, ("kept", "lost")):
    shutil.copytree(Path(rw.__file__).parent / "models" / "bundled", folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text())
    config |= {"max_position_embeddings": 2048, "rope_parameters": planned.rope_parameters}
    if folder.name == "lost":
        del config["rope_parameters"]
    (folder / "config.json").write_text(json.dumps(config, indent=2))
print("kept and lost differ by one key; verify each: ropewalk verify lost --plan plan.json")
