"""Train the bundled models, hold them to the gate, and write them into the package.

    python -m studies.bundled_model.train --jobs 2

Seeds are trained side by side, one thread each, and each stage is kept under `--candidates`; a
second call goes on where the first one was. The first three seeds that pass the gate are shipped,
as `bundled`, `bundled:2` and `bundled:3`, whatever their figures beyond it. Where fewer pass,
nothing is written, and the exit status is 1.

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
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from ropewalk.data.corpora import HELD_OUT_FOLDER
from ropewalk.models.config import BUNDLED_FOLDER, BUNDLED_FOLDERS
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
from studies.bundled_model.model import SIZES, STAGES, WINDOW, Size, new_model, train
from studies.bundled_model.tokenizer import BOS, EOS, train_tokenizer
from studies.bundled_model.windows import TextStream

REPOSITORY = Path(__file__).parents[2]
RECORD = BUNDLED_FOLDER / "training_record.json"

# At the full window, on held-out text.
GATE = {"single needle": 1.0, "needle among three distractors": 0.95, "passkey": 0.95}
GATE_SAMPLES = 128
BEYOND = (2 * WINDOW, 4 * WINDOW, 8 * WINDOW)
BEYOND_SAMPLES = 32
DOCUMENTS = 16
TOKENIZER_SEED = 0
# A run that does not choose among keys by the end of this stage never did later.
CHOOSES_AT, CHOOSES_BELOW = 128, 0.6
# A candidate passes the gate on other samples than those whose figures are recorded.
CHOOSING_SEED, RECORDED_SEED = 1, 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
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
    passed: dict[int, dict[str, float]] = {}
    for seed in arguments.seeds:
        if not finished(folder, seed).exists():
            continue
        reached = _gate(finished(folder, seed), corpus, CHOOSING_SEED)
        failed = [task for task, least in GATE.items() if reached[task] < least]
        print(f"seed {seed}: {reached} {'fails' if failed else 'passes'}", flush=True)
        if not failed:
            passed[seed] = reached
    if arguments.size != "bundled":
        print(*(finished(folder, seed) for seed in passed), sep="\n")
        return 0 if passed else 1
    if len(passed) < len(BUNDLED_FOLDERS):
        print("too few seeds pass the gate; nothing is written", file=sys.stderr)
        return 1
    chosen = dict(zip(BUNDLED_FOLDERS, (finished(folder, seed) for seed in passed), strict=False))
    _write_package(list(chosen.values()), corpus)
    record = {
        "data": _data(chosen["bundled"], corpus),
        "stages": [asdict(stage) for stage in STAGES],
        "training_tokens": sum(each.window * each.batch * each.steps for each in STAGES),
        "gate": {"length": WINDOW, "samples": GATE_SAMPLES, "least": GATE},
        "beyond_the_window": {"samples": BEYOND_SAMPLES, "documents": DOCUMENTS},
        "models": {
            name: {"seed": seed, "passed_the_gate_with": reached, **_measured(place, corpus)}
            for (name, place), (seed, reached) in zip(chosen.items(), passed.items(), strict=False)
        },
        "machine": _machine(),
    }
    _write_json(RECORD, record)
    return 0


def blocks() -> dict[str, str]:
    """The figures of the README, which `make figures` writes."""
    return {"studies/bundled_model/README.md": tables(json.loads(RECORD.read_text("utf-8")))}


def _measured(folder: Path, corpus: Corpus) -> dict[str, Any]:
    """The results of one model, inside its window and beyond it."""
    return {
        "losses": json.loads((folder / "losses.json").read_text()),
        "gate": _gate(folder, corpus, RECORDED_SEED),
        "without_a_gate": _without_a_gate(folder, corpus, RECORDED_SEED),
        "beyond_the_window": _beyond_the_window(folder, corpus),
    }


def _folder(candidates: Path, seed: int) -> Path:
    """The folder of one seed of this very recipe: whoever edits the recipe begins anew."""
    recipe = ("corpus.py", "model.py", "prompts.py", "tokenizer.py", "windows.py")
    sources = [Path(__file__).with_name(name).read_text(encoding="utf-8") for name in recipe]
    return candidates / sha256(sources)[:8] / f"seed-{seed}"


def finished(candidates: Path, seed: int) -> Path:
    """The folder of a trained candidate, in the folder of its size."""
    return _folder(candidates, seed) / "finished"


def _train_candidate(seed: int, candidates: Path) -> None:
    transformers_logging.set_verbosity_error()
    torch.set_num_threads(1)
    train_stages(SIZES[candidates.name], seed, candidates)


def train_stages(
    size: Size,
    seed: int,
    candidates: Path,
    new: Callable[[PreTrainedTokenizerFast, int, Size], LlamaForCausalLM] = new_model,
    gives_up: bool = True,
) -> None:
    texts = list(read_corpus().training.values())
    tokenizer = train_tokenizer(texts, TOKENIZER_SEED)
    stream, words = TextStream(tokenizer, texts), words_of(texts)
    model = new(tokenizer, seed, size)
    losses: list[dict[str, float]] = []

    def report(line: dict[str, float]) -> None:
        losses.append(line)
        print(f"seed {seed}: {line}", flush=True)

    for number in range(size.stages):
        done = _folder(candidates, seed) / f"stage-{number}"
        if done.exists():
            # Into the model as it was made, which may compute in its own way.
            trained = LlamaForCausalLM.from_pretrained(done, local_files_only=True)
            model.load_state_dict(trained.state_dict())
            losses = json.loads((done / "losses.json").read_text())
        else:
            train(model, tokenizer, stream, words, seed, number, report)
            _save(done, model, tokenizer, losses)
        if not gives_up or STAGES[number].window != CHOOSES_AT:
            continue
        if losses[-1]["answer_loss"] > CHOOSES_BELOW:
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


def words_of(texts: list[str]) -> list[str]:
    return sorted({word for text in texts for word in re.findall(r"\b[a-z]{3,7}\b", text)})


def _load(folder: Path) -> tuple[LlamaForCausalLM, Any]:
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True).eval()
    return model, AutoTokenizer.from_pretrained(folder, local_files_only=True)


def _held_out_text(corpus: Corpus) -> str:
    return "".join(corpus.held_out.values())


def _questions(tokenizer: Any, corpus: Corpus, length: int) -> Questions:
    known = set(words_of(list(corpus.training.values())))
    text = _held_out_text(corpus)
    return Questions(tokenizer, text, [w for w in words_of([text]) if w not in known], length)


def _gate(folder: Path, corpus: Corpus, seed: int) -> dict[str, float]:
    model, tokenizer = _load(folder)
    ask, count = _questions(tokenizer, corpus, model.config.max_position_embeddings), GATE_SAMPLES
    tasks = {
        "single needle": ask.needle(count, seed, distractors=0),
        "needle among three distractors": ask.needle(count, seed, distractors=3),
        "passkey": ask.passkey(count, seed),
    }
    return {task: exact_match(model, tokenizer, samples) for task, samples in tasks.items()}


def _without_a_gate(folder: Path, corpus: Corpus, seed: int) -> dict[str, float]:
    model, tokenizer = _load(folder)
    ask, count = _questions(tokenizer, corpus, WINDOW), GATE_SAMPLES
    return {
        "table of keys": exact_match(model, tokenizer, ask.table(count, seed)),
        "lines of Long-eval": exact_match(model, tokenizer, ask.records(count, seed)),
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
                "needle among three distractors": exact_match(model, tokenizer, needles),
                "passkey": exact_match(
                    model, tokenizer, ask.passkey(BEYOND_SAMPLES, RECORDED_SEED)
                ),
            }
            print(row, flush=True)
            rows.append(row)
    return rows


def _write_package(chosen: list[Path], corpus: Corpus) -> None:
    for source, folder in zip(chosen, BUNDLED_FOLDERS.values(), strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in source.iterdir():
            if file.name != "losses.json":
                shutil.copyfile(file, folder / file.name)
    shutil.rmtree(HELD_OUT_FOLDER, ignore_errors=True)
    HELD_OUT_FOLDER.mkdir()
    for name, text in corpus.held_out.items():
        (HELD_OUT_FOLDER / f"{Path(name).stem}.txt").write_text(text, encoding="utf-8")
    # Not .txt, which would make it a document.
    (HELD_OUT_FOLDER / "LICENSE-PYTHON").write_text(licence_text(), encoding="utf-8")


def _data(chosen: Path, corpus: Corpus) -> dict[str, Any]:
    texts = list(corpus.training.values())
    _, tokenizer = _load(chosen)
    return {
        "source": f"the standard library of Python {platform.python_version()}",
        "licence": "Python Software Foundation License Version 2 (LICENSE-PYTHON)",
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


def tables(record: dict[str, Any]) -> str:
    """The figures of the README."""
    gate, beyond, models = record["gate"], record["beyond_the_window"], record["models"]
    machine = record["machine"]
    lines = [
        f"{record['training_tokens']:,} training tokens a model, one thread each, next to other "
        f"work ({machine['processor']}, torch {machine['torch']}):",
        "",
        "| model | seed | seconds | last loss of text | of answers |",
        "|---|---|---|---|---|",
    ]
    for name, model in models.items():
        last = model["losses"][-1]
        lines.append(
            f"| {name} | {model['seed']} | {sum(stage_seconds(model['losses'])):.0f} |"
            f" {last['text_loss']:.3f} | {last['answer_loss']:.4f} |"
        )
    lines += [
        "",
        f"At {gate['length']} tokens, {gate['samples']} samples a task, answers exact with their "
        "end; what the gate asks was reached on other samples:",
        "",
        f"| task | gate | {' | '.join(models)} |",
        "|---" * (2 + len(models)) + "|",
    ]
    first = next(iter(models.values()))
    for part in ("gate", "without_a_gate"):
        for task in first[part]:
            cells = " | ".join(f"{model[part][task]:.3f}" for model in models.values())
            least = f"{gate['least'][task]:.2f}" if part == "gate" else ""
            lines.append(f"| {task} | {least} | {cells} |")
    lengths = sorted({row["length"] for row in first["beyond_the_window"]})
    lines += [
        "",
        f"Beyond the window, without any training there (perplexity of the last tokens of"
        f" {beyond['documents']} windows / needle among three distractors / passkey,"
        f" {beyond['samples']} samples each; the three models one after the other):",
        "",
        "| method | " + " | ".join(map(str, lengths)) + " |",
        "|---" * (1 + len(lengths)) + "|",
    ]
    for method in METHODS:
        columns = []
        for length in lengths:
            rows = [
                row
                for model in models.values()
                for row in model["beyond_the_window"]
                if (row["method"], row["length"]) == (method, length)
            ]
            keys = ("perplexity", "needle among three distractors", "passkey")
            columns.append(
                "<br>".join(
                    " / ".join(
                        f"{row[key]:.1f}" if key == "perplexity" else f"{row[key]:.2f}"
                        for key in keys
                    )
                    for row in rows
                )
            )
        lines.append(f"| {method} | {' | '.join(columns)} |")
    return "\n".join(lines)


def stage_seconds(losses: list[dict[str, float]]) -> list[float]:
    """The time of each stage: that of a report counts from the stage's own beginning."""
    following = [*losses[1:], {"seconds": 0.0}]
    return [
        line["seconds"]
        for line, after in zip(losses, following, strict=True)
        if after["seconds"] < line["seconds"]
    ]


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
