"""Asking a server the probes of a fingerprint, and a run's canary.

By a canary, a fixed prompt, a model is noticed that changed under the same name between two parts
of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from ropewalk.errors import InputError
from ropewalk.evaluation.served.client import Refused
from ropewalk.evaluation.served.fingerprint import Fingerprint, Observed, Verdict, judged
from ropewalk.evaluation.served.probes import Probe
from ropewalk.evaluation.served.server import ChangedModel, Server
from ropewalk.run_directory import RunDirectory, check_kept, seals_of
from ropewalk.untrusted import read_json

CANARY = "canary.json"
_CHANGED = 0.005
"""Squared distance of answers, on average, beyond which they are those of two models."""
_PARTS = 8
P = TypeVar("P", str, list[int])
_NO_TOP = (400, 422, 501)
"""The statuses by which a server refuses to name likely tokens."""


def check(
    server: Server, fingerprint: Fingerprint, progress: Callable[[float], None] = lambda done: None
) -> Verdict:
    """True if a server answers as the model of a fingerprint.

    One request at a time, the shortest first: a server that keeps what it read needs the long text
    once.
    """
    encoder = server.encoder
    if encoder is not None and encoder.sha256 != fingerprint.tokenizer_sha256:
        raise InputError(
            "tokenizer: the fingerprint was made with another one; give the tokenizer of the "
            "planned model"
        )
    observed = []
    total = sum(probe.length for probe in fingerprint.probes)
    done = 0
    for probe in fingerprint.probes:
        observed.append(_ask(server, fingerprint, probe))
        done += probe.length
        progress(done / total)
    if all(seen.refused for seen in observed):
        raise InputError(f"{server.client.where}: refuses every probe: {observed[0].refused}")
    server.check_unchanged()
    return judged(fingerprint, observed, server.info)


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
    now = []
    for prompt in prompts:
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
        now.append(dict(reply.top))
    if directory is None:
        was = server.canary = server.canary or now
    elif not (file := directory.path / CANARY).exists():
        if CANARY in seals_of(directory.path):
            raise InputError(
                f"{file}: was removed, and nothing else shows whether the server still has the "
                "model that this run began with; restore it, or begin another run"
            )
        tops = [[list(each) for each in top.items()] for top in now]
        directory.seal(CANARY, json.dumps({"tops": tops}) + "\n")
        return
    else:
        check_kept(file, directory.path)
        was = _kept(read_json(file))
    apart = [_distance(*both) for both in zip(was, now, strict=False)]
    if len(was) != len(now) or float(np.mean(apart)) > _CHANGED:
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


def _distance(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    tokens = set(first) & set(second)
    roots = [np.exp([x[t] / 2 for t in tokens]) if tokens else np.zeros(0) for x in (first, second)]
    apart = sum(np.exp(x[t]) for x in (first, second) for t in set(x) - tokens)
    return float(((roots[0] - roots[1]) ** 2).sum() + apart / 2)
