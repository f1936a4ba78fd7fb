"""Tasks as a folder for lm-evaluation-harness, whose users can run it without ropewalk.

    SAMPLES.jsonl    prompts and references, one sample a line, fitted to a length for one tokenizer
    SAMPLES.yaml     the task: how much may be written, and the rule that scores it
    scores.py        the rules: a copy of `evaluation/references.py`, and what the harness calls

Only tasks whose score is one of those rules are written. The harness allows every sample as many
tokens as the longest answer of the file needs; ropewalk counts for each sample.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from ropewalk.errors import InputError, Unsupported
from ropewalk.evaluation import references, tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import Sample, generate

RULES = {
    rule.__name__: rule for rule in (references.string_match_all, references.string_match_part)
}

_CALLED = '''

def samples(file: str = "", **_: object) -> dict:
    """The samples of a file of this folder, as the harness wants them."""
    import json
    from pathlib import Path

    import datasets

    lines = Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
    return {"test": datasets.Dataset.from_list([json.loads(line) for line in lines])}


def score_string_match_all(doc: dict, results: list[str]) -> dict[str, float]:
    return {"score": string_match_all(results[0], tuple(doc["references"]))}


def score_string_match_part(doc: dict, results: list[str]) -> dict[str, float]:
    return {"score": string_match_part(results[0], tuple(doc["references"]))}
'''

_TASK = """task: ropewalk-{name}
tag: ropewalk
custom_dataset: !function scores.samples
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{references}}}}"
process_results: !function scores.score_{rule}
metric_list:
  - {{metric: score, aggregation: mean, higher_is_better: true}}
generation_kwargs: {{do_sample: false, until: [], max_gen_toks: {allowance}}}
metadata: {{version: {version}, file: {name}.jsonl}}
"""


def check_exportable(names: Sequence[str]) -> None:
    """Refuse tasks that the folder cannot score."""
    for name in names:
        task = tasks.named(name)
        if task.score not in RULES.values():
            able = [t.name for t in tasks.every().values() if t.metric in RULES]
            raise Unsupported(
                f"{name}: it is scored by code of its own, and a folder for the harness can only "
                f"use the rules {' and '.join(RULES)}; choose from {', '.join(able)}"
            )


def files(
    names: Sequence[str],
    lengths: Sequence[int],
    encoder: Encoder,
    haystack: Haystack,
    count: int,
    seed: int,
) -> Iterator[tuple[str, str]]:
    """Every file of the folder by its name."""
    yield "scores.py", Path(references.__file__).read_text(encoding="utf-8") + _CALLED
    for task in map(tasks.named, names):
        for length in lengths:
            drawn = list(generate(task, encoder, haystack, length, count, seed))
            name = f"{task.name}-{length}"
            lines = (json.dumps(_line(encoder, sample)) + "\n" for sample in drawn)
            yield f"{name}.jsonl", "".join(lines)
            yield (
                f"{name}.yaml",
                _TASK.format(
                    name=name,
                    rule=task.metric,
                    allowance=max(sample.allowance for sample in drawn),
                    version=task.version,
                ),
            )


def _line(encoder: Encoder, sample: Sample) -> dict[str, object]:
    prompt = encoder.text(sample.prompt)
    if not np.array_equal(encoder.sequence(prompt), sample.prompt):
        raise InputError(
            f"sample {sample.id[:12]} cannot be written as text: the tokenizer gives other tokens "
            "for it; choose another task or tokenizer"
        )
    return {"id": sample.id, "prompt": prompt, "references": list(sample.references)}
