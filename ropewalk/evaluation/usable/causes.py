"""Why a model or a server is shorter than it claims, as far as its answers show it.

Counts and refusals are certain. With the model's weights or its fingerprint at hand, so is a lost
setting (evaluation/served/causes.py). A prompt that is cut although the server counts all of it
shows in the depths: facts are found up to a distance from the question, and none beyond.
"""

from __future__ import annotations

from collections.abc import Sequence

from ropewalk.evaluation.served.fingerprint import Cause, Verdict
from ropewalk.evaluation.usable.readers import DocumentAnswers
from ropewalk.lengths import format_length

TEMPLATE = 3
"""From so many added tokens on, it is no BOS, and no doubled one."""
GROWS = 0.5
"""A server whose counts grow by a smaller part than its prompts cuts them."""
NEAR, FAR = 0.75, 0.10
"""The least share of near facts that is found, and the most of far ones, where a prompt is cut."""
ENOUGH = 8
"""The least number of facts on either side."""


def causes_of(
    failing: Sequence[DocumentAnswers],
    *,
    claimed: int,
    serves: int | None,
    added: int,
    unfinished: int = 0,
    verdict: Verdict | None,
    in_process: bool,
    reads_beginnings: bool | None = None,
) -> tuple[Cause, ...]:
    """The causes, the most certain first; `failing` are the documents of lengths that fail.

    `serves` is the length that a server has room for, if that is less than claimed, and `verdict`
    that of a fingerprint; `unfinished` answers, of any length, ended within thoughts.
    `reads_beginnings`: whether the beginning of a document of these lengths changes what follows.
    """
    causes = []
    if serves is not None:
        words = f"has room for {format_length(serves)} of the {format_length(claimed)} tokens"
        causes.append(Cause("context", words))
    if added >= TEMPLATE:
        words = f"adds about {added} tokens to each prompt, as a chat template does"
        causes.append(Cause("template", words))
    if unfinished:
        words = f"thought too long to finish {unfinished} answers; turn its thinking off"
        causes.append(Cause("thoughts", words))
    causes += [*_refused(failing), *_cut(failing)]
    if verdict is not None and verdict.status == "deviates":
        causes += [each for each in verdict.causes if each.name not in {c.name for c in causes}]
    # Signs of a cut are looked for only where nothing certain explains the failure.
    if not any(each.certain for each in causes) and (cut := _seems_cut(failing, reads_beginnings)):
        causes = [*cut, *(each for each in causes if each.name != "unknown")]
    if not failing:
        return tuple(causes)
    # Without any cause on the way to it, the model itself is left, as far as that is known.
    if not causes and verdict is not None and verdict.status == "same":
        words = f"the model itself: the server answers like {verdict.model} under {verdict.method}"
        causes.append(Cause("model", words))
    elif not causes and in_process:
        causes.append(Cause("model", "the model itself, under the rotation that its files state"))
    elif not causes:
        words = "nothing shows a cut: the model itself, or a setting of the server"
        if verdict is None:
            words += "; give the model's folder or fingerprint (`against`) to find out which"
        causes.append(Cause("unknown", words, certain=False))
    return tuple(causes)


def _refused(failing: Sequence[DocumentAnswers]) -> list[Cause]:
    refused = [each for each in failing if each.refused]
    if not refused:
        return []
    shortest = min(refused, key=lambda each: each.length)
    words = f"refuses prompts of {format_length(shortest.length)} tokens ({shortest.refused})"
    return [Cause("context", words)]


def _cut(failing: Sequence[DocumentAnswers]) -> list[Cause]:
    cut = [each for each in failing if each.growth < GROWS]
    if not cut:
        return []
    return [Cause("truncation", f"cuts prompts to {max(each.read for each in cut):,} tokens")]


def _seems_cut(failing: Sequence[DocumentAnswers], reads: bool | None) -> list[Cause]:
    """The distance from the end beyond which facts are lost, if those nearer are found."""
    facts = sorted(
        ((1 - depth) * each.tokens, right)
        for each in failing
        if not each.refused
        for depth, right in zip(each.depths, each.right, strict=True)
    )
    borders = []
    for i in range(ENOUGH, len(facts) - ENOUGH + 1):
        near = sum(right for _, right in facts[:i])
        far = sum(right for _, right in facts[i:])
        if near >= NEAR * i and far <= FAR * (len(facts) - i):
            borders.append((far + i - near, facts[i - 1][0]))  # facts on the wrong side
    if not borders:
        return []
    words = f"finds facts in about the last {min(borders)[1]:,.0f} tokens and hardly any before"
    if reads:
        words += (
            ", though it reads them: a scaling is lost (`against` shows it), or the model itself"
        )
        return [Cause("model", words, certain=False)]
    why = "look cut, or a scaling is lost" if reads is None else "are cut, and counted as sent"
    return [Cause("truncation", f"{words}: prompts {why}", certain=False)]
