"""The faults of docs/found.md: their form, and their programs against real files."""

from __future__ import annotations

import ast
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.rotation.engine_process import archive
from tools import found
from tools.found import GONE, NOT_RUN, REPRODUCED, Fault, Installed

FAULTS = {fault.name: fault for fault in found.faults()}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_is_described_and_reproduced_in_five_statements(fault: Fault) -> None:
    outcome = "fails" if "fails" in fault.facts else "effect"
    assert set(fault.facts) == {"software", "remedy", outcome}
    assert fault.what.endswith(".")
    assert fault.why.endswith(".")
    body = ast.parse(fault.lines).body
    assert len([line for line in body if not isinstance(line, ast.Import | ast.ImportFrom)]) <= 5
    own = found.recorded()[fault.name]
    assert REPRODUCED in {outcome["outcome"] for outcome in own.values()}
    assert all(ran.startswith(f"{fault.software} ") for ran in own)


def test_a_fault_is_reproduced_in_the_installed_transformers(tmp_path: Path) -> None:
    fault = FAULTS["transformers_truncate"]
    installed = Installed([], tmp_path)
    ran, now = installed.of(fault), installed.run(fault)
    own = found.recorded()[fault.name]
    assert now["outcome"] != NOT_RUN
    assert ran not in own or found.same(own[ran], now)


def sglang(path: Path, version: str, mend: Callable[[str], str] = str) -> Path:
    """A wheel with SGLang's own rotary files, one of them changed."""
    wheel = path / f"sglang-{version}-py3-none-any.whl"
    with zipfile.ZipFile(archive("sglang")) as source, zipfile.ZipFile(wheel, "w") as target:
        for name in source.namelist():
            text = source.read(name).decode()
            target.writestr(name, mend(text) if name.endswith("embedding/base.py") else text)
    return wheel


def mended(text: str) -> str:
    """The rows that are added to a table get the factor of linear interpolation."""
    added = "inv_freq = self._compute_inv_freq(self.base).to(device=device)"
    assert text.count(added) == 1
    return text.replace(added, f'{added} / getattr(self, "scaling_factors", [1.0])[0]')


def test_a_release_that_mends_a_fault_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    only = ["--only", "sglang_linear_table"]
    assert found.main([str(sglang(tmp_path, "0.5.99", mended)), *only]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("sglang_linear_table (sglang 0.5.99, transformers ")
    assert GONE in first
    assert "with sglang 0.5.23, transformers 5.19.0 it was reproduced: position 16,384" in second


def test_what_is_not_here_is_not_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert found.main(["--only", "sglang_linear_table"]) == 0
    assert "could not be run: sglang is neither given nor installed" in capsys.readouterr().out


@pytest.mark.slow
def test_the_record_holds_for_released_files(tmp_path: Path) -> None:
    assert found.main([str(sglang(tmp_path, "0.5.23")), "--only", "sglang_linear_table"]) == 0
    assert found.main([]) == 0
