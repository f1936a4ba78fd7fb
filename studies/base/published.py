"""The experiments of Men et al. 2024 at their own size, on a model and a text of yours.

    python -m studies.base.published pretrain --from-config CONFIG --tokenizer FOLDER \\
        --corpus TOKENS --run DIR       1T tokens from random weights with base 100
    python -m studies.base.published sweep MODEL --to 32k --bases 1e4,2e5 --corpus TOKENS --run DIR

`pretrain` is section 5.3 and Table 5; `--dry-run` says what it would take. Of the learning rate the
paper has two: 1e-4 in section 5.1 and 2e-4 in Table 5. 1e-4 is used unless `--rate` is given, since
the text says so and it is the safer. The paper does not give the heads and the inner size of its 2B
model (Baichuan2-7B with a hidden size of 2,048), its warm-up, betas or packing: the config is
yours, there is no warm-up, betas are 0.9 and 0.95, and windows hold whole documents by best fit.

`sweep` is Fig. 3, 6, 7 and 9 to 14: it trains with each base by the recipe `base-bound` (1,000
steps of 128 windows), and evaluates perplexity, Long-eval's lines and needles at each length.
`DIR/base-B/evaluation` has the results of a base, needles by depth and length among them;
`DIR/bases.png` has the loss and the lines by base over the bound, as in Fig. 6.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import ropewalk as rw
from ropewalk.evaluation.conclusion import Evaluated
from ropewalk.lengths import parse_length

LENGTH, WINDOWS, TOKENS, BASE = 4096, 1024, 10**12, 100.0
RATE, RATE_OF_TABLE_5 = 1e-4, 2e-4
TASKS = ("perplexity-base-bound", "lines", "needle")


def main(words: Sequence[str] | None = None) -> None:
    asked = _parser().parse_args(words)
    if asked.command == "sweep":
        sweep(asked)
    elif asked.dry_run:
        print(rw.train.preview(asked.from_config, **recipe(asked)).summary())
    else:
        print(pretrained(asked).summary())


def recipe(asked: argparse.Namespace) -> dict[str, Any]:
    """The options of `rw.train`."""
    return {
        "corpus": asked.corpus,
        "to": asked.length,
        "layout": "full",
        "steps": asked.steps or TOKENS // (asked.batch * asked.length),
        "batch": asked.batch,
        "learning_rate": asked.rate,
        "decay": "cosine",
        "weight_decay": 0.1,
        "seed": asked.seed,
    }


def pretrained(asked: argparse.Namespace) -> Any:
    """Random weights with the base, written once, and trained; a killed run goes on."""
    begun = asked.run / "random"
    if not begun.exists():
        config = AutoConfig.from_pretrained(asked.from_config)
        config.rope_parameters = {"rope_type": "default", "rope_theta": asked.base}
        config.max_position_embeddings = asked.length
        torch.manual_seed(asked.seed)
        part = begun.with_suffix(".part")
        AutoModelForCausalLM.from_config(config).save_pretrained(part)
        AutoTokenizer.from_pretrained(asked.tokenizer).save_pretrained(part)
        part.rename(begun)
    return rw.train(str(begun), run=asked.run / "trained", **recipe(asked))


def sweep(asked: argparse.Namespace) -> None:
    asked.lengths = asked.lengths or [asked.to >> n for n in (3, 2, 1, 0)]
    found = {}
    for base in asked.bases:
        place = asked.run / f"base-{base:g}"
        plan = rw.plan(asked.model, asked.to, "base_change", parameters={"base": base}).plan
        given = {key: getattr(asked, key) for key in ("steps", "batch") if getattr(asked, key)}
        rw.train(
            asked.model,
            corpus=asked.corpus,
            plan=plan,
            recipe="base-bound",
            run=place / "training",
            seed=asked.seed,
            **given,
        )
        found[base] = rw.evaluate(
            str(place / "training" / "model"),
            methods=["none"],
            lengths=asked.lengths,
            tasks=TASKS,
            samples=asked.samples,
            corpus=asked.text,
            run=place / "evaluation",
        )
        print(f"base {base:g}", found[base].summary(), sep="\n")
    _draw(found, asked)


def _draw(found: Mapping[float, Evaluated], asked: argparse.Namespace) -> None:
    """The loss and the share of lines at the target, by base, over the bound (Fig. 6 and 9)."""
    from matplotlib.figure import Figure

    config = AutoConfig.from_pretrained(asked.model)
    head_dim = getattr(config, "head_dim", None) or (
        config.hidden_size // config.num_attention_heads
    )
    least = rw.bound(asked.to, head_dim=head_dim).rows[0].infimum
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, task in zip(figure.subplots(1, 2), TASKS[:2], strict=True):
        points = [
            (base, row.value)
            for base, own in found.items()
            for row in own.results
            if row.task == task and row.length == max(asked.lengths)
        ]
        axes.plot(*zip(*points, strict=True), "o-")
        axes.axvline(least, color="black", linestyle=":", label="the bound")
        axes.set(xscale="log", xlabel="base", title=task)
        axes.legend()
    figure.savefig(asked.run / "bases.png")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    own = commands.add_parser("pretrain")
    own.add_argument("--from-config", required=True, help="a config.json, or its folder")
    own.add_argument("--tokenizer", help="a folder with the tokenizer")
    own.add_argument("--base", type=float, default=BASE)
    rates = f"{RATE:g} of section 5.1 (the default), or {RATE_OF_TABLE_5:g} of Table 5"
    own.add_argument("--rate", type=float, default=RATE, help=rates)
    own.add_argument("--length", type=parse_length, default=LENGTH)
    own.add_argument("--batch", type=int, default=WINDOWS, help="windows of a step")
    own.add_argument("--dry-run", action="store_true", help="only say what it would take")
    swept = commands.add_parser("sweep")
    swept.add_argument("model")
    swept.add_argument("--to", type=parse_length, required=True)
    swept.add_argument("--bases", type=_list_of(float), required=True)
    swept.add_argument(
        "--lengths", type=_list_of(parse_length), help="default: an eighth to all of --to"
    )
    swept.add_argument("--batch", type=int, help="windows of a step (default: 128)")
    swept.add_argument("--samples", type=int, default=50)
    swept.add_argument("--text", default="held-out", help="the text of the evaluation")
    for command in (own, swept):
        command.add_argument("--corpus", required=True, help="text, or a folder of tokens")
        command.add_argument("--run", type=Path, required=True)
        command.add_argument("--steps", type=int)
        command.add_argument("--seed", type=int, default=0)
    return parser


def _list_of(kind: Any) -> Any:
    return lambda text: [kind(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
