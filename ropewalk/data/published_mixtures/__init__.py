"""Mixtures of papers by name, one data file each: parts, shares, and their sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ropewalk.errors import InvalidValue, UnknownName
from ropewalk.untrusted import read_json
from ropewalk.values import Value


@dataclass(frozen=True)
class Part:
    """A domain of a mixture."""

    share: float
    text: str
    """The text that the paper took."""
    source: str
    """The place where the share is printed."""


@dataclass(frozen=True, eq=False)
class PublishedMixture(Value):
    """A paper's shares of tokens by domain."""

    name: str
    source: str
    parts: Mapping[str, Part]
    missing: tuple[str, ...]
    """The facts that the source does not state."""

    def shares(self, domains: Sequence[str]) -> Mapping[str, float]:
        """By domain, if the user has text of each part, and of no other."""
        lacking = [
            f"{name} ({self.parts[name].text})" for name in self.parts if name not in domains
        ]
        if lacking:
            raise InvalidValue(
                "shares",
                self.name,
                f"there is no text of {', '.join(lacking)}",
                f"give a corpus for each (`{next(iter(self.parts))}=FILE`), or shares of your own",
            )
        for domain in domains:
            if domain not in self.parts:
                raise InvalidValue(
                    "shares",
                    self.name,
                    f"has no part {domain!r}",
                    f"leave it out, name it as one of {', '.join(self.parts)}, or give shares of "
                    "your own",
                )
        return {name: part.share for name, part in self.parts.items()}


def names() -> list[str]:
    return sorted(path.stem for path in Path(__file__).parent.glob("*.json"))


def named(name: str) -> PublishedMixture:
    if name not in names():
        raise UnknownName("mixture", name, names())
    path = Path(__file__).parent / f"{name}.json"
    stated = read_json(path)
    assert isinstance(stated, dict)
    return PublishedMixture.from_json({"name": name, **stated}, f"{path.name}: ")


def shares_of(
    shares: Mapping[str, float] | str | None, domains: Sequence[str]
) -> Mapping[str, float] | None:
    """The given shares, or those of a mixture by its name."""
    return named(shares).shares(domains) if isinstance(shares, str) else shares
