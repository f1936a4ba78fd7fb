"""A tiny model, a store of random documents, and the plain loop that trainings must equal."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainingArguments,
)

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.data.store import TokenStore
from ropewalk.data.store import build as build_store
from ropewalk.data.windows import (
    Arrangement,
    SpecialTokens,
    Window,
    Windows,
    WindowSettings,
    WindowStream,
)
from ropewalk.models.config import present_plan
from ropewalk.models.install import install
from ropewalk.planning.extension import extend_plan
from ropewalk.training.callback import RopewalkCallback
from ropewalk.training.trainer import RopewalkTrainer

LENGTH, TARGET = 96, 192
"""Tokens of a window; and what `skip` reaches, and plans are made for."""
SPECIAL = SpecialTokens(bos=1, eos=2)
PER_STEP = 4
RATE, EPSILON = 3e-4, 1e-5
"""Of AdamW, which turns rounding into steps where a gradient is not much larger than epsilon."""


def build(seed: int = 0, **changes: Any) -> LlamaForCausalLM:
    """In sizes that many ranks divide; the inner one as in tests/attention/sharded.py."""
    config = LlamaConfig(
        **{
            "vocab_size": 64,
            "hidden_size": 48,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 48,
            "pad_token_id": 0,
            "initializer_range": 0.2,
            **changes,
        }
    )
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).train()


@cache
def plan(method: str = "yarn", target: int = TARGET) -> ContextPlan:
    return extend_plan(present_plan(LlamaConfig(**build().config.to_dict())), target, method)


def make_store(folder: Path) -> Path:
    """Documents of 1 to 70 tokens: several in each window, and some that are cut."""
    random = np.random.default_rng(0)
    lengths = random.integers(1, 70, 150).tolist()
    encoded = {str(i): random.integers(3, 64, n).tolist() for i, n in enumerate(lengths)}
    build_store(
        folder,
        {"text": [Document(name, name) for name in encoded]},
        lambda texts: [encoded[text] for text in texts],
        tokenizer="numbers",
    )
    return folder


def stream(folder: Path, arrangement: Arrangement = "anchor", count: int = 400) -> WindowStream:
    settings = WindowSettings(
        LENGTH, arrangement, target=TARGET if arrangement == "skip" else None, seed=1
    )
    return WindowStream(partial(Windows, TokenStore(folder), settings, SPECIAL), count)


def weighted(windows: Sequence[Window], count: int = 16) -> list[Window]:
    """Windows whose labels weigh 0, 1 or 5 each."""
    random = np.random.default_rng(5)
    return [
        windows[i]._replace(weights=random.choice([0, 1, 5], LENGTH).astype(np.float32))
        for i in range(count)
    ]


def arguments(out: Path, steps: int, **changes: Any) -> TrainingArguments:
    return TrainingArguments(
        **{
            "output_dir": str(out),
            "use_cpu": True,
            "max_steps": steps,
            "per_device_train_batch_size": 1,
            "gradient_accumulation_steps": PER_STEP,
            "learning_rate": RATE,
            "lr_scheduler_type": "cosine",
            "weight_decay": 0.1,
            "adam_beta2": 0.95,
            "adam_epsilon": EPSILON,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            **changes,
        }
    )


def trainer(
    out: Path, windows: Sequence[Window], steps: int, *, model: Any = None, **changes: Any
) -> RopewalkTrainer:
    own = {key: changes.pop(key) for key in ("data", "keep", "final") if key in changes}
    division, weights = changes.pop("division", None), changes.pop("weights", None)
    return RopewalkTrainer(
        build() if model is None else model,
        arguments(out, steps, **changes),
        train_dataset=windows,
        division=division,
        weights=weights,
        callbacks=[RopewalkCallback(plan(), **own)],
    )


class Course(NamedTuple):
    """What a training did."""

    losses: list[float]
    norms: list[float]
    weights: dict[str, Tensor]


def course(trained: Trainer) -> Course:
    lines = [line for line in trained.state.log_history if "loss" in line]
    return Course(
        [line["loss"] for line in lines],
        [line["grad_norm"] for line in lines],
        {name: whole(own) for name, own in trained.model.named_parameters()},
    )


def whole(own: Tensor) -> Tensor:
    own = own.detach()
    return own.full_tensor().clone() if hasattr(own, "full_tensor") else own.clone()


def oracle(windows: Sequence[Window], steps: int) -> Course:
    """A plain loop, with nothing of ropewalk but the plan: dense masks, whole logits, stock
    attention; the loss of a step is the mean over all its targets, by their weights."""
    model = build()
    install(model, plan())
    decayed = [own for own in model.parameters() if own.ndim > 1]
    others = [own for own in model.parameters() if own.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=RATE,
        betas=(0.9, 0.95),
        eps=EPSILON,
    )
    losses, norms = [], []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * 0.5 * (1 + np.cos(np.pi * step / steps))
        own = [windows[step * PER_STEP + i] for i in range(PER_STEP)]
        targets = sum(float(_weights(window).sum()) for window in own)
        loss = torch.stack([_loss(model, window) for window in own]).sum() / targets
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        norms.append(float(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)))
        optimizer.step()
        losses.append(float(loss.detach()))
    return Course(losses, norms, {name: whole(own) for name, own in model.named_parameters()})


def _loss(model: Any, window: Window) -> Tensor:
    seen = torch.from_numpy(window.layout.mask().copy())
    seen |= torch.eye(len(seen), dtype=torch.bool)  # padding would see nothing, which is NaN
    logits = model(
        input_ids=torch.from_numpy(window.tokens)[None],
        position_ids=torch.from_numpy(window.layout.positions.copy())[None],
        attention_mask=seen[None, None],
        use_cache=False,
    ).logits
    losses = cross_entropy(logits[0], torch.from_numpy(window.labels), reduction="none")
    return (losses * torch.from_numpy(_weights(window))).sum()


def _weights(window: Window) -> NDArray[np.float32]:
    there: NDArray[np.float32] = (window.labels != -100).astype(np.float32)
    return there if window.weights is None else there * window.weights


def alone(windows: Sequence[Window], model: Any = None) -> float:
    """The sum of losses of all documents, each read alone behind the anchor, by the stock model."""
    model = build() if model is None else model
    install(model, plan())
    total = 0.0
    for window in windows:
        layout = window.layout
        for document in range(int(layout.document_ids.max()) + 1):
            places = np.flatnonzero((layout.document_ids == document) | (layout.document_ids == -1))
            with torch.no_grad():
                logits = model(
                    input_ids=torch.from_numpy(window.tokens[places])[None],
                    position_ids=torch.from_numpy(layout.positions[places])[None],
                    # Without a mask, transformers takes a jump in positions for a new document.
                    attention_mask=torch.ones(1, len(places), dtype=torch.long),
                    use_cache=False,
                ).logits
            labels = torch.from_numpy(window.labels[places])
            total += float(cross_entropy(logits[0].double(), labels, reduction="sum"))
    return total


def content(folder: Path) -> dict[str, bytes]:
    """Of a checkpoint, by tensor, and its log. The bytes of its shards differ: safetensors writes
    the keys of its header in random order."""
    found = {"log": (folder / "trainer_state.json").read_bytes()}
    for shard in folder.glob("*.safetensors"):
        for name, tensor in load_file(shard).items():
            found[f"{shard.name}: {name}"] = tensor.numpy().tobytes()
    return found


def apart(one: Course, other: Course) -> tuple[float, float]:
    """How far losses are, and weights: the largest difference."""
    losses = max(abs(a - b) for a, b in zip(one.losses, other.losses, strict=True))
    weights = max(
        float((own - other.weights[name]).abs().max()) for name, own in one.weights.items()
    )
    return losses, weights


def check_alike(one: Course, other: Course) -> None:
    """They differ by the rounding of sums in another order at most."""
    losses, weights = apart(one, other)
    assert losses <= 1e-6
    assert weights <= 1e-6


def check_course(trained: Trainer, windows: Sequence[Window], steps: int, final: Path) -> None:
    """A trainer of others took the course of the plain loop, and left the model with its plan."""
    check_alike(course(trained), oracle(windows, steps))
    loaded = AutoModelForCausalLM.from_pretrained(final)
    assert loaded.config.rope_parameters["rope_type"] == "yarn"
    assert torch.equal(loaded.lm_head.weight, trained.model.lm_head.weight)


def check_shown(trainer: str, names: Mapping[str, object]) -> None:
    """What docs/training.md shows trains, and leaves the model with its plan; in this folder."""
    Path("plan.json").write_text(json.dumps(plan().to_json()))
    own = {"json": json, "Path": Path, **names}
    exec(shown(trainer), own)
    ran: Any = own["trainer"]
    ran.train()
    assert ran.state.global_step == 2
    assert json.loads(Path("run/final/plan.json").read_text()) == plan().to_json()


def shown(trainer: str) -> str:
    """What a diff of docs/training.md leads to, for two steps instead of 2,000."""
    page = Path(__file__).parents[2] / "docs" / "training.md"
    diffs = re.findall(r"```diff\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    [diff] = [each for each in diffs if trainer in each]
    lines = diff.splitlines()
    assert sum(line[:1] in ("+", "-") for line in lines) <= 15
    code = "\n".join(line[1:] for line in lines if not line.startswith("-"))
    return code.replace("2_000", "2")
