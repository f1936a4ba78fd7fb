"""The table of studies/README.md: each claim that was tried, and its verdict."""

from __future__ import annotations

from studies.anchor.measure import STUDY as ANCHOR
from studies.claims import judged
from studies.first_tokens.measure import STUDY as FIRST_TOKENS
from studies.log_n.measure import STUDY as LOG_N
from studies.needle_search.measure import STUDY as NEEDLE_SEARCH

STUDIES = (LOG_N, FIRST_TOKENS, ANCHOR, NEEDLE_SEARCH)


def blocks() -> dict[str, str]:
    rows = ["| claim | from | models | verdict |", "|---|---|---|---|"]
    rows += [
        f"| [{claim.words}]({study.name}/README.md) | {claim.source} | {len(own.by_model)} "
        f"| **{said}** |"
        for study in STUDIES
        for claim, own, _, said in judged(study)
    ]
    return {"studies/README.md": "\n".join(rows)}
