"""Writing an export that is a folder, and proving it: what transformers, vLLM and SGLang share.

Config, weights and tokenizer are written under a temporary name, stock transformers computes with
them in a fresh process (gate.py), and only then they get their name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InvalidValue, Unsupported
from ropewalk.exporting import gate
from ropewalk.exporting.features import expressible, is_dynamic
from ropewalk.exporting.folding import fold as folded
from ropewalk.exporting.parity import Exported, NotTheSame, Parity
from ropewalk.exporting.stock_run import settle
from ropewalk.exporting.writing import Rewrite, copy_companions, staged, write_json, write_weights
from ropewalk.models.checkpoint import Checkpoint, parse_dtype
from ropewalk.models.config import Config, present_plan
from ropewalk.models.load import read_model
from ropewalk.schedule import RotaryGeometry
from ropewalk.untrusted import read_json

PLAN = "plan.json"
"""The plan goes along, so that `ropewalk verify` has something to compare with."""


@dataclass(frozen=True)
class Job:
    """An export, decided and not yet written."""

    checkpoint: Checkpoint
    asked: ContextPlan
    """The plan that was given."""
    carried: ContextPlan
    """The plan that goes along: as given, but for an attention scaling folded into weights."""
    followed: ContextPlan
    """The plan that the export follows: the same, or the nearest that its runtime has."""
    approximations: tuple[str, ...]
    config: Config
    rewrite: Rewrite | None
    dtype: torch.dtype | None
    """What the weights are rounded to; None where they stay as they are."""
    compared_in: torch.dtype

    @property
    def by_current_length(self) -> bool:
        """Stock code chooses among several schedules by the longest position at hand."""
        return any(len(steps) > 1 for steps in self.followed.schedules.values())


def prepare(
    source: str,
    plan: ContextPlan,
    runtime: str,
    write_config: Callable[[Config, ContextPlan], Config],
    *,
    dtype: str = "auto",
    fold: bool = False,
    approximate: bool = False,
) -> Job:
    """Decide all that can be decided before anything is written; refuse what must be refused."""
    wanted = parse_dtype(dtype)
    checkpoint = Checkpoint.open(source)
    _check_plan(checkpoint, plan)
    rewrites: list[Rewrite] = []
    carried = plan
    if wanted is not None:
        rewrites.append(lambda name, tensor: _cast(tensor, wanted))
    if fold:
        if (wanted or checkpoint.dtype) not in (torch.float32, torch.float64):
            raise Unsupported(
                "folding: a factor rounds weights in half precision once more, which no gate "
                "could tell from an error; write float32 (--dtype float32), or do not fold"
            )
        folding = folded(checkpoint, plan)
        carried = folding.plan
        rewrites.append(folding.rewrite)
    written, near = expressible(carried, checkpoint.config, runtime, approximate=approximate)
    followed = written
    if fold:  # the reference keeps the scaling where it was
        followed, _ = expressible(plan, checkpoint.config, runtime, approximate=approximate)
    compared_in = torch.float64 if fold else torch.float32
    config = write_config(checkpoint.config, written)
    if wanted is not None:
        config.pop("torch_dtype", None)
        config["dtype"] = dtype
    rewrite = _chained(rewrites)
    return Job(checkpoint, plan, carried, followed, near, config, rewrite, wanted, compared_in)


def write(job: Job, folder: Path) -> None:
    """The folder: config, weights, tokenizer, and the plan."""
    folder.mkdir()
    copy_companions(job.checkpoint, folder)
    _raise_tokenizer_limit(folder / "tokenizer_config.json", job.asked.target_length)
    write_json(folder / "config.json", job.config)
    write_json(folder / PLAN, job.carried.to_json())
    write_weights(job.checkpoint, folder, rewrite=job.rewrite)


@dataclass(frozen=True)
class Questions:
    """What stock transformers is asked about the folder, in this order."""

    to_compare: list[gate.Asked]
    to_measure: list[gate.Asked]
    """Where it is known to differ: what that costs is measured."""


def questions(job: Job) -> Questions:
    """Sequences that must give the planned model's logits, and those that show a loss."""
    ids = _probe_ids(job.checkpoint)
    asked = gate.sequences(job.followed, ids)
    if is_dynamic(job.followed):
        # Only where a sequence ends with a step of the ladder does dynamic NTK turn as the ladder
        # says. Its base never shrinks again, so lengths rise.
        ends = sorted({s.up_to_length for own in job.followed.schedules.values() for s in own})
        return Questions([gate.ending_at(end, ids) for end in ends], asked)
    return Questions(asked, asked if job.approximations else [])


def prove(
    job: Job, asked: Questions, answers: list[gate.Answer]
) -> tuple[Parity, gate.Loss | None]:
    """Compare the answers with the source model's, and measure what was only approximated."""
    model = _reference(job)
    count = len(asked.to_compare)
    parity = gate.compare(
        model,
        job.followed,
        asked.to_compare,
        answers[:count],
        by_current_length=job.by_current_length,
    )
    if not job.approximations:
        return parity, None
    logits = [answer.logits for answer in answers[count:]]
    return parity, gate.loss(model, job.asked, asked.to_measure, logits)


def nearest(
    source: str, plan: ContextPlan, runtime: str, *, approximate: bool
) -> tuple[ContextPlan, tuple[str, ...]]:
    """The plan that the runtime can follow, and what of the given one it is not, with its cost."""
    checkpoint = Checkpoint.open(source)
    _check_plan(checkpoint, plan)
    followed, near = expressible(plan, checkpoint.config, runtime, approximate=approximate)
    if not near:
        return plan, ()
    loss = approximation_loss(source, plan, followed)
    return followed, (
        *(f"approximated: {said}" for said in near),
        f"what is approximated costs {loss}",
    )


def approximation_loss(source: str, plan: ContextPlan, followed: ContextPlan) -> gate.Loss:
    """What a model loses that follows one plan in place of another."""
    checkpoint = Checkpoint.open(source)
    model = read_model(checkpoint.folder, torch.float32).eval()
    asked = gate.sequences(plan, _probe_ids(checkpoint))
    switching = any(len(steps) > 1 for steps in followed.schedules.values())
    near = [
        gate.planned_logits(model, followed, sequence, by_current_length=switching)
        for sequence in asked
    ]
    return gate.loss(model, plan, asked, near)


def export_folder(
    target: str,
    job: Job,
    out: str | Path,
    *,
    overwrite: bool = False,
    load: str,
    overrides: str = "",
    warnings: tuple[str, ...] = (),
) -> Exported:
    """Write the job's folder, prove it, and give it its name."""
    path = Path(out)
    with staged(
        path,
        needs_bytes=job.checkpoint.bytes(job.dtype),
        overwrite=overwrite,
        sources=(job.checkpoint.folder,),
    ) as folder:
        write(job, folder)
        asked = questions(job)
        whole = [*asked.to_compare, *asked.to_measure]
        (answers,) = gate.ask_stock([(folder, whole)], job.compared_in)
        parity, loss = prove(job, asked, answers)
        exported = Exported(
            target,
            path,
            parity,
            (*_caveats(job, loss), *warnings),
            load,
            overrides if job.rewrite is None else "",
        )
        if not parity.passed:
            raise NotTheSame(exported)
    return exported


def _check_plan(checkpoint: Checkpoint, plan: ContextPlan) -> None:
    """A plan of another model would be written, and proven, and useless."""
    present = present_plan(checkpoint.config, checkpoint.source)
    for layer_type, steps in plan.schedules.items():
        if layer_type not in present.schedules:
            continue  # named when the config is written
        own = present.longest(layer_type).geometry
        planned = replace(steps[-1].schedule.geometry, original_length=own.original_length)
        if planned != own:
            raise InvalidValue(
                f"plan.schedules.{layer_type}",
                _in_words(planned),
                f"this model has {_in_words(own)}",
                "make the plan from this model's own config",
            )


def _probe_ids(checkpoint: Checkpoint) -> list[int]:
    from transformers import AutoConfig

    # Its config class knows the vocabulary where the file leaves that to it.
    config = AutoConfig.from_pretrained(
        checkpoint.folder, local_files_only=True, trust_remote_code=False
    )
    return gate.probe_ids(checkpoint.folder, int(config.get_text_config().vocab_size))


def _in_words(geometry: RotaryGeometry) -> str:
    return (
        f"heads of {geometry.head_dim}, of which {geometry.rotary_dim} turn, "
        f"base {geometry.base:g}, {geometry.pair_layout} pairs"
    )


def _reference(job: Job) -> Any:
    """The source model, its weights rounded as the export's are."""
    model = settle(read_model(job.checkpoint.folder, job.compared_in))
    if job.dtype is not None:
        with torch.no_grad():
            for weight in model.parameters():  # not the buffers: frequencies are never stored
                weight.copy_(weight.to(job.dtype))
    return model


def _caveats(job: Job, loss: gate.Loss | None) -> tuple[str, ...]:
    found = [f"approximated: {near}" for near in job.approximations]
    if loss is not None:
        found.append(f"what is approximated costs {loss}")
    if job.by_current_length and not is_dynamic(job.followed):
        found.append(
            "short and long factors are chosen by the longest position of a batch at every "
            "forward: a long row changes short ones, and decoding past the original length through "
            "the cache differs from computing anew"
        )
    return tuple(found)


def _raise_tokenizer_limit(path: Path, length: int) -> None:
    """Some runtimes serve no more than the tokenizer says."""
    if not path.is_file():
        return
    settings = read_json(path)
    if isinstance(settings, dict) and isinstance(settings.get("model_max_length"), int | float):
        settings["model_max_length"] = max(settings["model_max_length"], length)
        write_json(path, settings)


def _cast(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _chained(rewrites: list[Rewrite]) -> Rewrite | None:
    if not rewrites:
        return None

    def rewrite(name: str, tensor: Tensor) -> Tensor:
        for step in rewrites:
            tensor = step(name, tensor)
        return tensor

    return rewrite
