"""The time to make samples of RULER's tasks, compared with encoding each final prompt once.

    python -m benchmarks.task_generation               13 tasks × 50 samples of 128k
    python -m benchmarks.task_generation --length 32k --samples 5

The tokenizer is one of 16,384 byte pairs, made here from Python's standard library, since ropewalk
ships none of that size. A sample is let go when it is measured, as a run does with those of a task.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from benchmarks.machine import PAGE, machine
from docs.figures import Sentence, paragraph
from ropewalk.data.corpora import HELD_OUT, STANDARD_LIBRARY, read_documents
from ropewalk.evaluation import samples, tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.lengths import format_length, parse_length
from ropewalk.outputs import write_atomically

RESULTS = Path(__file__).with_name("results") / "task_generation.json"
TRAINED_ON = 4 * 2**20  # characters
VOCABULARY = 16_384
# Words with the space before them, numbers of up to three digits, punctuation, line ends.
PIECES = r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", default="128k")
    parser.add_argument("--samples", type=int, default=50)
    asked = parser.parse_args()
    found = measure(parse_length(asked.length), asked.samples)
    write_atomically(RESULTS, json.dumps(found, indent=1) + "\n")
    print(table(found))
    return 0


def blocks() -> dict[str, str]:
    return {PAGE: table(json.loads(RESULTS.read_text(encoding="utf-8")))}


def sentences() -> list[Sentence]:
    rows = json.loads(RESULTS.read_text(encoding="utf-8"))["tasks"]
    ratios = [row["made"] / row["encoded"] for row in rows]
    words = "Making samples takes {} times as long as encoding each final prompt once"
    return [Sentence(PAGE, words, (f"{min(ratios):.1f} to {max(ratios):.1f}",))]


def measure(length: int, count: int) -> dict[str, Any]:
    encoder, haystack = Encoder(tokenizer()), Haystack(list(read_documents(HELD_OUT)))
    rows = []
    for name in tasks.groups()["ruler-syn"]:
        made, encoded, tokens = 0.0, 0.0, 0
        begin = time.process_time()
        for sample in samples.generate(tasks.named(name), encoder, haystack, length, count, 0):
            made += time.process_time() - begin
            text = encoder.text(sample.prompt)
            begin = time.process_time()
            assert len(encoder.sequence(text)) == len(sample.prompt)
            encoded += time.process_time() - begin
            tokens += len(sample.prompt)
            begin = time.process_time()
        rows.append({"task": name, "made": made, "encoded": encoded, "tokens": tokens})
        print(f"{name}: {made / encoded:.2f}", file=sys.stderr, flush=True)
    return {
        "machine": machine(),
        "length": length,
        "samples": count,
        "tasks": rows,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def tokenizer() -> PreTrainedTokenizerFast:
    """Byte pairs, learned from code and prose, and pieces as current models cut them."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    texts, read = [], 0
    for document in read_documents(STANDARD_LIBRARY):
        texts.append(document.text)
        read += len(document.text)
        if read > TRAINED_ON:
            break
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, clean_up_tokenization_spaces=False)


def table(found: dict[str, Any]) -> str:
    """All tasks together; seconds of processor time."""
    made, encoded, tokens = (
        sum(row[key] for row in found["tasks"]) for key in ("made", "encoded", "tokens")
    )
    return paragraph(
        f"{found['samples']} samples of {format_length(found['length'])} for each of "
        f"{len(found['tasks'])} tasks, {tokens / 1e6:.1f}M tokens: {made:.1f} s, next to "
        f"{encoded:.1f} s of encoding; peak memory {found['peak_mib']:.0f} MiB."
    )


if __name__ == "__main__":
    sys.exit(main())
