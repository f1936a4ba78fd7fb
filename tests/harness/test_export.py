"""An export in the stock lm-evaluation-harness: `make test-lm-eval`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import ropewalk as rw
from ropewalk.models.config import BUNDLED_FOLDER

pytest.importorskip("lm_eval", reason="make test-lm-eval has it")

TASK = """task: passkey_written_here
dataset_path: json
dataset_kwargs: {{data_files: {{test: {questions}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{do_sample: false, until: ["\\n"], max_gen_toks: 12}}
filter_list:
  - name: digits
    filter: [{{function: regex, regex_pattern: '(\\d+)'}}, {{function: take_first}}]
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
"""
LENGTH = 1536  # three times the window of the bundled model


def score(model: Path, tasks: Path, output: Path) -> float:
    """The harness's own command line, in a process that never imports ropewalk."""
    done = subprocess.run(
        [
            *(sys.executable, "-I", "-m", "lm_eval", "run", "--model", "hf"),
            *("--model_args", f"pretrained={model},max_length=2048", "--device", "cpu"),
            *("--tasks", "passkey_written_here", "--include_path", str(tasks)),
            *("--batch_size", "1", "--output_path", str(output)),
        ],
        capture_output=True,
        text=True,
        cwd=tasks,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    [file] = output.rglob("results*.json")
    found = json.loads(file.read_text())["results"]["passkey_written_here"]
    return float(found["exact_match,digits"])


def test_an_export_answers_what_the_unmodified_model_does_not(tmp_path: Path) -> None:
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    filler = "The grass is green. The sky is blue. The sun is yellow. Here we go. "
    loaded = rw.load("bundled")
    unit = len(loaded.tokenizer(filler)["input_ids"])
    with (tasks / "questions.jsonl").open("w") as file:
        for key in (48213, 70951, 16384, 92507, 35078, 61429):
            text = filler * (LENGTH // unit // 2)
            told = f"The pass key is {key}. Remember it. {key} is the pass key. "
            asked = "What is the pass key? The pass key is"
            file.write(json.dumps({"prompt": text + told + text + asked, "answer": str(key)}))
            file.write("\n")
    (tasks / "task.yaml").write_text(TASK.format(questions=tasks / "questions.jsonl"))
    planned = rw.plan("bundled", "2k", "yarn").plan
    rw.export("bundled", planned, tmp_path / "extended", runtime="transformers")
    extended = score(tmp_path / "extended", tasks, tmp_path / "after")
    assert score(BUNDLED_FOLDER, tasks, tmp_path / "before") < extended
    assert extended >= 0.5
