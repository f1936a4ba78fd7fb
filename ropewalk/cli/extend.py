"""`ropewalk extend`: from a model and a length to exported files and the evidence, in one go."""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.cli.progress import progress_bar
from ropewalk.cli.shared import (
    CorpusOption,
    DeviceOption,
    DownloadOption,
    DtypeOption,
    FieldOption,
    JsonOption,
    RunnableModel,
    corpus_documents,
    print_json,
)
from ropewalk.lengths import format_length, parse_length

if TYPE_CHECKING:
    from rich.console import Console

    from ropewalk.journey import Journey, Stage

TIMES = 8  # how far without --to
EVALUATIONS = 24
WIDTH = 110


def command(
    model: RunnableModel = "bundled",
    target: Annotated[
        int | None,
        typer.Option(
            "--to", metavar="LENGTH", parser=parse_length, help="Eight times the window without it."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep everything here, and resume from here."),
    ] = None,
    corpus: CorpusOption = "held-out",
    field: FieldOption = "text",
    evaluations: Annotated[
        int, typer.Option(help="What the search may spend; 134 is its own measure of enough.")
    ] = EVALUATIONS,
    samples: Annotated[int, typer.Option(help="Samples a task, length and method.")] = 10,
    lengths: Annotated[
        str | None,
        typer.Option(metavar="A,B,…", help="To evaluate at; doublings of the window without it."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Other documents and samples of the same kind.")] = 0,
    dtype: DtypeOption = "auto",
    device: DeviceOption = "auto",
    allow_download: DownloadOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the stages and what they would cost.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Extend a model without training: search, evaluate, export, verify. Resumable."""
    from rich.console import Console

    from ropewalk.journey import Journey, Settings
    from ropewalk.models.config import BUNDLED
    from ropewalk.models.load import load, model_folder
    from ropewalk.run_directory import RunDirectory

    chosen = tuple(parse_length(part) for part in lengths.split(",")) if lengths else ()
    documents = corpus_documents(corpus, field)
    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    # Export reads files: of a hub id, those that were fetched.
    source = model if model == BUNDLED else str(model_folder(model, allow_download))
    target = target or TIMES * loaded.present_plan.target_length
    settings = Settings(target, evaluations, samples, chosen, seed)
    console = Console(file=sys.stderr if as_json else sys.stdout, highlight=False)
    if not console.is_terminal:
        console.width = WIDTH  # of the table of all methods
    journey = Journey(
        source, loaded, documents, settings, notice=lambda text: print(text, file=sys.stderr)
    )
    if dry_run:
        _show_cost(journey, console, as_json)
        return
    path = run or Path("runs") / f"extend-{Path(model).name}-{format_length(target)}"
    with RunDirectory(path, "extend", journey.identity()) as directory:
        journey.run(directory, progress_bar, lambda stage: _show_stage(console, journey, stage))
    if as_json:
        print_json(_answer(journey))
    else:
        _show_end(journey)


def _show_cost(journey: Journey, console: Console, as_json: bool) -> None:
    """Tokens by stage, and seconds at the rate of one forward as long as the present window."""
    from ropewalk.journey import STAGES

    rate = _tokens_per_second(journey)
    rows = [
        {"stage": stage.name, "does": stage.summary, "tokens": tokens, "seconds": tokens / rate}
        for stage in STAGES
        for tokens in [stage.tokens(journey)]
    ]
    if as_json:
        print_json({"model": journey.source, "stages": rows})
        return
    for row in rows:
        cost = (
            f"{row['tokens']:,} tokens, {row['seconds']:.0f} s or more"
            if row["tokens"]
            else "quick"
        )
        console.print(f"{row['stage']:>9}  {row['does']} [dim]({cost})[/dim]", soft_wrap=True)
    console.print(
        f"at {rate:,.0f} tokens a second, measured at {journey.present.target_length} tokens; "
        "longer contexts are slower",
        soft_wrap=True,
    )


def _tokens_per_second(journey: Journey) -> float:
    import numpy as np

    from ropewalk.evaluation.scoring import Scorer

    length = journey.present.target_length
    scorer, tokens = Scorer(journey.loaded.model), np.zeros(length, dtype=np.int64)
    scorer.score([tokens], [length - 1])  # the first call of a shape is slow
    began = time.perf_counter()
    scorer.score([tokens], [length - 1])
    return length / (time.perf_counter() - began)


def _show_stage(console: Console, journey: Journey, stage: Stage) -> None:
    found = journey.results[stage.name]
    console.print(f"[bold]{stage.name}[/bold]  {_SAID[stage.name](found)}", soft_wrap=True)
    if stage.name == "evaluate":
        from ropewalk.cli.evaluate import show_results
        from ropewalk.records import EvalResult

        show_results(console, [EvalResult(**result) for result in found["results"]])


def _inspected(found: dict[str, Any]) -> str:
    return (
        f"{found['model']}: {found['method']}, {format_length(found['serves'])} tokens; "
        f"to {format_length(found['target_length'])}, {found['scale']:g} times as many"
    )


def _compared(found: dict[str, Any]) -> str:
    return f"by theory: {', '.join(row['method'] for row in found['ranked'][:3])} …"


def _searched(found: dict[str, Any]) -> str:
    if found["method"] is not None:
        return f"found nothing better than {found['method']} on documents that it had not seen"
    return (
        f"λ from {min(found['best']['rescale_factors']):g} to "
        f"{max(found['best']['rescale_factors']):g}, m = {found['best']['attention_scaling']:g}; "
        f"{found['evaluations']:g} evaluations, {found['tokens']:,} tokens"
    )


def _evaluated(found: dict[str, Any]) -> str:
    chosen = found["chosen"]
    if chosen == "search":
        return "what the search found retrieves the most, and is exported"
    searched = found["at_target"].get("search")
    if searched is None:
        return f"{chosen} retrieves the most, and is exported"
    return (
        f"what the search found does not beat {chosen} in retrieval at the target "
        f"({_standing(searched)} against {_standing(found['at_target'][chosen])}), so {chosen} is "
        "exported"
    )


def _short(found: dict[str, Any]) -> str:
    worse = [
        row
        for row in found["differences"]
        if row["adjusted_p"] < 0.05 and (row["difference"] > 0) == (row["metric"] == "nll")
    ]
    if not worse:
        return f"{found['chosen']} costs nothing that can be told at lengths served before"
    said = ", ".join(
        f"{row['task']} at {format_length(row['length'])} {_change(row)}" for row in worse
    )
    return (
        f"{found['chosen']} costs something at lengths served before: {said}; "
        "`ropewalk search --recover` finds a schedule of its own for these"
    )


def _change(row: dict[str, Any]) -> str:
    """A difference of losses is a ratio of perplexities."""
    if row["metric"] == "nll":
        return f"{math.expm1(row['difference']):+.1%}"
    return f"{100 * row['difference']:+.0f} points"


def _exported(found: dict[str, Any]) -> str:
    return "; ".join(
        f"{each['target']}: {each['parity']['quantity']} within "
        f"{each['parity']['max_difference']:.2g} over "
        f"{each['parity']['tokens']} tokens"
        for each in found["written"]
    )


def _verified(found: dict[str, Any]) -> str:
    warnings = [finding["what"] for each in found["verified"] for finding in each["findings"]]
    return "; ".join(warnings) or "read back from disk: no known trap"


_SAID = {
    "inspect": _inspected,
    "compare": _compared,
    "search": _searched,
    "evaluate": _evaluated,
    "short": _short,
    "export": _exported,
    "verify": _verified,
}


def _standing(values: dict[str, float | None]) -> str:
    parts = []
    if values["retrieval"] is not None:
        parts.append(f"retrieval {values['retrieval']:.0%}")
    if values["perplexity"] is not None:
        parts.append(f"perplexity {values['perplexity']:.1f}")
    return ", ".join(parts)


def _best_by_hand(standing: dict[str, dict[str, float | None]]) -> str:
    from ropewalk.searching.model.legs import HAND_MADE

    by_hand = [name for name in standing if name in HAND_MADE]
    return max(by_hand, key=lambda name: standing[name]["retrieval"] or 0.0)


def _answer(journey: Journey) -> dict[str, object]:
    evaluated = journey.results["evaluate"]
    standing, chosen = evaluated["at_target"], evaluated["chosen"]
    return {
        "model": journey.source,
        "target_length": journey.settings.target_length,
        "method": chosen,
        "before": standing["none"],
        "after": standing[chosen],
        "at_target": standing,
        "short": journey.results["short"]["differences"],
        "exported": journey.results["export"]["written"],
        "verified": journey.results["verify"]["verified"],
    }


def _show_end(journey: Journey) -> None:
    """What was achieved, where it is, how to load it: the last three lines."""
    answer = _answer(journey)
    standing = journey.results["evaluate"]["at_target"]
    chosen, target = answer["method"], format_length(journey.settings.target_length)
    best = _best_by_hand(standing)
    beside = "" if best == chosen else f" (best by hand, {best}: {_standing(standing[best])})"
    written = journey.results["export"]["written"]
    print(
        f"at {target}: before, {_standing(standing['none'])}; after, by {chosen}, "
        f"{_standing(standing[chosen])}{beside}"
    )
    print(f"it is in {' and '.join(each['path'] for each in written)}; figures are beside it")
    print(f"load it: {written[0]['load']}")
