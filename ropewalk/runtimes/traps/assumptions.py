"""Traps in the assumptions made in reading the config.

assumption, theta-conflict, scaling-conflict, not-causal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ropewalk.models.families import ENCODERS
from ropewalk.runtimes.finding import ExaminedModel, Finding


def assumed(subject: ExaminedModel) -> Iterator[Finding]:
    """Those on which runtimes are known to differ are wrong; the others inform."""
    for name, text in subject.assumptions:
        if name == "theta-conflict" and len(subject.ropes) == 1:
            yield Finding(
                "theta-conflict",
                (),
                text,
                "transformers 4 and readers of its keys follow the config's own base",
                "write the same base in both, or only in rope_parameters",
            )
        elif name == "scaling-conflict":
            yield Finding(
                "scaling-conflict",
                (),
                text,
                "some readers follow rope_parameters, so runtimes serve different models",
                "keep one of the two",
            )
        elif name == "encoder":
            yield Finding(
                "not-causal",
                (),
                text,
                "text that it writes is garbage, however it rotates",
                "leave is_causal and use_bidirectional_attention out of its config, unless it was "
                "trained to see later tokens",
                wrong=_writes_text(subject),
            )
        elif name != "theta-conflict":
            yield Finding(
                "assumption",
                (),
                text,
                "a runtime that reads the config differently will serve a different model",
                "correct the config, or check that this is meant",
                wrong=False,
            )


def _writes_text(subject: ExaminedModel) -> bool:
    """True if an architecture that writes text is stated, so the model is not meant to encode."""
    names, kind = subject.config.get("architectures"), subject.reader.model_type
    stated = " ".join(map(str, names)) if isinstance(names, list) else ""
    return kind not in ENCODERS and bool(re.search("For(CausalLM|ConditionalGeneration)", stated))
