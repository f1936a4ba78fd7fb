"""Whether a runtime follows a config under a plan: the one answer, for every command.

`plan`, `export`, `verify`, the reports and `fingerprint` all ask here (`Runtime.judge`), so they
cannot contradict each other. A config is read as the runtime reads it, and the reading is searched
for traps: none that is wrong in this runtime, and it follows. `verify` does the same with more
eyes: it measures transformers and runs the model, and has several runtimes in one `ExaminedModel`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, shortened
from ropewalk.exporting.tokens import TOKENIZER_LIMITS
from ropewalk.models.config import DUAL_CHUNK, Config, ConfigReader, text_config
from ropewalk.models.families import FAMILIES
from ropewalk.runtimes import traps
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.model_classes import architecture
from ropewalk.runtimes.reading import RotaryReading, number
from ropewalk.untrusted import read_json

LIMITS = ("tokenizer-limit", "generation-limit")


@dataclass(frozen=True)
class Judgement:
    """One runtime's treatment of a config under a plan."""

    wrong: tuple[Finding, ...] = ()
    """The traps in which this runtime does something other than the plan."""
    limits: tuple[Finding, ...] = ()
    """The limits of length in files beside the config."""
    unknown: str = ""
    """Why nothing is known of it."""

    @property
    def follows(self) -> bool:
        return not self.wrong and not self.unknown

    def __str__(self) -> str:
        return self.unknown or "; ".join(finding.what for finding in self.wrong)


def judged(
    reading: RotaryReading, config: Config, plan: ContextPlan, folder: Path | None, *, planned: bool
) -> Judgement:
    """The judgement of a runtime's reading of a config under a plan."""
    if reading.unread:
        return Judgement(unknown=reading.unread)
    facts = facts_of(config, folder)
    subject = ExaminedModel(
        (reading,), plan.target_length, plan, planned=planned, asked=True, **facts
    )
    found = traps.find(subject)
    wrong = [each for each in found if each.wrong and each.concerns(reading.runtime)]
    limits = tuple(each for each in wrong if each.trap in LIMITS)
    return Judgement(tuple(each for each in wrong if each not in limits), limits)


def facts_of(config: Config, folder: Path | None) -> dict[str, Any]:
    """What a `ExaminedModel` knows of a config, and of the files beside it."""
    return {
        "config": without_chunks(config),
        "chunks": text_config(config).get(DUAL_CHUNK),
        "tokenizer_limit": _limit_in(folder, "tokenizer_config.json", *TOKENIZER_LIMITS),
        "generation_limit": _limit_in(folder, "generation_config.json", "max_length"),
    }


def of_known_type(reading: RotaryReading, config: Config, *, by_model_type: bool) -> RotaryReading:
    """A runtime's rules are those of its classes: of an unknown model type nothing is known."""
    if reading.unread:
        return reading
    kind = ConfigReader(config).model_type
    if kind in FAMILIES:
        other = "" if by_model_type else _other_class(config, kind)
        return replace(reading, unread=other) if other else reading
    return replace(
        reading,
        unread=f"model type {kind[:40]!r} is not in ropewalk's table of model types; "
        "judge it by running it there",
    )


def _other_class(config: Config, kind: str) -> str:
    """Why nothing is known of the class that is chosen by `architectures`, if it is another."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        return ""
    kinds = (kind, str(config.get("model_type")))
    if names[0] in (architecture({"model_type": own}) for own in kinds):
        return ""
    for name in names:
        for own in (each.removesuffix("_text") for each in kinds):
            rest = _letters(name).removeprefix(_letters(own))
            if rest != _letters(name) and rest.startswith(("for", "model", "lmhead")):
                return ""
    return (
        f"chooses its class by the architecture {shortened(names[0])}, which is not known for "
        f"model type {kind!r}; judge it by running it there"
    )


def _letters(name: object) -> str:
    """A name as model types and classes have it in common: Ernie4_5 is ernie4_5."""
    return re.sub("[^a-z0-9]", "", str(name)[:200].lower())


def without_chunks(config: Config) -> Config:
    """Dual chunk attention is a finding of its own; all else is read as the runtimes do today."""
    return {
        key: without_chunks(value) if isinstance(value, dict) else value
        for key, value in config.items()
        if key != DUAL_CHUNK
    }


def _limit_in(path: Path | None, name: str, *keys: str) -> int | None:
    file = None if path is None else (path if path.is_dir() else path.parent) / name
    if file is None or not file.is_file():
        return None
    try:
        value = read_json(file, max_bytes=64 * 2**20)
    except InputError:  # named when the tokenizer is checked
        return None
    stated = (value[key] for key in keys if key in value) if isinstance(value, dict) else ()
    limit = number(next(iter(stated), None))
    return None if limit is None else int(limit)
