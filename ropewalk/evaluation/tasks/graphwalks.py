"""GraphWalks (OpenAI, 2025): the nodes at a distance from one node, or those that lead to it.

Source: the card of the data set `openai/graphwalks`, with its rule of scoring. Graphs, names of
nodes and the wording are ours; studies/papers.md lists the differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks import PROMPTS, Draft, Scene, published
from ropewalk.evaluation.vocabulary import HEX, LETTERS

DEPTH, BRANCHES, PARENTS = 2, 2, 4
"""The depth of a search, and the edges that leave each node on its way."""
INTRODUCTION = PROMPTS["graphwalks"]
MARK = "Final Answer:"

Edge = tuple[str, str]


def search(scene: Scene, units: int) -> Draft:
    """`units` edges around a tree of `DEPTH` levels; none of them leaves the tree's nodes."""
    names = _names(scene)
    root = next(names)
    levels, edges = [[root]], []
    for _ in range(DEPTH):
        below = [[next(names) for _ in range(BRANCHES)] for _ in levels[-1]]
        pairs = zip(levels[-1], below, strict=True)
        edges += [(node, child) for node, children in pairs for child in children]
        levels.append([child for children in below for child in children])
    nodes = [node for level in levels for node in level]
    # An edge into the tree from outside changes nothing: a search follows edges forward.
    noise = _noise(scene.random, units, names, into=nodes)
    ask = f"a breadth-first search from {root} of depth {DEPTH}"
    return _draft(scene, [*edges, *noise], lambda edge: edge[1], set(levels[-1]), ask, root)


def parents(scene: Scene, units: int) -> Draft:
    """`units` edges around those that lead to one node."""
    names = _names(scene)
    child, *nodes = (next(names) for _ in range(1 + PARENTS))
    edges = [(node, child) for node in nodes]
    noise = _noise(scene.random, units, names, into=nodes)
    return _draft(
        scene, [*edges, *noise], lambda edge: edge[0], set(nodes), f"the parents of {child}", child
    )


def _names(scene: Scene) -> Iterator[str]:
    """Names of nodes, all different."""
    letters, size = (LETTERS, 3) if scene.small else (HEX, 8)
    seen: set[str] = set()
    while True:
        name = scene.random.word(letters, size)
        if name not in seen:
            seen.add(name)
            yield name


def _noise(random: Stream, count: int, names: Iterator[str], into: list[str]) -> Iterator[Edge]:
    """Edges from nodes of their own to each other, and now and then to one of `into`."""
    nodes = [next(names) for _ in range(2 + count // BRANCHES)]
    for a, b, c in random.rows(count, 3):
        start = a % len(nodes)
        end = (start + 1 + b % (len(nodes) - 1)) % len(nodes)  # no node leads to itself
        yield nodes[start], into[b % len(into)] if c % 16 == 0 else nodes[end]


def _draft(
    scene: Scene,
    edges: list[Edge],
    result: Callable[[Edge], str],
    answers: set[str],
    ask: str,
    target: str,
) -> Draft:
    """`result`: the end of an edge that belongs to the answer; `target`: the node asked about."""
    listed = scene.random.shuffled(list(dict.fromkeys(edges)))
    ordered = list(dict.fromkeys(n for n in map(result, listed) if n in answers))
    others = [node for edge in listed[:8] for node in edge if node not in (*answers, target)]
    if scene.small:
        text = "".join(f"{start} {end}\n" for start, end in listed)
        prompt = f"{text}# {ask.split()[1]} {target}\n{MARK}"
    else:
        text = "".join(f"{start} -> {end}\n" for start, end in listed)
        prompt = f"{INTRODUCTION}{text}\nOperation: {ask}.\n{MARK}"
    return Draft(
        prompt,
        f" [{', '.join(ordered)}]",
        parts=tuple(ordered),
        distractors=tuple(dict.fromkeys(others))[:2],
    )


def named_nodes(response: str) -> set[str]:
    """The nodes of a response by the published rule: the list in its last line, after the mark."""
    listed = re.search(rf"{MARK} ?\[(.*)\]", response.split("\n")[-1])
    return {name.strip() for name in listed[1].split(",") if name.strip()} if listed else set()


def set_f1(written: str, references: tuple[str, ...]) -> float:
    """F1 of the named nodes; what was written goes on after the mark, and ends with its line."""
    [line, *_] = written.strip().split("\n")
    named, right = named_nodes(f"{MARK} {line.removeprefix(MARK).strip()}"), set(references)
    return 2 * len(named & right) / (len(named) + len(right))


TASKS = tuple(
    published(
        f"graphwalks-{name}-syn",
        summary,
        draft,
        set_f1,
        "graphwalks-syn",
        ends=r"\S[^\n]*\n",
    )
    for name, summary, draft in (
        ("bfs", "The nodes of a graph at distance two from a node.", search),
        ("parents", "The nodes of a graph that have an edge to a node.", parents),
    )
)
