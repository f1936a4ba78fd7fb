"""The planted faults fit the code as it is; whether tests catch them is asked by running them."""

from __future__ import annotations

import pytest

from tests.deliberate_faults import FAULTS, ROOT


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_its_line_and_its_tests(name: str) -> None:
    fault = FAULTS[name]
    assert (ROOT / fault.file).read_text(encoding="utf-8").count(fault.right) == 1
    assert fault.right != fault.wrong
    assert [path for path in fault.tests if not (ROOT / path.split("::")[0]).exists()] == []
