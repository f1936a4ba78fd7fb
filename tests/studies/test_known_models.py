"""The bound on known models: their schedules, and the correlation over vendors."""

import pytest

from studies.known_models import measure
from studies.known_models.measure import Known


def test_models_rotate_as_their_configs_say() -> None:
    found = {own.name: own for own in measure.models()}
    llama_2 = 1707  # L_θ of 64 pairs with base 10,000
    assert 8 * (llama_2 - 1) < found["LongChat-7B-32K"].reach <= 8 * llama_2
    assert found["GLM4-9B-1M"].reach == measure.LONGEST, "half of its pairs rest"
    assert all(own.effective & (own.effective - 1) == 0 for own in found.values())


def test_a_vendor_is_one_unit_of_the_correlation(monkeypatch: pytest.MonkeyPatch) -> None:
    rising = [Known(str(i), f"vendor {i}", 1, i, 10 * i) for i in range(6)]
    others = [Known(f"again {i}", "vendor 5", 1, 9, 90) for i in range(20)]
    monkeypatch.setattr(measure, "models", lambda: [*rising, *others])
    found, (low, high), count = measure.correlation("reach")
    assert found == pytest.approx(1)
    assert count == 6
    assert low <= found <= high or high == pytest.approx(1)
