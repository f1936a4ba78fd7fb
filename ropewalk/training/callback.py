"""A callback for any `transformers.Trainer`: it holds a training to its plan, and to sound numbers.

It installs the plan and proves it at the start, also after a resume; records plan and data in each
checkpoint, and refuses a checkpoint of another; stops before an update where the gradient is not
finite; saves after the running step on SIGTERM and exits with 143; and writes the model with its
plan in the config, at the end and at the steps that are kept for evaluation.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.models.install import install
from ropewalk.training.mixing import check_mixing
from ropewalk.training.saving import save_whole

TERMINATED = 128 + signal.SIGTERM
KEPT = "evaluate"
"""The folder of the checkpoints that are kept for evaluation."""


class NotFinite(RopewalkError):
    """A loss or gradient that is not a number. The weights are those before the step."""


class RopewalkCallback(TrainerCallback, ExportableState):  # type: ignore[misc]
    """`data` says what is read, in JSON: it goes into each checkpoint, and a resume with other data
    is refused. `keep` are the steps whose models are kept for evaluation. `final` is the folder of
    the trained model; None leaves saving to the script. `by_current_length` lets each window follow
    the step of the plan that serves its own length."""

    def __init__(
        self,
        plan: ContextPlan,
        *,
        data: Mapping[str, object] = MappingProxyType({}),
        keep: tuple[int, ...] = (),
        final: Path | str | None = None,
        tokenizer: Any = None,
        by_current_length: bool = False,
    ) -> None:
        self.plan, self.data, self.keep = plan, dict(data), keep
        self._by_current_length = by_current_length
        self.final = None if final is None else Path(final)
        self._tokenizer = tokenizer
        self._terminated = False
        self._handler: Any = None
        self._windows = 0
        """Read so far, over all ranks."""

    def state(self) -> dict[str, Any]:
        """For the checkpoint (ExportableState)."""
        return {
            "args": {},
            "attributes": {
                "plan": self.plan.to_json(),
                "data": self.data,
                "windows": self._windows,
            },
        }

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        self._check_same(state)
        causal = model.get_base_model() if hasattr(model, "get_base_model") else model
        install(causal, self.plan, by_current_length=self._by_current_length)
        check_mixing(causal)
        self._handler = signal.signal(signal.SIGTERM, self._terminate)

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        norm = gradient_norm(model)
        if not torch.isfinite(norm):
            windows = self._per_step(args)
            first = state.global_step * windows
            raise NotFinite(
                f"step {state.global_step + 1}: the gradient is not finite ({norm.item()}), in one "
                f"of the windows {first} to {first + windows - 1}; the update was not made, and "
                f"the last checkpoint in {args.output_dir} is from before; lower the learning "
                "rate, or look at these windows"
            )

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        self._windows = state.global_step * self._per_step(args)
        if state.global_step in self.keep:
            folder = Path(args.output_dir) / KEPT / f"step-{state.global_step}"
            save_whole(model, folder, self._tokenizer, plan=self.plan)
        if _any_rank(self._terminated, model):
            self._terminated = True
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        **_: Any,
    ) -> None:
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)
        if self._terminated:
            raise SystemExit(TERMINATED)
        if self.final is not None:
            save_whole(model, self.final, self._tokenizer, plan=self.plan)

    def _per_step(self, args: TrainingArguments) -> int:
        """Windows of a step, as the data says, or as the stock Trainer counts."""
        told = self.data.get("windows_per_step")
        if isinstance(told, int):
            return told
        own = args.per_device_train_batch_size * args.gradient_accumulation_steps
        return int(own * args.world_size)

    def _check_same(self, state: TrainerState) -> None:
        kept = state.stateful_callbacks.get(type(self).__name__)
        own = (kept or {}).get("attributes", {})
        for key, present in (("plan", self.plan.to_json()), ("data", self.data)):
            if key in own and own[key] != present:
                raise InputError(
                    f"the checkpoint of step {state.global_step} was trained with another {key}; "
                    f"resume with the {key} that it was started with, or start a new training"
                )

    def _terminate(self, number: int, frame: object) -> None:
        self._terminated = True


def gradient_norm(model: Any) -> torch.Tensor:
    """Over all parameters, also where they are sharded."""
    gradients = [own.grad for own in model.parameters() if own.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _any_rank(here: bool, model: Any) -> bool:
    """Whether it is so on any rank; all must stop at the same step."""
    if not dist.is_initialized():
        return here
    told = torch.tensor(int(here), device=next(model.parameters()).device)
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return bool(told.item())


Report = Callable[[int, dict[str, float]], None]
"""Takes the number of a step and its loss, gradient norm and learning rate."""
