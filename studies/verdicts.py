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
from studies.known_models import measure as known_models
from studies.log_n.measure import STUDY as LOG_N
from studies.needle_search.measure import STUDY as NEEDLE_SEARCH
from studies.pretrained.measure import STUDY as PRETRAINED
from studies.searched.measure import STUDY as SEARCHED
from studies.second_step.measure import STUDY as SECOND_STEP
from studies.superficial.measure import STUDY as SUPERFICIAL
from studies.two_methods.measure import STUDY as TWO_METHODS
from studies.two_stages.measure import STUDY as TWO_STAGES

STUDIES = (
    *(SUPERFICIAL, BASE, PRETRAINED, CHAIN, ANCHOR, NEEDLE_SEARCH, LOG_N, FIRST_TOKENS),
    *(FIRST_TOKENS_SMOLLM2, TWO_METHODS, SEARCHED, SECOND_STEP, TWO_STAGES),
)

AFTER_TRAINING = (
    "a second search without hand-designed winners over linear, text",
    "a second search without hand-designed winners over yarn, text",
    "factors searched for the window over those of the second step, text",
)
PAGE, UNDECIDED = "studies/README.md", "studies/undecided.md"
_TRAINED = "200 steps on the kinds of question that are asked; the paper trains on plain text"
_ADDED = f"{_TRAINED}; added after three models were seen"
_CORRELATED = "over four bases, all below the bound; three predictions do equally well"
RESERVATIONS = {
    "the safe base over a tenth of the least base": _TRAINED,
    "the safe base over a thousandth of the least base": _TRAINED,
    "100 times the least base over a tenth of it": _ADDED,
    "10,000 times the least base over a thousandth of it": _ADDED,
    "correlation of retrieval with L_θ": _CORRELATED,
    "correlation of retrieval with the length by the least base": _CORRELATED,
    "correlation of retrieval with the length by the safe base": _CORRELATED,
    "below the least base, retrieval stays within L_θ": "over four bases; facts lie at even depths",
    "a quarter of the pairs over all, text within the window": (
        "heads of 16 to 32 dimensions, so two to four pairs; the recipe was made for all pairs"
    ),
    "all pairs need a larger base, after training": (
        "50 steps; with half of the pairs most models learn under neither base"
    ),
    "a searched second step over linear, text": (
        "the search kept a hand-designed method on two of five models; linear retrieves nothing"
    ),
    "two stages over one with text of half the length, text": (
        "0.027 nats, the paper 0.167; against one training on whole text nothing is decided"
    ),
    "anchor over interleaved, mean of five checkpoints": (
        "rests on one model, which answers 39% within its window: without it there are four sizes"
    ),
    "log n in pre-training costs less than half a point within the window": (
        "within the window only: beyond it no gain of log n shows"
    ),
    "16 first tokens without interpolation lower the loss under PI": (
        "these models give their first token little attention"
    ),
    "16 first tokens without interpolation lower the loss under PI, SmolLM2": (
        "one model; texts of 512 tokens under the interpolation for 32k; the control was chosen "
        "after the result"
    ),
    "of two methods without new angles, the one with B(m) ≥ 0 retrieves more": (
        "seeds of one shape; the base of Method 1 is 9,000 times that of pre-training"
    ),
    "below the bound, text costs less than 0.03 nats more": (
        "seeds of one shape, 200 steps; five of seven pass the gate, the last barely, and two were "
        "added for want of five"
    ),
    "below the bound, retrieval is lost all the same": (
        "seeds of one shape, 200 steps; five of seven pass the gate, the last barely, and two were "
        "added for want of five"
    ),
    "searched λ over linear at 4 times, text": (
        "0.21 nats, the paper 0.45; whether the search is ahead of YaRN there is undecided"
    ),
    "searched λ and n̂ over linear at 8 times, text": (
        "0.35 nats, the paper 2.47; five documents judge the search"
    ),
    "searched λ and n̂ over searched λ at 8 times, text": (
        "on four of five models the search itself leaves n̂ at 0"
    ),
    "searched λ and n̂ over yarn at 8 times, text": (
        "the paper's effect is that at 16 times, under factors searched for LLaMA-2"
    ),
    **dict.fromkeys(
        (claim.words for claim in SECOND_STEP.claims),
        "seeds of one shape; 200 steps of training; 352 schedules a search, without an attention "
        "factor, which YaRN has",
    ),
    **dict.fromkeys(
        (claim.words for claim in TWO_STAGES.claims),
        "seeds of one shape; to 8 windows in 200 steps, the paper to 64 in 1,000",
    ),
}
"""The reservation that the page of a claim makes, for the table of what is decided."""


def blocks() -> dict[str, str]:
    """Decided claims on the first page, the others on a page of their own."""
    decided, open_ = list[str](), list[str]()
    for study in STUDIES:
        for claim, own, _, said in judged(study):
            is_open = said in ("undecided", "withdrawn")
            words = f"**{said}**" + (f": {claim.withdrawn}" if claim.withdrawn else "")
            row = (
                f"| [{claim.words}]({study.name}/README.md) | {claim.source} "
                f"| {len(own.by_model)} {study.over}".rstrip()
                + f" | {words} |"
            )
            if is_open:
                open_.append(row)
            else:
                decided.append(f"{row} {RESERVATIONS[claim.words]} |")
    if known_models.verdict() == "undecided":
        open_.append(known_models.row())
    else:
        decided.append(f"{known_models.row()} {known_models.RESERVATION} |")
    head = "| claim | from | models | verdict |\n|---|---|---|---|\n"
    first = "| claim | from | models | verdict | reservation |\n|---|---|---|---|---|\n"
    tables = {f"studies/{study.name}/README.md": table(study) for study in STUDIES}
    return {PAGE: first + "\n".join(decided), UNDECIDED: head + "\n".join(open_), **tables}


def sentences() -> list[Sentence]:
    found = {claim.words: own for study in STUDIES for claim, own, _, _ in judged(study)}
    said = {claim.words: word for study in STUDIES for claim, _, _, word in judged(study)}
    lost = found["below the bound, retrieval is lost all the same"]
    ahead = found["searched λ over linear at 4 times, text"]
    after = [
        (abs(found[each].mean), *sorted(map(abs, found[each].interval or ())))
        for each in AFTER_TRAINING
    ]
    said[known_models.CLAIM] = known_models.verdict()
    counts = [sum(word == each for word in said.values()) for each in ("undecided", "withdrawn")]
    bases = ("the safe base over a tenth of the least base", "correlation of retrieval with L_θ")
    return [
        Sentence(
            PAGE,
            "Leaving 16 first tokens without interpolation gains less than in LongRoPE's Table 2",
            holds=all(
                said[each] == "not seen"
                for each in said
                if each.startswith("16 first") and "PI" in each
            ),
        ),
        Sentence(
            PAGE,
            "LongRoPE's search lowers the loss of text against linear interpolation, untrained, at "
            "4 times the window by {} nats ({} to {}); at 8 times it gains less over YaRN than in "
            "the paper, and less by searching n̂",
            tuple(f"{each:.2f}" for each in (ahead.mean, *(ahead.interval or ()))),
            holds=all(
                said[f"searched λ{each}, text"] == word
                for each, word in (
                    (" over linear at 4 times", "seen"),
                    (" and n̂ over yarn at 8 times", "not seen"),
                    (" and n̂ over searched λ at 8 times", "not seen"),
                )
            ),
        ),
        Sentence(
            PAGE,
            "On seeds of one shape, a second search after training lowers the loss of text against "
            "linear interpolation by {} nats ({} to {}), and is {} behind YaRN ({} to {}); factors "
            "that are searched for the window bring back {} ({} to {}); two stages gain less by "
            "short text than in Table 12",
            tuple(f"{each:.2f}" for step in after for each in step),
            holds=[said[each] for each in AFTER_TRAINING] == ["seen", "contradicted", "seen"]
            and all(said[each.words] == "not seen" for each in TWO_STAGES.claims),
        ),
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
            "a tenth of the least base costs less than 0.03 nats of text and {} points of "
            "retrieval ({} to {})",
            tuple(f"{100 * each:.0f}" for each in (lost.mean, *(lost.interval or ()))),
            holds=all(said[each] == "seen" for each in said if each.startswith("below the bound")),
        ),
        Sentence(
            PAGE,
            "After training, a model in which all pairs rotate needs a larger base",
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
    run = [study for study in STUDIES if study.file.exists() and len(study.claims) > 1]
    shown = {f"studies/{study.name}/claims.png": picture(study) for study in run}
    return shown | {
        "studies/base/bases.png": bases(),
        "studies/chain/passkeys.png": passkeys(),
    }
