"""Asking a server the probes of a fingerprint."""

from __future__ import annotations

from collections.abc import Callable

from ropewalk.errors import InputError
from ropewalk.evaluation.served.client import Refused
from ropewalk.evaluation.served.fingerprint import Fingerprint, Observed, Verdict, judged
from ropewalk.evaluation.served.probes import Probe
from ropewalk.evaluation.served.server import Server


def check(
    server: Server,
    fingerprint: Fingerprint,
    progress: Callable[[float], None] = lambda done: None,
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
