"""Train the bundled model, hold it to the gate, and write `ropewalk/models/bundled/`.

    python -m studies.bundled_model.train --seeds 9 10 --jobs 2

Seeds are trained side by side, one thread each, and each stage is kept under `--candidates`; a
second call goes on where the first one was. The best candidate is written if it passes the gate;
otherwise nothing is written, the figures are shown, and the exit status is 1.

    python -m studies.bundled_model.train --size narrow --seeds 1 2

trains models of another size for studies that need more than one; they stay under `--candidates`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import re
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM
from transformers.utils import logging as transformers_logging

from studies.bundled_model.corpus import (
    LINES_PER_SHINGLE,
    SHINGLE_SAMPLING,
    Corpus,
    licence_text,
    read_corpus,
    sampled,
    sha256,
    shingles,
)
from studies.bundled_model.measure import METHODS, Questions, exact_match, perplexity, put
from studies.bundled_model.model import SIZES, STAGES, WINDOW, new_model, train
from studies.bundled_model.tokenizer import BOS, EOS, train_tokenizer
from studies.bundled_model.windows import TextStream

REPOSITORY = Path(__file__).parents[2]
PACKAGED = REPOSITORY / "ropewalk" / "models" / "bundled"
README = Path(__file__).with_name("README.md")

# At the full window, on held-out text.
GATE = {"single needle": 1.0, "needle among three distractors": 0.95, "passkey": 0.95}
GATE_SAMPLES = 128
BEYOND = (2 * WINDOW, 4 * WINDOW, 8 * WINDOW)
BEYOND_SAMPLES = 32
DOCUMENTS = 16
TOKENIZER_SEED = 0
# A run that does not choose among keys by the end of this stage never did later.
CHOOSES_AT, CHOOSES_BELOW = 128, 0.6
# Candidates are compared on other samples than those whose figures are recorded.
CHOOSING_SEED, RECORDED_SEED = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[9])
    parser.add_argument("--size", choices=SIZES, default="bundled")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--candidates", type=Path, default=REPOSITORY / "runs" / "bundled_model")
    arguments = parser.parse_args()
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)

    folder = arguments.candidates / arguments.size
    missing = [seed for seed in arguments.seeds if not finished(folder, seed).exists()]
    # A forked process would inherit torch's threads.
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=fresh) as pool:
        list(pool.map(_train_candidate, missing, [folder] * len(missing)))

    corpus = read_corpus()
    candidates = {}
    for seed in arguments.seeds:
        candidates[seed] = _gate(finished(folder, seed), corpus, CHOOSING_SEED)
        print(f"seed {seed}: {candidates[seed]}", flush=True)
    best = max(candidates, key=lambda seed: min(candidates[seed].values()))
    chosen = finished(folder, best)
    reached = _gate(chosen, corpus, RECORDED_SEED)
    print(f"chosen: seed {best}: {reached}", flush=True)
    failed = [task for task, least in GATE.items() if reached[task] < least]
    if failed:
        print(f"gate not met: {', '.join(failed)}; nothing is written", file=sys.stderr)
        return 1
    if arguments.size != "bundled":
        print(chosen)
        return 0
    _write_package(chosen, corpus)
    record = {
        "seed": best,
        "data": _data(chosen, corpus),
        "stages": [asdict(stage) for stage in STAGES],
        "training_tokens": sum(each.window * each.batch * each.steps for each in STAGES),
        "losses": json.loads((chosen / "losses.json").read_text()),
        "gate": {
            "length": WINDOW,
            "samples": GATE_SAMPLES,
            "least": GATE,
            "reached": reached,
            "candidates": candidates,
        },
        "without_a_gate": _without_a_gate(chosen, corpus, RECORDED_SEED),
        "beyond_the_window": {
            "samples": BEYOND_SAMPLES,
            "documents": DOCUMENTS,
            "rows": _beyond_the_window(chosen, corpus),
        },
        "machine": _machine(),
    }
    _write_json(PACKAGED / "training_record.json", record)
    before, _, rest = README.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    README.write_text(f"{before}{BEGIN}\n{_tables(record)}\n{END}{after}", encoding="utf-8")
    return 0


def _folder(candidates: Path, seed: int) -> Path:
    """Of one seed of this very recipe: whoever edits the recipe begins anew."""
    recipe = ("corpus.py", "model.py", "prompts.py", "tokenizer.py", "windows.py")
    sources = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in recipe]
    return candidates / sha256(sources)[:8] / f"seed-{seed}"


def finished(candidates: Path, seed: int) -> Path:
    """Where a trained candidate is kept, in the folder of its size."""
    return _folder(candidates, seed) / "finished"


def _train_candidate(seed: int, candidates: Path) -> None:
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)
    texts = list(read_corpus().training.values())
    tokenizer = train_tokenizer(texts, TOKENIZER_SEED)
    stream, words = TextStream(tokenizer, texts), _words(texts)
    size = SIZES[candidates.name]
    model = new_model(tokenizer, seed, size)
    losses: list[dict[str, float]] = []

    def report(line: dict[str, float]) -> None:
        losses.append(line)
        print(f"seed {seed}: {line}", flush=True)

    for number in range(size.stages):
        done = _folder(candidates, seed) / f"stage-{number}"
        if done.exists():
            model = LlamaForCausalLM.from_pretrained(done, local_files_only=True)
            losses = json.loads((done / "losses.json").read_text())
        else:
            train(model, tokenizer, stream, words, seed, number, report)
            _save(done, model, tokenizer, losses)
        if STAGES[number].window == CHOOSES_AT and losses[-1]["answer_loss"] > CHOOSES_BELOW:
            print(f"seed {seed}: does not choose among keys; given up", flush=True)
            return
    # Half the bytes; the configuration still says float32, so that it is computed in float32.
    _save(finished(candidates, seed), model.to(torch.bfloat16), tokenizer, losses)


def _save(folder: Path, model: Any, tokenizer: Any, losses: list[dict[str, float]]) -> None:
    """All or nothing: an interrupted save leaves no folder of that name."""
    unfinished = folder.with_suffix(".unfinished")
    model.save_pretrained(unfinished)
    tokenizer.save_pretrained(unfinished)
    config = json.loads((unfinished / "config.json").read_text())
    _write_json(unfinished / "config.json", config | {"dtype": "float32"})
    # What this version of transformers adds, older ones and other runtimes don't know.
    _write_json(
        unfinished / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": BOS,
            "eos_token": EOS,
            "pad_token": EOS,
            "add_bos_token": True,
            "clean_up_tokenization_spaces": False,
        },
    )
    (unfinished / "losses.json").write_text(json.dumps(losses))
    unfinished.rename(folder)


def _words(texts: list[str]) -> list[str]:
    return sorted({word for text in texts for word in re.findall(r"\b[a-z]{3,7}\b", text)})


def _load(folder: Path) -> tuple[LlamaForCausalLM, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _held_out_text(corpus: Corpus) -> str:
    return "".join(corpus.held_out.values())


def _questions(tokenizer: Any, corpus: Corpus, length: int) -> Questions:
    known = set(_words(list(corpus.training.values())))
    text = _held_out_text(corpus)
    return Questions(tokenizer, text, [w for w in _words([text]) if w not in known], length)


def _gate(folder: Path, corpus: Corpus, seed: int) -> dict[str, float]:
    model, tokenizer = _load(folder)
    ask, count = _questions(tokenizer, corpus, model.config.max_position_embeddings), GATE_SAMPLES
    tasks = {
        "single needle": ask.needle(count, seed, distractors=0),
        "needle among three distractors": ask.needle(count, seed, distractors=3),
        "passkey": ask.passkey(count, seed),
    }
    return {task: exact_match(model, samples) for task, samples in tasks.items()}


def _without_a_gate(folder: Path, corpus: Corpus, seed: int) -> dict[str, float]:
    model, tokenizer = _load(folder)
    ask, count = _questions(tokenizer, corpus, WINDOW), GATE_SAMPLES
    return {
        "table of keys": exact_match(model, ask.table(count, seed)),
        "lines of Long-eval": exact_match(model, ask.records(count, seed)),
        "perplexity": _perplexity(model, tokenizer, corpus, WINDOW),
    }


def _perplexity(model: LlamaForCausalLM, tokenizer: Any, corpus: Corpus, length: int) -> float:
    text = _held_out_text(corpus)
    return perplexity(model, tokenizer, text, length, longest=max(BEYOND), documents=DOCUMENTS)


def _beyond_the_window(folder: Path, corpus: Corpus) -> list[dict[str, Any]]:
    model, tokenizer = _load(folder)
    rows = []
    for length in BEYOND:
        ask = _questions(tokenizer, corpus, length)
        for method in METHODS:
            put(model, method, length / WINDOW)
            needles = ask.needle(BEYOND_SAMPLES, RECORDED_SEED, distractors=3)
            row = {
                "method": method,
                "length": length,
                "perplexity": _perplexity(model, tokenizer, corpus, length),
                "needle among three distractors": exact_match(model, needles),
                "passkey": exact_match(model, ask.passkey(BEYOND_SAMPLES, RECORDED_SEED)),
            }
            print(row, flush=True)
            rows.append(row)
    return rows


def _write_package(chosen: Path, corpus: Corpus) -> None:
    PACKAGED.mkdir(parents=True, exist_ok=True)
    for file in chosen.iterdir():
        if file.name != "losses.json":
            shutil.copyfile(file, PACKAGED / file.name)
    (PACKAGED / "held_out.txt").write_text(_held_out_text(corpus), encoding="utf-8")
    (PACKAGED / "LICENSE-PYTHON.txt").write_text(licence_text(), encoding="utf-8")


def _data(chosen: Path, corpus: Corpus) -> dict[str, Any]:
    texts = list(corpus.training.values())
    _, tokenizer = _load(chosen)
    return {
        "source": f"the standard library of Python {platform.python_version()}",
        "licence": "Python Software Foundation License Version 2 (LICENSE-PYTHON.txt)",
        "training": {
            "modules": len(texts),
            "characters": sum(map(len, texts)),
            "tokens": len(TextStream(tokenizer, texts).tokens),
            "sha256": sha256(texts),
        },
        "held_out": {
            "modules": {
                name: {"characters": len(text), "sha256": sha256([text])}
                for name, text in corpus.held_out.items()
            },
            "sha256": sha256(corpus.held_out.values()),
        },
        "left_out_for_overlap": corpus.dropped,
        "overlap": {
            "lines_per_shingle": LINES_PER_SHINGLE,
            "shared_shingles": len(shingles(texts) & shingles(corpus.held_out.values())),
            "sampling": SHINGLE_SAMPLING,
            "sampled_training_shingles": sampled(shingles(texts)),
        },
    }


def _machine() -> dict[str, Any]:
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "threads": 1,
        "python": platform.python_version(),
        **{name: version(name) for name in ("torch", "transformers", "tokenizers", "numpy")},
    }


BEGIN, END = "<!-- written by train.py -->", "<!-- until here -->"


def _tables(record: dict[str, Any]) -> str:
    gate, beyond = record["gate"], record["beyond_the_window"]
    last = record["losses"][-1]
    lines = [
        f"Seed {record['seed']}, {record['training_tokens']:,} training tokens,"
        f" {sum(stage_seconds(record['losses'])):.0f} s on one thread"
        f" ({record['machine']['processor']}, torch {record['machine']['torch']}). Loss at the end:"
        f" text {last['text_loss']:.3f}, answers {last['answer_loss']:.4f}.",
        "",
        f"At {gate['length']} tokens, {gate['samples']} samples a task:",
        "",
        "| task | gate | reached | other candidates |",
        "|---|---|---|---|",
    ]
    for task, value in gate["reached"].items():
        others = ", ".join(
            f"{figures[task]:.3f}"
            for seed, figures in gate["candidates"].items()
            if seed != record["seed"]
        )
        lines.append(f"| {task} | {gate['least'][task]:.2f} | {value:.3f} | {others} |")
    lines += [f"| {task} | | {value:.3f} | |" for task, value in record["without_a_gate"].items()]
    lengths = sorted({row["length"] for row in beyond["rows"]})
    lines += [
        "",
        f"Beyond the window, without any training there (perplexity of the last tokens of"
        f" {beyond['documents']} documents / needle among three distractors / passkey,"
        f" {beyond['samples']} samples each):",
        "",
        "| method | " + " | ".join(map(str, lengths)) + " |",
        "|---" * (1 + len(lengths)) + "|",
    ]
    for method in METHODS:
        cells = [
            f"{row['perplexity']:.2f} / {row['needle among three distractors']:.2f}"
            f" / {row['passkey']:.2f}"
            for row in beyond["rows"]
            if row["method"] == method
        ]
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def stage_seconds(losses: list[dict[str, float]]) -> list[float]:
    """How long each stage took: its last report counts from its own beginning."""
    return list({line["window"]: line["seconds"] for line in losses}.values())


def _processor() -> str:
    described = Path("/proc/cpuinfo")
    if described.exists():
        found = re.search(r"model name\s*: (.+)", described.read_text())
        if found:
            return found[1].strip()
    return platform.processor() or "unknown"


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
