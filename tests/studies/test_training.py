"""The study of training: its cells, their data, and how they are summed up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ropewalk.data.store import TokenStore
from studies.bundled_model.windows import ANSWER, UNPREDICTABLE
from studies.training import cells
from studies.training.cells import BASE, CONTROL, NONE, SUBJECTS, TASKS, YARN, Cell, kept
from studies.training.measure import (
    CELLS,
    FIRST,
    PARTS,
    SETTINGS,
    SETTLED,
    Line,
    apart,
    difference,
    effects,
    lines,
)


def line(cell: Cell, share: float) -> Line:
    lengths = (SUBJECTS[cell.subject].window, cell.target)
    return Line(cell, {(task, n): share for task in (*TASKS, "perplexity") for n in lengths})


def test_the_committed_cells_are_each_there_once_and_were_asked_for() -> None:
    written = kept(CELLS)
    assert len(lines()) == len(written) > 0
    assert set(lines()) <= {cell for part in PARTS.values() for cell in part}


def test_a_difference_is_paired_by_model_and_a_mean_over_orders() -> None:
    known: dict[Cell, Line] = {}
    for i, name in enumerate(FIRST):
        shares = {
            Cell(name, 1, NONE): 0.9,
            Cell(name, 8, YARN): 0.5,
            Cell(name, 8, YARN, 200): 0.6 + 0.01 * i,
            Cell(name, 8, YARN, 200, 1): 0.8 + 0.01 * i,
        }
        known |= {cell: line(cell, share) for cell, share in shares.items()}
    own = Cell(FIRST[0], 8, YARN, 200)
    found = difference(known, own, own.untrained, "needle", within=False)
    assert list(found.by_model.values()) == pytest.approx([0.2, 0.21, 0.22, 0.23, 0.24])
    assert found.interval is not None
    weak = Cell(FIRST[1], 1, NONE)
    known[weak] = line(weak, 0.4)
    assert apart(known) == {FIRST[1]}
    assert len(difference(known, own, own.untrained, "needle", within=False).by_model) == 4


@pytest.mark.parametrize(
    "cell",
    [
        Cell("bundled 2", 2, YARN, 2),
        Cell("bundled 2", 2, CONTROL, 2),
        Cell("bundled 2", 2, BASE, 2, short=True),
    ],
)
def test_windows_are_full_and_answers_weigh_what_they_did(cell: Cell, tmp_path: Path) -> None:
    place = tmp_path / "tokens"
    cells.write_tokens(cell, 4, place)
    store = TokenStore(place)
    ends = cells.ENDS
    whole = cell.trained_at - ends
    lengths = store.lengths.tolist()
    if cell.short:
        assert lengths.count(whole) == 2
        assert sum(lengths) + len(lengths) - 4 <= 4 * whole + len(lengths)
    else:
        assert lengths == [whole] * 4
    weights = np.concatenate([store.weights(i) for i in range(len(store))])
    assert {UNPREDICTABLE, 1.0, ANSWER} == set(weights.tolist())
    again = tmp_path / "again"
    cells.write_tokens(cell, 4, again)
    assert (again / "tokens-00000.bin").read_bytes() == (place / "tokens-00000.bin").read_bytes()
    cells.write_tokens(cell._replace(order=1), 4, again.with_name("other"))
    other = again.with_name("other") / "tokens-00000.bin"
    assert other.read_bytes() != (place / "tokens-00000.bin").read_bytes()


def test_the_effects_of_settings_are_told_apart_in_a_half_of_their_combinations() -> None:
    """Planted effects, with noise: the intervals hold them, and those of nothing hold zero."""
    planted = dict(zip(SETTINGS, (0.2, 0.0, -0.1, 0.0, 0.15), strict=True))
    random = np.random.default_rng(1)
    known = {}
    for cell in PARTS["settings"]:
        level = 0.5 if cell.subject == SETTLED[0] else 0.3
        share = level + sum(planted[name] for name, has in SETTINGS.items() if has(cell))
        known[cell] = line(cell, share + random.normal(0, 0.02))
    found = effects(known, "needle", within=False)
    for name, effect in found.items():
        assert effect.low < planted[name] < effect.high
        assert (effect.low <= 0 <= effect.high) == (planted[name] == 0)
    few = dict(list(known.items())[:6])
    assert not effects(few, "needle", within=False), "too few cells tell nothing apart"
