"""The verdicts on the papers' claims: one table of all, and each study's own table and picture."""

from __future__ import annotations

from docs.figures import Picture, Sentence
from studies.anchor.measure import STUDY as ANCHOR
from studies.base.measure import STUDY as BASE
from studies.base.measure import bases
from studies.chain.measure import STUDY as CHAIN
from studies.chain.measure import passkeys
from studies.claims import judged, picture, table
from studies.first_tokens.measure import STUDY as FIRST_TOKENS
from studies.first_tokens_smollm2.measure import STUDY as FIRST_TOKENS_SMOLLM2
from studies.log_n.measure import STUDY as LOG_N
from studies.needle_search.measure import STUDY as NEEDLE_SEARCH
from studies.pretrained.measure import STUDY as PRETRAINED
from studies.superficial.measure import STUDY as SUPERFICIAL

STUDIES = (
    *(SUPERFICIAL, BASE, PRETRAINED, CHAIN, ANCHOR, NEEDLE_SEARCH, LOG_N, FIRST_TOKENS),
    FIRST_TOKENS_SMOLLM2,
)

PAGE, UNDECIDED = "studies/README.md", "studies/undecided.md"


def blocks() -> dict[str, str]:
    """Decided claims on the first page, the others on a page of their own."""
    decided, open_ = list[str](), list[str]()
    for study in STUDIES:
        for claim, own, _, said in judged(study):
            is_open = said in ("undecided", "withdrawn")
            words = f"**{said}**" + (f": {claim.withdrawn}" if claim.withdrawn else "")
            (open_ if is_open else decided).append(
                f"| [{claim.words}]({study.name}/README.md) | {claim.source} "
                f"| {len(own.by_model)} {study.over}".rstrip()
                + f" | {words} |"
            )
    head = "| claim | from | models | verdict |\n|---|---|---|---|\n"
    tables = {f"studies/{study.name}/README.md": table(study) for study in STUDIES}
    return {PAGE: head + "\n".join(decided), UNDECIDED: head + "\n".join(open_), **tables}


def sentences() -> list[Sentence]:
    said = {claim.words: word for study in STUDIES for claim, _, _, word in judged(study)}
    counts = [sum(word == each for word in said.values()) for each in ("undecided", "withdrawn")]
    bases = ("the safe base over a tenth of the least base", "correlation of retrieval with L_θ")
    return [
        Sentence(
            PAGE,
            "Of the other claims {} are undecided and {} withdrawn: [they stand apart]",
            tuple(map(str, counts)),
        ),
        Sentence(
            PAGE,
            "a base below the theory's bound loses retrieval, and the length that is retrieved "
            "follows L_θ, without being limited by it",
            holds=all(said[each] == "seen" for each in bases)
            and said["below the least base, retrieval stays within L_θ"] == "contradicted",
        ),
        Sentence(
            PAGE,
            "after training, a model in which all pairs rotate needs a larger base",
            holds=said["all pairs need a larger base, after training"] == "seen",
        ),
        Sentence(
            PAGE,
            "a searched second step has a lower loss of text than linear interpolation, and two "
            "stages than one with text of half the length",
            holds=said["a searched second step over linear, text"] == "seen"
            and said["two stages over one with text of half the length, text"] == "seen",
        ),
        Sentence(
            PAGE,
            "With a quarter of the pairs rotating, text within the window is worse",
            holds=said["a quarter of the pairs over all, text within the window"] == "contradicted",
        ),
    ]


def pictures() -> dict[str, Picture]:
    shown = {f"studies/{study.name}/claims.png": picture(study) for study in STUDIES}
    return shown | {
        "studies/base/bases.png": bases(),
        "studies/chain/passkeys.png": passkeys(),
    }
