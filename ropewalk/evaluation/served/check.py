"""Asking a server the probes of a fingerprint, and a run's canary.

By a canary, a fixed prompt, a model is noticed that changed under the same name between two parts
of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

import numpy as np

from ropewalk.errors import InputError
from ropewalk.evaluation.served.client import Refused, ServerError
from ropewalk.evaluation.served.fingerprint import Cause, Fingerprint, Observed, Verdict, judged
from ropewalk.evaluation.served.probes import Probe
from ropewalk.evaluation.served.server import ChangedModel, Server
from ropewalk.run_directory import RunDirectory, check_kept, seals_of
from ropewalk.untrusted import read_json

CANARY = "canary.json"
_CHANGED = 0.005
"""Squared distance of answers, on average, beyond which they are those of two models."""
_PARTS = 8
_REPLICAS = (
    "answers the same prompt in two ways, as if several servers stood behind one address and one "
    "differed; give the address of one server, and try each"
)
P = TypeVar("P", str, list[int])
_Tops = Sequence[Mapping[int, float]]
_NO_TOP = (400, 422, 501)
"""The statuses by which a server refuses to name likely tokens."""


def check(
    server: Server, fingerprint: Fingerprint, progress: Callable[[float], None] = lambda done: None
) -> Verdict:
    """True if a server answers as the model of a fingerprint.

    One request at a time, the shortest first: a server that keeps what it read needs the long text
    once. Each is made twice in a row, so that it reaches both of two servers that take turns.
    """
    encoder = server.encoder
    if encoder is not None and encoder.sha256 != fingerprint.tokenizer_sha256:
        raise InputError(
            "tokenizer: the fingerprint was made with another one; give the tokenizer of the "
            "planned model"
        )
    askings: tuple[list[Observed], list[Observed]] = ([], [])
    total = sum(probe.length for probe in fingerprint.probes)
    done = 0
    for probe in fingerprint.probes:
        for observed in askings:
            observed.append(_ask(server, fingerprint, probe))
        done += probe.length
        progress(done / total)
    if all(seen.refused for seen in askings[1]):
        raise InputError(f"{server.client.where}: refuses every probe: {askings[1][0].refused}")
    server.check_unchanged()
    first, second = (judged(fingerprint, observed, server.info) for observed in askings)
    verdict = second if first.status == "same" else first
    tops = [[dict(seen.top or ()) for seen in observed] for observed in askings]
    differ = float(np.sum(_apart(*tops))) > first.threshold
    if verdict.status == "deviates" and (differ or first.status != second.status):
        return replace(verdict, causes=(*verdict.causes, Cause("replicas", _REPLICAS)))
    return verdict


def _ask(server: Server, fingerprint: Fingerprint, probe: Probe) -> Observed:
    try:
        answer = server.complete(
            fingerprint.prompt(probe),
            count=1,
            text=probe.text if probe.kind == "text" else None,
            top=True,
            check=False,
        )
    except Refused as error:
        if error.status in (401, 403, 404):
            raise
        return Observed(None, None, error.said or f"status {error.status}")
    except InputError:  # sent as text, it would be other tokens
        return Observed(None, None)
    return Observed(answer.prompt_tokens, answer.top)


def beginnings(whole: P) -> list[P]:
    """Parts of a prompt, which a server that keeps prompts reads at the price of the last.

    One answer after few tokens hardly shows a lost scaling; the mean of several, up to a length at
    which it matters, does.
    """
    return [whole[: len(whole) * part // _PARTS] for part in range(1, _PARTS + 1)]


def check_canary(
    server: Server, directory: RunDirectory | None, prompts: Sequence[Sequence[int] | str]
) -> None:
    """Refuse a server whose answers have changed since the run began, whatever its name."""
    askings: tuple[list[dict[int, float]], list[dict[int, float]]] = ([], [])
    for prompt, tops in product(prompts, askings):  # each twice in a row, as `check` asks
        text = prompt if isinstance(prompt, str) else None
        tokens = () if isinstance(prompt, str) else prompt
        try:
            reply = server.complete(tokens, count=1, text=text, top=True, check=text is None)
        except Refused as error:
            if error.status not in _NO_TOP:
                raise
            return
        if reply.top is None:
            return
        tops.append(dict(reply.top))
    now, again = askings
    if np.mean(_apart(now, again)) > _CHANGED:
        raise ServerError(f"{server.client.where}: {_REPLICAS}")
    if directory is None:
        was = server.canary = server.canary or now
    elif not (file := directory.path / CANARY).exists():
        if CANARY in seals_of(directory.path):
            raise InputError(
                f"{file}: was removed, and nothing else shows whether the server still has the "
                "model that this run began with; restore it, or begin another run"
            )
        kept = [[list(each) for each in top.items()] for top in now]
        directory.seal(CANARY, json.dumps({"tops": kept}) + "\n")
        return
    else:
        check_kept(file, directory.path)
        was = _kept(read_json(file))
    if len(was) != len(now) or np.mean(_apart(was, now)) > _CHANGED:
        raise ChangedModel(
            f"{server.client.where}: answers otherwise than when this run began, so its "
            "model or settings changed; what was measured before is kept: serve the former "
            "model again and run the same command, or begin another run"
        )


def _kept(value: object) -> list[dict[int, float]]:
    """The answers in a file; none if it holds something else."""
    try:
        tops: Any = value["tops"] if isinstance(value, Mapping) else ()
        return [{int(token): float(number) for token, number in top} for top in tops]
    except (KeyError, TypeError, ValueError, OverflowError):
        return []


def _apart(first: _Tops, second: _Tops) -> list[float]:
    return [_distance(*both) for both in zip(first, second, strict=False)]


def _distance(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    tokens = set(first) & set(second)
    roots = [np.exp([x[t] / 2 for t in tokens]) if tokens else np.zeros(0) for x in (first, second)]
    apart = sum(np.exp(x[t]) for x in (first, second) for t in set(x) - tokens)
    return float(((roots[0] - roots[1]) ** 2).sum() + apart / 2)
