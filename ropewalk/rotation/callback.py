"""A callback for trainers of transformers and TRL that checks the rotation before step 1."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from transformers import TrainerCallback

from ropewalk.rotation.check import assert_rotation


class RotationCallback(TrainerCallback):  # type: ignore[misc]
    """Stops a training before its first step unless the model rotates as its plan says. The
    arguments are those of `assert_rotation`: a plan or its file (default: that in the folder of the
    model), and the lengths that are trained on (default: the plan's target)."""

    def __init__(self, plan: Any = None, *, lengths: Sequence[int] = ()) -> None:
        self.plan, self.lengths = plan, lengths

    def on_train_begin(self, *_: object, model: Any = None, **__: object) -> None:
        result = assert_rotation(model, self.plan, lengths=self.lengths)
        logging.getLogger("transformers.trainer").info("ropewalk: %s", result.summary())
