"""The exported tokenizer, loaded by stock transformers, compared with the source's.

It is loaded in the fresh process of the gate, where nothing of ropewalk is, and must make the same
tokens of a text as the source's tokenizer.
"""

from __future__ import annotations

from pathlib import Path

from ropewalk.confined import FAST, trial
from ropewalk.errors import GateFailed, InputError
from ropewalk.exporting.gate import Tokens
from ropewalk.exporting.stock_run import tokens_of
from ropewalk.exporting.tokens import PROBE, SETTINGS, first_difference, tokenizer_files
from ropewalk.untrusted import read_json

NONE = "the source has no tokenizer, so the export has none"


def of_source(folder: Path) -> tuple[Tokens | None, tuple[str, ...]]:
    """The source's tokens of the probe text; or none to compare with, and why."""
    files = tokenizer_files(folder)
    if not files:
        return None, (NONE,)
    trial(folder, PROBE)
    tokens = Tokens.of(tokens_of(str(folder), PROBE))
    if not tokens.error:
        return tokens, ()
    # Custom code and packages that are not installed are no fault of the folder.
    if files[0] == FAST and not _needs_code(folder):
        raise InputError(
            f"{folder}: its tokenizer cannot be loaded ({tokens.error}); copy the model's "
            "tokenizer files into this folder, or remove those that are there"
        )
    return None, (f"the tokenizer is copied and was not compared: {tokens.error}",)


def check(source: Tokens | None, exported: Tokens | None) -> None:
    """Raise GateFailed if a text becomes other tokens than in the source, or none."""
    if source is None:
        return
    if exported is None or exported.error:
        why = exported.error if exported else "no file of it was written"
        problem = f"its tokenizer cannot be loaded in stock transformers ({why})"
    elif exported.ids == source.ids:
        return
    else:
        at = first_difference(source.ids, exported.ids)
        problem = (
            f"its tokenizer makes other tokens than the source's: {list(exported.ids[at : at + 5])}"
            f" for {list(source.ids[at : at + 5])} from token {at} of a text"
        )
    raise GateFailed("export", [problem])


def _needs_code(folder: Path) -> bool:
    path = folder / SETTINGS
    settings = read_json(path) if path.is_file() else {}
    return isinstance(settings, dict) and bool(settings.get("auto_map"))
