"""The share of a search and of an evaluation that is spent outside the model, and what waits there.

    python -m benchmarks.outside_model      writes results/outside_model.json: about four minutes

A model of SmolLM2-135M's shape with random weights reads 2,048 tokens at a time. *Inside* are its
layers and its head; all else is outside: drawing and encoding samples, putting schedules in,
losses, records. Time is the processor time of one thread, which other work on the machine disturbs
little.

A second pass over two layers counts what a GPU would notice: masks given to attention, rows of
logits per scored token, and reads of a tensor's value, for which the host waits.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from transformers import LlamaConfig, LlamaForCausalLM

from benchmarks.machine import PAGE, machine, measured_on
from docs.figures import paragraph
from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import read_documents
from ropewalk.evaluation.conditions import Condition
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.in_process import InProcess
from ropewalk.evaluation.planted import split_corpus
from ropewalk.evaluation.runner import Evaluation
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.models.config import BUNDLED, present_plan
from ropewalk.models.load import LoadedModel, load
from ropewalk.outputs import write_atomically
from ropewalk.planning.extension import extend
from ropewalk.schedule import RotarySchedule
from ropewalk.searching.model.measure import LocalMeasure

RESULTS = Path(__file__).with_name("results") / "outside_model.json"
LENGTH, WINDOW, LAYERS, ALLOWED = 2048, 1024, 30, 0.05
READS = ("cpu", "item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__")
"""Methods of a tensor for which the host waits."""


def shaped(layers: int) -> LoadedModel:
    config = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=layers,
        num_attention_heads=9, num_key_value_heads=3, head_dim=64, tie_word_embeddings=True,
        max_position_embeddings=WINDOW,
    )  # fmt: skip
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).eval()
    tokenizer = load(BUNDLED, device="cpu").tokenizer
    return LoadedModel("135M", model, tokenizer, present_plan(config.to_dict()))


def search(loaded: LoadedModel) -> None:
    """Two schedules on two planted documents, as a search measures them."""
    present = loaded.present_plan
    layer = present.extended_layer
    start = present.longest(layer)

    def plan_of(schedule: RotarySchedule) -> ContextPlan:
        return present.with_steps(layer, (PlanStep(LENGTH, schedule),))

    encoder = Encoder(loaded.tokenizer, loaded.vocabulary)
    text = list(read_documents("held-out"))
    documents = split_corpus(text, encoder, LENGTH, (2, 1, 1), seed=0).all
    schedules = [extend(start, LENGTH, method) for method in ("linear", "yarn")]
    LocalMeasure(loaded.model, documents, plan_of)(schedules, [0, 1])


def evaluation(loaded: LoadedModel) -> None:
    """Two samples of each default task, by the unmodified model."""
    answerer = InProcess(loaded, [Condition("none", loaded.present_plan.id, None)])
    tasks = ("perplexity", "passkey", "needle", "lines", "kv")
    settings = EvaluationSettings(tasks, (LENGTH,), samples=2)
    Evaluation(answerer, list(read_documents("held-out")), settings).run()


class Watch(TorchFunctionMode):
    """Counts calls of attention with a mask and without, and reads of values."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = kwargs or {}, getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention" and args[0].shape[2] > 8:  # more than a check
            masked = given.get("attn_mask") is not None or not given.get("is_causal")
            self.found["masked" if masked else "causal"] += 1
        if name in READS:
            self.found["reads"] += 1
        return func(*args, **given)


@contextmanager
def timed(model: Any) -> Iterator[dict[str, float]]:
    """The seconds of its layers and its head, the texts read, and the rows of logits."""
    found = dict.fromkeys(("seconds", "texts", "rows"), 0.0)

    def wrapped(call: Callable[..., Any], head: bool) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.process_time()
            result = call(*args, **kwargs)
            found["seconds"] += time.process_time() - began
            if head:
                found["rows"] += result.shape[:-1].numel()
            elif result.last_hidden_state.shape[1] > LENGTH // 2:  # not a check
                found["texts"] += len(result.last_hidden_state)
            return result

        return run

    parts = ((model.model, False), (model.lm_head, True))
    for part, head in parts:
        part.forward = wrapped(part.forward, head)
    try:
        yield found
    finally:
        for part, _ in parts:
            del part.forward


def measured(work: Callable[[LoadedModel], None]) -> dict[str, float]:
    loaded = shaped(LAYERS)
    with timed(loaded.model) as inside:
        began = time.process_time()
        work(loaded)
        whole = time.process_time() - began
    small = shaped(2)
    with Watch() as watch, timed(small.model) as seen:
        work(small)
    counted = {"texts": int(seen["texts"]), "rows": int(seen["rows"]), **watch.found}
    return {"seconds": whole, "outside": 1 - inside["seconds"] / whole, "masked": 0, **counted}


def main() -> None:
    torch.set_num_threads(1)
    found = {work.__name__: measured(work) for work in (search, evaluation)}
    result = {"machine": {**machine(), "torch": torch.__version__}, "found": found}
    write_atomically(RESULTS, json.dumps(result, indent=1) + "\n")
    print(blocks()[PAGE])


def blocks() -> dict[str, str]:
    result = json.loads(RESULTS.read_text("utf-8"))
    lines = [
        "| | texts of 2,048 tokens | outside the model | attention with a mask | rows of logits | "
        "reads by the host |",
        "|---" * 6 + "|",
    ]
    for name, own in result["found"].items():
        masked = f"{own['masked']} of {own['masked'] + own['causal']} calls"
        rows = f"{own['rows']:,} of {LENGTH * own['texts']:,}"
        share = f"{own['outside']:.1%}"
        lines.append(f"| {name} | {own['texts']} | {share} | {masked} | {rows} | {own['reads']} |")
    told = measured_on(result["machine"], "python -m benchmarks.outside_model")
    worst = max(own["outside"] for own in result["found"].values())
    kept = f"The limit of {ALLOWED:.0%} is {'kept' if worst <= ALLOWED else 'not kept'}."
    return {PAGE: "\n".join([*lines, "", paragraph(f"{kept} {told}.")])}


if __name__ == "__main__":
    main()
