"""The page docs/models.html: charts and the table with a search, in one file that loads nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from ropewalk.chart import Axis, Chart, Mark, Series, Tile, TileGrid
from ropewalk.evaluation.charts import LENGTH
from ropewalk.reports.page.html import asset, block_of

NAMES = {
    "transformers": "transformers",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llama.cpp": "llama.cpp",
    "ollama": "Ollama",
    "mlx-lm": "mlx-lm",
}
STYLE = """
body { margin: 1.5rem; } input { font: inherit; width: 24rem; max-width: 100%; }
th { position: sticky; top: 0; background: var(--paper); } td { min-width: 4rem; }
td small { display: block; white-space: normal; overflow-wrap: anywhere; }
.otherwise { background: #e8a33d33; } .refused { background: #d9534f33; }
.unknown { opacity: .55; }
@media (max-width: 40rem) { table { display: block; overflow-x: auto; } }
"""
SCRIPT = """
const field = document.querySelector("input");
const rows = [...document.querySelectorAll("#models tbody tr")];
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\\s+/);
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => text.includes(word));
  }
});
"""


RIGHT = "as stated"


def by_method(models: Sequence[dict[str, Any]]) -> TileGrid:
    """The share of configs that each runtime rotates as stated, by their scaling."""
    methods = Counter(model["method"] for model in models)

    def tile(runtime: str, method: str) -> Tile:
        own = (model["runtimes"][runtime] for model in models if model["method"] == method)
        outcomes = Counter(cell["outcome"] for cell in own)
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        return Tile(outcomes[RIGHT] / methods[method], f"{NAMES[runtime]}, {method}: {told}")

    counts = ", ".join(f"{count} {method}" for method, count in methods.most_common())
    return TileGrid(
        "Configs that rotate as stated, by their scaling",
        "scaling",
        "",
        tuple(method.removesuffix("_ntk") for method, _ in methods.most_common()),
        tuple(NAMES.values()),
        tuple(tuple(tile(runtime, each) for each, _ in methods.most_common()) for runtime in NAMES),
        f"Of {counts}. The others do something else, are refused, or are not known.",
    )


def by_length(models: Sequence[dict[str, Any]]) -> Chart:
    """The number of models that each runtime serves as stated up to at least a length."""
    served = {"stated by the configs": [model["stated"] for model in models]}
    for runtime, name in NAMES.items():
        cells = [model["runtimes"][runtime] for model in models]
        served[name] = [own["serves"] for own in cells if own["outcome"] == RIGHT]
    lengths = [1024 << i for i in range(11)]
    series = tuple(
        Series(
            name,
            tuple(Mark(n, sum((own or 0) >= n for own in found)) for n in lengths),
            main=name.startswith("stated"),
        )
        for name, found in served.items()
    )
    return Chart(
        "Models that are served as stated, by length",
        LENGTH._replace(label="at least so many tokens"),
        Axis("models"),
        series,
    )


def number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def page(made: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join(_lines(made)) + "\n"


def _lines(made: dict[str, Any]) -> Iterator[str]:
    count, checked = len(made["models"]), made["checked"]
    compared = ", ".join(f"{n} {told}" for told, n in checked.items())
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{count} published models by runtime</title>"
    yield f"<style>{asset('style.css')}{STYLE}</style></head><body>"
    yield f"<h1>{count} published models by runtime</h1>"
    yield (
        "<p>Each row is a published config. <b>as stated</b>: the runtime rotates as the config "
        "says. <b>otherwise</b>: it loads the model and does something else, or accepts another "
        "length, for the reason given. Lengths are in tokens: the native one, which scaling "
        "counts from; the stated one; and the one up to which the vendor says that the model "
        "works. Runtimes are judged by the rules recorded for these releases, and no model was "
        f"run. Configs are those of the tests, and {sum(checked.values())} that were written down "
        f"and then compared with public copies: {compared}. "
        "<code>python -m tools.models_table</code> writes this page and "
        '<a href="models.json">models.json</a>.</p>'
    )
    yield "<table><thead><tr><th>runtime</th><th>release</th><th>as stated</th><th>otherwise</th>"
    yield "<th>refused</th><th>unknown</th><th>exports compared in float64</th></tr></thead>"
    for runtime, counts in made["counts"].items():
        cells = [NAMES[runtime], made["releases"][runtime]]
        kinds = ("as stated", "otherwise", "refused", "unknown")
        cells += [str(counts.get(kind, 0)) for kind in kinds]
        cells.append(made["parity"].get(runtime, "not counted here"))
        yield f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in cells)}</tr>"
    yield "</table>"
    known = [model for model in made["models"] if model["runtimes"]]
    yield f'<div class="charts">{block_of(by_method(known))}{block_of(by_length(known))}</div>'
    yield '<p><label>Search: <input placeholder="qwen yarn vllm"></label></p>'
    heads = ["model", "native", "stated", "documented", *NAMES.values()]
    yield f'<table id="models"><thead><tr>{"".join(f"<th>{head}</th>" for head in heads)}</tr>'
    yield "</thead><tbody>"
    for row in made["models"]:
        yield _row(row)
    yield "</tbody></table><h2>Faults in these runtimes</h2><p>Each with the lines that "
    yield 'reproduce it: <a href="found.md">found.md</a>.</p><table><thead><tr><th>fault</th>'
    yield "<th>fails in</th><th>does not fail in</th><th>older releases</th></tr></thead>"
    for fault in made["faults"]:
        yield f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in fault.values())}</tr>"
    yield f"</table><script>{SCRIPT}</script></body></html>"


def _row(row: dict[str, Any]) -> str:
    about = f"{row.get('family', '')} {row.get('method', '')}"
    text = f"<td>{escape(row['model'])}<small>{escape(about)}; {escape(row['source'])}</small></td>"
    lengths = (row.get("native"), row.get("stated"), row["documented"])
    text += "".join(f"<td>{number(value)}</td>" for value in lengths)
    if "refused" in row:
        return f'<tr>{text}<td colspan="6" class="unknown">{escape(row["refused"])}</td></tr>'
    for runtime in NAMES:
        cell = row["runtimes"][runtime]
        why = [cell["why"], *cell["findings"]] if cell["why"] else cell["findings"]
        told = "".join(f"<small>{escape(line)}</small>" for line in why)
        shown = number(cell["serves"]) if cell["serves"] else ""
        text += f'<td class="{cell["outcome"].split()[0]}">{cell["outcome"]} {shown}{told}</td>'
    return f"<tr>{text}</tr>"
