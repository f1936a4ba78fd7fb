"""From a downloaded GGUF file to a server with four times its window, step by step, with the cost.

    make real                              the model, once
    python -m studies.smollm2.served       runs what is missing: about two hours of one core
    python -m studies.smollm2.served --report

Finished steps are kept in served.json.
"""

from __future__ import annotations

from pathlib import Path

from ropewalk.evaluation.tasks import QUESTIONS
from ropewalk.gguf import llama_cpp_run
from studies.smollm2.model import FILE, FOLDER, PLACE, ready
from studies.steps import Journey, Step

WORK = PLACE / "served"
PLAN, EXTENDED = WORK / "plan.json", WORK / "yarn-32k.gguf"
PRINT, ANSWERS = WORK / "fingerprint.json", WORK / "answers"
LENGTH = 32768
STEPS = {
    "plan": Step("a plan", f"plan {FILE} --to 32k --method yarn -o {PLAN}", "wrote"),
    "export": Step(
        "the file, compared in llama.cpp with its plan over 8,192 tokens",
        f"export {FILE} --plan {PLAN} --runtime llama.cpp -o {EXTENDED} --overwrite",
        "computes what the plan says",
    ),
    "fingerprint": Step(
        "how the planned model answers, up to 1,024 tokens",
        f"fingerprint {FOLDER} --plan {PLAN} --length 1k -o {PRINT} --overwrite",
        "probes of up to",
    ),
    "check": Step(
        "the server beside that",
        f"fingerprint {PRINT} --tokenizer {FOLDER} --timeout 7200 --server",
        "answers like",
        served=True,
    ),
    "evaluate": Step(
        f"{QUESTIONS} questions on one text of 32k, which the server reads once",
        f"evaluate --tokenizer {FOLDER} --tasks niah-multikey-1-syn --lengths 32k "
        f"--mode shared_context --samples {QUESTIONS} --concurrency 1 --timeout 86400 "
        f"--run {ANSWERS} --server",
        "niah",
        served=True,
        answers=ANSWERS,
    ),
}
JOURNEY = Journey(
    Path(__file__).with_name("served.json"),
    "studies/smollm2/README.md",
    WORK,
    STEPS,
    lambda: llama_cpp_run.serving(EXTENDED, length=LENGTH, exact=False),
    ready,
)


def blocks() -> dict[str, str]:
    return JOURNEY.blocks()


if __name__ == "__main__":
    JOURNEY.main(__doc__)
