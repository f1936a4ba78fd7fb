"""A callback for any `transformers.Trainer`: it holds a training to its plan, and to sound numbers.

It installs the plan and proves it at the start, also after a resume; records plan and data in each
checkpoint, and refuses a checkpoint of another; stops before an update where the gradient is not
finite; saves after the running step on SIGTERM, and exits with 143, or on Ctrl-C, and is then
interrupted; and writes the model with its plan in the config, at the end and at the steps that are
kept for evaluation.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import unwrap
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, RopewalkError
from ropewalk.models.install import install
from ropewalk.outputs import check_room
from ropewalk.training.mixers import keep_apart
from ropewalk.training.ranks import most_of_ranks, on_first, rank, whole
from ropewalk.training.saving import causal_of, save_whole

TERMINATED = 128 + signal.SIGTERM
KEPT = "evaluate"
"""The folder of the checkpoints that are kept for evaluation."""
RECORD = "ropewalk"
"""The name of the callback's record in a checkpoint's trainer_state.json."""


_FINISHES = "\nfinishing and saving this step; Ctrl-C again stops without"


class NotFinite(RopewalkError):
    """A loss or gradient that is not a number. The weights are those before the step."""


class RopewalkCallback(TrainerCallback):  # type: ignore[misc]
    """`data` says what is read, in JSON: it goes into each checkpoint, and a resume with other data
    is refused. `keep` are the steps whose models are kept for evaluation. `final` is the folder of
    the trained model, with the tokenizer that is given here or to the Trainer (`processing_class`);
    None leaves saving to the script. `by_current_length` lets each window follow
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
        self.plan, self.data, self.keep = plan, json.loads(json.dumps(dict(data))), keep
        self._by_current_length = by_current_length
        self.final = None if final is None else Path(final)
        self._tokenizer = tokenizer
        self._signals = _Signals()
        self._stops = 0
        """The signal for which all ranks stop after this step."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, *_: Any, model: Any = None, **__: Any
    ) -> None:
        self._check_same(state)
        place, needed = Path(args.output_dir), self.bytes_written(model)
        on_first(lambda: check_room(place, needed, "room for the models that are kept"))
        causal = causal_of(model)
        with _as_written(causal):
            keep_apart(causal)
            install(causal, self.plan, by_current_length=self._by_current_length)
        self._record(args, state)
        self._stops = 0
        self._signals.watch()

    def bytes_written(self, model: Any) -> int:
        """The bytes of the models that are kept."""
        adapter = causal_of(model) is not model
        trained = [weight for weight in model.parameters() if weight.requires_grad or not adapter]
        size: int = sum(weight.numel() * weight.element_size() for weight in trained)
        return size * (len(self.keep) + (self.final is not None))

    def leave_signals(self) -> None:
        """Stop watching for signals after a training that ended with an error."""
        self._signals.leave()

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, *_: Any, model: Any = None, **__: Any
    ) -> None:
        if args.fp16:
            return  # its scaler finds such gradients, and leaves the update out
        norm = gradient_norm(model)
        # Clipping an infinite norm multiplies by 0. Gradients that are 0 by themselves train
        # nothing, and may stop too.
        clipped = args.max_grad_norm > 0 and norm == 0
        if clipped or not torch.isfinite(norm):
            self._signals.leave()
            windows = self._per_step(args)
            first = state.global_step * windows
            value = "0, or infinite before it was clipped" if clipped else f"{norm.item()}"
            raise NotFinite(
                f"step {state.global_step + 1}: the norm of the gradient is {value}, in windows "
                f"{first} to {first + windows - 1} in the order of reading; the update was not "
                f"made, and the checkpoints in {args.output_dir} are from before; lower the "
                "learning rate, or look at these windows"
            )

    def on_step_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Any = None,
        processing_class: Any = None,
        **_: Any,
    ) -> None:
        self._record(args, state)
        if state.global_step in self.keep:
            folder = Path(args.output_dir) / KEPT / f"step-{state.global_step}"
            save_whole(model, folder, self._tokenizer or processing_class, plan=self.plan)
        self._stops = most_of_ranks(self._signals.came, args.device)
        if self._stops:
            control.should_save = True
            control.should_training_stop = True

    def on_train_end(
        self, *_: Any, model: Any = None, processing_class: Any = None, **__: Any
    ) -> None:
        if self._stops:
            self._signals.leave()
            if self._stops == signal.SIGINT:
                raise KeyboardInterrupt
            raise SystemExit(TERMINATED)
        if self.final is not None:
            save_whole(model, self.final, self._tokenizer or processing_class, plan=self.plan)
        self._signals.leave(pass_on=True)

    def _per_step(self, args: TrainingArguments) -> int:
        """Windows of a step, as the data says, or as the stock Trainer counts."""
        windows = self.data.get("windows_per_step")
        if isinstance(windows, int):
            return windows
        batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
        return int(batch * args.world_size)

    def _record(self, args: TrainingArguments, state: TrainerState) -> None:
        """Goes into the checkpoint of this step. Not by ExportableState: what a Trainer restores
        from that would replace this callback, and the check of it."""
        windows = state.global_step * self._per_step(args)
        record = {"plan": self.plan.to_json(), "data": self.data, "windows": windows}
        state.stateful_callbacks[RECORD] = {"args": {}, "attributes": record}

    def _check_same(self, state: TrainerState) -> None:
        kept = state.stateful_callbacks.get(RECORD)
        record = (kept or {}).get("attributes", {})
        plan = json.loads(json.dumps(self.plan.to_json()))
        for key, present in (("plan", plan), ("data", self.data)):
            if key in record and record[key] != present:
                parts = {*record[key], *present}
                differ = sorted(p for p in parts if record[key].get(p) != present.get(p))
                raise InputError(
                    f"the checkpoint of step {state.global_step} was trained with another {key} "
                    f"({', '.join(differ)}); "
                    f"resume with the {key} that it was started with, or start a new training"
                )


class _Signals:
    """Notes which of SIGTERM and Ctrl-C came, once watched. SIGTERM may come twice, from a launcher
    and to its group; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.came = 0
        """Its number; SIGTERM, if both came."""
        self._former: dict[int, Any] = {}

    def watch(self) -> None:
        self.came = 0
        # Only the main thread may. In another one they do what they did, as does what is ignored.
        if self._former or threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._former[number] = signal.signal(number, self._note)

    def leave(self, *, pass_on: bool = False) -> None:
        """Watch no longer. One that came too late to stop anything does what it did before."""
        while self._former:
            number, former = self._former.popitem()
            signal.signal(number, former or signal.SIG_DFL)
        if pass_on and self.came:
            os.kill(os.getpid(), self.came)

    def _note(self, number: int, frame: FrameType | None) -> None:
        from transformers import Trainer  # slow, and long imported by whoever trains

        # After a training that ended with an error, no step ends that would do what is asked.
        if not _is_in(Trainer.train, frame):
            self.leave()
            os.kill(os.getpid(), number)
            return
        if number == self.came == signal.SIGINT:
            self.leave()
            raise KeyboardInterrupt
        self.came = max(self.came, number)
        if number == signal.SIGINT and rank() == 0:
            with suppress(RuntimeError, OSError):  # it may come in the middle of a line
                print(_FINISHES, file=sys.stderr, flush=True)


def _is_in(function: Callable[..., object], frame: FrameType | None) -> bool:
    """True if the function is on the stack."""
    code = unwrap(function).__code__
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


@contextmanager
def _as_written(model: Any) -> Iterator[None]:
    """Without the autocast that accelerate puts around the forward: proofs need every digit."""
    around = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if around is not None:
            model.forward = around


def gradient_norm(model: Any) -> torch.Tensor:
    """The norm over all parameters, also if they are sharded."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    return whole(torch.nn.utils.get_total_norm(gradients))
