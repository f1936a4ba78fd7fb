"""The page docs/models.html: the table with a search, in one file that loads nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

NAMES = {
    "transformers": "transformers",
    "vllm": "vLLM",
    "sglang": "SGLang",
    "llama.cpp": "llama.cpp",
    "ollama": "Ollama",
    "mlx-lm": "mlx-lm",
}
STYLE = """
:root { color-scheme: light dark; font: 14px/1.45 system-ui, sans-serif; }
body { margin: 1.5rem; } table { border-collapse: collapse; } input { font: inherit; width: 24rem; }
th, td { border-bottom: 1px solid #8886; padding: .3rem .6rem; text-align: left;
  vertical-align: top; }
th { position: sticky; top: 0; background: Canvas; } small { opacity: .75; display: block; }
.otherwise { background: #e8a33d33; } .refused { background: #d9534f33; }
.unknown { opacity: .55; }
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


def number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "–"


def page(made: dict[str, Any]) -> str:
    """The whole page."""
    return "\n".join(_lines(made)) + "\n"


def _lines(made: dict[str, Any]) -> Iterator[str]:
    count = len(made["models"])
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{count} published models by runtime</title><style>{STYLE}</style></head><body>"
    yield f"<h1>{count} published models by runtime</h1>"
    yield (
        "<p>Each row is a published config. <b>as stated</b>: the runtime rotates as the config "
        "says. <b>otherwise</b>: it loads the model and does something else, or accepts another "
        "length, for the reason given. Lengths are in tokens: the native one, which scaling "
        "counts from; the stated one; and the one up to which the vendor says that the model "
        "works. Runtimes are judged by the rules recorded for these releases, and no model was "
        "run. <code>python -m tools.models_table</code> writes this page and "
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
