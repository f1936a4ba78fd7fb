"""The table of what each architecture of llama.cpp honours, seen in the real llama.cpp.

Each setting is put into a tiny file of the architecture, and the log-probabilities beyond the
file's original window must change where the table says that the setting is honoured, and must not
where it says that it is not.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.architectures import (
    TABLE,
    Architecture,
    architecture,
    build,
    known_architectures,
)
from ropewalk.gguf.families import family, family_names
from ropewalk.gguf.header import FREQUENCIES, LONG, SHORT
from ropewalk.gguf.parts import read_parts
from ropewalk.gguf.rewriting import Changes, join, number, text
from ropewalk.gguf.rotation import LLAMA_CPP_FACTORS
from ropewalk.runtimes.llama_cpp import _ARCHITECTURES
from ropewalk.schedule import FloatArray
from tests.gguf import tiny_architectures
from tests.gguf.tiny_architectures import HEAD, LENGTH, ORIGINAL

# One of each kind: takes only long and short tensors, is refused with any, and ignores them.
FEW = ("minicpm3", "qwen3", "pangu-embedded")
FACTORS = np.linspace(1.5, 4.0, HEAD // 2)
TOKENS = [3 + (7 * i) % 250 for i in range(LENGTH - 8)]


def computed(path: Path) -> FloatArray:
    """What llama.cpp says of the tokens well beyond the original window."""
    said = llama_cpp_run.log_probabilities(path, TOKENS, start=len(TOKENS) - 3, top=260)
    order = np.argsort(said.tokens, axis=1)
    return np.take_along_axis(said.values, order, axis=1)


@contextmanager
def changed(source: Path, name: str, changes: Changes) -> Iterator[Path]:
    out = source.with_name(f"{name}.gguf")
    join(read_parts(source), out, changes)
    yield out
    out.unlink()


def with_keys(own: Architecture, **keys: bytes) -> Changes:
    return Changes(
        {f"{own.name}.rope.{key.replace('__', '.')}": value for key, value in keys.items()}
    )


def settings(own: Architecture) -> dict[str, tuple[Changes, bool]]:
    """Each setting, and whether the table says that it is honoured."""
    yarn = {"scaling__type": text("yarn"), "scaling__factor": number("<f", 3.0)}
    ramp = {
        "scaling__yarn_beta_fast": number("<f", 8.0),
        "scaling__yarn_beta_slow": number("<f", 2.0),
    }
    return {
        "freq_base": (with_keys(own, freq_base=number("<f", 4e4)), own.freq_base),
        "linear": (
            with_keys(own, scaling__type=text("linear"), scaling__factor=number("<f", 3.0)),
            own.linear,
        ),
        "yarn": (with_keys(own, **yarn), own.yarn),
        "attn_factor": (with_keys(own, scaling__attn_factor=number("<f", 1.5)), own.attn_factor),
        "betas": (with_keys(own, **yarn, **ramp), own.betas),
    }


def check(name: str, folder: Path) -> None:
    """Every setting of one architecture."""
    own = architecture(name)
    source = tiny_architectures.made(folder / "source.gguf", name)
    plain = computed(source)
    if not own.rotates:
        with changed(source, "base", with_keys(own, freq_base=number("<f", 4e4))) as out:
            np.testing.assert_array_equal(computed(out), plain)
        return
    found = {}
    for setting, (changes, _) in settings(own).items():
        with changed(source, setting, changes) as out:
            found[setting] = computed(out)
    for setting, (_, honoured) in settings(own).items():
        beside = found["yarn"] if setting == "betas" else plain
        difference = float(np.abs(found[setting] - beside).max())
        assert (difference > 1e-4) is bool(honoured), (name, setting, difference)
    check_factors(own, source, plain)


def check_factors(own: Architecture, source: Path, plain: FloatArray) -> None:
    """A tensor of factors: honoured, ignored, or the file refused."""
    longrope = with_keys(own, scaling__type=text("longrope"), scaling__factor=number("<f", 1.0))
    cases = {
        "rope_freqs": Changes(tensors={FREQUENCIES: FACTORS}),
        "rope_factors": Changes(longrope.keys, tensors=dict.fromkeys((LONG, SHORT), FACTORS)),
    }
    for tensors, changes in cases.items():
        with changed(source, tensors, changes) as out:
            if tensors not in own.tensors:
                with pytest.raises(InputError, match="wrong number of tensors"):
                    computed(out)
                continue
            difference = float(np.abs(computed(out) - plain).max())
            assert (difference > 1e-4) is own.honours_factors, (own.name, tensors, difference)


@pytest.mark.skipif(not llama_cpp_run.available(), reason="llama.cpp is not here")
@pytest.mark.parametrize("name", FEW)
def test_llama_cpp_honours_what_the_table_says(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not llama_cpp_run.available(), reason="llama.cpp is not here")
@pytest.mark.parametrize("name", sorted({*tiny_architectures.known()} - {*FEW}))
def test_llama_cpp_honours_what_the_table_says_of_all_others(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_the_tiny_files_are_of_many_architectures() -> None:
    rotating = [name for name in tiny_architectures.known() if architecture(name).rotates]
    assert len(rotating) >= 50
    assert {architecture(name).factors for name in rotating} == {"honoured", "ignored", "refused"}
    assert {*tiny_architectures.known()} <= {*known_architectures()}
    assert len(TOKENS) - 3 > ORIGINAL


def test_the_table_says_of_what_it_was_read() -> None:
    content = json.loads(TABLE.read_text("utf-8"))
    assert build().startswith("b")
    assert len(content["sha256"]) == 64
    assert len(content["architectures"]) > 100
    assert not architecture("kolibri").known


def test_the_table_and_the_list_by_model_type_agree() -> None:
    """What features.py says of a folder is what the table says of the file made from it."""
    written = {kind: family(kind).architectures[0] for kind in family_names()}
    for model_type, name in {**_ARCHITECTURES, **written}.items():
        assert architecture(name).honours_factors is (model_type in LLAMA_CPP_FACTORS), model_type


def test_a_file_is_the_same_each_time(tmp_path: Path) -> None:
    one = tiny_architectures.made(tmp_path / "a.gguf", "qwen3").read_bytes()
    assert one == tiny_architectures.made(tmp_path / "b.gguf", "qwen3").read_bytes()
    shutil.rmtree(tmp_path)
