"""`extend`, stage by stage: from a model and a length to files that stock runtimes load.

Each stage leaves what it found in the run directory, as `NAME.json`, and reads what the stages
before it left. So a journey that was cut off goes on: a stage that is done is not done again, and
search and evaluation go on inside theirs. A stage that changes weights would stand between search
and evaluation and leave a checkpoint for those after it.

The corpus is cut in two: what the search looks at is not what the evaluation measures on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ropewalk.context_plan import ContextPlan, PlanStep
from ropewalk.data.corpora import Document, fingerprint
from ropewalk.errors import InvalidValue, RopewalkError, Unsupported
from ropewalk.evaluation.results import compare_methods, summarise
from ropewalk.evaluation.runner import Condition, Evaluation
from ropewalk.evaluation.runner import Settings as EvaluationSettings
from ropewalk.lengths import format_length
from ropewalk.models.load import LoadedModel
from ropewalk.planning.comparison import compare
from ropewalk.records import EvalRecord, EvalResult
from ropewalk.reports.evaluation import figures
from ropewalk.reports.extend import extension_figure
from ropewalk.reports.figures import save_pictures
from ropewalk.run_directory import RECORDS, RunDirectory
from ropewalk.searching.model.legs import (
    FINALISTS,
    HAND_MADE,
    hand_made,
    search_model,
)
from ropewalk.searching.model.legs import Settings as SearchSettings
from ropewalk.untrusted import read_json

AS_IT_IS, SEARCHED = "none", "search"
TASKS = ("perplexity", "passkey", "needle", "kv")
SEARCH_SHARE = 0.55
"""Of the characters of the corpus."""
SEARCH_DOCUMENTS = (6, 6, 1)
"""The evaluation reports, on text of its own, so the search keeps no documents for that."""

Progress = Callable[[float], None]
Result = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """What the journey is to do."""

    target_length: int
    evaluations: int
    """What the search may spend."""
    samples: int
    """Of every task, at every length, under every method."""
    lengths: tuple[int, ...] = ()
    """To evaluate at: from the present window in doublings up to the target unless given."""
    seed: int = 0


@dataclass
class Journey:
    """One model on its way to one length."""

    source: str
    loaded: LoadedModel
    documents: Sequence[Document]
    settings: Settings
    notice: Callable[[str], None] = print
    results: dict[str, Result] = field(default_factory=dict)
    """What the stages that are done found, by their names."""

    def __post_init__(self) -> None:
        window, target = self.present.target_length, self.settings.target_length
        if target <= window:
            raise InvalidValue(
                "--to",
                target,
                f"must be above {window}, the length that the model serves already",
                f"give a target above {format_length(window)}",
            )

    def run(
        self,
        directory: RunDirectory,
        bar: Callable[[str], AbstractContextManager[Progress]],
        done: Callable[[Stage], None],
    ) -> None:
        """Every stage in order; `done` is called after each, and at once for one that was done."""
        for stage in STAGES:
            file = directory.path / f"{stage.name}.json"
            if file.exists():
                kept = read_json(file)
                assert isinstance(kept, dict), "written below"
                self.results[stage.name] = kept
            else:
                directory.event("stage", name=stage.name)
                with bar(stage.name) as progress:
                    found = stage.work(self, directory, progress)
                self.results[stage.name] = found
                directory.write(file.name, json.dumps(found, indent=2) + "\n")
            done(stage)

    @property
    def present(self) -> ContextPlan:
        return self.loaded.present_plan

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """The present window, its doublings, and the target."""
        if self.settings.lengths:
            return tuple(sorted({*self.settings.lengths, self.settings.target_length}))
        length, found = self.present.target_length, []
        while length < self.settings.target_length:
            found.append(length)
            length *= 2
        return (*found, self.settings.target_length)

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """The model as it is, every hand-made method, and what the search found."""
        target, layer = self.settings.target_length, self.present.extended_layer
        found = [Condition(AS_IT_IS, self.present.id, None)]
        for method, schedule in hand_made(self.present.longest(layer), target).items():
            plan = self.present.with_steps(layer, (PlanStep(target, schedule),))
            plan = replace(plan, provenance={"methods": method})
            found.append(Condition(method, plan.id, plan))
        searched = self.results["search"]
        if searched["method"] is None:
            plan = ContextPlan.from_json(searched["plan"])
            found.append(Condition(SEARCHED, plan.id, plan))
        return tuple(found)

    @cached_property
    def evaluation(self) -> Evaluation:
        settings = self.settings
        return Evaluation(
            self.loaded.model,
            self.loaded.tokenizer,
            parted(self.documents)[1],
            EvaluationSettings(TASKS, self.lengths, settings.samples, settings.seed),
            trained_length=self.present.original_length,
            notice=self.notice,
        )

    def plan_of(self, method: str) -> ContextPlan:
        [plan] = [c.plan for c in self.conditions if c.method == method]
        assert plan is not None, "the model as it is has no plan of ours"
        return plan

    def identity(self) -> dict[str, object]:
        """What makes another journey: for the run directory."""
        return {
            "model": self.source,
            "present_plan": self.present.id,
            "target_length": self.settings.target_length,
            "evaluations": self.settings.evaluations,
            **self.evaluation.identity(),
            "corpus_sha256": fingerprint(self.documents),  # of both parts
        }


class Stage(NamedTuple):
    name: str
    summary: str
    work: Callable[[Journey, RunDirectory, Progress], Result]
    tokens: Callable[[Journey], int]
    """About how many the model will read."""


def _inspect(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    schedule = journey.present.longest(journey.present.extended_layer)
    return {
        "model": journey.source,
        "method": schedule.method,
        "geometry": schedule.geometry.to_json(),
        "serves": journey.present.target_length,
        "target_length": journey.settings.target_length,
        "scale": journey.settings.target_length / journey.present.target_length,
    }


def _compare(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    found = compare(
        journey.present,
        journey.settings.target_length,
        layer_types=(journey.present.extended_layer,),
        progress=progress,
    )
    return {
        "ranked": [{"method": c.methods, "reason": c.reason} for c in found.candidates],
        "refused": dict(found.refused),
    }


def _search(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    found = search_model(
        journey.loaded,
        parted(journey.documents)[0],
        search_settings(journey),
        journal=directory.journal,
        progress=lambda status: progress(status.done),
        notice=journey.notice,
    )
    assert found is not None, "one process is its own first rank"
    [leg] = found.legs
    described = {key: value for key, value in found.to_json().items() if key != "seconds"}
    return {"method": leg.method, "plan": found.plan.to_json(), **described}


def _evaluate(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    records = journey.evaluation.run(journey.conditions, directory.journal(RECORDS), progress)
    results = summarise(records)
    length = journey.evaluation.trained_length
    for name, figure in figures(results, records, original_length=length).items():
        save_pictures(figure, directory.path / "figures" / name)
    target = journey.settings.target_length
    standing = {c.method: _at(records, results, c.method, target) for c in journey.conditions}
    chosen = _best(standing)
    save_pictures(
        extension_figure(records, chosen=chosen, original_length=length), directory.path / "extend"
    )
    return {
        "results": [result.to_json() for result in results],
        "at_target": standing,
        "chosen": chosen,
    }


def _check_short(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    """What the chosen method costs where the model needed none."""
    chosen, window = _chosen(journey), journey.present.target_length
    records = [
        EvalRecord.from_json(record, f"record {i}")
        for i, record in enumerate(directory.journal(RECORDS).records)
    ]
    both = [r for r in records if r.length <= window and r.method in (AS_IT_IS, chosen)]
    rows = []
    for found in compare_methods(r for r in both if r.metric in ("nll", "exact_match")):
        # It tells by how much the first is above the second; asked is the other way round.
        assert (found.first, found.second) == (AS_IT_IS, chosen), "conditions are run in order"
        low, high = found.comparison.low, found.comparison.high
        rows.append(
            {
                "task": found.task,
                "metric": found.metric,
                "length": found.length,
                "difference": -found.comparison.difference,
                "low": None if high is None else -high,
                "high": None if low is None else -low,
                "adjusted_p": found.adjusted_p,
            }
        )
    return {"chosen": chosen, "differences": rows}


def _export(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    from ropewalk.exporting import llama_cpp, transformers

    plan = journey.plan_of(_chosen(journey))
    directory.write("plan.json", plan.dumps())
    written, left_out = [], {}
    folder, file = directory.path / "model", directory.path / "model.gguf"
    written.append(transformers.export(journey.source, plan, folder, overwrite=True).to_json())
    progress(0.5)
    try:
        written.append(llama_cpp.export(journey.source, plan, file, overwrite=True).to_json())
    except Unsupported as error:
        left_out["llama.cpp"] = str(error)
        journey.notice(f"not exported to llama.cpp: {error}")
    return {"written": written, "left_out": left_out}


def _verify(journey: Journey, directory: RunDirectory, progress: Progress) -> Result:
    """Read back what stands on disk, as anybody's file would be."""
    from ropewalk.audit.examination import audit

    plan = ContextPlan.read(directory.path / "plan.json")
    found = []
    for written in journey.results["export"]["written"]:
        # What other runtimes would make of a folder written for one is no fault of it.
        runtimes = [written["target"]] if written["target"] != "llama.cpp" else []
        audited = audit(Path(written["path"]), plan=plan, runtimes=runtimes)
        wrong = audited.wrong
        if wrong:
            raise RopewalkError(
                f"{written['path']}: does not do what the plan says: "
                + "; ".join(finding.what for finding in wrong)
            )
        found.append({"path": written["path"], "findings": [f.to_json() for f in audited.warnings]})
    return {"verified": found}


def _forwards(journey: Journey) -> int:
    """Documents that the search looks at, at most, each at the target's length."""
    first, second, third = SEARCH_DOCUMENTS
    return (
        journey.settings.evaluations * first
        + len(HAND_MADE) * (first + second + third)
        + FINALISTS * second
        + third
    )


STAGES = (
    Stage("inspect", "what the model is and serves now", _inspect, lambda journey: 0),
    Stage("compare", "every method at the target, by theory", _compare, lambda journey: 0),
    Stage(
        "search",
        "rescale factors and attention scaling, from the hand-made methods on",
        _search,
        lambda journey: _forwards(journey) * journey.settings.target_length,
    ),
    Stage(
        "evaluate",
        "perplexity, passkey, needle and key-value, before and after, beside every method",
        _evaluate,
        lambda journey: (
            (2 + len(HAND_MADE)) * len(TASKS) * journey.settings.samples * sum(journey.lengths)
        ),
    ),
    Stage(
        "short", "what the chosen method costs at lengths served before", _check_short, lambda j: 0
    ),
    Stage(
        "export",
        "a transformers folder and a GGUF file, each loaded back and compared",
        _export,
        lambda journey: 8 * journey.settings.target_length,
    ),
    Stage("verify", "both read from disk and searched for known traps", _verify, lambda journey: 0),
)


def search_settings(journey: Journey) -> SearchSettings:
    return SearchSettings(
        target_length=journey.settings.target_length,
        evaluations=journey.settings.evaluations,
        stock_runtimes=True,
        documents=SEARCH_DOCUMENTS,
        seed=journey.settings.seed,
    )


def parted(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """The corpus in two, for the search and for the evaluation; the cut may go through a text."""
    left = int(SEARCH_SHARE * sum(len(document.text) for document in documents))
    first, second = [], []
    for document in documents:
        if left >= len(document.text):
            first.append(document)
        elif left > 0:
            cut = document.text.rfind("\n", 0, left) + 1 or left
            first.append(document._replace(text=document.text[:cut]))
            second.append(document._replace(text=document.text[cut:]))
        else:
            second.append(document)
        left -= len(document.text)
    return first, second


def _chosen(journey: Journey) -> str:
    return str(journey.results["evaluate"]["chosen"])


def _at(
    records: Sequence[EvalRecord], results: Sequence[EvalResult], method: str, length: int
) -> dict[str, float | None]:
    """One method at one length: the share retrieved of all tasks, and the perplexity."""
    own = [r for r in records if (r.method, r.length) == (method, length)]
    answered = [r.score for r in own if r.metric == "exact_match"]
    perplexities = [
        r.value for r in results if (r.method, r.length, r.metric) == (method, length, "perplexity")
    ]
    return {
        "retrieval": float(np.mean(answered)) if answered else None,
        "perplexity": perplexities[0] if perplexities else None,
    }


def _best(standing: Mapping[str, Mapping[str, float | None]]) -> str:
    """The method that retrieves most at the target; of equals the one of the lower perplexity.

    So what the search found is taken only if it retrieves no less than every hand-made method.
    """

    def rank(method: str) -> tuple[float, float]:
        values = standing[method]
        return -(values["retrieval"] or 0.0), values["perplexity"] or np.inf

    return min((method for method in standing if method != AS_IT_IS), key=rank)
