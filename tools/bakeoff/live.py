"""Faults in a model in memory and in a training: what is said by stock, and by ropewalk.

    python -m tools.bakeoff.live < JOBS

A job has a `group` (live, training or planted), a fault's `name`, and the intended `folder` with
its `plan`. Stock is transformers: a forward and `generate`, or the training itself, with every
warning collected. ropewalk is `assert_rotation`, or `RotationCallback` in the same training.
"""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainerCallback
from transformers import TrainingArguments as Arguments
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

import ropewalk as rw
from ropewalk.errors import RopewalkError
from tests.rotation import planted
from tools.bakeoff.bases import BASES, LONG, YARN
from tools.bakeoff.folders import LENGTH
from tools.bakeoff.forked import serve
from tools.bakeoff.stock import CHECKED, listened, tokens

PLAIN = {"rope_type": "default", "rope_theta": YARN["rope_theta"]}
Plant = Callable[[Any], Any]
"""Changes a model, or returns another."""


def load(folder: Path, **rope: Any) -> Any:
    """The model of a folder, with another setting if one is given."""
    config = AutoConfig.from_pretrained(folder)
    if rope:
        config = AutoConfig.for_model(**{**BASES["llama yarn"], "rope_parameters": rope})
    return AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32).eval()


def rotary_of(**rope: Any) -> Any:
    """A rotary module under another setting."""
    return LlamaRotaryEmbedding(
        AutoConfig.for_model(**{**BASES["llama yarn"], "rope_parameters": rope})
    )


def frequencies(change: Callable[[Any], Any]) -> Plant:
    def plant(model: Any) -> None:
        rotary = model.model.rotary_emb
        rotary.inv_freq = change(rotary.inv_freq)

    return plant


def tables(change: Callable[[Any, Any, Any], Any]) -> Plant:
    """Change cos, sin, or the positions that they are made from."""

    def plant(model: Any) -> None:
        rotary, stock = model.model.rotary_emb, model.model.rotary_emb.forward
        rotary.forward = lambda x, position_ids: change(stock, x, position_ids)

    return plant


def _one_layer(model: Any) -> None:
    layer, own = model.model.layers[1], rotary_of(**PLAIN)
    stock = layer.forward

    def forward(hidden_states: Any, **given: Any) -> Any:
        positions = torch.arange(hidden_states.shape[1])[None]
        given["position_embeddings"] = own(hidden_states, positions)
        return stock(hidden_states, **given)

    layer.forward = forward


def _neighbours(model: Any) -> None:
    """Attention that pairs neighbours, with the stock cos and sin of halves."""
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj"):
            projection, size = getattr(layer.self_attn, name), 32
            rows = projection.weight.data.view(-1, size, projection.weight.shape[1])
            order = torch.arange(size).view(-1, 2).T.flatten()
            projection.weight.data = rows[:, order].reshape(projection.weight.shape)


def _scale(model: Any) -> None:
    for layer in model.model.layers:
        layer.self_attn.scaling = 64**-0.5


def _module(**rope: Any) -> Plant:
    def plant(model: Any) -> None:
        model.model.rotary_emb = rotary_of(**rope)

    return plant


def _slow_rest(own: Any) -> Any:
    return torch.cat((own[:12], torch.zeros(4)))


def _factors(change: Callable[[Any], Any]) -> Plant:
    plain = 10000.0 ** -(torch.arange(0, 32, 2) / 32)

    def plant(model: Any) -> None:
        model.model.rotary_emb.rope_type = "default"  # or each forward computes them again
        model.model.rotary_emb.inv_freq = plain / change(torch.tensor(LONG))

    return plant


def _on_cos(stock: Any, x: Any, position_ids: Any) -> Any:
    cos, sin = stock(x, position_ids)
    return cos, sin / cos[0, 0, 0]  # at position 0 cos is the attention factor


LIVE: dict[str, Plant] = {
    "frequencies in float16": lambda model: frequencies(lambda own: own.half().float())(model),
    "frequencies of zero": frequencies(torch.zeros_like),
    "pairs in reverse": frequencies(lambda own: own.flip(0)),
    "rotation the other way": tables(
        lambda stock, x, ids: (lambda cos, sin: (cos, -sin))(*stock(x, ids))
    ),
    "attention factor on cos alone": tables(_on_cos),
    "factors multiplied": _factors(lambda own: 1 / own),
    "every second factor": _factors(lambda own: own[::2].repeat_interleave(2)),
    "slowest quarter without rotation": frequencies(_slow_rest),
    "betas exchanged": _module(**{**YARN, "beta_fast": 1.0, "beta_slow": 32.0}),
    "positions halved": tables(lambda stock, x, ids: stock(x, ids // 2)),
    "positions start again": tables(lambda stock, x, ids: stock(x, ids % 1024)),
    "one layer unscaled": _one_layer,
    "neighbours for halves in attention": _neighbours,
    "softmax scale of another head size": _scale,
    "NTK in place of YaRN": _module(**{**PLAIN, "rope_theta": 10000.0 * 4 ** (32 / 30)}),
    "dynamic update": _module(rope_type="dynamic", rope_theta=10000.0, factor=4.0),
}


def _twice(model: Any) -> None:
    rotary, plain = model.model.rotary_emb, rotary_of(**PLAIN).inv_freq
    rotary.inv_freq, rotary.attention_scaling = (
        rotary.inv_freq**2 / plain,
        rotary.attention_scaling**2,
    )


class _Rebuilds(TrainerCallback):  # type: ignore[misc]
    def on_step_end(self, *_: object, model: Any = None, **__: object) -> None:
        model.model.rotary_emb = rotary_of(**PLAIN)


def trained(name: str, folder: Path) -> dict[str, Any]:
    """What a Trainer is given for a fault: a model or its maker, and callbacks."""
    made: dict[str, Callable[[], dict[str, Any]]] = {
        "plan never applied": lambda: {"model": load(folder, **PLAIN)},
        "plan on a copy": lambda: {"model": _copied(folder)},
        "config changed after loading": lambda: {"model": _edited(folder)},
        "plan applied twice": lambda: {"model": changed(_twice, load(folder))},
        "rotary module built anew": lambda: {"model": changed(_module(**PLAIN), load(folder))},
        "model in half precision": lambda: {"model": load(folder).half().float()},
        "the plan of another length": lambda: {"model": load(folder, **{**YARN, "factor": 8.0})},
        "made anew by model_init": lambda: {"model_init": lambda: load(folder, **PLAIN)},
        "resumed from a checkpoint without the setting": lambda: {"model": _resumed(folder)},
        "changed after the first step": lambda: {"model": load(folder), "callbacks": [_Rebuilds()]},
        "wrong under adapters": lambda: {"model": _adapted(folder)},
        "one layer unscaled": lambda: {"model": changed(_one_layer, load(folder))},
    }
    return made[name]()


def changed(plant: Plant, model: Any) -> Any:
    other = plant(model)
    return model if other is None else other


def _copied(folder: Path) -> Any:
    model = load(folder, **PLAIN)
    copy.deepcopy(model).model.rotary_emb = rotary_of(**YARN)
    return model


def _edited(folder: Path) -> Any:
    model = load(folder, **PLAIN)
    model.config.rope_parameters = dict(YARN)
    return model


def _resumed(folder: Path) -> Any:
    checkpoint = Path(tempfile.mkdtemp())
    model = load(folder)
    model.save_pretrained(checkpoint)
    path = checkpoint / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, "rope_parameters": PLAIN}), encoding="utf-8")
    return load(checkpoint)


def _adapted(folder: Path) -> Any:
    import peft

    return peft.get_peft_model(
        load(folder, **PLAIN), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"])
    )


class _Windows(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, place: int) -> dict[str, Any]:
        row = tokens(64)[0] % 60 + place + 1
        return {"input_ids": row, "labels": row}


def train(given: dict[str, Any], callbacks: list[Any]) -> Any:
    """The model after two steps that change no weight."""
    arguments = Arguments(
        tempfile.mkdtemp(),
        use_cpu=True,
        max_steps=2,
        learning_rate=0.0,
        per_device_train_batch_size=1,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    own = [*given.pop("callbacks", []), *callbacks]
    trainer = Trainer(args=arguments, train_dataset=_Windows(), callbacks=own, **given)
    with torch.enable_grad():
        trainer.train()
    return trainer.model.eval()


def logits(model: Any) -> Any:
    rows = [model(tokens(length) % 60).logits[0, -CHECKED:] for length in (512, LENGTH)]
    return torch.stack(rows).double()


def judged(asked: dict[str, Any]) -> dict[str, Any]:
    """What both say about one fault, and how far it moves the logits."""
    torch.set_grad_enabled(False)
    folder, plan, name = Path(asked["folder"]), asked.get("plan"), asked["name"]
    said: dict[str, Any] = {"warnings": [], "error": "", "ropewalk": "passed"}
    kind = asked["group"]
    if kind == "planted":
        intended, plan = planted.llama().eval(), planted.plan_of()
        model = planted.FAULTS[name][0]().eval() if name else planted.llama().eval()
    else:
        intended = load(folder)
        model = None
    right = logits(intended)
    with listened(said["warnings"]):
        try:
            if kind == "training":
                given = trained(name, folder) if name else {"model": load(folder)}
                model = train(given, [])
            elif kind == "live":
                model = changed(LIVE[name], load(folder)) if name else load(folder)
            got = logits(model)
            if kind != "training":
                model.generate(tokens(1100) % 60)
        except Exception as error:
            said["error"] = f"{type(error).__name__}: {error}"[:1000]
            got = right
    said["moved"] = float((got.nan_to_num(9) - right).abs().max() / right.std())
    try:
        if kind == "training":
            given = trained(name, folder) if name else {"model": load(folder)}
            train(given, [rw.RotationCallback(plan)])
        else:
            rw.assert_rotation(model, plan)
    except RopewalkError as error:
        said["ropewalk"] = f"{type(error).__name__}: {error}"
    return said


if __name__ == "__main__":
    serve(judged)
