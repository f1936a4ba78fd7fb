"""The settings of a training, checked before a model is loaded. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

from ropewalk.data.mixtures import Mixture
from ropewalk.data.packing import Filling
from ropewalk.data.windows import LEAST, Arrangement, WindowSettings
from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.lengths import check_measured, format_length
from ropewalk.untrusted import check_between, check_count, check_seed, real_number, whole_number
from ropewalk.values import frozen

Decay = Literal["constant", "linear", "cosine"]
"""The learning rate after the warm-up."""
SHORT_ARRANGEMENTS = ("skip", "reset")
"""The arrangements whose positions do not show the length of a window."""
_LAST_SEED = 2**32 - 1
"""numpy's global generator, which the stock Trainer seeds, takes no larger one."""
LAST, EVERY = 5, 10
"""The last five checkpoints are kept for evaluation, one every ten steps (Wang et al. 2024)."""


@dataclass(frozen=True)
class StageSettings:
    """Training at one length."""

    length: int
    """The length that the model is planned for."""
    window: int
    """Tokens of a training window: as many, or fewer."""
    steps: int

    def __post_init__(self) -> None:
        check_measured(self.length, "to")
        usual = "1,000 is a usual number"
        check_between(whole_number(self.steps, "steps"), 1, 10**6, "steps", usual)
        if self.window < LEAST:
            raise InvalidValue("window", self.window, f"must be at least {LEAST}", "32768 is usual")

    @property
    def kept(self) -> tuple[int, ...]:
        """The steps whose models are kept for evaluation, if this is the last stage."""
        last = range(self.steps - (LAST - 1) * EVERY, self.steps + 1, EVERY)
        return tuple(step for step in last if step > 0)


@dataclass(frozen=True)
class TrainingSettings:
    """A training run. The defaults are AnchorAttention's (recipes/anchor.py)."""

    stages: tuple[StageSettings, ...]
    layout: Arrangement = "anchor"
    batch: int = 8
    """Windows of a step, over all ranks."""
    learning_rate: float = 2e-5
    decay: Decay = "constant"
    warmup: int = 0
    weight_decay: float = 0.1
    betas: tuple[float, float] = (0.9, 0.95)
    clip: float = 1.0
    """The largest norm of a gradient; a longer one is shortened to it."""
    filling: Filling = "best_fit"
    chunks: int = 2
    """Parts of a document that the layouts `interleaved` and `skip` divide it into."""
    tags: Mapping[str, Sequence[int]] | None = None
    """Tokens that begin each document, by domain."""
    shares: Mapping[str, float] | None = None
    long_from: int = 4096
    long_share: float | None = None
    mixed_windows: bool = False
    """Every other step reads documents of at most the original length, each by itself, under the
    original frequencies."""
    lora: int | None = None
    """The rank of adapters that are trained instead of the weights."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.stages:
            raise InvalidValue("stages", self.stages, "must not be empty", "write ['16k', '32k']")
        for one, other in pairwise(self.stages):
            if other.length <= one.length:
                raise InvalidValue(
                    "stages",
                    ", ".join(format_length(stage.length) for stage in self.stages),
                    "lengths must increase",
                    "write them in rising order",
                )
        check_count(self.batch, "batch", usual=8)
        check_seed(self.seed)
        if self.seed > _LAST_SEED:
            raise InvalidValue("seed", self.seed, f"must be at most {_LAST_SEED}", "give another")
        if self.decay not in get_args(Decay):
            raise UnknownName("decay", self.decay, get_args(Decay))
        self._check_optimizer()
        if self.lora is not None:
            check_count(self.lora, "lora", usual=8)
        if self.mixed_windows and self.layout in SHORT_ARRANGEMENTS:
            raise InvalidValue(
                "mixed_windows",
                True,
                f"the schedule is chosen by a window's positions, which the layout {self.layout} "
                "does not number in one sequence",
                "choose another layout, such as anchor",
            )
        for key in ("shares", "tags"):
            if (value := getattr(self, key)) is not None:
                object.__setattr__(self, key, frozen(value))
        for stage in self.stages:
            self.windows(stage)  # has the checks of windows

    def _check_optimizer(self) -> None:
        if not 0 < real_number(self.learning_rate, "learning_rate") < 10:
            raise InvalidValue(
                "learning_rate", self.learning_rate, "must be above 0 and below 10", "2e-5 is usual"
            )
        for key in ("warmup", "weight_decay", "clip"):
            if real_number(getattr(self, key), key) < 0:
                raise InvalidValue(
                    key, getattr(self, key), "must not be negative", "give 0 for none"
                )
        # AdamW multiplies each weight by 1 − rate · decay.
        if self.learning_rate * self.weight_decay >= 1:
            raise InvalidValue(
                "weight_decay",
                self.weight_decay,
                f"at a learning rate of {self.learning_rate:g}, a step would take each weight past "
                "zero",
                "0.1 is usual",
            )
        whole_number(self.warmup, "warmup")
        fewest = min(stage.steps for stage in self.stages)
        if self.warmup >= fewest:
            raise InvalidValue(
                "warmup",
                self.warmup,
                f"the rate would not reach its value within the {fewest:,} steps of a stage",
                "give fewer steps to rise over",
            )
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise InvalidValue(
                "betas", self.betas, "must be two numbers from 0 to below 1", "write (0.9, 0.95)"
            )

    def windows(self, stage: StageSettings, short: int | None = None) -> WindowSettings:
        """The windows of a stage; with `short`, those that take turns with them: as many tokens,
        in documents of at most so many, each by itself and from position 0 (LongRoPE2)."""
        layout = self.layout if short is None else "reset"
        return WindowSettings(
            stage.window,
            layout,
            tags=self.tags,
            chunks=self.chunks,
            target=stage.length if layout == "skip" else None,
            filling=self.filling,
            longest=short,
            mixture=Mixture(None, self.shares, self.long_from, self.long_share),
            seed=self.seed,
        )


def stages_of(
    lengths: Sequence[int], steps: Sequence[int], window: int | None
) -> tuple[StageSettings, ...]:
    """A stage for each length. Stages beyond the last number of steps have as many as that."""
    if len(steps) > len(lengths):
        raise InvalidValue(
            "steps",
            ", ".join(map(str, steps)),
            f"there {'is 1 stage' if len(lengths) == 1 else f'are {len(lengths)} stages'}",
            "give one number for all stages, or one for each",
        )
    whole = [*steps, *[steps[-1]] * (len(lengths) - len(steps))]
    return tuple(
        StageSettings(length, length if window is None else min(window, length), count)
        for length, count in zip(lengths, whole, strict=True)
    )
