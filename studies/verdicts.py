"""The verdicts on the papers' claims: one table of all, and each study's own table and picture."""

from __future__ import annotations

from docs.figures import Picture
from studies.anchor.measure import STUDY as ANCHOR
from studies.base.measure import STUDY as BASE
from studies.base.measure import bases
from studies.chain.measure import STUDY as CHAIN
from studies.chain.measure import passkeys
from studies.claims import judged, picture, table
from studies.first_tokens.measure import STUDY as FIRST_TOKENS
from studies.log_n.measure import STUDY as LOG_N
from studies.needle_search.measure import STUDY as NEEDLE_SEARCH
from studies.pretrained.measure import STUDY as PRETRAINED

STUDIES = (BASE, PRETRAINED, CHAIN, ANCHOR, NEEDLE_SEARCH, LOG_N, FIRST_TOKENS)


def blocks() -> dict[str, str]:
    rows = ["| claim | from | models | verdict |", "|---|---|---|---|"]
    rows += [
        f"| [{claim.words}]({study.name}/README.md) | {claim.source} | {len(own.by_model)} "
        f"| **{said}** |"
        for study in STUDIES
        for claim, own, _, said in judged(study)
    ]
    own = {f"studies/{study.name}/README.md": table(study) for study in STUDIES}
    return {"studies/README.md": "\n".join(rows), **own}


def pictures() -> dict[str, Picture]:
    shown = {f"studies/{study.name}/claims.png": picture(study) for study in STUDIES}
    return shown | {
        "studies/base/bases.png": bases(),
        "studies/chain/passkeys.png": passkeys(),
    }
