"""What a wheel's code says of a model, next to the recorded version; bad wheels are refused."""

from __future__ import annotations

import json
import os
import re
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import ropewalk as rw
from ropewalk.cli import command_line
from ropewalk.errors import InputError, RopewalkError
from ropewalk.models.config import ORIGINAL_LENGTH, Config, load_config
from ropewalk.runtimes.vllm import accepts as by_vllm
from ropewalk.wheels import facts, sources
from tests.wheels.wheel_files import FACTORY_NEW, HOME, MODEL, NEW, OLD, REQUIRES, wheel

PUBLISHED = Path(__file__).parents[1] / "models" / "published"
QWEN3 = load_config(PUBLISHED / "qwen3-8b-yarn.json")
DEEPSEEK = load_config(Path(__file__).parents[1] / "golden" / "configs" / "deepseek-v3.json")
WHEELS = os.environ.get("ROPEWALK_WHEELS", "")
"""A folder of released wheels, for the slow tests."""


def read(path: Path, config: Config = QWEN3) -> facts.WheelReading:
    return facts.read(path, config)


def folder(place: Path, config: Config) -> Path:
    place.mkdir(exist_ok=True)
    (place / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return place


def test_an_old_wheel_says_what_was_otherwise(tmp_path: Path) -> None:
    found = read(wheel(tmp_path, OLD, requires=REQUIRES["old"]))
    changed = dict(line.split(": ", 1) for line in found.changed)
    assert changed["command line"] == "has --rope-scaling"  # removed in 0.11.1
    assert changed["rope setting"] == "rope_scaling; recorded: rope_parameters"  # #28542
    assert changed["longest sequence"] == "131072; recorded: 40960"  # #56446
    for key in ("mscale", "mscale_all_dim", "attention_factor"):  # #56446 too
        assert key in changed["rope type yarn"].partition("lacks ")[2]
    assert (found.limit, found.unread) == (131072, ())


def test_a_new_wheel_says_what_is_recorded(tmp_path: Path) -> None:
    found = read(wheel(tmp_path, NEW))
    assert found.facts["rope setting"] == "rope_parameters"
    assert found.limit == by_vllm(QWEN3) == 40960
    assert not any("longest" in line or "command" in line for line in found.changed)


@pytest.mark.parametrize("config", [QWEN3, DEEPSEEK], ids=["qwen3", "deepseek"])
def test_the_version_changes_no_answer(config: Config, tmp_path: Path) -> None:
    for files, requires in ((OLD, REQUIRES["old"]), (NEW, REQUIRES["new"])):
        found = [
            read(wheel(tmp_path, files, version=version, requires=requires), config)
            for version in ("0.0.1", "0.33.0", "99.9")
        ]
        assert {each.version for each in found} == {"0.0.1", "0.33.0", "99.9"}
        assert len({str(replace(each, version="", file="", table={})) for each in found}) == 1


@pytest.mark.parametrize(
    ("setting", "old", "new"),
    [
        ({"rope_type": "yarn", "factor": 2.0, ORIGINAL_LENGTH: 32768}, 65536, 40960),
        ({"rope_type": "linear", "factor": 2.0}, 81920, 81920),
        ({"rope_type": "llama3", "factor": 2.0, ORIGINAL_LENGTH: 8192}, 40960, 40960),
        ({"rope_type": "default"}, 40960, 40960),
    ],
)
def test_the_limit_is_that_of_the_wheels_function(
    setting: dict[str, Any], old: int, new: int, tmp_path: Path
) -> None:
    config = {**QWEN3, "rope_scaling": setting}
    assert read(wheel(tmp_path / "o", OLD, requires=REQUIRES["old"]), config).limit == old
    assert read(wheel(tmp_path / "n", NEW), config).limit == new == by_vllm(config)


def test_a_model_is_judged_by_the_wheel(tmp_path: Path) -> None:
    """The recipe of Qwen3 was served to 131,072 by vLLM before #56446, and is not since."""
    model = folder(tmp_path / "model", QWEN3)
    old = wheel(tmp_path / "o", OLD, requires=REQUIRES["old"])
    new = wheel(tmp_path / "n", NEW)
    assert not rw.verify(model, wheel=old).wrong
    assert {f.trap for f in rw.verify(model, wheel=new).wrong} == {"length-limit"}
    rope = {**QWEN3["rope_scaling"], "rope_theta": QWEN3["rope_theta"]}
    today = {k: v for k, v in QWEN3.items() if k not in ("rope_scaling", "rope_theta")}
    today = {**today, "rope_parameters": rope, "max_position_embeddings": 131072}
    model = folder(tmp_path / "today", today)
    assert not rw.verify(model, wheel=new).wrong
    # Keys of transformers 5, which an engine made for transformers 4 does not read.
    assert {"theta-lost", "factors-dropped"} & {f.trap for f in rw.verify(model, wheel=old).wrong}


def test_keys_that_a_release_does_not_read_have_no_effect(tmp_path: Path) -> None:
    old = wheel(tmp_path / "o", OLD, requires=REQUIRES["old"])
    new = wheel(tmp_path / "n", NEW)
    for key, value, trap in (
        ("truncate", False, "truncate-ignored"),
        ("attention_factor", 1.5, "attention-factor-ignored"),
    ):
        setting = {**QWEN3["rope_scaling"], key: value}
        config = {**QWEN3, "rope_scaling": setting, "max_position_embeddings": 131072}
        model = folder(tmp_path / key, config)
        assert {f.trap for f in rw.verify(model, wheel=old).wrong} == {trap}
        assert not rw.verify(model, wheel=new).wrong


def test_code_that_branches_without_end_is_unknown(tmp_path: Path) -> None:
    """Reading a value back takes every way that the code may take."""
    ways = [f"a{n} = a{n + 1} if config.x else (a{n + 1} or a{n + 1})" for n in range(30)]
    ways += ["a30 = config.y", "self.rotary_emb = get_rope(64, 9, rope_parameters=a0)"]
    code = MODEL.replace("self.rotary_emb = {call}", "\n        ".join(ways))
    found = read(wheel(tmp_path, {**NEW, f"{HOME}/models/qwen3.py": code}))
    assert any("hands over" in what for what in found.unread)


def test_the_command_shows_what_changed_and_what_was_not_read(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", QWEN3)
    odd = {**NEW, "vllm/config/model.py": "def _get_and_verify_max_len(*a):\n    return magic(a)\n"}
    path = wheel(tmp_path, {k: v for k, v in odd.items() if "convertor" not in k})
    words = ["verify", str(model), "--wheel", str(path)]
    said = CliRunner().invoke(command_line(["verify"]), words)
    assert said.exit_code in (1, 3)
    flat = " ".join(said.output.split())
    assert "changed against vllm" in flat
    assert "could not read the longest sequence" in flat
    found = rw.verify(model, wheel=path)
    assert found.verdict != "OK"
    with pytest.raises(InputError, match="leave out --runtime"):
        rw.verify(model, wheel=path, runtimes=["sglang"])


def test_code_that_never_ends_is_not_read(tmp_path: Path) -> None:
    body = "\n".join(f"{'    ' * n}for x{n} in [1] * 1 or [{'1, ' * 50}]:" for n in range(1, 9))
    endless = f"def _get_and_verify_max_len(hf_config, max_model_len):\n{body}\n{'    ' * 9}pass\n"
    recursive = "def _get_and_verify_max_len(a):\n    return _get_and_verify_max_len(a)\n"
    deep = "def _get_and_verify_max_len(a):\n    return " + "(" * 5000 + "1" + ")" * 5000
    many = f"    x = [{'1, ' * 500}]\n    for i in x:\n        yield from x\n    return x\n"
    grown = f"def _get_and_verify_max_len(hf_config, max_model_len):\n{many}"
    for code in (endless, recursive, deep, grown, "def broken(:"):
        found = read(wheel(tmp_path, {**NEW, "vllm/config/model.py": code}))
        assert found.limit is None
        assert any("longest sequence" in what for what in found.unread)


def test_transformers_and_mlx_lm_are_read_too(tmp_path: Path) -> None:
    model = folder(tmp_path / "model", {**QWEN3, "max_position_embeddings": 131072})
    rope = """
def _compute_yarn(config, device=None):
    factor = config.rope_scaling["factor"]
    return config.max_position_embeddings
ROPE_INIT_FUNCTIONS: dict = {"yarn": _compute_yarn}
"""
    path = wheel(tmp_path, {"transformers/modeling_rope_utils.py": rope}, name="transformers")
    found = rw.verify(model, wheel=path)
    assert found.verdict_in("transformers") == "not established"
    assert found.wheel is not None
    assert "rope_parameters" in str(found.wheel.changed)
    mlx = {
        "mlx_lm/models/rope_utils.py": "def initialize_rope(dims, scaling_config):\n"
        "    rope_type = 'default'\n    if rope_type == 'yarn':\n        return"
        " scaling_config['factor']\n",
        "mlx_lm/models/qwen3.py": "class ModelArgs:\n    rope_theta: float\n",
    }
    found = rw.verify(model, wheel=wheel(tmp_path, mlx, name="mlx-lm"))
    assert found.verdict_in("mlx-lm") == "not established"
    assert found.wheel is not None
    assert "takes rope_theta: float" in found.wheel.facts["class of qwen3"]


_ODD_REGISTRY = "_TEXT_GENERATION_MODELS = {f(): 1}\n"


def _bomb(path: Path) -> Path:
    return wheel(path, {**NEW, "vllm/config/model.py": b" " * (sources.MOST_BYTES + 1)})


def _cut(path: Path) -> Path:
    made = wheel(path, NEW)
    made.write_bytes(made.read_bytes()[:-300])
    return made


def _flipped(path: Path) -> Path:
    made = wheel(path, NEW)
    with zipfile.ZipFile(made) as archive:
        at = archive.getinfo(f"{HOME}/layers/rotary_embedding/__init__.py").header_offset
    content = bytearray(made.read_bytes())
    content[at + 100] ^= 0xFF
    made.write_bytes(bytes(content))
    return made


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _text(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "vllm.whl").write_text("no wheel")
    return path / "vllm.whl"


def _twice(path: Path) -> Path:
    made = wheel(path, NEW)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(made, "a") as archive:
        archive.writestr(f"{HOME}/layers/rotary_embedding/__init__.py", FACTORY_NEW)
    return made


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda path: path / "none.whl", "there is no such file"),
        (_pipe, "there is no such file"),
        (_text, "is not a wheel"),
        (_cut, "is not a wheel"),
        (_flipped, "cannot be unpacked"),
        (_bomb, "unpacks to more than"),
        (_twice, "twice"),
        (lambda path: wheel(path, NEW, name="requests"), "package 'requests'"),
        (lambda path: wheel(path, NEW, name=""), "without METADATA"),
        (lambda path: wheel(path, {"vllm/__init__.py": ""}), "has no get_rope"),
        (
            lambda path: wheel(path, {**NEW, f"{HOME}/models/registry.py": _ODD_REGISTRY}),
            "a form that is not read here",
        ),
        (lambda path: wheel(path, {**NEW, "../../etc/x.py": ""}), "leads out of it"),
        (lambda path: wheel(path, {**NEW, "/etc/x.py": ""}), "leads out of it"),
    ],
)
def test_a_bad_wheel_is_refused_in_a_sentence(made: Any, said: str, tmp_path: Path) -> None:
    model = folder(tmp_path / "model", QWEN3)
    with pytest.raises(RopewalkError, match=re.escape(said)):
        rw.verify(model, wheel=made(tmp_path / "w"))


@pytest.mark.slow
@pytest.mark.skipif(not WHEELS, reason="ROPEWALK_WHEELS names no folder of released wheels")
@pytest.mark.parametrize(
    ("pattern", "limit", "changes"),
    [
        ("vllm-0.11.0-", 131072, ("has --rope-scaling", "rope_scaling; recorded: rope_parameters")),
        ("vllm-0.12.0-", 131072, ("lacks attention_factor, mscale, mscale_all_dim",)),
        ("vllm-0.33.0-", 40960, ()),
        ("sglang-0.5.23-", 40960, ()),
        ("mlx_lm-0.32.2-", None, ()),
        ("transformers-5.23.0-", None, ()),
    ],
)
def test_released_wheels(pattern: str, limit: int | None, changes: tuple[str, ...]) -> None:
    """`pip download --no-deps vllm==0.11.0` and so on, into the folder of ROPEWALK_WHEELS."""
    paths = list(Path(WHEELS).glob(f"{pattern}*.whl"))
    if not paths:
        pytest.skip(f"no {pattern}*.whl")
    found = read(paths[0])
    assert (found.limit, found.unread) == (limit, ())
    assert bool(found.changed) == bool(changes)
    for change in changes:
        assert change in " | ".join(found.changed)
