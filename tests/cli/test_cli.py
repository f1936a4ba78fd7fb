"""The command as a user meets it: real processes where streams and statuses matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from ropewalk import scaling
from ropewalk.cli import VERBS, command_line
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import RopewalkError

ROOT = Path(__file__).parents[2]
LLAMA31 = ROOT / "tests" / "golden" / "configs" / "llama-3.1-8b.json"
PHI3 = ROOT / "tests" / "golden" / "configs" / "phi-3-mini-128k.json"


def ropewalk(*arguments: object) -> str:
    """Standard output of a command that succeeds."""
    result = CliRunner().invoke(command_line(), [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def ropewalk_json(*arguments: object) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(ropewalk(*arguments, "--json"))
    return value


def process(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ropewalk", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


class TestInspect:
    def test_json_holds_geometry_and_schedule(self) -> None:
        value = ropewalk_json("inspect", LLAMA31)
        assert value["geometry"] == {
            "head_dim": 128,
            "rotary_dim": 128,
            "base": 500000.0,
            "original_length": 8192,
            "pair_layout": "half",
            "trained_length": 131072,
        }
        assert value["method"] == "llama3"
        assert len(value["rescale_factors"]) == len(value["inverse_frequencies"]) == 64
        assert max(value["rescale_factors"]) == 8

    def test_every_step_is_shown(self) -> None:
        text = ropewalk("inspect", PHI3)
        assert "full_attention up to 4k: longrope" in text
        assert "full_attention up to 128k: longrope" in text

    def test_a_known_model_needs_no_file(self) -> None:
        text = ropewalk("inspect", "llama-3.1-8b")
        assert "pretrained at 8k, serves 128k now" in text
        assert "low_freq_factor" not in text, "what stands at its default is not said"

    def test_a_users_own_config_wins_over_a_known_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        config = json.loads(LLAMA31.read_text()) | {"rope_scaling": None}
        (tmp_path / "llama-3.1-8b").mkdir()
        (tmp_path / "llama-3.1-8b" / "config.json").write_text(json.dumps(config))
        assert ropewalk_json("inspect", "llama-3.1-8b")["method"] == "plain"


class TestPlan:
    def test_json_is_flat_for_scripts(self) -> None:
        value = ropewalk_json("plan", "llama-2-7b", "--to", "16k", "--method", "yarn")
        assert value["target_length"] == 16384
        assert value["method"] == "yarn"
        assert value["geometry"]["trained_length"] == 4096
        assert value["attention_scaling"] == pytest.approx(0.1 * np.log(4) + 1)
        assert value["kept_initial_positions"] == 0
        assert value["log_n_from"] is None
        steps = value["schedules"]["full_attention"]
        assert [step["up_to_length"] for step in steps] == [16384]
        assert steps[0]["schedule"]["rescale_factors"] == value["rescale_factors"]
        assert value["rope_parameters"]["rope_type"] == "yarn"
        assert value["rope_parameters"]["factor"] == 4.0

    def test_parameters_reach_the_method(self) -> None:
        args = ("plan", "llama-2-7b", "--to", "16k", "--method", "yarn", "--set", "beta_fast=16")
        value = ropewalk_json(*args, "--set", "truncate=false", "--log-n", "beyond")
        parameters = value["schedules"]["full_attention"][0]["schedule"]["recipe"][0]["parameters"]
        assert parameters["beta_fast"] == 16.0
        assert parameters["truncate"] is False
        assert value["log_n_from"] == 4096
        assert value["rope_parameters"] is None
        assert "log n" in value["rope_parameters_refused"]

    def test_the_written_plan_is_the_printed_one(self, tmp_path: Path) -> None:
        file = tmp_path / "plan.json"
        args = ("plan", "gemma-3-4b", "--to", "256k", "--method", "ntk_mixed", "-o", file)
        value = ropewalk_json(*args)
        plan = ContextPlan.read(file)
        assert plan.id == value["plan_id"]
        assert plan.to_json()["schedules"] == value["schedules"]
        assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "nothing is left over"

    @pytest.mark.parametrize("ending", ["png", "svg"])
    def test_the_picture_is_drawn(self, tmp_path: Path, ending: str) -> None:
        file = tmp_path / f"factors.{ending}"
        out = ropewalk(
            "plan", "llama-2-7b", "--to", "16k", "--method", "dynamic_ntk", "--plot", file
        )
        assert f"wrote {file}" in out
        start = {"png": b"\x89PNG", "svg": b"<?xml"}[ending]
        assert file.read_bytes().startswith(start)

    @pytest.mark.parametrize("method", scaling.names())
    def test_every_method_can_be_planned_by_name(self, method: str) -> None:
        needed = {
            "base_change": ["--set", "base=500000"],
            "longrope": ["--set", "factors=" + ",".join(["2"] * 64)],
        }
        target = "4k" if method == "resonance" else "8k"
        value = ropewalk_json(
            "plan", "llama-2-7b", "--to", target, "--method", method, *needed.get(method, [])
        )
        assert value["method"] == method

    def test_from_original_forgets_the_present_scaling(self) -> None:
        args = ("plan", LLAMA31, "--to", "512k", "--method", "yarn")
        with pytest.raises(RopewalkError, match="--from-original"):
            ropewalk(*args)
        assert ropewalk_json(*args, "--from-original")["method"] == "yarn"

    def test_sliding_layers_change_only_when_named(self) -> None:
        args = ("plan", "gemma-3-4b", "--to", "256k", "--method", "linear")
        kept = ropewalk_json(*args)["schedules"]["sliding_attention"]
        assert {*kept[0]["schedule"]["rescale_factors"]} == {1.0}
        named = ropewalk_json(*args, "--layers", "sliding_attention")
        assert {*named["rescale_factors"]} == {2.0}


class TestMethods:
    def test_lists_every_method_with_its_parameters(self) -> None:
        value = ropewalk_json("methods")
        assert tuple(method["name"] for method in value["methods"]) == scaling.names()
        yarn = next(method for method in value["methods"] if method["name"] == "yarn")
        assert {"name": "beta_fast", "required": False, "default": 32.0} in yarn["parameters"]
        text = ropewalk("methods")
        assert all(name in text for name in scaling.names())


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["inspect", "nowhere/config.json"], "there is no such file or folder"),
            (["inspect", "llama-3-8"], "did you mean 'llama-3-8b'?"),
            (["plan", "llama-2-7b", "--to", "12x", "--method", "yarn"], "length = '12x'"),
            (["plan", "llama-2-7b", "--to", "2k", "--method", "yarn"], "target_length = 2048"),
            (["plan", "llama-2-7b", "--to", "8k", "--method", "yran"], "did you mean 'yarn'?"),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "yarn", "--set", "beta=1"],
                "unknown parameter of yarn 'beta'",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "yarn", "--set", "beta_fast"],
                "must be KEY=VALUE",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "yarn", "--set", "beta_fast=x"],
                "beta_fast = 'x'",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "longrope"],
                "longrope cannot do without it",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "ntk", "-o", "no/such/plan.json"],
                "no/such/plan.json: cannot be written",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "ntk", "--plot", "picture.doc"],
                "picture.doc: cannot draw doc",
            ),
        ],
    )
    def test_one_line_on_standard_error_and_status_2(self, arguments: list[str], text: str) -> None:
        with pytest.raises(RopewalkError) as caught:
            ropewalk(*arguments)
        assert text in str(caught.value)
        assert caught.value.exit_status == 2
        assert "\n" not in str(caught.value)

    def test_streams_and_status_of_the_real_process(self, tmp_path: Path) -> None:
        done = process("inspect", tmp_path / "nothing", "--json")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1

    def test_usage_errors_have_status_2(self) -> None:
        assert process("plan", "llama-2-7b").returncode == 2
        assert process("no-such-verb").returncode == 2


def imported_by(*arguments: str) -> set[str]:
    """The modules that a whole run of the command imports."""
    program = (
        "import sys; from ropewalk.cli import main\n"
        f"sys.argv[1:] = {list(arguments)!r}\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["methods"],
        ["inspect", "llama-3-8b"],
        ["plan", "llama-3-8b", "--to", "128k", "--method", "yarn"],
    ],
)
def test_quick_verbs_import_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"torch", "transformers", "numba", "matplotlib", "scipy", "safetensors"}
    assert imported_by(*arguments).isdisjoint(heavy)


def test_a_call_imports_its_own_verb_only() -> None:
    loaded = imported_by("methods")
    assert "ropewalk.cli.methods" in loaded
    assert loaded.isdisjoint({f"ropewalk.cli.{verb}" for verb in VERBS if verb != "methods"})
