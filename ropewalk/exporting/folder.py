"""Writing an export that is a folder, and proving it: what transformers, vLLM and SGLang share.

Config, weights and tokenizer are written under a temporary name, stock transformers computes with
them in a fresh process (gate.py), and only then they get their name.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch
from torch import Tensor

from ropewalk.agreement import Agreement
from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.errors import GateFailed
from ropewalk.exporting import gate, tokenizer_gate
from ropewalk.exporting.approximating import divergence, warnings
from ropewalk.exporting.exported import Exported, Loss, NotTheSame
from ropewalk.exporting.manifest import Manifest
from ropewalk.exporting.plan_check import check_plan
from ropewalk.exporting.staging import staged
from ropewalk.exporting.stock_run import settle
from ropewalk.exporting.tokens import PROBE, TOKENIZER_LIMITS
from ropewalk.exporting.writing import Rewrite, copy_companions, write_json, write_weights
from ropewalk.models.checkpoint import Checkpoint, parse_dtype
from ropewalk.models.config import Config, window_everywhere
from ropewalk.models.load import read_model
from ropewalk.progress import Progress, Status, share, silent
from ropewalk.untrusted import read_json

if TYPE_CHECKING:
    from ropewalk.runtimes.runtime import FolderTarget


@dataclass(frozen=True)
class Job:
    """An export that is decided but not yet written."""

    checkpoint: Checkpoint
    asked: ContextPlan
    """The plan that was given."""
    followed: ContextPlan
    """The plan that the export follows and holds: the same, or the nearest that its runtime has."""
    approximations: tuple[str, ...]
    config: Config
    rewrite: Rewrite | None
    dtype: torch.dtype | None
    """The type to which weights are rounded; None if they stay unchanged."""


class Decided(TypedDict, total=False):
    """The options by which a job is decided.

    `approximate` allows an approximation of what the runtime cannot express exactly, and `v4_keys`
    writes the config as transformers 4 did (5 reads it too).
    """

    dtype: str
    v4_keys: bool
    approximate: bool


def prepare(
    runtime: FolderTarget, source: str, plan: ContextPlan, **options: Unpack[Decided]
) -> Job:
    """Decide all that can be decided before anything is written; refuse what must be refused."""
    dtype, approximate = options.get("dtype", "auto"), options.get("approximate", False)
    wanted = parse_dtype(dtype)
    checkpoint = Checkpoint.open(source)
    check_plan(plan, checkpoint.config, checkpoint.source)
    followed, near = runtime.expressible(plan, checkpoint.config, approximate=approximate)
    v4_keys = options.get("v4_keys", False)
    config = runtime.written_config(checkpoint.config, followed, v4_keys=v4_keys)
    if wanted is None:
        return Job(checkpoint, plan, followed, near, config, None, None)
    config.pop("torch_dtype", None)
    config["dtype"] = dtype

    def rounded(_: str, tensor: Tensor) -> Tensor:
        return tensor.to(wanted) if tensor.is_floating_point() else tensor

    return Job(checkpoint, plan, followed, near, config, rounded, wanted)


def write(job: Job, folder: Path, *, shadow: bool = False) -> tuple[str, ...]:
    """Write the folder: config, weights, tokenizer, and the plan. Returns its caveats."""
    folder.mkdir()
    left_out = map(_told_left_out, copy_companions(job.checkpoint.folder, folder))
    length = job.asked.target_length
    for key in TOKENIZER_LIMITS:
        _raise_limit(folder / "tokenizer_config.json", key, length)
    _raise_limit(folder / "generation_config.json", "max_length", length)
    write_json(folder / "config.json", job.config)
    write_json(folder / PLAN, job.followed.to_json())
    copied = write_weights(job.checkpoint, folder, rewrite=job.rewrite, linked=shadow)
    links = (_LINKS.format(job.checkpoint.files[0].resolve().parent),) * shadow
    return (*left_out, *links, *(f"{name} was copied: no link can be made" for name in copied))


_LINKS = "its weights are links into {}, which must stay as it is"


@dataclass(frozen=True)
class AskedSequences:
    """The sequences that stock transformers is asked about the folder, in this order."""

    to_compare: list[gate.TokenSequence]
    to_measure: list[gate.TokenSequence]
    """The sequences known to differ: the cost of that is measured."""


def sequences_for(job: Job) -> AskedSequences:
    """Sequences that must give the planned model's logits, and those that show a loss."""
    ids = gate.probe_ids(job.checkpoint.folder)
    measured = gate.sequences(job.followed, ids) if job.approximations else []
    return AskedSequences(gate.to_compare(job.followed, ids), measured)


def prove(
    job: Job, sequences: AskedSequences, answers: list[gate.StockAnswer]
) -> tuple[Agreement, Loss | None]:
    """Compare the answers with the source model's, and measure what was only approximated."""
    model = _reference(job)
    count = len(sequences.to_compare)
    agreement = gate.agreement_with(model, job.followed, sequences.to_compare, answers[:count])
    if not job.approximations:
        return agreement, None
    logits = [answer.logits for answer in answers[count:]]
    return agreement, divergence(model, job.asked, sequences.to_measure, logits)


def export_folder(
    runtime: FolderTarget,
    source: str,
    plan: ContextPlan,
    out: str | Path,
    *,
    overwrite: bool = False,
    progress: Progress = silent,
    shadow: bool = False,
    **options: Unpack[Decided],
) -> Exported:
    """Write a folder, prove it, and give it its name."""
    # All refusals come before anything is written.
    job = prepare(runtime, source, plan, **options)
    path, lines = Path(out), runtime.lines(job, str(out))
    tokens, untold = tokenizer_gate.of_source(job.checkpoint.folder)
    with staged(
        path,
        needs_bytes=0 if shadow else job.checkpoint.bytes(job.dtype),
        overwrite=overwrite,
        sources=(job.checkpoint.folder,),
    ) as folder:
        progress(Status("export", 0.0, "writing"))
        written = write(job, folder, shadow=shadow)
        progress(Status("export", 0.2, "running stock transformers"))
        # Stock transformers answers in a process that knows nothing of ropewalk.
        sequences = sequences_for(job)
        whole = [*sequences.to_compare, *sequences.to_measure]
        text = "" if tokens is None else PROBE
        with gate.named_as(path, folder):
            try:
                (answered,) = gate.ask_stock([(folder, whole)], torch.float32, text=text)
            except GateFailed:  # a fault of the source has words of its own
                read_model(job.checkpoint.folder, torch.float32)
                raise
        tokenizer_gate.check(tokens, answered.tokens)
        progress(Status("export", 0.6, "running the planned model"))
        # The planned model must give the same, or the folder never gets its name.
        agreement, loss = prove(job, sequences, answered.answers)
        exported = Exported(
            runtime.name,
            path,
            agreement,
            (*_caveats(job, loss), *untold, *lines.caveats, *written),
            lines.load,
            lines.overrides if job.rewrite is None else "",
        )
        if not agreement.passed:
            raise NotTheSame(exported, agreement)
        hashed = share(progress, "export", 0.9, 0.1, "writing the manifest")
        Manifest.of(folder, hashed, runtime=runtime.name).write(folder)
    return exported


def _reference(job: Job) -> Any:
    """The source model, its weights rounded as the export's are."""
    model = settle(read_model(job.checkpoint.folder, torch.float32))
    if job.dtype is not None:
        with torch.no_grad():
            for weight in model.parameters():  # not the buffers: no frequency is stored
                weight.copy_(weight.to(job.dtype))
    return model


def _told_left_out(name: str) -> str:
    return (
        f"{name} was left out: it is a link that leads out of the model's folder, no file, or has "
        "a name that the manifest cannot list"
    )


def _caveats(job: Job, loss: Loss | None) -> tuple[str, ...]:
    caveats = [] if loss is None else [*warnings(job.approximations, loss)]
    window = window_everywhere(job.checkpoint.config)
    if window is not None and window < job.asked.target_length:
        caveats.append(
            f"every layer attends to a window of {window} positions (sliding_window), and the plan "
            f"is for {job.asked.target_length}: no attention reaches as far as the plan turns"
        )
    return tuple(caveats)


def _raise_limit(path: Path, key: str, length: int) -> None:
    """Raise a limit that some runtimes take as the longest sequence to serve or to generate."""
    if not path.is_file():
        return
    settings = read_json(path)
    if isinstance(settings, dict) and isinstance(settings.get(key), int | float):
        settings[key] = max(int(settings[key]), length)
        write_json(path, settings)
