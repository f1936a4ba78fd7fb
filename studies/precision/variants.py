"""The bundled model, changed in the one respect that may explain why a finding is or isn't seen.

Each variant is a copy. A sink (a first token that most attention goes to) is what large trained
models have and the bundled model has not; logits as large as trained ones are what random weights
have not.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ropewalk.number_formats.arms import Arm
from ropewalk.number_formats.stage import AttentionCall, OpenModel

FP32 = Arm("fp32")


def extended(model: Any, factor: float) -> Any:
    """The model with YaRN in its config, as it would be exported."""
    config = copy.deepcopy(model.config)
    window = config.max_position_embeddings
    config.max_position_embeddings = int(window * factor)
    config.rope_parameters = {
        **config.rope_parameters,
        "rope_type": "yarn",
        "factor": float(factor),
        "original_max_position_embeddings": window,
    }
    longer = type(model)(config).eval()
    longer.load_state_dict(model.state_dict())
    return longer


def without_bos(tokenizer: Any) -> Any:
    """The tokenizer, no longer beginning a sequence with BOS."""
    plain = copy.deepcopy(tokenizer)
    plain.backend_tokenizer.post_processor = None
    return plain


@torch.no_grad()
def with_sink(model: Any, sequences: Sequence[Tensor], strength: float) -> Any:
    """Every head's logits of the first token raised by about `strength`, all others' hardly.

    Queries gain a constant and the key of BOS, alone, gains the same vector. Both are read off the
    hidden states linearly: `constant` is the direction whose product with any state is nearest to
    one, `marker` the one whose product with BOS's state is one and with others' least. The vector
    lies in the pairs that turn less than a radian over a sequence, so the sink is seen from
    everywhere in it.
    """
    changed = copy.deepcopy(model)
    config = changed.config
    size, heads = config.head_dim, config.num_attention_heads
    frequencies = changed.model.rotary_emb.inv_freq
    slow = (frequencies * len(sequences[0]) < 1).float()
    vector = torch.cat([slow, torch.zeros_like(slow)])
    vector *= (strength * size**0.5) ** 0.5 / vector.norm()
    for layer in changed.model.layers:
        states = _states(changed, layer, sequences)
        moment = states.flatten(0, 1).T @ states.flatten(0, 1) / states[..., 0].numel()
        moment += 1e-6 * moment.diagonal().mean() * torch.eye(len(moment))
        constant = torch.linalg.solve(moment, states.mean((0, 1)))
        first = states[0, 0]
        marker = torch.linalg.solve(moment, first)
        marker /= marker @ first
        layer.self_attn.q_proj.weight += torch.outer(vector.repeat(heads), constant)
        layer.self_attn.k_proj.weight += torch.outer(vector.repeat(heads), marker)
    return changed


def _states(model: Any, layer: Any, sequences: Sequence[Tensor]) -> Tensor:
    """The input of a layer's attention: [sequence, position, hidden]."""
    heard: list[Tensor] = []
    hook = layer.input_layernorm.register_forward_hook(
        lambda _module, _args, output: heard.append(output)
    )
    try:
        model(torch.stack(list(sequences)), use_cache=False)
    finally:
        hook.remove()
    return heard[0]


@torch.no_grad()
def with_logits_like(model: Any, other: Any, sequences: Sequence[Tensor]) -> Any:
    """The model with every head's queries scaled until its logits are as large as the other's.

    Layer by layer, since what one layer attends to decides what the next one sees.
    """
    changed = copy.deepcopy(model)
    size = changed.config.head_dim
    wanted = spread_of_logits(other, sequences)
    for index, layer in enumerate(changed.model.layers):
        ratio = wanted[index] / spread_of_logits(changed, sequences)[index]
        layer.self_attn.q_proj.weight *= ratio.repeat_interleave(size)[:, None]
    return changed


def spread_of_logits(model: Any, sequences: Sequence[Tensor]) -> Tensor:
    """The root mean square of all causal logits, [layer, head]."""
    layers = len(model.model.layers)
    squares = [torch.zeros(model.config.num_attention_heads) for _ in range(layers)]

    def hear(call: AttentionCall) -> None:
        for start, end in call.rows():
            logits = call.logits(start, end)
            logits[..., start:].tril_()
            squares[call.layer] += logits.square().sum((1, 2))

    stage = OpenModel(model)
    for tokens in sequences:
        stage.run(tokens, 0, FP32, listener=hear)
    count = sum(len(tokens) * (len(tokens) + 1) // 2 for tokens in sequences)
    return (torch.stack(squares) / count).sqrt()


def attention_to_first(model: Any, sequences: Sequence[Tensor]) -> Tensor:
    """The mean attention that rows give to the first token, [sequence, layer, head]."""
    stage = OpenModel(model)
    found = []
    for tokens in sequences:
        own = [torch.zeros(model.config.num_attention_heads) for _ in model.model.layers]

        def hear(call: AttentionCall, own: list[Tensor] = own) -> None:
            for start, end in call.rows():
                weights = call.weights(call.logits(start, end), start, end)
                own[call.layer] += weights[..., 0].sum(1)

        stage.run(tokens, 0, FP32, listener=hear)
        found.append(torch.stack(own) / len(tokens))
    return torch.stack(found)
