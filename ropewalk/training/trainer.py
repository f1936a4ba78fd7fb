"""`transformers.Trainer` with windows divided among ranks, sharded weights, and whole checkpoints.

What is ours, and why the stock one cannot do it:

- the loss is the sum over targets divided by their number over all ranks and accumulated batches,
  and its logits are made in parts (loss.py);
- batches are drawn by (step, reader), so the order depends on nothing else, and ranks of a sequence
  group read the same windows;
- weights are cut with `fully_shard`. accelerate is not asked: without an accelerator it silently
  copies whole models instead, and it knows no sequence group that shares windows;
- checkpoints hold shards in safetensors and get their name when they are whole (checkpoint.py). The
  stock ones are still read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from ropewalk.data.windows import Window
from ropewalk.errors import InputError, Unsupported
from ropewalk.training import checkpoint
from ropewalk.training.collator import WindowCollator
from ropewalk.training.loss import METHOD, prepare_loss, summed_loss
from ropewalk.training.parallel import Division, Place, check_sharded, shard_for_training
from ropewalk.training.saving import save_whole


class RopewalkTrainer(Trainer):  # type: ignore[misc]
    """A trainer for windows of documents, on one process or on the ranks of `torchrun`.

    `train_dataset` is a sequence of windows, as long as the run or longer (`data.stream.Stream`).
    The model follows its plan already, and is cut over the ranks here.
    """

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        *,
        train_dataset: Sequence[Window],
        division: Division | None = None,
        **others: Any,
    ) -> None:
        _check_arguments(args)
        self.place = Place(division or Division.of_world(args.world_size), args.device.type)
        self._shards = self.place.division.ranks > 1
        model.to(args.device)
        causal = _causal(model)
        prepare_loss(causal)
        shard_for_training(causal, self.place, bfloat16=args.bf16)
        self._causal = causal
        if self._shards:
            register_fsdp_forward_method(causal, METHOD)
            check_sharded(causal)
        own = self.place.division
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            data_collator=WindowCollator(own.sequence, self.place.stretch),
            **others,
        )
        self.model_accepts_loss_kwargs = True  # so that targets are counted
        self.loss_is_scaled_for_ga = True  # and nothing else divides the loss
        if self._shards:
            self.accelerator.prepare_model = lambda model, **_: model

    # What is read.

    def get_train_dataloader(self) -> DataLoader[Window]:
        """Batches of the step's windows, this reader's of each."""
        args, readers = self.args, self.place.division.readers
        size = args.per_device_train_batch_size
        batches = [
            list(range(start, start + size))
            for start in range(
                self.place.reader * size, len(self.train_dataset) - size + 1, readers * size
            )
        ]
        whole = len(self.train_dataset) // (readers * size * args.gradient_accumulation_steps)
        batches = batches[: whole * args.gradient_accumulation_steps]
        if not batches:
            raise InputError(
                f"{len(self.train_dataset)} windows do not fill one step of "
                f"{readers * size * args.gradient_accumulation_steps}; give more windows, or "
                "smaller steps"
            )
        return DataLoader(
            self.train_dataset,
            batch_sampler=batches,
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
        )

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Windows of a step."""
        own = args.per_device_train_batch_size * args.gradient_accumulation_steps
        return int(own * self.place.division.readers)

    # What is computed.

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """This rank's share of the mean over all targets of the step, times the number of ranks:
        gradients, and the losses that are logged, are means over ranks."""
        if return_outputs:
            raise Unsupported("this trainer does not evaluate; use ropewalk evaluate")
        targets = inputs.pop("shift_labels")
        inputs.pop("labels", None)
        mesh = self.place.sequence_mesh
        if mesh is not None:
            inputs["sequence_parallel"] = mesh
        count = (targets != -100).sum() if num_items_in_batch is None else num_items_in_batch
        ranks = self.place.division.ranks
        return summed_loss(self._causal, targets, inputs) * ranks / count

    # What is kept.

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the whole model, gathered, as `from_pretrained` reads it."""
        save_whole(self.model, Path(output_dir or self.args.output_dir), self.processing_class)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.store_flos()
        folder = Path(self.args.output_dir) / f"{checkpoint.PREFIX}{self.state.global_step}"
        checkpoint.save(
            folder,
            self.model,
            self.optimizer.optimizer,
            {"scheduler": self.lr_scheduler.state_dict()},
            {TRAINER_STATE_NAME: self._state_as_json()},
        )
        if self.args.should_save and self.args.save_total_limit:
            checkpoint.keep_last(Path(self.args.output_dir), self.args.save_total_limit)

    def _state_as_json(self) -> object:
        """As the stock Trainer keeps it, with what callbacks and control ask to be kept."""
        stateful = [*self.callback_handler.callbacks, self.control]
        for each in stateful:
            if isinstance(each, ExportableState):
                self.state.stateful_callbacks[type(each).__name__] = each.state()
        return dataclasses.asdict(self.state)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        if checkpoint.is_checkpoint(folder):
            checkpoint.load_weights(folder, self.model)
        elif self._shards:
            raise Unsupported(
                f"{folder}: is a checkpoint of the stock Trainer, which goes on with one process "
                "only; start without torchrun, or from its model.safetensors"
            )
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, folder: str | None) -> None:
        if folder is None or not checkpoint.is_checkpoint(Path(folder)):
            super()._load_optimizer_and_scheduler(folder)
            return
        state = checkpoint.load_state(Path(folder))
        checkpoint.load_optimizer(Path(folder), self.model, self.optimizer.optimizer)
        self.lr_scheduler.load_state_dict(state["scheduler"])

    def _load_rng_state(self, folder: str | None) -> None:
        if folder is None or not checkpoint.is_checkpoint(Path(folder)):
            super()._load_rng_state(folder)
        else:
            checkpoint.load_random_states(Path(folder))


def _causal(model: Any) -> Any:
    """The causal language model, which an adapter (peft) may be wrapped around."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _check_arguments(args: TrainingArguments) -> None:
    """Settings of the stock Trainer that would not do what they say."""
    for key, ours in (("fsdp", "division"), ("deepspeed", "division")):
        if getattr(args, key, None):
            raise Unsupported(f"{key} is not for this trainer, which shards itself; use `{ours}`")
    for key in ("label_smoothing_factor", "group_by_length", "auto_find_batch_size", "fp16"):
        if getattr(args, key, None):
            raise Unsupported(f"{key} is not for this trainer; leave it out")
    if not args.average_tokens_across_devices:
        raise Unsupported(
            "average_tokens_across_devices=False would weigh targets by the rank that they are on; "
            "leave it out"
        )
