"""From a downloaded GGUF file to a server with twice its window, step by step, with the cost.

    make real                              the model, once, if you accept Gemma's terms
    python -m studies.gemma3.served        runs what is missing: about half an hour of one core
    python -m studies.gemma3.served --report

llama.cpp follows the plan by flags, so no second file is written. The fingerprint is computed from
the weights of the file, as a folder in float32. Finished steps are kept in served.json.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ropewalk.context_plan import ContextPlan
from ropewalk.evaluation.tasks import QUESTIONS
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.flags import flags_of
from ropewalk.gguf.header import read_header
from ropewalk.gguf.llama_cpp_run import LlamaServer
from ropewalk.gguf.settings import check_plan
from studies.gemma3.model import FILE, PLACE, ready
from studies.smollm2.model import convert
from studies.steps import Journey, Step

WORK = PLACE / "served"
FOLDER, PLAN = PLACE / "model", WORK / "plan.json"
WEIGHTS_PLAN = WORK / "plan-of-the-folder.json"
PRINT, ANSWERS = WORK / "fingerprint.json", WORK / "answers"
TARGET = 65536
STEPS = {
    "plan": Step("a plan to 64k", f"plan {FILE} --to 64k --method yarn -o {PLAN}", "wrote"),
    "plan of the weights": Step(
        "the same of the folder, whose two kinds of layers have a schedule each",
        *(f"plan {FOLDER} --to 64k --method yarn -o {WEIGHTS_PLAN}", "wrote"),
    ),
    "evaluate": Step(
        f"{QUESTIONS} questions on one text of 8k, which the server reads once",
        f"evaluate --tokenizer {FOLDER} --tasks niah-multikey-1-syn --lengths 8k "
        f"--mode shared_context --samples {QUESTIONS} --concurrency 1 --timeout 86400 "
        f"--run {ANSWERS} --server",
        "niah",
        served=True,
        answers=ANSWERS,
    ),
    "fingerprint": Step(
        "how the planned model answers, up to 1,024 tokens",
        f"fingerprint {FOLDER} --plan {WEIGHTS_PLAN} --length 1k -o {PRINT} --overwrite",
        "probes of up to",
    ),
    "check": Step(
        "the server beside that",
        f"fingerprint {PRINT} --tokenizer {FOLDER} --timeout 7200 --server",
        "answers like",
        served=True,
    ),
}


def begin() -> None:
    """Refuse to begin without the file, and make its folder."""
    convert(ready(), FOLDER)


@contextmanager
def served() -> Iterator[LlamaServer]:
    """The unmodified file in llama.cpp, under the plan."""
    header = read_header(FILE)
    flags = flags_of(header, check_plan(header, ContextPlan.read(PLAN)), TARGET)
    with llama_cpp_run.serving(FILE, length=TARGET, exact=False, flags=flags) as server:
        yield server


JOURNEY = Journey(
    *(Path(__file__).with_name("served.json"), "studies/gemma3/README.md", WORK),
    *(STEPS, served, begin),
)


def blocks() -> dict[str, str]:
    return JOURNEY.blocks()


if __name__ == "__main__":
    JOURNEY.main(__doc__)
