"""The harness's own definitions of the papers' benchmarks, on made examples in the published form.

The real data were never read here. What is tested: that each name runs the definition it stands
for, with the examples in the prompt and the metric of LongRoPE's Table 8 (ARC-Challenge 25,
HellaSwag 10, MMLU 5, TruthfulQA 0) and of Wang et al.'s Table 7 (LongBench's in-context tasks).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

import ropewalk as rw

lm_eval = pytest.importorskip("lm_eval", reason="make test-lm-eval has it")
Row = dict[str, Any]


def data_set(name: str, config: str | None, splits: dict[str, Iterable[Row]]) -> None:
    """A data set as `datasets` reads it from a folder, below the working directory."""
    folder = Path(name) / (config or "")
    folder.mkdir(parents=True, exist_ok=True)
    for split, rows in splits.items():
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    listed = sorted(path.name for path in Path(name).iterdir() if path.is_dir())
    if listed:
        lines = [
            f"- config_name: {own}\n  data_files:\n"
            + "".join(
                f"  - split: {path.stem}\n    path: {own}/{path.name}\n"
                for path in sorted((Path(name) / own).glob("*.jsonl"))
            )
            for own in listed
        ]
        (Path(name) / "README.md").write_text(f"---\nconfigs:\n{''.join(lines)}---\n")


def hellaswag(count: int) -> Iterable[Row]:
    for i in range(count):
        yield {
            "ind": i,
            "activity_label": "Making tea",
            "ctx_a": f"[header] A person boils {i} cups of water.",
            "ctx_b": "the person",
            "ctx": "",
            "endings": [f"takes cup {i + k}. [title] It is hot." for k in range(4)],
            "label": str(i % 4),
        }


def arc(count: int) -> Iterable[Row]:
    for i in range(count):
        yield {
            "id": str(i),
            "question": f"What is {i} and 1?",
            "choices": {"text": [str(i + k) for k in range(4)], "label": ["A", "B", "C", "D"]},
            "answerKey": "B",
        }


def truthfulqa(count: int) -> Iterable[Row]:
    for i in range(count):
        choices = [f"It is {i}.", f"It is {i} or so.", f"It was {i + 1}."]
        yield {
            "question": f"How many legs has animal {i}?",
            "mc1_targets": {"choices": choices, "labels": [1, 0, 0]},
            "mc2_targets": {"choices": choices, "labels": [1, 1, 0]},
        }


def mmlu(count: int, subject: str) -> Iterable[Row]:
    for i in range(count):
        choices = [f"{i + k}" for k in range(4)]
        yield {"question": f"{subject}: {i}?", "subject": subject, "choices": choices, "answer": 2}


def longbench(kind: str) -> Iterable[Row]:
    for i in range(2):
        yield {
            "input": f"Question: what of {i}?\nType:",
            "question": f"Question: what of {i}?\nType:",
            "context": "Question: what of 9?\nType: number\n" * 4,
            "answers": ["number"],
            "all_classes": ["number", "place"],
            "length": 20,
            "dataset": kind,
            "language": "en",
            "_id": f"{kind}{i}",
        }


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The working directory for data, and what the harness returned, to be looked at."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    returned: list[Any] = []
    plain = lm_eval.simple_evaluate

    def watched(**arguments: Any) -> Any:
        returned.append(plain(**arguments))
        return returned[-1]

    monkeypatch.setattr(lm_eval, "simple_evaluate", watched)
    return returned


def prompts(returned: Sequence[Any], task: str) -> list[str]:
    """What the model read before the first answer to each question."""
    own = [sample["arguments"] for each in returned for sample in each["samples"].get(task, ())]
    return [
        str(asked["gen_args_0"]["arg_0"] if isinstance(asked, dict) else asked[0][0])
        for asked in own
    ]


def found(name: str) -> dict[tuple[str, str], float]:
    results = rw.benchmarks("bundled", [name], methods=["yarn"], to="4k").results
    return {(result.task, result.metric): result.value for result in results}


def test_hellaswag_has_ten_examples_and_its_normed_accuracy(seen: list[Any]) -> None:
    data_set("Rowan/hellaswag", None, {"train": hellaswag(30), "validation": hellaswag(3)})
    values = found("hellaswag")
    assert ("hellaswag", "acc_norm") in values
    for prompt in prompts(seen, "hellaswag"):
        assert prompt.count("Making tea: ") == 11
        assert "[title]" not in prompt


def test_arc_has_twenty_five_examples_and_its_normed_accuracy(seen: list[Any]) -> None:
    splits = {"train": arc(40), "validation": arc(2), "test": arc(3)}
    data_set("allenai/ai2_arc", "ARC-Challenge", splits)
    values = found("arc-c")
    assert ("arc_challenge", "acc_norm") in values
    for prompt in prompts(seen, "arc_challenge"):
        assert prompt.count("Question: ") == 26


def test_truthfulqa_has_no_examples_and_several_right_answers(seen: list[Any]) -> None:
    data_set("truthfulqa/truthful_qa", "multiple_choice", {"validation": truthfulqa(3)})
    values = found("truthfulqa")
    assert 0 < values["truthfulqa_mc2", "acc"] < 1  # a share of probability, not a count
    for prompt in prompts(seen, "truthfulqa_mc2"):
        assert prompt.count("Q: ") == 7  # six are part of the definition
        assert "How many legs" in prompt


def test_mmlu_has_five_examples_in_each_of_its_subjects(seen: list[Any]) -> None:
    folder = Path(lm_eval.__file__).parent / "tasks/mmlu/default"
    subjects = [path.stem.removeprefix("mmlu_") for path in folder.glob("mmlu_*.yaml")]
    assert len(subjects) == 57
    for subject in subjects:
        data_set("cais/mmlu", subject, {"test": mmlu(1, subject), "dev": mmlu(5, subject)})
    values = found("mmlu")
    assert ("mmlu", "acc") in values
    for subject in subjects:
        for prompt in prompts(seen, f"mmlu_{subject}"):
            assert prompt.count("Answer:") == 6


@pytest.mark.filterwarnings("ignore:Using slow pure-python SequenceMatcher")
def test_longbench_is_its_in_context_tasks(seen: list[Any]) -> None:
    kinds = ("trec", "triviaqa", "samsum", "lsht")
    for kind in kinds:
        data_set("Xnhyacinth/LongBench", kind, {"test": longbench(kind)})
    values = found("longbench")
    assert {("longbench_fewshot", "score")} <= values.keys()
    own = {f"longbench_{kind}" for kind in kinds}
    assert own == set(seen[0]["samples"])
    [first, _] = prompts(seen, "longbench_trec")
    assert first.count("Question: what of 9?") == 4
    assert first.rstrip().endswith("Type:")
