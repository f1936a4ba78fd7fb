"""`evaluate` with a server: the fingerprint first, then the retrieval tasks, through HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ropewalk.api.common import (
    Corpus,
    Length,
    PlanLike,
    as_documents,
    as_lengths,
    as_list,
    as_path,
    as_plan,
    runnable,
)
from ropewalk.api.evaluate import RESULTS, Evaluated
from ropewalk.api.fingerprint import (
    as_fingerprint,
    as_name,
    check_concurrency,
    client_of,
    encoder_of,
)
from ropewalk.api.report import keep_report
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.errors import InputError, InvalidValue, Unsupported
from ropewalk.evaluation.conditions import AS_IT_IS, default_lengths
from ropewalk.evaluation.effective_length import effective_lengths
from ropewalk.evaluation.results import means, summarise
from ropewalk.evaluation.served.fingerprint import Fingerprint, Verdict
from ropewalk.evaluation.served.server import ServerInfo
from ropewalk.lengths import check_measured, format_length
from ropewalk.models.source import Model
from ropewalk.outputs import write_atomically
from ropewalk.progress import Notice, Progress, share
from ropewalk.records import Mode, Subject
from ropewalk.reports.evaluation import depth_grids, figures
from ropewalk.reports.figures import keep_figures
from ropewalk.run_directory import RECORDS, RunDirectory, check_run_place
from ropewalk.untrusted import read_json

if TYPE_CHECKING:
    from ropewalk.evaluation.encoding import Encoder
    from ropewalk.evaluation.served.server import Server
    from ropewalk.evaluation.settings import EvaluationSettings

TASKS = ("passkey", "needle", "lines", "kv")
AS_SERVED = "as served"
VERDICT, CANARY = "verdict.json", "canary.json"
_CANARY_TOKENS = 64
_CHANGED = 0.02
"""Squared distance of two answers beyond which they are those of two models."""


@dataclass(frozen=True, eq=False)
class EvaluatedServer(Evaluated):
    """Results of a model as its server runs it, and whether it answers as planned."""

    server: ServerInfo
    verdict: Verdict | None
    """What the fingerprint says; None where there was none to compare with."""

    def summary(self) -> str:
        told = f" {self.verdict.summary()}" if self.verdict is not None else ""
        return super().summary() + told


@dataclass(frozen=True)
class Asked:
    """What a server is to be asked, checked before there is one."""

    tasks: tuple[str, ...]
    lengths: tuple[int, ...] | None
    """None: up to the longest that is served."""
    samples: int
    mode: Mode
    seed: int

    @classmethod
    def of(
        cls,
        tasks: Sequence[str] | None,
        lengths: Sequence[Length] | None,
        samples: int,
        mode: Mode | None,
        seed: int,
        *,
        they: str = "servers do not give, or give wrong",
        instead: str = "measure in process, without a server",
    ) -> Asked:
        """The arguments as they are given. `they`: who does not give what some tasks need."""
        from ropewalk.evaluation.settings import expanded

        own = cls(
            expanded(TASKS if tasks is None else as_list(tasks, "tasks")),
            None if lengths is None else as_lengths(lengths),
            samples,
            "generate" if mode is None else mode,
            seed,
        )
        _check_tasks(own.tasks, own.mode, they, instead)
        own.settings(lambda: (2, 2))  # refuses what no lengths would mend
        return own

    def settings(self, ends: Callable[[], tuple[int, int]]) -> EvaluationSettings:
        """With lengths from the two `ends`, the original one and the last, where none are given."""
        from ropewalk.evaluation.settings import EvaluationSettings

        lengths = self.lengths
        if lengths is None:
            original, last = ends()
            lengths = default_lengths(min(original, last), (), last)
        return EvaluationSettings(self.tasks, lengths, self.samples, self.seed, self.mode)


def evaluate_server(
    server: str,
    *,
    model: Model | None,
    plans: Sequence[PlanLike],
    tasks: Sequence[str] | None,
    lengths: Sequence[Length] | None,
    samples: int,
    mode: Mode | None,
    corpus: Corpus,
    field: str,
    seed: int,
    run: str | Path | None,
    dtype: str,
    device: str,
    allow_download: bool,
    strict: bool,
    tokenizer: str | Path | None,
    model_name: str | None,
    fingerprint: Fingerprint | str | Path | None,
    concurrency: int,
    timeout: float,
    progress: Progress,
    notice: Notice,
) -> EvaluatedServer:
    """What `evaluate` does with a server."""
    asked = Asked.of(tasks, lengths, samples, mode, seed)
    given = [as_plan(plan) for plan in as_list(plans, "plans")]
    if len(given) > 1:
        raise InputError(f"a server follows one plan, and {len(given)} are given; give one")
    check_concurrency(concurrency)
    client = client_of(server, timeout)
    if not client.where.is_local and client.key and client.where.scheme == "http":
        notice(f"warning: the key is sent to {client.where.host} unencrypted; use https")
    place = None if run is None else as_path(run, "run")
    own = None if fingerprint is None else as_fingerprint(fingerprint)
    plan = given[0] if given else None
    if own is not None and plan is not None and own.plan_id != plan.id:
        raise InputError(
            f"the fingerprint is that of the plan {own.plan_id}, and the plan given is {plan.id}; "
            "give the two that belong together"
        )
    documents = as_documents(corpus, field, notice)
    source = None
    if model is not None:
        source = runnable(
            model,
            dtype=dtype,
            device=device,
            allow_download=allow_download,
            strict=strict,
            notice=notice,
            run=place,
        )
    elif tokenizer is None:
        raise InputError(
            "a server says nothing of its tokenizer; give the folder that holds it (`tokenizer`), "
            "or the planned model itself"
        )
    elif place is not None:
        check_run_place(place, ())
    present = None if source is None else source.present_plan
    encoder: Encoder = encoder_of(tokenizer if tokenizer is not None else _folder(source))
    from ropewalk.evaluation.served.server import Server

    trial = canary_of(encoder, documents)[:16]
    opened = Server.open(client, encoder, trial, as_name(model_name))
    follows = plan or present
    settings = asked.settings(lambda: _ends(opened.info, follows, own))
    _check_length(opened.info, settings.lengths)
    subject = _subject(opened.info, follows, own)

    def compared(directory: RunDirectory | None) -> Verdict | None:
        made = own
        verdict = _verdict(directory)
        if verdict is not None and own is not None and verdict.plan_id != own.plan_id:
            raise InputError(
                f"the run's verdict is about the plan {verdict.plan_id}, and the fingerprint given "
                f"is that of the plan {own.plan_id}; give the former one, or begin another run"
            )
        if verdict is None:
            if made is None and model is not None:
                made = _made(model, plan, documents, seed, dtype, device, allow_download, progress)
            if made is not None:
                from ropewalk.evaluation.served.check import check

                verdict = check(opened, made, share(progress, "comparing"))
                if directory is not None:
                    directory.write(VERDICT, json.dumps(verdict.to_json(), indent=2) + "\n")
        if verdict is not None and verdict.status != "same":
            notice(f"warning: {verdict.summary()}")
        return verdict

    return measured(
        opened,
        encoder,
        documents,
        settings,
        subject,
        identity={
            "server": opened.info.to_json(),
            "tokenizer_sha256": encoder.sha256,
            "corpus_sha256": corpus_digest(documents),
            "plan": None if follows is None else follows.to_json(),
        },
        original=_original(follows, own, settings.lengths),
        run=place,
        apart_from=() if source is None else source.places,
        verdict=compared,
        concurrency=concurrency,
        progress=progress,
        notice=notice,
    )


def measured(
    opened: Server,
    encoder: Encoder,
    documents: Sequence[Document],
    settings: EvaluationSettings,
    subject: Subject,
    *,
    identity: Mapping[str, object],
    original: int,
    run: Path | None,
    apart_from: Sequence[Path],
    verdict: Callable[[RunDirectory | None], Verdict | None],
    concurrency: int,
    progress: Progress,
    notice: Notice,
) -> EvaluatedServer:
    """Ask a server, and keep its answers in `run`, which `identity` and the settings identify."""
    from ropewalk.evaluation.served.questions import ServedEvaluation
    from ropewalk.evaluation.settings import groups_of

    canary = canary_of(encoder, documents)
    with ExitStack() as stack:
        journal = directory = None
        if run is not None:
            directory = stack.enter_context(
                RunDirectory(
                    run, "evaluate", {**identity, **asdict(settings)}, apart_from=apart_from
                )
            )
            _check_canary(opened, canary, directory)
            journal = directory.journal(RECORDS)
        found_verdict = verdict(directory)
        evaluation = ServedEvaluation(
            opened, encoder, documents, settings, subject, concurrency, notice
        )
        records = evaluation.run(journal, share(progress, "asking"))
        if not records:
            if directory is not None and found_verdict is None:
                (directory.path / CANARY).unlink(missing_ok=True)  # so that nothing is left
            raise InputError(
                f"no task of {', '.join(settings.tasks)} fits in "
                f"{format_length(max(settings.lengths))} tokens, so there is nothing to measure; "
                "give longer lengths or other tasks"
            )
        if directory is not None:
            _check_canary(opened, canary, directory)
        groups = groups_of(settings.tasks, settings.mode)
        results, averaged = summarise(records), means(records, groups)
        effective = effective_lengths(records, groups, None, original)
        retrieved = dict.fromkeys(r.task for r in records if r.depth is not None)
        found = EvaluatedServer(
            model=opened.info.model,
            results=tuple(results),
            means=tuple(averaged),
            effective_lengths=tuple(effective),
            comparisons=(),
            depth_grids=tuple(grid for task in retrieved for grid in depth_grids(records, task)),
            original_length=original,
            dtype=_dtype(opened.info),
            device=opened.info.kind,
            server=opened.info,
            verdict=found_verdict,
        )
        if directory is not None:
            directory.write(RESULTS, json.dumps(found.to_json(), indent=2) + "\n")
            keep_figures(
                lambda: figures(
                    [*results, *averaged], records, effective=effective, original_length=original
                ),
                directory.path / "figures",
                notice,
            )
    if directory is not None:
        keep_report(directory.path, notice)
    return found


def canary_of(encoder: Encoder, documents: Sequence[Document]) -> list[int]:
    """The fixed prompt by whose answer a changed model is noticed."""
    tokens: list[int] = encoder.sequence(documents[0].text[:2048])[:_CANARY_TOKENS].tolist()
    return tokens


def _check_tasks(asked: Sequence[str], mode: str, they: str, instead: str) -> None:
    """Refuse what cannot be scored from what a server writes."""
    from ropewalk.evaluation import perplexity, tasks

    if mode == "teacher_forced":
        raise Unsupported(
            f"mode teacher_forced needs the probabilities of prompt tokens, which {they}; choose "
            f"generate, or {instead}"
        )
    losses = [name for name in asked if name in perplexity.DEFINITIONS]
    if losses:
        raise Unsupported(
            f"{losses[0]} needs the probabilities of prompt tokens, which {they}; leave the task "
            f"out, or {instead}"
        )
    others = [name for name in asked if name not in tasks.every()]
    if others:
        raise Unsupported(
            f"{others[0]} has official inputs, which are read in process alone; ask for "
            f"{others[0]}-syn"
        )


def _folder(source: Any) -> Path:
    folder: Path = source.folder
    return folder


def _ends(
    info: ServerInfo, follows: ContextPlan | None, own: Fingerprint | None
) -> tuple[int, int]:
    """The original length, and the longest that is served."""
    if follows is not None:
        return follows.original_length, follows.target_length
    if own is not None:
        return own.original_length, own.target_length
    if info.length is not None:
        check_measured(info.length, "the length that the server says it serves")
        return info.length, info.length
    raise InputError(
        f"{info.url} does not say how long a sequence it serves; give lengths (`lengths`)"
    )


def _check_length(info: ServerInfo, lengths: Sequence[int]) -> None:
    if info.length is not None and max(lengths) > info.length:
        raise InvalidValue(
            "lengths",
            max(lengths),
            f"{info.url} serves {info.length:,} tokens",
            "start it with a longer context, or give shorter lengths",
        )


def _dtype(info: ServerInfo) -> str:
    """The type of the weights, where the server says it."""
    names = ("ftype", "dtype", "quantization_level")
    told = (info.revealed.get(name) for name in names)
    return next((value for value in told if isinstance(value, str)), "unknown dtype")


def _original(follows: ContextPlan | None, own: Fingerprint | None, lengths: Sequence[int]) -> int:
    if follows is not None:
        return follows.original_length
    return own.original_length if own is not None else max(lengths)


def subject_of(weights: str, follows: ContextPlan) -> Subject:
    """Whose answers they are: these weights under this plan, as they are served."""
    method = follows.provenance.get("methods") or follows.longest(follows.main_layer).method
    plain = method in ("plain", AS_IT_IS)
    return Subject(weights[:16], follows.id, AS_SERVED if plain else f"{method} {AS_SERVED}")


def _subject(info: ServerInfo, follows: ContextPlan | None, own: Fingerprint | None) -> Subject:
    """A server stands for the weights, which it does not show."""
    text = json.dumps(info.to_json(), sort_keys=True)
    weights = hashlib.sha256(text.encode()).hexdigest()
    if follows is not None:
        return subject_of(weights, follows)
    if own is not None:
        return Subject(weights[:16], own.plan_id, f"{own.method} {AS_SERVED}")
    return Subject(weights[:16], "unknown", AS_SERVED)


def _made(
    model: Model,
    plan: ContextPlan | None,
    documents: Sequence[Document],
    seed: int,
    dtype: str,
    device: str,
    allow_download: bool,
    progress: Progress,
) -> Fingerprint:
    from ropewalk.evaluation.served import reference
    from ropewalk.models.load import load

    loaded = load(model, dtype=dtype, device=device, allow_download=allow_download)
    return reference.fingerprint(loaded, plan, documents, seed, share(progress, "fingerprint"))


def _verdict(directory: RunDirectory | None) -> Verdict | None:
    """What a run came to that goes on here."""
    if directory is None or not (directory.path / VERDICT).exists():
        return None
    file = directory.path / VERDICT
    return Verdict.from_json(read_json(file), f"{file}: ")


def _check_canary(server: Server, tokens: Sequence[int], directory: RunDirectory) -> None:
    """Refuse a server that answers otherwise than when the run began, whatever it calls itself."""
    from ropewalk.evaluation.served.server import ChangedModel

    top = server.complete(tokens, count=1, top=True).top
    if top is None:
        return
    file = directory.path / CANARY
    if not file.exists():
        write_atomically(file, json.dumps({"top": [list(each) for each in top]}) + "\n")
        return
    value = read_json(file)
    was = dict(_pairs(value)) if isinstance(value, Mapping) else {}
    distance = _distance(was, dict(top))
    if distance > _CHANGED:
        raise ChangedModel(
            f"{server.client.where}: answers otherwise than when this run began, so its model or "
            "settings changed; what was measured before is kept: serve the former model again and "
            "run the same command, or begin another run"
        )


def _pairs(value: Mapping[str, Any]) -> list[tuple[int, float]]:
    try:
        return [(int(token), float(number)) for token, number in value["top"]]
    except (KeyError, TypeError, ValueError, OverflowError):
        return []


def _distance(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    tokens = set(first) & set(second)
    roots = [np.exp([x[t] / 2 for t in tokens]) if tokens else np.zeros(0) for x in (first, second)]
    apart = sum(np.exp(x[t]) for x in (first, second) for t in set(x) - tokens)
    return float(((roots[0] - roots[1]) ** 2).sum() + apart / 2)
