"""The page docs/bakeoff.md, and README's line, from the recorded outcomes of the bake-off."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from docs import figures

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "tools" / "bakeoff.json"
PAGE = "docs/bakeoff.md"
REPORTED = "reported"
PLACES = ("folder", "live model", "training", "server")
NAMES = {"vllm": "vLLM", "sglang": "SGLang"}
WITH_PLAN = "verify, with the plan"
CONFIRMED = {
    "phi-3-mini-128k": "SGLang's class chooses the list by the longest position of a batch, and "
    "cached keys keep theirs",
    "qwen2.5-7b-instruct-yarn": "both engines' own functions accept 32,768 tokens",
    "qwen3-8b-yarn": "both engines' own functions accept 40,960 tokens",
    "qwen-7b": "SGLang's own function accepts 16,384 tokens",
    "dbrx": "transformers' own config class gives base 10,000",
    "internlm2.5-1m": "vLLM's table for this type is the one without scaling, and SGLang's is that "
    "of the longest length for all",
    "ministral-3-8b": "vLLM's class reads another key",
    "ministral-3-8b-v": "vLLM's class reads another key",
    "nemotron-nano-8b-1m": "`tools/faults/sglang_yarn_factor.py`",
    "phi-3.5-moe": "`tools/faults/transformers_phimoe.py`",
    "qwen2.5-7b-1m": "neither wheel has an attention for dual chunks",
}
"""Published configs that verify finds wrong, and what shows it without ropewalk."""


def recorded() -> dict[str, Any]:
    return dict(json.loads(RESULTS.read_text(encoding="utf-8"))) if RESULTS.exists() else {}


def rows_of(found: dict[str, Any], group: str, place: str = "") -> list[dict[str, Any]]:
    """The rows of faults that matter."""
    return [
        row
        for row in found["rows"]
        if row["group"] == group and row["effect"] and place in ("", row["place"])
    ]


def by_stock(row: dict[str, Any]) -> bool:
    return REPORTED in row["stock"].values()


def by_ropewalk(row: dict[str, Any]) -> bool:
    return any(outcome == REPORTED for outcome, _ in row["ropewalk"].values())


def alone(row: dict[str, Any]) -> bool:
    """Reported without a plan; only a folder can be judged so."""
    return bool(row["ropewalk"].get("verify", [""])[0] == REPORTED)


def effect(row: dict[str, Any]) -> str:
    """The effect with the tools' own names."""
    text = str(row["effect"])
    for tool, name in NAMES.items():
        text = text.replace(tool, name)
    return text


def named(row: dict[str, Any]) -> bool:
    return any(right for _, right in row["ropewalk"].values())


def false_alarms(found: dict[str, Any]) -> list[str]:
    """Published configs that are found wrong, and that nothing else shows to be wrong."""
    return [
        key.removeprefix("config ")
        for key, wrong in found["alarms"].items()
        if key.startswith("config ")
        and isinstance(wrong, list)
        and wrong
        and key.removeprefix("config ") not in CONFIRMED
    ]


def blocks() -> dict[str, str]:
    found = recorded()
    return {PAGE: "\n".join(_lines(found))} if found else {}


def sentences() -> list[figures.Sentence]:
    """README's row."""
    found = recorded()
    if not found:
        return []
    new = rows_of(found, "new")
    configs = sum(key.startswith("config ") for key in found["alarms"])
    told = (
        *(str(len(new)), str(sum(map(by_stock, new))), str(sum(map(by_ropewalk, new)))),
        *(str(len(false_alarms(found))), str(configs)),
    )
    line = "of {} new planted faults stock tools report {}, ropewalk with the plan {}; {} false "
    return [figures.Sentence("README.md", f"{line}alarm on {{}} published configs", told)]


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield "| faults | | that matter | stock tools report | ropewalk reports | names rightly |"
    yield "|---|---|---|---|---|---|"
    for group in ("new", "known"):
        for place in (*PLACES, ""):
            rows = rows_of(found, group, place)
            if not rows:
                continue
            counts = [len(rows), *(sum(map(test, rows)) for test in (by_stock, by_ropewalk, named))]
            mark = "" if place else "**"
            cells = [group, place or "all", *map(str, counts)]
            yield "| " + " | ".join(f"{mark}{cell}{mark}" for cell in cells) + " |"
    yield ""
    yield figures.paragraph(_told(found))
    yield ""
    if "again" in found:
        yield figures.paragraph(_again(found["again"]))
        yield ""
    yield "### By tool"
    yield "| tool | asked about | reports | another warning | silent | not run |"
    yield "|---|---|---|---|---|---|"
    yield from _tools(found)
    yield ""
    yield "### New faults that ropewalk does not report"
    yield from _missed(found)
    yield ""
    yield "### False alarms"
    yield from _alarms(found)
    for group in ("new", "known"):
        yield ""
        yield f"### All {group} faults"
        yield from _all(found, group)
    yield ""
    nothing = [row for row in found["rows"] if not row["effect"]]
    told = ", ".join(f"{row['name']} ({row['group']})" for row in nothing)
    yield figures.paragraph(f"Candidates that change nothing, and were not counted: {told}.")


def _told(found: dict[str, Any]) -> str:
    new = rows_of(found, "new")
    folders = rows_of(found, "new", "folder")
    ran = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    missed = sum(by_stock(row) and not by_ropewalk(row) for row in new)
    return (
        f"Of {len(new)} new faults stock tools report {sum(map(by_stock, new))}, and ropewalk "
        f"{sum(map(by_ropewalk, new))}. For folders, `verify` had the intended plan, which no "
        f"stock tool takes; without it, it reports {sum(map(alone, folders))} of the "
        f"{len(folders)} new ones, and stock tools {sum(map(by_stock, folders))}. The number of "
        f"new faults that only stock tools report is {missed}. ropewalk was judged at "
        f"commit {found['ropewalk']}; the list of new faults was committed later, at "
        f"{found['list']}. Run with {ran}."
    )


def rerun(first: dict[str, Any], last: dict[str, Any]) -> dict[str, Any]:
    """A later run in short, and the faults whose outcome is not that of the first."""
    new, tests = rows_of(last, "new"), (by_stock, by_ropewalk, named)
    before = {_key(row): [test(row) for test in tests] for row in first["rows"]}
    return {
        "ropewalk": last["ropewalk"],
        "counts": [len(new), *(sum(map(test, new)) for test in tests)],
        "differ": [
            row["name"]
            for row in last["rows"]
            if before.get(_key(row), []) not in ([], [test(row) for test in tests])
        ],
        "false_alarms": false_alarms(last),
    }


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return row["group"], row["place"], row["name"], row["base"]


def _again(last: dict[str, Any]) -> str:
    count, stock, ropewalk, by_name = last["counts"]
    return (
        f"The tables show the first run. Run again from an empty folder at commit "
        f"{last['ropewalk']}, when ropewalk had been changed, stock tools report {stock} of "
        f"{count} new faults, and ropewalk {ropewalk}, {by_name} of them by name. Faults with "
        f"another outcome: {', '.join(last['differ']) or 'none'}. False alarms on published "
        f"configs: {', '.join(last['false_alarms']) or 'none'}."
    )


def _tools(found: dict[str, Any]) -> Iterator[str]:
    for tool in ("transformers", "vllm", "sglang", "llama.cpp"):
        own = [row["stock"][tool] for row in rows_of(found, "new") if tool in row["stock"]]
        yield _counted(NAMES.get(tool, tool), own)
    ways = ("verify", WITH_PLAN, "assert_rotation", "fingerprint")
    for way in ways:
        own = [row["ropewalk"][way][0] for row in rows_of(found, "new") if way in row["ropewalk"]]
        shown = {"verify": "`verify`, without a plan", WITH_PLAN: "`verify --plan`"}
        yield _counted(shown.get(way, f"`{way}`"), own)


def _counted(name: str, outcomes: Sequence[str]) -> str:
    count = Counter(outcomes)
    other = count["another warning"] + count["unclear"]
    cells = [len(outcomes), count[REPORTED], other, count["silent"], count["not run"]]
    return f"| {name} | {' | '.join(map(str, cells))} |"


def _missed(found: dict[str, Any]) -> Iterator[str]:
    for row in rows_of(found, "new"):
        if not by_ropewalk(row):
            stock = ", ".join(
                NAMES.get(t, t) for t, said in row["stock"].items() if said == REPORTED
            )
            yield f"- {row['place']}: {row['name']}: {effect(row)}; " + (
                f"reported by {stock}" if stock else "no stock tool reports it either"
            )


def _alarms(found: dict[str, Any]) -> Iterator[str]:
    alarms = found["alarms"]
    configs = {k.removeprefix("config "): v for k, v in alarms.items() if k.startswith("config ")}
    families = {k: v for k, v in alarms.items() if k.startswith("family ")}
    wrong = {name: said for name, said in configs.items() if isinstance(said, list) and said}
    refused = [name for name, said in configs.items() if isinstance(said, str)]
    raised = [name for name, said in families.items() if said]
    false = false_alarms(found)
    yield figures.paragraph(
        f"`assert_rotation` raises {len(raised)} alarms on {len(families)} unmodified random "
        f"models, one of each family. Of {len(configs)} published configs, `verify` refuses "
        f"{len(refused)} that have no rotary embedding or none that a config states "
        f"({', '.join(refused)}), and finds {len(wrong)} wrong. Without ropewalk, "
        f"{len(wrong) - len(false)} of these are seen to be wrong; false alarms: "
        f"{', '.join(false) or 'none'}."
    )
    yield ""
    yield "| config | finding | what shows it |"
    yield "|---|---|---|"
    for name, said in wrong.items():
        traps = dict.fromkeys(f"`{trap}`" for trap, _ in said)
        yield f"| {name} | {', '.join(traps)} | {CONFIRMED.get(name, '**a false alarm**')} |"


def _all(found: dict[str, Any], group: str) -> Iterator[str]:
    yield "| place | fault | effect | stock tools | ropewalk |"
    yield "|---|---|---|---|---|"
    for row in rows_of(found, group):
        stock = [NAMES.get(t, t) for t, said in row["stock"].items() if said == REPORTED]
        ways = [outcome for outcome, _ in row["ropewalk"].values()]
        own = (
            "reports and names it" if named(row) else "reports it" if by_ropewalk(row) else ways[-1]
        )
        about = row["name"]
        if group == "new":
            about += f" ({row['base']}): {row['story']}"
        yield (
            f"| {row['place']} | {about} | {effect(row)} | {', '.join(stock) or 'silent'} | {own} |"
        )


def write_page() -> None:
    """The tables of the page, in place."""
    path = ROOT / PAGE
    source = figures.Source("tools.bakeoff.page", blocks(), [], {})
    text = {PAGE: path.read_text(encoding="utf-8")}
    path.write_text(figures.with_figures(text, [source], print)[PAGE], encoding="utf-8")
