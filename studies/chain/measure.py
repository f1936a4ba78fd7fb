"""LongRoPE's chain: two trained stages, a second search without training, recovery of short text.

make study NAME=chain
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import ropewalk as rw
from benchmarks.text import read_text
from docs.figures import Picture
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.models.load import load
from studies.claims import (
    RETRIEVAL,
    TEXT,
    Arm,
    Cell,
    Claim,
    Measure,
    Study,
    answers_and_text,
    asked_for_facts,
    by_task,
    evaluated,
    line_of,
    main,
    values,
)
from studies.training import cells as training

RUNS = Path("runs/chain")
STAGES = ((8, 200), (16, 300))
"""Windows of the model, and steps at that length."""
FACTOR = 64
FAR_STAGE, FAR, FARTHEST = (FACTOR, 200), 256, 512
SEARCHED, RECOVERED = Arm("searched second step"), Arm("searched second step, recovered")
YARN, LINEAR = Arm("yarn"), Arm("linear")
FAR_SEARCHED, FAR_YARN, FAR_LINEAR = (
    Arm(f"{method}, trained to {FACTOR} windows") for method in ("searched", "yarn", "linear")
)
MODELS = ("tall", "wide", "narrow", "low base", "high base")
FAR_MODEL = "wide"
"""It answers most at 64 windows."""
DOCUMENTS = (4, 8, 5)
"""Of the second step's search. With fewer than five to choose by, it keeps a method by hand."""
SAMPLES, FAR_SAMPLES = 16, 10
NATS = Measure(TEXT, "nats")
TEXT_WINDOWS = (480, 64)
"""Of text at the window, and beyond it."""
FAR_TEXT_WINDOWS = {FAR: 8, FARTHEST: 2}
FAR_DOCUMENTS, FAR_EVALUATIONS = (2, 5, 2), 16
SOURCE = "Ding et al. 2024"

CLAIMS = [
    Claim(
        f"a searched second step over {arm.method}, {what}",
        where,
        FACTOR,
        SEARCHED,
        arm,
        measure,
        size,
    )
    for arm, paper in ((YARN, 0.0669), (LINEAR, 0.3182))
    for what, where, measure, size in (
        ("text", f"{SOURCE}, Table 9", NATS, paper),
        ("retrieval", "our question", RETRIEVAL, math.nan),
    )
]
HALF, WHOLE = 8, 16
"""Windows of the model: what one stage reaches, and both."""
STAGE_STEPS = (100, 150)
STAGED = Arm("yarn, trained in two stages")
DIRECT = Arm("yarn, trained at once")
SHORT = Arm("yarn, trained at once on text of half the length")
AT_ONCE = [
    Claim(f"two stages over one{words}, {what}", where, WHOLE, STAGED, arm, measure, size)
    for arm, words, paper in (
        (DIRECT, "", 0.0419),
        (SHORT, " with text of half the length", 0.1671),
    )
    for what, where, measure, size in (
        ("text", f"{SOURCE}, Table 12", NATS, paper),
        ("retrieval", "our question", RETRIEVAL, math.nan),
    )
]
RECOVERY = Claim(
    "recovery lowers the loss of short text",
    f"{SOURCE}, Table 10",
    1,
    RECOVERED,
    SEARCHED,
    NATS,
    0.1583,
    withdrawn="both arms are one schedule; the second step asks it again",
)


def measured(cell: Cell, samples: int) -> dict[str, Any]:
    began = time.process_time()
    if cell.factor in FAR_TEXT_WINDOWS:
        return measured_far(cell, began)
    length = cell.factor * training.SUBJECTS[cell.subject].window
    if cell.arm in (STAGED, DIRECT, SHORT):
        model, plan = by_yarn(cell), None
    else:
        model = staged(cell.subject, STAGES)
        plan = second_step(cell, model)
    found = answers_and_text(
        str(model), length, samples, min(samples * 30, TEXT_WINDOWS[cell.factor > 1]), plan
    )
    seconds = time.process_time() - began
    facts = asked_for_facts(found)
    if plan is None:  # the arms differ in their training, from the same weights
        shutil.rmtree(_by_yarn(cell))
        return line_of(cell, samples, facts, seconds)
    line = line_of(cell, samples, facts, seconds, str(model))
    return {**line, "methods": plan.longest().method}


def measured_far(cell: Cell, began: float) -> dict[str, Any]:
    """Passkeys at each doubling of the window (the paper's Fig. 4), and text at the target."""
    window, target = training.SUBJECTS[cell.subject].window, cell.factor
    model = staged(cell.subject, (*STAGES, FAR_STAGE))
    if cell.arm == FAR_SEARCHED:
        place = RUNS / cell.subject / f"search-{target}"
        plan = searched(
            *(model, target * window, place),
            corpus=joined(read_text().tuning, sum(FAR_DOCUMENTS)),
            documents=FAR_DOCUMENTS,
            budget=FAR_EVALUATIONS,
        )
    else:
        plan = on_top(cell.arm, model, target * window)
    lengths = [window << doubled for doubled in range(target.bit_length())]
    found = evaluated(model, lengths, ["passkey"], FAR_SAMPLES, plan)
    windows, whole = FAR_TEXT_WINDOWS[target], joined(read_text().reporting, 1)
    text = by_task(evaluated(model, lengths[-1:], [TEXT], windows, plan, corpus=whole))
    results = [
        [f"passkey at {row.length // window} windows", row.metric, round(row.value, 4)]
        for row in found.results
        if row.metric == RETRIEVAL.metric
    ]
    results.append([TEXT, TEXT, round(text[TEXT], 5)])
    line = line_of(cell, FAR_SAMPLES, results, time.process_time() - began, str(model))
    return {**line, "methods": plan.longest().method}


def joined(texts: Sequence[Document], count: int) -> list[Document]:
    """So many documents of all texts, since none alone is so long."""
    return [
        Document(f"joined {i}", "\n".join(text.text for text in texts[i::count]))
        for i in range(count)
    ]


def staged(subject: str, stages: Sequence[tuple[int, int]]) -> Path:
    """The model after all stages, each under factors that are searched on the model before it."""
    own = training.SUBJECTS[subject]
    model, place = Path(own.path), RUNS / subject.replace(" ", "_")
    for factor, steps in stages:
        stage = place / f"{factor}-windows-{steps}-steps"
        if not (done := stage / "model").exists():
            few: dict[str, Any] = {"documents": DOCUMENTS} if factor == FACTOR else {}
            name = f"search-{factor}-to-train" if few else f"search-{factor}"
            plan = searched(model, factor * own.window, place / name, short_limit=None, **few)
            cell = training.Cell(subject, factor, training.SEARCH, steps)
            run = training.trained(cell, stage / "unfinished", plan, str(model))
            shutil.copytree(run / "model", stage / "copied", dirs_exist_ok=True)
            (stage / "copied").rename(done)
            shutil.rmtree(stage / "unfinished")
        model = done
    return model


def by_yarn(cell: Cell) -> Path:
    """The model trained under YaRN, as many steps in all arms."""
    own = training.SUBJECTS[cell.subject]
    first, second = STAGE_STEPS
    stages = {
        # Each stage has data of its own.
        STAGED: ((HALF, HALF, first, 0), (WHOLE, HALF, second, 1)),
        DIRECT: ((WHOLE, WHOLE, first + second, 0),),
        SHORT: ((WHOLE, HALF, first + second, 0),),
    }
    model = own.path
    for factor, text, steps, order in stages[cell.arm]:
        asked = training.Cell(cell.subject, factor, training.YARN, steps, order, window=text)
        run = training.trained(asked, _by_yarn(cell) / asked.name, training.plan_of(asked), model)
        model = str(run / "model")
    return Path(model)


def _by_yarn(cell: Cell) -> Path:
    return RUNS / f"{cell.subject} {cell.arm.method}".replace(" ", "_")


def second_step(cell: Cell, model: Path) -> ContextPlan:
    arm, target = cell.arm, FACTOR * training.SUBJECTS[cell.subject].window
    if arm in (LINEAR, YARN):
        return on_top(arm, model, target)
    place = RUNS / cell.subject.replace(" ", "_") / f"search-{FACTOR}"
    plan = searched(model, target, place, documents=DOCUMENTS, recover=True)
    if arm == RECOVERED:
        return plan
    layer = plan.main_layer
    return plan.with_steps(layer, plan.steps(layer)[-1:])


def on_top(arm: Arm, model: Path, target: int) -> ContextPlan:
    """Linear interpolation, or YaRN as its paper writes it, by the turns of each pair, on the
    model's factors."""
    if arm in (LINEAR, FAR_LINEAR):
        return rw.plan(model, target, "linear", notice=lambda _: None).plan
    turns = {"low_freq_factor": 1.0, "high_freq_factor": 32.0}
    planned = rw.plan(model, target, "llama3", parameters=turns, notice=lambda _: None)
    layer, step = planned.plan.main_layer, planned.plan.steps()[-1]
    trained = load(model).present_plan.target_length
    attention = step.schedule.attention_scaling * (0.1 * math.log(target / trained) + 1)
    sharper = replace(step.schedule, attention_scaling=attention)
    return planned.plan.with_steps(layer, (replace(step, schedule=sharper),))


def searched(
    model: Path,
    target: int,
    place: Path,
    corpus: Sequence[Document] = (),
    **options: Any,
) -> ContextPlan:
    return rw.search(
        model,
        to=target,
        corpus=corpus or read_text().tuning,
        objective="perplexity",
        run=place,
        notice=lambda _: None,
        **options,
    ).plan


def passkeys() -> Picture:
    """The share of passkeys answered by length, as in the paper's Fig. 4."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot()
    for cell, found in values(STUDY.file).items():
        if cell.factor not in FAR_TEXT_WINDOWS:
            continue
        points = {
            int(measure.task.split()[-2]): share
            for measure, share in found.items()
            if measure.metric == RETRIEVAL.metric
        }
        method = cell.arm.method.split(",")[0]
        axes.plot([*points], [*points.values()], ".-", label=f"{method}, to {cell.factor} windows")
    axes.axvline(FACTOR, color="black", linestyle=":", label="trained length")
    axes.set_ylim(-0.03, 1.03)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel(f"length, in windows of {training.SUBJECTS[FAR_MODEL].window} tokens")
    axes.set_ylabel("share of passkeys answered")
    axes.legend(fontsize="small")
    return Picture(figure)


STUDY = Study(
    Path(__file__).parent,
    {
        FACTOR: [SEARCHED, YARN, LINEAR],
        1: [SEARCHED, RECOVERED],
        WHOLE: [STAGED, DIRECT, SHORT],
        FAR: [FAR_YARN, FAR_LINEAR, FAR_SEARCHED],
        FARTHEST: [FAR_YARN],
    },
    [*CLAIMS, RECOVERY, *AT_ONCE],
    MODELS,
    measured,
    SAMPLES,
    [
        Cell(name, factor, arm)
        for name in MODELS
        if name != FAR_MODEL
        for factor in FAR_TEXT_WINDOWS
        for arm in (FAR_YARN, FAR_LINEAR, FAR_SEARCHED)
    ],
)


if __name__ == "__main__":
    main(STUDY)
