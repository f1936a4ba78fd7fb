"""The command as a user meets it: real processes where streams and statuses matter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk import scaling
from ropewalk.cli import VERBS
from ropewalk.errors import RopewalkError
from tests.cli.calling import ropewalk, ropewalk_json

CONFIGS = Path(__file__).parents[1] / "golden" / "configs"
LLAMA31 = CONFIGS / "llama-3.1-8b.json"
PHI3 = CONFIGS / "phi-3-mini-128k.json"


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
            "serves": 131072,
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
        assert "pretrained frequencies for 8k; configured for 128k now; trained at 128k" in text
        assert "low_freq_factor" not in text, "what stands at its default is not said"

    def test_layers_and_pairs_that_do_not_turn_are_told(self) -> None:
        assert "27 of 36 layers rotate" in ropewalk("inspect", CONFIGS / "smollm3-3b.json")
        text = ropewalk("inspect", CONFIGS / "gemma-4-26b-a4b.json")
        assert "the slowest 192 of these pairs have a frequency of zero" in text
        assert "layers rotate" not in ropewalk("inspect", "llama-3.1-8b")

    def test_a_users_own_config_wins_over_a_known_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        config = json.loads(LLAMA31.read_text()) | {"rope_scaling": None}
        (tmp_path / "llama-3.1-8b").mkdir()
        (tmp_path / "llama-3.1-8b" / "config.json").write_text(json.dumps(config))
        assert ropewalk_json("inspect", "llama-3.1-8b")["method"] == "plain"


class TestMethods:
    def test_the_listing_names_every_method_and_how_to_set_its_parameters(self) -> None:
        text = ropewalk("methods")
        assert all(name in text for name in scaling.names())
        assert "beta_fast=32" in text
        assert "2048k_la2_256k" in text


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            (["inspect", "llama-3-8"], "the closest known names are llama-3-8b"),
            (
                ["plan", "llama-3.1-8b", "--to", "256k", "--trained-length", "4k"],
                "--trained-length = 4096: is below 8192",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "yarn", "--set", "beta_fast"],
                "--set = 'beta_fast': must be NAME=VALUE",
            ),
            (
                ["plan", "llama-2-7b", "--to", "8k", "--method", "ntk", "-o", "no/such/plan.json"],
                "the folder no/such does not exist",
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
        "import sys; from ropewalk.__main__ import main\n"
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
        [],
        ["--help"],
        ["plan", "--help"],
        ["methods"],
        ["inspect", "llama-3-8b"],
        ["plan", "llama-3-8b", "--to", "128k", "--method", "yarn"],
    ],
)
def test_quick_verbs_import_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"torch", "transformers", "numba", "matplotlib", "scipy", "safetensors", "pydantic"}
    assert imported_by(*arguments).isdisjoint(heavy)


def test_the_help_of_the_command_needs_no_verb() -> None:
    loaded = imported_by("--help")
    assert "numpy" not in loaded
    assert loaded.isdisjoint({f"ropewalk.api.{verb}" for verb in VERBS})


def test_a_call_imports_its_own_verb_only() -> None:
    loaded = imported_by("methods")
    assert "ropewalk.api.methods" in loaded
    assert loaded.isdisjoint({f"ropewalk.api.{verb}" for verb in VERBS if verb != "methods"})
