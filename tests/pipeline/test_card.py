"""The card of an export: its figures are the run's, and nothing from elsewhere is markup in it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from huggingface_hub import ModelCard as HubCard
from huggingface_hub import ModelCardData

import ropewalk as rw
from ropewalk.exporting.manifest import CARD, MANIFEST, SOURCE_CARD, Manifest
from ropewalk.outputs import is_ours
from ropewalk.pipeline.extend import Extended
from ropewalk.reports.card import stated
from tests.api.conformance import check_result
from tests.evaluation import tiny
from tests.reports.test_markdown import HOSTILE, OURS, Seen

SOURCE = """---
license: other
license_name: tiny-1.0
license_link: LICENSE
language:
- en
- no
tags:
- evil
---
# The source
"""


@pytest.fixture(scope="module")
def finished(done: Extended, run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the run, to change its cards."""
    return Path(shutil.copytree(run, tmp_path_factory.mktemp("card") / "run"))


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="module")
def exported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export outside a run, of a source with a card in the hub's cache."""
    place = tmp_path_factory.mktemp("lone")
    source = shutil.copytree(folder, place / "models--org--tiny" / "snapshots" / "0a1b")
    (source / CARD).write_text(SOURCE, encoding="utf-8")
    plan = rw.plan(str(source), 2 * tiny.WINDOW, "yarn").plan
    rw.export(str(source), plan, place / "out", "transformers")
    return place / "out"


def test_every_export_of_a_run_has_its_card(finished: Path, done: Extended) -> None:
    model = finished / "model"
    assert is_ours(model / CARD)
    text = (model / CARD).read_text(encoding="utf-8")
    judged = done.judged
    page = Seen(text.partition("\n---\n")[2])
    for figure in (judged.evidence, judged.retrieved(judged.chosen, judged.length), judged.verdict):
        assert figure.replace("`", "").lower() in page.text.lower()
    for length in (judged.window, judged.length):
        assert str(length) in page.text
    assert {tag for tag, _ in page.elements} <= {*OURS, "h1", "h2"}
    for tag, attributes in page.elements:
        name = attributes.get("src") or attributes.get("href")
        if tag in ("img", "a"):
            assert name
            assert (model / name).is_file()
        if tag == "img":
            ElementTree.fromstring((model / str(name)).read_text(encoding="utf-8"))
    assert str(finished) not in text
    assert str(Path.home()) not in text
    assert "ropewalk verify ." in page.text
    found = rw.verify(model, run=False)
    assert found.wrong == ()
    assert not [each for each in found.warnings if each.trap == "not-in-manifest"]


def test_the_hub_reads_its_front_matter(exported: Path) -> None:
    assert check_result(rw.card(exported, overwrite=True)).base_model == "org/tiny"
    data = HubCard((exported / CARD).read_text(encoding="utf-8")).data
    assert isinstance(data, ModelCardData)
    assert dict(data.to_dict()) == {  # type: ignore[no-untyped-call]
        "base_model": "org/tiny",
        "base_model_relation": "finetune",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "license": "other",
        "license_name": "tiny-1.0",
        "license_link": "LICENSE",
        "language": ["en", "no"],
        "tags": ["ropewalk", "rope", "long-context", "yarn"],
    }
    assert (exported / SOURCE_CARD).read_text(encoding="utf-8") == SOURCE
    assert SOURCE_CARD in Manifest.read(exported).files
    assert CARD not in Manifest.read(exported).files
    text = (exported / CARD).read_text(encoding="utf-8")
    assert f"[{SOURCE_CARD}]({SOURCE_CARD})" in text
    assert "not measured" in text


@pytest.mark.parametrize("value", [*HOSTILE, '"', "a: b", "&anchor x", "!!python/object:os.system"])
def test_a_hostile_source_states_nothing(value: str, tmp_path: Path) -> None:
    (tmp_path / CARD).write_bytes(
        f"---\nlicense: {value}\nlanguage: [{value}, {value}]\n"
        f"license_link: javascript:{value}\n---\n# {value}".encode(errors="replace")
    )
    assert stated(tmp_path / CARD) == {}


@pytest.mark.parametrize(
    ("stated", "told"),
    [("cc-by-nc-nd-4.0", "cc-by-nc-nd-4.0"), ("[mit, cc-by-nc-nd-4.0]", None)],
)
def test_a_licence_that_forbids_derivatives_is_named(
    exported: Path, tmp_path: Path, stated: str, told: str | None
) -> None:
    copy = Path(shutil.copytree(exported, tmp_path / "out"))
    (copy / SOURCE_CARD).write_text(f"---\nlicense: {stated}\n---\n", encoding="utf-8")
    manifest = Manifest.of(copy, runtime="transformers")
    kept = {name: own for name, own in manifest.files.items() if not is_ours(copy / name)}
    Manifest(kept, "transformers").write(copy)
    rw.card(copy, overwrite=True)
    text = (copy / CARD).read_text(encoding="utf-8")
    assert "does not allow derivatives" in text
    assert HubCard(text).data.get("license") == told


def test_a_base_model_once_named_stays(copied: Path) -> None:
    first = check_result(rw.card(copied, base_model="org/tiny"))
    assert rw.card(copied / "model") == first
    with pytest.raises(rw.InvalidValue, match="ORG/NAME"):
        rw.card(copied, base_model="../x")


def test_a_card_that_a_person_wrote_is_kept(copied: Path) -> None:
    card = copied / "model" / CARD
    card.write_text(f"{card.read_text(encoding='utf-8')}mine", encoding="utf-8")
    with pytest.raises(rw.InvalidValue, match=r"README\.md.*is kept"):
        rw.card(copied)
    assert card.read_text(encoding="utf-8").endswith("mine")
    rw.card(copied, overwrite=True)
    assert is_ours(card)


def test_the_card_of_a_lone_export_is_written_again_and_that_of_a_run_is_not(
    exported: Path, copied: Path, tmp_path: Path
) -> None:
    lone = Path(shutil.copytree(exported, tmp_path / "lone"))
    assert rw.card(lone, base_model="org/other").base_model == "org/other"
    assert "org/other" in (lone / CARD).read_text(encoding="utf-8")
    alone = Path(shutil.copytree(copied / "model", tmp_path / "alone"))
    with pytest.raises(rw.InvalidValue, match="evidence of a run that is not here"):
        rw.card(alone, base_model="org/other")


def other_weights(run: Path) -> None:
    shutil.rmtree(run / "model")
    plan = rw.plan("bundled", "1k", "linear").plan
    rw.export("bundled", plan, run / "model", "transformers")


def edited_weights(run: Path) -> None:
    path = run / "model" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\x07")


def edited_verdict(run: Path) -> None:
    path = run / "first.json"
    text = path.read_text(encoding="utf-8")
    path.write_text(re.sub(r'"retrieved": [\d.]+', '"retrieved": 1.0', text), encoding="utf-8")


def no_export(run: Path) -> None:
    shutil.rmtree(run / "model")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (other_weights, "is not the one that"),
        (edited_weights, "is not as it was written"),
        (edited_verdict, r"first\.json"),
        (no_export, MANIFEST),
    ],
)
def test_a_card_that_its_records_contradict_is_refused(
    copied: Path, change: Callable[[Path], None], complaint: str
) -> None:
    change(copied)
    (copied / "model" / CARD).unlink(missing_ok=True)
    with pytest.raises(rw.InputError, match=complaint):
        rw.card(copied)
    assert not (copied / "model" / CARD).exists()
