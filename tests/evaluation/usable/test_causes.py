"""What answers show of why a server is short."""

from __future__ import annotations

from typing import Any

import pytest

from ropewalk.evaluation.usable.causes import causes_of
from ropewalk.evaluation.usable.readers import DocumentAnswers

DEPTHS = (0.05, 0.2, 0.3, 0.45, 0.55, 0.7, 0.8, 0.95)


def read(right: str, tokens: int = 4000, seen: int | None = None, **more: Any) -> DocumentAnswers:
    found = tuple(each == "1" for each in right)
    return DocumentAnswers(
        "mixed", 4096, 0, tokens, tokens if seen is None else seen, found, DEPTHS, **more
    )


USUAL: dict[str, Any] = {
    "claimed": 4096, "serves": None, "added": 1, "verdict": None,
    "in_process": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("failing", "changes", "names", "told"),
    [
        ([], {}, [], ""),
        ([], {"serves": 2048}, ["context"], "has room for 2k of the 4k tokens"),
        ([], {"added": 12}, ["template"], "adds about 12 tokens"),
        (
            [read("00000011", seen=1000, growth=0.0)] * 6,
            {},
            ["truncation"],
            "cuts prompts to 1,000 tokens",
        ),
        ([read("01010101", seen=3700)] * 6, {}, ["unknown"], "nothing shows a cut"),
        ([read("0" * 8, refused="too long")], {}, ["context"], r"refuses prompts of 4k .*too long"),
        (
            [read("00000011")] * 6,
            {},
            ["truncation"],
            "about the last 800 tokens .* prompts look cut, or a scaling is lost",
        ),
        (
            [read("00000011")] * 6,
            {"reads_beginnings": False},
            ["truncation"],
            "about the last 800 tokens .* prompts are cut",
        ),
        (
            [read("00000011")] * 6,
            {"reads_beginnings": True},
            ["model"],
            "about the last 800 tokens .*, though it reads them",
        ),
        ([], {"unfinished": 3}, ["thoughts"], "too long to finish 3 answers"),
        ([read("01010101")] * 6, {}, ["unknown"], "give the model's folder or fingerprint"),
        ([read("01010101")] * 6, {"in_process": True}, ["model"], "the model itself"),
        ([read("00000000")] * 6, {}, ["unknown"], "nothing shows a cut"),
    ],
)
def test_causes(
    failing: list[DocumentAnswers], changes: dict[str, Any], names: list[str], told: str
) -> None:
    import re

    found = causes_of(failing, **{**USUAL, **changes})
    assert [cause.name for cause in found] == names
    assert re.search(told, " ".join(cause.told for cause in found))
