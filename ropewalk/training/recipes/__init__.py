"""The papers' values for training, one recipe a file, each with its source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ropewalk.data.packing import Filling
from ropewalk.data.windows import Arrangement
from ropewalk.errors import UnknownName
from ropewalk.training.settings import Decay

SEARCH = "search"
"""The method of recipes whose schedules are searched."""


@dataclass(frozen=True)
class TrainingRecipe:
    """Values for settings that are not given."""

    name: str
    source: str
    """The paper, with the section or table."""
    method: str
    """The method of each stage if no plan is given."""
    layout: Arrangement
    steps: tuple[int, ...]
    """The steps of each stage; the last number is also that of any further stage."""
    batch: int
    learning_rate: float
    decay: Decay = "constant"
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    filling: Filling = "best_fit"
    window: int | None = None
    """Tokens of a window, if they are fewer than the target."""
    halved_from: int | None = None
    """The target from which on half of it is trained first."""
    bases: Mapping[int, float] = field(default_factory=dict)
    """By length; lengths between two take the base of the longer one."""
    open: str = ""
    """Gaps in the source, and the choices made for them."""

    def base(self, length: int) -> float | None:
        """The base for a length; None if the safe base of the theory is to be used."""
        if not self.bases or 2 * length < min(self.bases):
            return None
        return next((self.bases[limit] for limit in sorted(self.bases) if length <= limit), None)


FOLDER = Path(__file__).parent
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))
"""The names of this folder's files."""


def named(name: str) -> TrainingRecipe:
    """The recipe of a name."""
    if name not in NAMES:
        raise UnknownName("recipe", name, NAMES)
    stated = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    del stated["about"]
    stated |= {key: tuple(stated[key]) for key in ("steps", "betas")}
    bases = {int(length): base for length, base in stated.pop("bases", {}).items()}
    return TrainingRecipe(name, **stated, bases=bases)
