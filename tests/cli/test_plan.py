"""What `plan` shows, and the files that it writes; its values are those of `rw.plan`."""

from __future__ import annotations

import json
import resource
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.gguf.header import FREQUENCIES
from tests.cli.calling import result_of, ropewalk
from tests.cli.test_cli import CONFIGS
from tests.gguf.gguf_files import header_only

LLAMA2 = Path(__file__).parents[1] / "golden" / "configs" / "llama-2-7b.json"


planned = partial(ropewalk, "plan")


def test_without_a_method_the_table_says_why_and_the_best_is_written(tmp_path: Path) -> None:
    output, picture = tmp_path / "best.json", tmp_path / "factors.svg"
    text = planned(LLAMA2, "--to", "16k", "--output", output, "--plot", picture)
    assert "all runtimes" in text
    assert "Suggested without training: yarn (a prediction, not measured on this model" in text
    assert "similar keys" not in text, "theory is among the details"
    assert "those not listed: --details" in text
    assert f"wrote {output}\nwrote {picture}\n" in text
    assert ContextPlan.read(output).target_length == 16384
    assert "yarn" in picture.read_text(encoding="utf-8")


def test_with_json_standard_output_holds_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = result_of("plan", "bundled", "--to", "1k", "--json", "-o", "plan.json")
    value = json.loads(done.stdout)
    assert done.stderr == "wrote plan.json\n"
    assert ContextPlan.read("plan.json").id == value["candidates"][0]["plan_id"]


def test_without_a_place_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for more in ([], ["--method", "yarn"]):
        text = planned("llama-3-8b", "--to", "32k", *more)
        assert "# plan.json is this plan: add -o plan.json to write it" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("-o", "same.svg", "--plot", "same.svg"), "name the same file"),
        (("--plot", "picture.pdf"), r"must end in \.png or \.svg"),
    ],
)
def test_a_figure_has_a_place_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=complaint):
        planned("llama-3-8b", "--to", "32k", "--method", "yarn", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_a_dash_prints_the_plan_alone() -> None:
    done = result_of("plan", "llama-3-8b", "--to", "32k", "--method", "yarn", "-o", "-")
    assert ContextPlan.loads(done.stdout).target_length == 32 * 1024
    with pytest.raises(InputError, match="both print to standard output"):
        planned("llama-3-8b", "--to", "32k", "--method", "yarn", "-o", "-", "--json")


def test_a_config_is_not_overwritten_and_the_work_is_not_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "m" / "config.json"
    config.parent.mkdir()
    config.write_bytes((CONFIGS / "llama-2-7b.json").read_bytes())
    before = config.read_bytes()
    monkeypatch.setattr("ropewalk.api.plan.planned", None)  # it would be called for the work
    for out in (config, tmp_path / "m" / "." / "config.json"):
        for more in ((), ("--overwrite",)):
            with pytest.raises(InputError, match=r"the source .* which is never written to"):
                planned(config, "--to", "32k", "--method", "yarn", "-o", out, *more)
    mine = tmp_path / "mine.json"
    mine.write_text("{}")
    with pytest.raises(InputError, match="ropewalk did not write it"):
        planned(config, "--to", "32k", "--method", "yarn", "-o", mine)
    assert (config.read_bytes(), mine.read_text()) == (before, "{}")


def test_a_plan_is_shown_with_its_stock_setting_and_written_where_that_is_asked(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plan.json"
    args = ("gemma-3-4b", "--to", "256k", "--method", "ntk_mixed")
    text = planned(*args, "-o", file)
    assert "gemma-3-4b: 128k to 256k by linear+ntk_mixed" in text
    assert '"rope_parameters": {"full_attention": {' in text
    assert f"wrote {file}" in text
    plan = ContextPlan.read(file)
    assert plan.id == json.loads(planned(*args, "--json"))["plan_id"]
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"], "nothing is left over"


def test_a_figure_that_fails_leaves_no_plan(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    args = ("llama-2-7b", "--to", "16k", "--method", "yarn", "-o", tmp_path / "plan.json")
    try:  # room for the plan, and not for the figure
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limit[1]))
        with pytest.raises(RopewalkError, match=r"factors\.svg: cannot be written"):
            planned(*args, "--plot", tmp_path / "factors.svg")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(tmp_path.iterdir()) == []


def test_a_gguf_file_is_planned_without_its_config(tmp_path: Path) -> None:
    path = header_only(tmp_path / "small.gguf", keys={"context_length": 512})
    text = planned(path, "--to", "1k", "--method", "linear")
    assert "no stock config can express it" not in text
    assert "holds no transformers config" not in text
    assert "impossible" not in text
    compared = planned(path, "--to", "1k", "-o", tmp_path / "plan.json")
    assert "unknown" not in compared
    assert "llama.cpp, ollama" in compared, "who loads the plan"
    assert "llama-server -m" in compared


def test_settings_need_a_method() -> None:
    for option in (["--set", "b=1"], ["--log-n", "beyond"], ["--kept-initial-positions", "0"]):
        with pytest.raises(InputError, match="--kept-initial-positions belong to a method"):
            planned(LLAMA2, "--to", "16k", *option)


@pytest.mark.parametrize("method", [[], ["--method", "yarn"]])
def test_a_length_that_the_model_serves_needs_no_change(
    method: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = planned("granite-3.1-8b", "--to", "128k", *method)
    assert text.startswith("granite-3.1-8b serves 128k already: nothing needs to change.")
    assert "vllm serve ibm-granite/granite-3.1-8b-base --max-model-len 131072\n" in text
    assert "128k to 128k" not in text
    assert "wavelength" not in text
    assert list(tmp_path.iterdir()) == [], "no plan is written unless that is asked"
    value = json.loads(planned("granite-3.1-8b", "--to", "128k", *method, "--json"))
    assert value["plan"] == value["present"]


def test_a_method_that_changes_the_length_at_hand_is_planned_all_the_same() -> None:
    text = planned("llama-2-7b", "--to", "4k", "--method", "resonance")
    assert text.startswith("llama-2-7b serves 4k already")
    assert "4k to 4k by resonance" in text


def test_pairs_that_stand_still_are_no_long_numbers(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(Path(LLAMA2).read_bytes())
    text = planned(config, "--to", "16k", "--method", "drope")
    table = text.partition("To serve it")[0]
    assert "drope to 16k; no positions; attention factor 1.06901" in table
    assert "does not turn" in table
    assert "1000000000000" not in table
    clipped = planned(config, "--to", "16k", "--method", "yarn+cope")
    assert clipped.partition("To serve it")[0].count("does not turn") == 1
    compared = " ".join(planned(config, "--to", "16k").split())
    assert "drope needs" in compared
    value = json.loads(planned(config, "--to", "16k", "--method", "drope", "--json"))
    own = {"rope_parameters": value["rope_parameters"], "max_position_embeddings": 16384}
    config.write_text(json.dumps(json.loads(config.read_text()) | own))
    told = ropewalk("inspect", config)
    assert "no positions: no pair turns" in told
    assert "effective length" not in told


def test_the_lines_to_paste_come_last_and_whole(tmp_path: Path) -> None:
    args = (LLAMA2, "--to", "16k", "--method", "ntk_mixed")
    text = planned(*args, "--details")
    serving = json.loads(planned(*args, "--json"))["serving"]
    end = text[text.index("To serve it:") :]
    for row in serving:
        assert f"# {row['runtime']} ({row['fit']}): {row['reason']}" in end
        assert "".join(f"\n{line}" for line in row["lines"]) in end
    assert "add -o plan.json to write it" in end
    saved = planned(*args, "-o", tmp_path / "plan.json")
    assert "add -o" not in saved
    compared = planned(LLAMA2, "--to", "16k", "-o", tmp_path / "plan.json")
    assert "vllm serve MODEL --max-model-len 16384" in compared


def test_lists_of_factors_are_shown_where_the_plan_is_saved_or_details_are_asked_for(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plan.json"
    args = ("llama-3.1-8b", "--to", "512k")
    text = planned(*args)
    assert "[… 64 factors …]" in text
    assert "left out of these lines: add -o plan.json or --details" in text
    assert len(text) < 5000
    for more in (("-o", file), ("--details",)):
        whole = planned(*args, *more)
        assert whole.count("[1.0, 1.0, 1.0") == 6
        assert "64 factors" not in whole


def test_details_of_a_method_are_all_its_pairs_and_are_refused_where_nothing_is_shown() -> None:
    args = (LLAMA2, "--to", "16k", "--method", "yarn")
    assert "\n 51 " not in planned(*args)
    assert "\n 51 " in planned(*args, "--details")
    for more in (("--json",), ("-o", "-")):
        with pytest.raises(InputError, match="--details is for the text"):
            planned(*args, "--details", *more)


@pytest.mark.parametrize("more", [("--method", "ntk_mixed"), ()])
def test_the_lines_name_the_plan_as_it_was_saved(more: tuple[str, ...], tmp_path: Path) -> None:
    file = tmp_path / "b c.json"
    args = (LLAMA2, "--to", "16k", *more, "-o", file)
    text = planned(*args)
    assert f"--plan '{file}' --runtime" in text
    assert "--plan plan.json" not in text
    lines = json.loads(planned(*args, "--json", "--overwrite"))["serving"]
    assert f"--plan '{file}' --runtime" in json.dumps(lines)


def test_factors_without_a_method_are_not_called_plain(tmp_path: Path) -> None:
    """A GGUF file holds the factors of YaRN, and no name for them."""
    path = header_only(tmp_path / "a.gguf", tensors={FREQUENCIES: np.linspace(1, 8, 8, dtype="f4")})
    told = ropewalk("inspect", path)
    assert "full_attention: factors 1 to 8\n" in told
    plain = header_only(tmp_path / "b.gguf")
    told = ropewalk("inspect", plain)
    assert "full_attention: pretrained frequencies\n" in told
