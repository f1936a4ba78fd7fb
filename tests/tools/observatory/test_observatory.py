"""The facts that a release's code states, next to the recorded ones; bad wheels are refused."""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ropewalk.errors import RopewalkError
from ropewalk.models.config import ORIGINAL_LENGTH, Config, load_config
from ropewalk.runtimes import named
from ropewalk.runtimes.model_classes import TABLE
from tests.tools.observatory.wheel_files import HOME, MODEL, NEW, OLD, REQUIRES, source, wheel
from tools.models_table.__main__ import FOLDERS
from tools.observatory import __main__ as observatory
from tools.observatory import facts, sources
from tools.observatory.classes import configs
from tools.observatory.interpreter import Unreadable

QWEN3 = load_config(FOLDERS[1] / "qwen3-8b-yarn.json")
WHEELS = os.environ.get("ROPEWALK_WHEELS", "")
"""A folder of released wheels, for the slow tests."""


ATTENTION = {
    "whole": "get_rope(64, max_position=9, rope_parameters=config.rope_parameters)",
    "lost": "get_rope(64, max_position=9)",
    "none": "get_rope(64, max_position=9, rope_parameters=None)",
    "own": "get_rope(64, 9, rope_parameters={'rope_type': 'yarn', "
    "'factor': config.rope_parameters['factor'], 'truncate': config.rope_parameters.get('t')})",
    "layer": "get_rope(64, max_position=9, rope_parameters=config.rope_parameters[kind])",
    "odd": "get_rope(64, max_position=9, rope_parameters=torch.load(config.path))",
}
CLASS = source("class")
RENAME = (
    "config.rope_parameters['rope_type'] = ("
    "'deepseek_llama_scaling' if config.rope_parameters.get('attention_factor') == 1.0 "
    "else 'deepseek_yarn')"
)


def wheel_of(folder: Path, version: str, models: dict[str, str]) -> Path:
    """A wheel with vLLM's layout, and one model class a file."""
    registry = {f"{name}Arch": (name, "ForCausalLM") for name in models}
    files = {f"{HOME}/models/{name}.py": source for name, source in models.items()}
    files[f"{HOME}/layers/rotary_embedding/__init__.py"] = source("renaming")
    files[f"{HOME}/models/registry.py"] = f"_TEXT_GENERATION_MODELS = {registry}\n"
    return wheel(folder, files, version=version)


def models(**more: str) -> dict[str, str]:
    plain = {name: CLASS.format(before="pass", call=call) for name, call in ATTENTION.items()}
    renamed = CLASS.format(before=RENAME, call=ATTENTION["whole"])
    return {**plain, "renamed": renamed, "through": source("through"), **more}


def limit(path: Path, config: Config = QWEN3) -> int | None:
    engine, here, _ = facts.read(path)
    return facts.limit_of(engine, here, config)


def test_an_old_wheel_says_what_was_otherwise(tmp_path: Path) -> None:
    old = wheel(tmp_path, OLD, requires=REQUIRES["old"])
    _, _, found = facts.read(old)
    assert found["options"] == ["--hf-overrides", "--rope-scaling"]  # the latter left in 0.11.1
    assert found["setting"] == "rope_scaling"  # until #28542
    assert not {"mscale", "attention_factor"} & {*found["types"]["yarn"]["may"]}  # #56446
    assert limit(old) == 131072  # #56446 too


def test_a_new_wheel_says_what_is_recorded(tmp_path: Path) -> None:
    new = wheel(tmp_path, NEW)
    _, _, found = facts.read(new)
    recorded = json.loads(TABLE.read_text(encoding="utf-8"))["vllm"]
    assert {key: found[key] for key in ("setting", "options")} == {
        key: recorded[key] for key in ("setting", "options")
    }
    assert limit(new) == named("vllm").accepts(QWEN3) == 40960


def test_the_version_changes_no_fact(tmp_path: Path) -> None:
    for files, requires in ((OLD, REQUIRES["old"]), (NEW, REQUIRES["new"])):
        found = [
            facts.read(wheel(tmp_path, files, version=version, requires=requires))[2]
            for version in ("0.0.1", "99.9")
        ]
        assert [each.pop("version") for each in found] == ["0.0.1", "99.9"]
        assert found[0] == found[1]


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
    assert limit(wheel(tmp_path / "o", OLD, requires=REQUIRES["old"]), config) == old
    assert limit(wheel(tmp_path / "n", NEW), config) == new == named("vllm").accepts(config)


def test_the_program_shows_what_differs_and_stores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("TABLE", "RECORDED"):
        copied = shutil.copy(getattr(observatory, name), tmp_path)
        monkeypatch.setattr(observatory, name, Path(copied))
    odd = {**NEW, "vllm/config/model.py": "def _get_and_verify_max_len(*a):\n    return magic(a)\n"}
    mlx = {
        "mlx_lm/models/rope_utils.py": "def initialize_rope(dims, scaling_config):\n"
        "    rope_type = 'default'\n    if rope_type == 'yarn':\n        return"
        " scaling_config['factor']\n",
        "mlx_lm/models/qwen3.py": "class ModelArgs:\n    rope_theta: float\n",
    }
    wheels = [str(wheel(tmp_path, odd, version="0.34.0")), str(wheel(tmp_path, mlx, name="mlx-lm"))]
    assert observatory.main(wheels) == 1
    said = capsys.readouterr().out
    assert 'vllm.version: "0.33.0" -> "0.34.0"' in said
    assert "longest sequence of qwen3-8b-yarn: 40960 -> cannot be read" in said
    assert "mlx-lm.types.yarn: " in said
    assert json.loads(observatory.TABLE.read_text("utf-8"))["vllm"]["version"] == "0.33.0"
    assert observatory.main(["--write", *wheels]) == 0
    capsys.readouterr()
    assert json.loads(observatory.TABLE.read_text("utf-8"))["vllm"]["version"] == "0.34.0"
    stored = json.loads(observatory.RECORDED.read_text("utf-8"))
    assert stored["mlx-lm"]["classes"] == {"qwen3": "takes rope_theta: float; makes nothing"}
    assert observatory.main(wheels[1:]) == 0


def test_the_tables_are_as_the_program_writes_them() -> None:
    for path in (observatory.TABLE, observatory.RECORDED):
        text = path.read_text(encoding="utf-8")
        assert observatory.written(json.loads(text), rows=path == TABLE) == text


def test_the_sources_of_a_wheel_say_what_each_class_hands_over(tmp_path: Path) -> None:
    engine, _, found = facts.read(wheel_of(tmp_path, "1.0", models()))
    rows = {name.removesuffix("Arch"): row for name, row in found["architectures"].items()}
    assert (engine, found["version"]) == ("vllm", "1.0")
    assert {name: row["scaling"] for name, row in rows.items()} == {
        "whole": "passed",
        "lost": "dropped",
        "none": "dropped",
        "own": "fixed",
        "layer": "passed",
        "odd": "unknown",
        "renamed": "passed",
        "through": "passed",  # two classes and an attribute on the way
    }
    assert rows["own"]["type"] == "yarn"
    assert rows["own"]["keys"] == ["factor", "truncate"]
    assert rows["own"]["must"] == ["factor"]
    assert rows["layer"]["by_layer"]
    assert rows["renamed"]["renamed"] == {
        "deepseek_llama_scaling": "attention_factor == 1.0",
        "deepseek_yarn": "",
    }
    assert found["types"]["deepseek_yarn"] == {"must": ["factor"], "may": ["mscale"]}


def test_a_newer_wheel_is_told_by_its_differences(tmp_path: Path) -> None:
    mended = CLASS.format(before="pass", call=ATTENTION["whole"])
    _, _, old = facts.read(wheel_of(tmp_path, "1.0", models()))
    _, _, new = facts.read(wheel_of(tmp_path, "1.1", models(none=mended)))
    assert not list(observatory.differences(old, old))
    assert list(observatory.differences(old, new)) == [
        'architectures.noneArch.scaling: "dropped" -> "passed"',
        'version: "1.0" -> "1.1"',
    ]


def test_code_that_branches_without_end_is_unknown(tmp_path: Path) -> None:
    """Reading a value back takes every way that the code may take."""
    ways = [f"a{n} = a{n + 1} if config.x else (a{n + 1} or a{n + 1})" for n in range(30)]
    ways += ["a30 = config.y", "self.rotary_emb = get_rope(64, 9, rope_parameters=a0)"]
    code = MODEL.replace("self.rotary_emb = {call}", "\n        ".join(ways))
    _, _, found = facts.read(wheel(tmp_path, {**NEW, f"{HOME}/models/qwen3.py": code}))
    assert found["architectures"]["Qwen3ForCausalLM"]["scaling"] == "unknown"


def test_code_that_never_ends_is_not_read(tmp_path: Path) -> None:
    body = "\n".join(f"{'    ' * n}for x{n} in [1] * 1 or [{'1, ' * 50}]:" for n in range(1, 9))
    endless = f"def _get_and_verify_max_len(hf_config, max_model_len):\n{body}\n{'    ' * 9}pass\n"
    recursive = "def _get_and_verify_max_len(a):\n    return _get_and_verify_max_len(a)\n"
    deep = "def _get_and_verify_max_len(a):\n    return " + "(" * 5000 + "1" + ")" * 5000
    many = f"    x = [{'1, ' * 500}]\n    for i in x:\n        yield from x\n    return x\n"
    grown = f"def _get_and_verify_max_len(hf_config, max_model_len):\n{many}"
    for code in (endless, recursive, deep, grown, "def broken(:"):
        with pytest.raises(Unreadable):
            limit(wheel(tmp_path, {**NEW, "vllm/config/model.py": code}))


def test_the_rope_types_of_transformers_are_read(tmp_path: Path) -> None:
    rope = """
def _compute_yarn(config, device=None):
    factor = config.rope_scaling["factor"]
    return config.max_position_embeddings
ROPE_INIT_FUNCTIONS: dict = {"yarn": _compute_yarn}
"""
    path = wheel(tmp_path, {"transformers/modeling_rope_utils.py": rope}, name="transformers")
    _, _, found = facts.read(path)
    assert found["types"]["yarn"] == ["factor", "max_position_embeddings", "rope_scaling"]


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
        archive.writestr(f"{HOME}/layers/rotary_embedding/__init__.py", source("factory_new"))
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
    with pytest.raises(RopewalkError, match=re.escape(said)):
        limit(made(tmp_path / "w"))


@pytest.mark.slow
@pytest.mark.skipif(not WHEELS, reason="ROPEWALK_WHEELS names no folder of released wheels")
@pytest.mark.parametrize(
    ("pattern", "differs"),
    [
        ("vllm-0.11.0-", '"rope_parameters" -> "rope_scaling"'),
        ("vllm-0.12.0-", "vllm.types.yarn"),
        ("vllm-0.33.0-", ""),
        ("sglang-0.5.23-", ""),
        ("mlx_lm-0.32.2-", ""),
        ("transformers-5.24.0-", ""),
    ],
)
def test_released_wheels(pattern: str, differs: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`pip download --no-deps vllm==0.11.0` and so on, into the folder of ROPEWALK_WHEELS."""
    paths = list(Path(WHEELS).glob(f"{pattern}*.whl"))
    if not paths:
        pytest.skip(f"no {pattern}*.whl")
    assert observatory.main([str(paths[0])]) == bool(differs)
    assert differs in capsys.readouterr().out


ERASING = ("super().__init__(**kwargs)", "self.rope_scaling = rope_scaling")


def test_config_classes_count_if_they_are_registered_and_erase_the_setting(tmp_path: Path) -> None:
    home = "sglang/srt/configs"
    classes = {"Late": ERASING, "Early": ERASING[::-1], "Unregistered": ERASING}
    files = {
        f"{home}/{name.lower()}.py": source("config").format(
            name=name, kind=name.lower(), first=first, second=second
        )
        for name, (first, second) in classes.items()
    }
    files["sglang/srt/utils/hf_transformers/common.py"] = (
        "_CONFIG_REGISTRY: Dict[str, type] = {c.model_type: c for c in [LateConfig, EarlyConfig]}"
    )
    path = wheel(tmp_path, files, name="sglang", version="1.0")
    assert configs("sglang", sources.Sources(path)) == {"late": {"old_keys": True}}
    files = {
        **NEW,
        "vllm/transformers_utils/configs/late.py": files[f"{home}/late.py"],
        "vllm/transformers_utils/config.py": "_CONFIG_REGISTRY: dict = Lazy(late='LateConfig')",
    }
    _, _, new = facts.read(wheel(tmp_path, files))
    _, _, old = facts.read(wheel(tmp_path / "old", NEW))
    assert 'configs.late: null -> {"old_keys": true}' in observatory.differences(old, new)


def test_order_alone_is_no_difference(tmp_path: Path) -> None:
    """Of the types in a union, and of keys."""
    found = []
    for number, kind in enumerate(("Union[float, str]", "Union[str, float]")):
        code = f"class ModelArgs:\n    rope_scaling: Optional[Dict[str, {kind}]] = None\n"
        path = wheel(tmp_path / str(number), {"mlx_lm/models/afm7.py": code}, name="mlx-lm")
        found.append({"keys": ["a", "b"][:: 1 - 2 * number], **facts.read(path)[2]["classes"]})
    assert found[0] != found[1]
    one, other = found
    assert not list(observatory.differences(one, other))
    assert list(observatory.differences(one, {**other, "keys": ["a"]}))
