"""`ropewalk plan`: a schedule for a longer context, from a model's config alone."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ropewalk.api.common import as_length, known_as, serves_already
from ropewalk.api.plan import Planned, plan
from ropewalk.cli.declared import Call, command_of
from ropewalk.cli.naming import in_options
from ropewalk.cli.shared import (
    JsonOption,
    OverwriteOption,
    check_outputs,
    drawn,
    factor_cell,
    pair_rows,
    print_json,
    save_plot,
    show_steps,
    show_written,
    table,
    write_plan,
    written,
)
from ropewalk.errors import InputError
from ropewalk.lengths import format_length
from ropewalk.models.recipes import VENDOR
from ropewalk.models.source import resolve
from ropewalk.outputs import STANDARD_OUTPUT
from ropewalk.planning.extension import chosen_layers, parse_settings
from ropewalk.runtimes import targets
from ropewalk.runtimes.serving import OF_GGUF
from ropewalk.scaling import stacked

if TYPE_CHECKING:
    from ropewalk.api.compare_methods import Comparison
    from ropewalk.cli.terminal import Terminal
    from ropewalk.planning.measured import Measured
    from ropewalk.runtimes.serving import Serving

USUAL_PLAN = "plan.json"
"""The name of the plan in the lines to paste."""
EXAMPLE = "ropewalk plan llama-3-8b --to 32k --method yarn -o plan.json"


@command_of(plan)
def command(
    call: Call[Planned],
    *,
    output: Annotated[Path | None, written("the plan here; - prints it alone")] = None,
    plot: Annotated[Path | None, drawn("the factors")] = None,
    details: Annotated[
        bool,
        typer.Option(
            help="Show every list of factors whole, all pairs of a method, and without --method "
            "the theory of each, and those left out."
        ),
    ] = False,
    overwrite: OverwriteOption = False,
    as_json: JsonOption = False,
) -> None:
    """Plan a longer context: the factors of a method, ready for a runtime's config."""
    given = dict(call.given)
    method = given.get("method")
    if "parameters" in given and method not in (None, VENDOR):
        stacked(method, VENDOR)
        given["parameters"] = parse_settings(method, given["parameters"])
    source = resolve(given["model"], allow_download=given.pop("allow_download", False))
    given["model"] = source = known_as(source, given.pop("trained_length", None))
    check_outputs(
        output=output, plot=plot, sources=source.places, overwrite=overwrite, as_json=as_json
    )
    if details and (as_json or output == STANDARD_OUTPUT):
        raise InputError(
            "--details is for the text of a terminal, which is not shown here; omit it"
        )
    found: Planned | Comparison
    of_a_method = ("parameters", "log_n", "kept_initial_positions")
    if method or not given.keys().isdisjoint(of_a_method) or _is_within(given):
        found = replace(call, given=given)()
    else:
        from ropewalk.api.compare_methods import compare_methods

        found = Call(compare_methods, given, call.quiet)()
    if output is not None and output != STANDARD_OUTPUT:
        found = replace(found, serving=tuple(_naming(row, output) for row in found.serving))
    save_plot(found.figure, plot)  # first: without its figure, no plan is left behind
    write_plan(found.plan, output)
    if as_json:
        print_json(found)
    elif output == STANDARD_OUTPUT:
        pass  # the plan alone stands there
    elif isinstance(found, Planned):
        _show_plan(found, details=details, saved=output is not None)
    else:
        _show_comparison(found, details=details, saved=output is not None)
    show_written(output, plot, as_json=as_json)


def _is_within(given: Mapping[str, Any]) -> bool:
    """True if the target lies within the trained length, so that no method is needed."""
    present = given["model"].present_plan
    known = present.longest(chosen_layers(present, given.get("layers"))[0]).length
    return not given.get("from_original") and as_length(given["to"], "to") <= known


def _naming(row: Serving, output: Path) -> Serving:
    """The same lines with the name that the plan was saved under."""
    usual, own = (f"--plan {shlex.quote(str(path))}" for path in (USUAL_PLAN, output))
    return replace(row, lines=tuple(line.replace(usual, own) for line in row.lines))


def _show_plan(found: Planned, *, details: bool, saved: bool) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    before, after = found.present.longest(found.layers[0]), found.schedule
    target = found.plan.target_length
    if found.documented:
        console.print(in_options(found.documented), style="bold", soft_wrap=True)
    if target == found.present.target_length:
        _show_serves_already(console, found)
    if told := found.changes_nothing:
        console.print(told, style="bold", soft_wrap=True)
    elif not found.nothing_to_change:
        console.print(
            headed(
                found.model,
                f": {format_length(before.length)} to {format_length(target)} by {after.method}",
            ),
            soft_wrap=True,
        )
        show_steps(console, found.plan)
        pairs = table("pair", "wavelength now", "planned", "factor now", "planned")
        every = after.geometry.pairs
        for i in range(every) if details else pair_rows(every):
            pairs.add_row(
                str(i),
                f"{before.wavelengths[i]:,.2f}",
                f"{after.wavelengths[i]:,.2f}",
                factor_cell(before.rescale_factors[i]),
                factor_cell(after.rescale_factors[i]),
            )
        console.print()
        console.print(pairs)
        if found.rope_parameters_refused is not None:
            refused = in_options(f"no stock config can express it: {found.rope_parameters_refused}")
            console.print(refused, soft_wrap=True)
    _show_serving(console, found.serving, details=details, saved=saved)


def _show_serves_already(console: Terminal, found: Planned | Comparison) -> None:
    told = serves_already(found.present, found.plan, found.trained_length)
    console.print(told, style="bold", soft_wrap=True)


_LIST = re.compile(r"\[(?:[-+.e0-9]+, ){8,}[-+.e0-9]+\]")
"""A list of factors, one for each pair."""


def _show_serving(
    console: Terminal, rows: Sequence[Serving], *, details: bool, saved: bool
) -> None:
    """The lines to paste, whole: a terminal may wrap them, a copy must not.

    Lists of factors are whole only if the plan is saved, or details are asked for.
    """
    shortened = False
    console.print("\nTo serve it:")
    for row in rows:
        told = in_options(f"\n# {row.runtime} ({row.fit}): {row.reason}")
        console.print(told, soft_wrap=True)
        for line in row.lines:
            if not (details or saved):
                line, lists = _LIST.subn(_count, line)
                shortened |= bool(lists)
            console.print(line, soft_wrap=True)
    if any(row.runtime == "ollama" and row.lines for row in rows):
        console.print(f"\n# {OF_GGUF}", soft_wrap=True)
    if shortened:
        console.print(
            f"\n# lists of factors are left out of these lines: add -o {USUAL_PLAN} or --details",
            soft_wrap=True,
        )
    if not saved and any(USUAL_PLAN in line for row in rows for line in row.lines):
        console.print(f"\n# {USUAL_PLAN} is this plan: add -o {USUAL_PLAN} to write it")


def _count(found: re.Match[str]) -> str:
    return f"[… {found[0].count(',') + 1} factors …]"


def _show_comparison(found: Comparison, *, details: bool, saved: bool) -> None:
    from ropewalk.cli.terminal import Terminal, headed

    console = Terminal()
    console.print(headed(found.model, f" to {format_length(found.target_length)}"), soft_wrap=True)
    if found.documented:
        console.print(in_options(found.documented), style="bold", soft_wrap=True)
    theory = ("new angles", "fast pairs") if details else ()
    rows = table("method", "untrained", "fine-tuned", *theory, "loads in")
    for candidate in found.candidates:
        schedule, by = candidate.schedule, candidate.measured
        untrained = _ranked(candidate.rank, by, trained=False)
        cells = [
            f"{candidate.out_of_distribution_pairs}/{schedule.geometry.pairs}",
            "none turn" if schedule.has_no_positions else f"×{candidate.fast_stretch:.3g}",
        ]
        rows.add_row(
            candidate.name,
            "needs training" if candidate.needs_training else untrained,
            _ranked(candidate.rank_after_training, by, trained=True),
            *(cells if details else ()),
            _loads_in(candidate.runtimes, {row.runtime for row in found.serving}),
        )
    console.print(rows)
    console.print(
        "untrained, fine-tuned: rank by the mean over all models and lengths of the study, and the "
        f"share that small models retrieved{_where(found)}\n"
        "*: less than half of what the best method retrieved, on most of these models",
        soft_wrap=True,
    )
    if any(candidate.from_plain for candidate in found.candidates):
        console.print(
            "from plain: ranks after the others, since the model's training under "
            f"{found.present.longest(found.layers[0]).method} is not carried over",
            soft_wrap=True,
        )
    if details:
        _show_theory(console, found)
    told = found.changes_nothing or (
        f"Suggested {found.use}: {found.best.name} (a prediction, not measured on this model: "
        "`ropewalk evaluate` and `ropewalk extend` measure it)"
    )
    console.print(f"\n{told}", style="bold", soft_wrap=True)
    _show_serving(console, found.serving, details=details, saved=saved)
    if not details:
        console.print("\n# the theory of each method, and those not listed: --details")


def _show_theory(console: Terminal, found: Comparison) -> None:
    from ropewalk.cli.terminal import headed

    console.print("\nBy theory:")
    for candidate in found.candidates:
        given = ", ".join(f"{key} {value:,}" for key, value in candidate.parameters.items())
        name = f"{candidate.name} ({given})" if given else candidate.name
        told = candidate.theory.removeprefix("by theory, ")
        console.print(headed(f"  {name}", f": {told}"), soft_wrap=True)
    for method, reason in found.refused.items():
        line = in_options(f"  not listed: {method} ({reason})")
        console.print(line, style="dim", soft_wrap=True)


def _ranked(rank: int | None, found: Sequence[Measured], *, trained: bool) -> str:
    """`7: 0-2%*`"""
    if rank is None:
        return "not measured"
    for each in found:
        if bool(each.steps) == trained:
            share = each.share.replace(" to ", "-")
            return f"{rank}: {share}{'*' if each.is_refuted else ''}"
    return str(rank)


def _where(found: Comparison) -> str:
    """` (7 untrained at 8 times, 5 after 200 steps at 4 times their length)`"""
    models: dict[tuple[int, int], int] = {}
    for each in (each for candidate in found.candidates for each in candidate.measured):
        key = each.steps, each.factor
        models[key] = max(each.models, models.get(key, 0))
    told = [
        f"{count} {f'after {steps} steps' if steps else 'untrained'} at {factor} times"
        for (steps, factor), count in sorted(models.items())
    ]
    return f" ({', '.join(told)} their length)" if told else ""


def _loads_in(runtimes: tuple[str, ...] | None, among: set[str]) -> str:
    """The runtimes, of those `among` which the model is loaded at all."""
    if runtimes is None:
        return "unknown"
    if not among.issuperset(targets()):  # a GGUF file
        return ", ".join(runtimes) or "none exactly"
    missing = [runtime for runtime in targets() if runtime not in runtimes]
    if not runtimes:
        return "ropewalk only"
    if len(runtimes) == 1:
        return f"{runtimes[0]} only"
    return f"all but {', '.join(missing)}" if missing else "all runtimes"
