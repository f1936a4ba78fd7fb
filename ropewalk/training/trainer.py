"""`transformers.Trainer` with windows divided among ranks, sharded weights, and whole checkpoints.

What is ours, and why the stock one cannot do it:

- the loss is the sum over targets divided by their number over all ranks and accumulated batches,
  and its logits are made in parts (loss.py);
- batches are drawn by (step, reader), so the order depends on nothing else, and ranks of a sequence
  group read the same windows;
- weights are cut with `fully_shard`. accelerate is not asked: without an accelerator it silently
  copies whole models instead, and it knows no sequence group that shares windows;
- checkpoints hold shards in safetensors and get their name when they are whole (checkpoint.py). The
  stock ones are still read;
- a loss or gradient that is not finite stops all ranks before the update.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import register_fsdp_forward_method
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

from ropewalk.data.windows import IGNORED, Window
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.models.slices import Empty
from ropewalk.outputs import check_room
from ropewalk.training import checkpoint
from ropewalk.training.callback import NotFinite, RopewalkCallback
from ropewalk.training.collator import WindowCollator
from ropewalk.training.execution import Division
from ropewalk.training.loss import METHOD, prepare_loss, summed_loss
from ropewalk.training.mixers import keep_apart, shortened
from ropewalk.training.parallel import Place, check_sharded, shard_for_training
from ropewalk.training.ranks import on_first, weights_digest, whole
from ropewalk.training.saving import causal_of, save_whole

FINAL = "final"
"""The folder of `save_model` by default: the output folder holds the checkpoints."""


class RopewalkTrainer(Trainer):  # type: ignore[misc]
    """A trainer for windows of documents, on one process or on the ranks of `torchrun`.

    `train_dataset` is a sequence of windows, as long as the run or longer (`data.stream.Stream`):
    the run reads it once, in its order. The model is cut over the ranks here, and then reads its
    weights where they are still in their files (`weights`).
    """

    def __init__(
        self,
        model: Any,
        args: TrainingArguments,
        *,
        train_dataset: Sequence[Window],
        division: Division | None = None,
        weights: Empty | None = None,
        **others: Any,
    ) -> None:
        _check_arguments(args)
        division = division or Division.of_world(args.world_size)
        _check_others(others, shards=division.ranks > 1)
        self.place = Place(division, args.device.type)
        self._shards = division.ranks > 1
        causal = self._causal = causal_of(model)
        _check_adapter(model)
        if self._shards:
            shard_for_training(causal, self.place, bfloat16=args.bf16)
            if weights is not None:
                weights.read()
            check_sharded(model)
        model.to(args.device)  # of a model that is cut: buffers
        mixers = keep_apart(causal)
        if mixers and division.sequence > 1:
            raise Unsupported(
                f"{shortened(mixers)} of {type(causal).__name__} mix tokens outside attention: "
                "their states run through a document, so ranks cannot share its window; train "
                "without sequence parallelism (`sequence_parallel` = 1)"
            )
        prepare_loss(causal)
        if self._shards:
            register_fsdp_forward_method(causal, METHOD)
            causal.reshard()
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            data_collator=WindowCollator(division.sequence, self.place.stretch, weighted=True),
            **others,
        )
        self.model_accepts_loss_kwargs = True  # so that targets are counted
        self.loss_is_scaled_for_ga = True  # and nothing else divides the loss
        if self._shards:
            self.accelerator.prepare_model = lambda model, **_: model
        self._losses: list[Tensor] = []
        """The losses of the batches of this step so far."""
        self._targets: Tensor | int = 1
        """The targets in all batches of this step."""

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **others: Any
    ) -> Any:
        self._losses = []
        checkpoint.remove_leftovers(Path(self.args.output_dir))
        folder = self._checkpoint_named(resume_from_checkpoint)
        self._check_room()
        try:
            done = super().train(None if folder is None else str(folder), *args, **others)
        finally:
            for callback in self._ours():
                callback.leave_signals()
        # A process that was killed after its last checkpoint had not yet removed an older one.
        self._keep_last()
        return done

    # What is read.

    def get_train_dataloader(self) -> DataLoader[Window]:
        """Batches of the step's windows, this reader's of each."""
        args, readers = self.args, self.place.division.readers
        size, step = args.per_device_train_batch_size, self.get_total_train_batch_size(args)
        steps = args.max_steps if args.max_steps > 0 else len(self.train_dataset) // step
        if not 0 < steps * step <= len(self.train_dataset):
            raise InputError(
                f"{len(self.train_dataset)} windows are too few for {max(steps, 1)} steps of "
                f"{step}; give more windows, fewer steps (`max_steps`), or fewer windows per step"
            )
        starts = range(self.place.reader * size, steps * step, readers * size)
        return DataLoader(
            self.train_dataset,
            batch_sampler=_Batches(starts, size),
            collate_fn=self.data_collator,
            num_workers=args.dataloader_num_workers,
            pin_memory=args.dataloader_pin_memory and torch.cuda.is_available(),
        )

    def get_total_train_batch_size(self, args: TrainingArguments) -> int:
        """Windows of a step."""
        per_rank = args.per_device_train_batch_size * args.gradient_accumulation_steps
        return int(per_rank * self.place.division.readers)

    # What is computed.

    def compute_loss_context_manager(self) -> contextlib.ExitStack:
        """accelerate casts in the model's own forward, which is not called here."""
        stack: contextlib.ExitStack = super().compute_loss_context_manager()
        if self.args.bf16 and not self._shards:
            stack.enter_context(torch.autocast(self.args.device.type, torch.bfloat16))
        return stack

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
        weights = inputs.pop("weights", None)
        mesh = self.place.sequence_mesh
        if mesh is not None:
            inputs["sequence_parallel"] = mesh
        count = _targets(targets, weights) if num_items_in_batch is None else num_items_in_batch
        self._targets = count
        summed = summed_loss(self._causal, targets, inputs, weights)
        return summed * self.place.division.ranks / count

    def get_batch_samples(
        self, epoch_iterator: Any, num_batches: int, device: torch.device
    ) -> tuple[list[Any], Any]:
        """The stock trainer counts targets; those with weights count as what they weigh."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        targets = [_targets(batch["shift_labels"], batch.get("weights")) for batch in batches]
        count = torch.stack(targets).sum().to(device) if targets else None
        return batches, count if count is None else self.accelerator.gather(count).sum()

    def training_step(self, *args: Any, **others: Any) -> Tensor:
        loss: Tensor = super().training_step(*args, **others)
        self._losses.append(loss)
        return loss

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        """The last thing that the stock trainer computes before an update."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        norm = whole(norm) if isinstance(norm, Tensor) else torch.as_tensor(norm)
        losses, self._losses = self._losses, []
        self._refuse_not_finite(torch.stack(losses), norm)
        return norm

    def _refuse_not_finite(self, losses: Tensor, norm: Tensor) -> None:
        """Refuse what is not finite, on all ranks together: each sees the losses of all."""
        everyone = [losses]
        if self._shards:
            everyone = [torch.empty_like(losses) for _ in range(self.place.division.ranks)]
            dist.all_gather(everyone, losses.contiguous())
        bad = torch.stack(everyone).isfinite().logical_not().nonzero()
        if not len(bad) and norm.isfinite():
            return
        size, division = self.args.per_device_train_batch_size, self.place.division
        count = self.get_total_train_batch_size(self.args)
        first, problem = self.state.global_step * count, f"gradient's norm is {norm.item()}"
        if self._targets == 0:
            problem = "loss has no targets"
        elif len(bad):
            rank, batch = bad[0].tolist()
            problem = f"loss is {everyone[rank][batch].item()}"
            batches_before = batch * division.readers + rank // division.sequence
            first, count = first + batches_before * size, size
        windows = f"window {first}" if count == 1 else f"windows {first} to {first + count - 1}"
        raise NotFinite(
            f"step {self.state.global_step + 1}: the {problem} in {windows}; the update was not "
            f"made, and the checkpoints in {self.args.output_dir} are from before; look at what "
            "was read, or lower the learning rate"
        )

    # What is kept.

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Write the whole model, gathered, as `from_pretrained` reads it, with its plan."""
        folder = Path(output_dir or self.args.output_dir)
        if folder.resolve() == Path(self.args.output_dir).resolve():
            folder /= FINAL
        plan = next((callback.plan for callback in self._ours()), None)
        save_whole(self.model, folder, self.processing_class, plan=plan)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.store_flos()
        run = Path(self.args.output_dir)
        checkpoint.save(
            run / f"{checkpoint.PREFIX}{self.state.global_step}",
            self.model,
            self.optimizer.optimizer,
            {
                "scheduler": self.lr_scheduler.state_dict(),
                "windows_per_step": self.get_total_train_batch_size(self.args),
                "frozen": self._frozen,
                "logged": self._globalstep_last_logged,
            },
            {TRAINER_STATE_NAME: self._state_as_json()},
            {"loss": self._tr_loss.detach().cpu()},
        )
        self._keep_last()

    def _keep_last(self) -> None:
        if self.args.save_total_limit:
            checkpoint.keep_last(Path(self.args.output_dir), self.args.save_total_limit)

    @cached_property
    def _frozen(self) -> str:
        """A digest of the weights that are not trained, and therefore in no checkpoint."""
        named = self.model.named_parameters()
        return weights_digest((name, weight) for name, weight in named if not weight.requires_grad)

    def _state_as_json(self) -> object:
        """The state as the stock Trainer keeps it, with that of callbacks and control."""
        stateful = [*self.callback_handler.callbacks, self.control]
        for each in stateful:
            if isinstance(each, ExportableState):
                self.state.stateful_callbacks[type(each).__name__] = each.state()
        return dataclasses.asdict(self.state)

    def _check_room(self) -> None:
        """Refuse a disk without room for the checkpoints, before the first step."""
        trained = checkpoint.weights(self.model).values()
        # With AdamW's two means, each as large as the weight.
        one = sum(weight.numel() * (weight.element_size() * 3) for weight in trained)
        steps, every = self.args.max_steps, self.args.save_steps
        if self.args.save_strategy == "no" or steps <= 0 or every < 1:
            many = 1
        else:
            many = -(-steps // int(every))
        if self.args.save_total_limit:
            many = min(many, self.args.save_total_limit + 1)

        run = Path(self.args.output_dir)
        held = [path for folder in checkpoint.checkpoints_in(run) for path in folder.iterdir()]
        models = sum(callback.bytes_written(self.model) for callback in self._ours())
        missing = one * many + models - sum(path.stat().st_size for path in held)
        kept = f"room for {many} checkpoints and the models that are kept"
        on_first(lambda: check_room(run, missing, kept))

    def _ours(self) -> list[RopewalkCallback]:
        callbacks = self.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, RopewalkCallback)]

    # How a run goes on.

    def _checkpoint_named(self, resume: str | bool | None) -> Path | None:
        run = Path(self.args.output_dir)
        if resume is None or resume is False:
            return None
        if resume is True:
            kept = checkpoint.checkpoints_in(run)
            stock = get_last_checkpoint(str(run)) if run.is_dir() and not kept else None
            if not kept and (stock is None or not _is_stock(Path(stock))):
                raise InputError(f"{run}: holds no checkpoint; start without resuming")
            return kept[-1] if kept else Path(str(stock))
        folder = Path(resume)
        if not checkpoint.is_checkpoint(folder) and not _is_stock(folder):
            there = ", ".join(path.name for path in checkpoint.checkpoints_in(folder.parent))
            raise InputError(
                f"{folder}: is not a complete checkpoint; complete ones next to it: "
                f"{there or 'none'}"
            )
        return folder

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        folder = Path(resume_from_checkpoint)
        if checkpoint.is_checkpoint(folder):
            checkpoint.check(folder)
            self._check_state(folder)
            checkpoint.load_weights(folder, self.model)
        elif self._shards:
            raise Unsupported(
                f"{folder}: is a checkpoint of the stock Trainer, which only resumes in one "
                "process; start without torchrun, or train anew from its model.safetensors"
            )
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _check_state(self, folder: Path) -> None:
        state = checkpoint.load_state(folder)
        before, now = state["windows_per_step"], self.get_total_train_batch_size(self.args)
        if before != now:
            raise InvalidValue(
                "windows of a step",
                now,
                f"{folder} was trained with {before}, so the next windows would differ",
                "choose `gradient_accumulation_steps` so that ranks × batches give the same",
            )
        if state["frozen"] != self._frozen:
            raise InputError(
                f"{folder}: was trained on top of other frozen weights; give the model that it was "
                "started from"
            )

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
            return
        state = checkpoint.load_local(Path(folder))
        if state:  # the losses since the last line of the log, so that the next says the same
            self._tr_loss = state["loss"].to(self.args.device)
            self._total_loss_scalar -= float(self.accelerator.gather(self._tr_loss).mean())
            self._globalstep_last_logged = checkpoint.load_state(Path(folder))["logged"]


def _targets(labels: Tensor, weights: Tensor | None) -> Tensor:
    """The number of targets, each counted by its weight."""
    there = labels != IGNORED
    return (there if weights is None else weights[there]).sum(dtype=torch.float64)


def _is_stock(folder: Path) -> bool:
    """True if the stock Trainer wrote it. A torn one of ours has shards."""
    return (folder / TRAINER_STATE_NAME).is_file() and not any(folder.glob("shard-*"))


def _check_arguments(args: TrainingArguments) -> None:
    """Settings of the stock Trainer that would not do what they say."""
    for key in ("fsdp", "deepspeed", "parallelism_config"):
        if getattr(args, key, None):
            raise Unsupported(
                f"{key} cannot be used with this trainer, which does its own sharding; use "
                "`division`"
            )
    for key in _NOT_OURS:
        if getattr(args, key, None):
            raise Unsupported(f"{key} is not for this trainer; leave it out")
    if args.eval_strategy != "no" or args.save_strategy == "best":
        raise Unsupported(
            "this trainer does not evaluate; leave eval_strategy out, and use ropewalk evaluate"
        )
    if not args.average_tokens_across_devices:
        raise Unsupported(
            "average_tokens_across_devices=False would weight targets differently on each rank; "
            "leave it out"
        )
    # Each rank updates its part of the weights alone.
    if args.optim not in _OPTIMIZERS:
        raise InvalidValue(
            "optim",
            str(args.optim),
            f"must be one whose state can be divided as the weights are: {', '.join(_OPTIMIZERS)}",
            "adamw_torch is usual",
        )
    # The data is a function of seed, epoch and index (data/windows.py), epochs included.
    if getattr(args, "train_sampling_strategy", "random") not in ("random", "sequential"):
        raise Unsupported(
            "train_sampling_strategy is not for this trainer, which reads windows in their order; "
            "leave it out"
        )
    if args.max_steps <= 0 and args.num_train_epochs != 1:
        raise InvalidValue(
            "num_train_epochs",
            args.num_train_epochs,
            "the windows are read once, since they already contain all epochs in order",
            "give max_steps, or num_train_epochs=1",
        )
    # With several devices, the stock Trainer would copy the model to each (DataParallel).
    if args.n_gpu > 1:
        raise Unsupported(
            f"{args.n_gpu} devices for one process; start with `torchrun --nproc-per-node "
            f"{args.n_gpu}`, or show it one device (CUDA_VISIBLE_DEVICES)"
        )


_NOT_OURS = (
    "label_smoothing_factor",
    "group_by_length",
    "auto_find_batch_size",
    "fp16",
    "torch_compile",
    "use_liger_kernel",
    "ignore_data_skip",
    "save_only_model",
    "push_to_hub",
)
_OPTIMIZERS = ("adamw_torch", "adamw_torch_fused", "sgd", "adagrad", "rmsprop")


@dataclasses.dataclass(frozen=True)
class _Batches:
    """The windows of each batch, counted as they are read: a run may have thousands of millions."""

    starts: range
    size: int

    def __len__(self) -> int:
        return len(self.starts)

    def __iter__(self) -> Iterator[list[int]]:
        return (list(range(start, start + self.size)) for start in self.starts)


def _check_others(others: dict[str, Any], *, shards: bool) -> None:
    for key in ("model_init", "compute_loss_func", "data_collator", "eval_dataset"):
        if others.get(key) is not None:
            raise Unsupported(f"{key} is not for this trainer; leave it out")
    if shards and (others.get("optimizers") or (None,))[0] is not None:
        raise Unsupported(
            "a ready-made optimizer holds the weights from before they were divided; give "
            "optimizer_cls_and_kwargs"
        )


def _check_adapter(model: Any) -> None:
    kinds = getattr(model, "peft_config", None)
    if isinstance(kinds, dict) and any(each.is_prompt_learning for each in kinds.values()):
        raise Unsupported(
            "adapters that add tokens to a prompt move positions, which layouts do not take into "
            "account; use LoRA"
        )
