"""plan, export, verify, report and fingerprint say the same of a runtime and a folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw
from ropewalk.api.fingerprint import warn_of_engines
from ropewalk.audit.result import Audit
from ropewalk.blocks import Code
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.exporting.manifest import MANIFEST, Manifest
from ropewalk.models.config import present_plan
from ropewalk.models.source import resolve
from ropewalk.planning.extension import extend_plan
from ropewalk.reports.parts.schedules import served
from ropewalk.runtimes import targets
from ropewalk.runtimes.features import matrix
from ropewalk.runtimes.model_classes import ENGINE_NAMES
from ropewalk.runtimes.serving import Serving, serving
from ropewalk.scaling import built_in_names
from tests.audit.files.folders import edit
from tests.gguf.gguf_cases import tiny_folder
from tests.gguf.tiny_families import TINY
from tests.models.tiny import FAMILIES, RECENT, WINDOW

TARGET = 4 * WINDOW
SEARCHED: dict[str, Any] = {"beta_fast": 16.0, "beta_slow": 1.0, "attention_factor": 1.06931}
"""YaRN as a search may leave it; SGLang reads the attention factor under another name."""
OF_FOLDERS = ("transformers", *ENGINE_NAMES)
MORE = {"gemma4_text": {"vocab_size_per_layer_input": 1056}}
"""Changes that a larger vocabulary than that of other tests asks for."""
FITS = {"refused": "impossible", "approximated": "approximate", "unknown": "unknown"}
"""Of a part of a plan, and what follows for the whole, the first that applies."""


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    from ropewalk.exporting import fresh_process
    from tests.exporting.folders import answered_here

    monkeypatch.setattr(fresh_process, "run_script", answered_here)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_folder(tmp_path_factory.mktemp("following") / "llama")


@pytest.mark.parametrize("runtime", targets())
def test_the_five_agree_on_a_searched_yarn(runtime: str, llama: Path, tmp_path: Path) -> None:
    plan = extend_plan(present_plan(llama), TARGET, "yarn", SEARCHED)
    assert contradictions(llama, plan, runtime, tmp_path / "out") == []


def test_another_runtime_that_would_misread_an_export_is_a_remark(
    llama: Path, tmp_path: Path
) -> None:
    plan = extend_plan(present_plan(llama), TARGET, "yarn", SEARCHED)
    out = tmp_path / "out"
    rw.export(llama, plan, out, "vllm")
    found = rw.verify(out, plan=plan, run=False)
    assert (found.verdict, found.written_for, found.misread_by) == ("OK", "vllm", ("sglang",))
    assert found.verdict_in("sglang") == "wrong"
    (remark,) = (finding for finding in found.warnings if finding.runtimes == ("sglang",))
    assert remark.remedy == "export with --runtime sglang"
    assert "sglang would misread it" in found.summary()
    asked = rw.verify(out, runtimes=["sglang"], run=False)
    assert (asked.verdict, asked.written_for, asked.misread_by) == ("wrong", "", ())
    (out / "ropewalk.manifest.json").unlink()
    foreign = rw.verify(out, run=False)
    assert (foreign.verdict, foreign.written_for) == ("wrong", "")


def edited(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """A model whose config says something else."""
    edit(folder / "config.json", change)
    return folder


def scaled(kind: str, **keys: Any) -> Callable[[dict[str, Any]], None]:
    """The keys of transformers 4, as most published configs have them."""
    scaling = {"rope_type": kind, "factor": 4.0, **keys} if kind != "default" else None

    def change(config: dict[str, Any]) -> None:
        del config["rope_parameters"]
        config |= {"rope_theta": 1e6, "rope_scaling": scaling}

    return change


def without_growth(config: dict[str, Any]) -> None:
    del config["rope_parameters"]["llama_4_scaling_beta"]


def without_settings(config: dict[str, Any]) -> None:
    del config["rope_parameters"]
    config["max_position_embeddings"] = 2**18


FOREIGN: dict[str, tuple[str, Callable[[dict[str, Any]], None], dict[str, str]]] = {
    "dynamic NTK": ("llama", scaled("dynamic"), {"transformers": "OK", "vllm": "wrong"}),
    "OLMo 3's base for all layers": ("olmo3", scaled("default"), {"transformers": "wrong"}),
    "growth without its key": ("ministral3", without_growth, {"transformers": "wrong"}),
    "growth by the class": (
        "ministral3",
        without_settings,
        {"transformers": "OK", "vllm": "wrong"},
    ),
}
"""Folders that nobody here has written, and what verify says of some runtimes."""


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_config_is_told_of_in_one_way(name: str, tmp_path: Path) -> None:
    family, change, said = FOREIGN[name]
    folder = edited(tiny_folder(tmp_path / "model", family), change)
    audit = rw.verify(folder, run=False)
    assert {runtime: audit.verdict_in(runtime) for runtime in said} == said
    assert list(_as_it_is(folder, audit)) == []


@pytest.mark.parametrize(
    ("family", "kind", "rule"),
    [
        ("phi3", "linear", "the class of model type 'phi3' refuses all but 'longrope'"),
        ("phi3", "dynamic", "the class of model type 'phi3' refuses all but 'longrope'"),
        ("llama", "llama3", "runtimes do not load rope type 'llama3' without it"),
    ],
)
def test_a_setting_that_the_class_refuses_is_refused(
    family: str, kind: str, rule: str, tmp_path: Path
) -> None:
    folder = edited(tiny_folder(tmp_path / "model", family), scaled(kind))
    with pytest.raises(InvalidValue, match=rule):
        rw.plan(folder, "64")
    found = rw.verify(folder, run=False)
    assert {found.verdict_in(runtime) for runtime in OF_FOLDERS} == {"wrong"}


def test_dynamic_ntk_runs_as_it_was_exported(llama: Path, tmp_path: Path) -> None:
    """Also beside a plan that says nothing of being only near."""
    plan = extend_plan(present_plan(llama), TARGET, "dynamic_ntk")
    out = tmp_path / "out"
    rw.export(llama, plan, out, "transformers", approximate=True)
    for name in ("plan.json", "ropewalk.manifest.json"):
        (out / name).unlink()
    found = rw.verify(out, plan=plan, runtimes=["transformers"])
    assert (found.verdict, found.runtimes["transformers"].basis) == ("OK", "run")
    assert [finding.trap for finding in found.warnings] == ["switches-with-cache"]


def test_two_lists_run_as_stock_code_has_them(tmp_path: Path) -> None:
    """As the folders of Phi-3 are published."""
    lists = {"short_factor": [1.0] * 8, "long_factor": [1 + 0.4 * i for i in range(8)]}

    def change(config: dict[str, Any]) -> None:
        scaled("longrope", **lists)(config)
        config |= {"max_position_embeddings": TARGET, "original_max_position_embeddings": WINDOW}
        del config["rope_scaling"]["factor"]

    folder = edited(tiny_folder(tmp_path / "model", "phi3"), change)
    found = rw.verify(folder, runtimes=["transformers"])
    assert (found.verdict, found.runtimes["transformers"].basis) == ("OK", "run")


def test_a_folder_that_is_not_written_as_gguf_is_refused_by_the_preview(tmp_path: Path) -> None:
    source = tiny_folder(tmp_path / "model", "olmo2")
    for method in ("yarn", "linear", "dynamic_ntk"):
        plan = extend_plan(present_plan(source), TARGET, method)
        assert _preview(plan, source, "llama.cpp") == "impossible"
        with pytest.raises(Unsupported, match="the export to GGUF supports apertus"):
            rw.export(source, plan, tmp_path / "out.gguf", "llama.cpp", approximate=True)


@pytest.mark.slow
@pytest.mark.parametrize("family", [*FAMILIES, *RECENT, "apertus"])
def test_no_family_method_and_runtime_is_told_of_in_two_ways(family: str, tmp_path: Path) -> None:
    source = tiny_folder(tmp_path / "source", family, **{**MORE, **TINY}.get(family, {}))
    found, cells = [], 0
    for name, plan in plans(source):
        for runtime in targets():
            cells += 1
            told = contradictions(source, plan, runtime, tmp_path / "out")
            found += [f"{name} in {runtime}: {each}" for each in told]
    print(f"{family}: {cells} cells")
    assert found == []
    assert cells > 20


def plans(source: Path) -> Iterator[tuple[str, ContextPlan]]:
    """A plan by each method that this model can be extended by, and for the same length."""
    present = present_plan(source)
    given: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
        **{name: (name, {}, {}) for name in built_in_names()},
        "base_change": ("base_change", {"base": 5e7}, {}),
        "searched": ("yarn", SEARCHED, {}),
        "kept positions": ("ntk", {}, {"kept_initial_positions": 2}),
        "log n": ("yarn", {}, {"log_n": "beyond"}),
    }
    yield "as it is", present
    for name, (method, parameters, more) in given.items():
        try:
            yield name, extend_plan(present, 4 * present.target_length, method, parameters, **more)
        except InputError:  # which this method cannot be used for
            continue


def contradictions(source: Path, plan: ContextPlan, runtime: str, out: Path) -> list[str]:
    """What plan, export and its preview, verify, report and fingerprint say differently."""
    row = _rows(source, plan)[runtime]
    fit: str = row.fit
    found = []
    try:
        rw.export(source, plan, out, runtime)
        wrote, written = "exact", True
    except Unsupported:
        try:
            rw.export(source, plan, out, runtime, approximate=True)
            wrote, written = "approximate", True
        except Unsupported:
            wrote, written = "impossible", False
    preview = _preview(plan, source, runtime)
    if runtime in OF_FOLDERS and preview != fit:
        found.append(f"plan says {fit}, the preview of export {preview}")
    if preview.replace("unknown", "exact") != wrote:
        found.append(f"the preview of export says {preview}, export {wrote}")
    exported = runtime in OF_FOLDERS or f"export {source}" in " ".join(row.lines)
    if fit != "impossible" and not exported:
        fit = wrote  # a GGUF file of the model serves it, which is not here
    if fit.replace("unknown", "exact") != wrote:
        found.append(f"plan says {fit}, export {wrote}")
    if written:
        found += _of_export(out, plan, runtime, fit)
        shutil.rmtree(out) if out.is_dir() else out.unlink()
    return found


def _of_export(out: Path, plan: ContextPlan, runtime: str, fit: str) -> Iterator[str]:
    audits = [rw.verify(out, run=False, plan=each) for each in (None, plan)]
    for audit in audits:
        # Without a run, the shapes of some families' weights are not established.
        said = "wrong" if audit.wrong else audit.verdict_in(runtime)
        if said != ("not established" if fit == "unknown" else "OK"):
            why = [finding.what for finding in audit.wrong] or audit.not_established
            yield f"plan says {fit}, verify {said}: {why}"
    if runtime in OF_FOLDERS:
        yield from _as_it_is(out, audits[0])


def _as_it_is(folder: Path, audit: Audit) -> Iterator[str]:
    """What plan, verify, report and fingerprint say differently of a folder's own config."""
    source, rows = resolve(folder), _rows(folder)
    warned: list[str] = []
    warn_of_engines(source, warned.append)
    if not (folder / MANIFEST).exists():  # a page only shows folders that were exported
        Manifest({}).write(folder)
    shown = {block.title: block.text for block in served(folder) if isinstance(block, Code)}
    for name in OF_FOLDERS:
        wrong = audit.verdict_in(name) == "wrong"
        unchanged = "own config" in rows[name].reason and "override" not in str(rows[name].lines)
        if unchanged == wrong and rows[name].fit != "unknown":
            yield f"verify says {'wrong' if wrong else 'OK'} of {name}, plan {rows[name].reason}"
        if name in ENGINE_NAMES:
            if any(name in said for said in warned) != wrong:
                yield f"verify says {'wrong' if wrong else 'OK'} of {name}, fingerprint {warned}"
            line = [text for title, text in shown.items() if ENGINE_NAMES[name] in title]
            if line != ["\n".join(rows[name].lines)] and rows[name].lines:
                yield f"the report says {line} of {name}, plan {rows[name].lines}"


def _preview(plan: ContextPlan, source: Path, runtime: str) -> str:
    try:
        rows = matrix(plan, resolve(source).config)
    except Unsupported:  # in every runtime
        return "impossible"
    cells = {row[runtime].fit for row in rows.values()}
    return next((fit for cell, fit in FITS.items() if cell in cells), "exact")


def _rows(source: Path, plan: ContextPlan | None = None) -> dict[str, Serving]:
    found = resolve(source)
    return {row.runtime: row for row in serving(plan or found.present_plan, found)}
