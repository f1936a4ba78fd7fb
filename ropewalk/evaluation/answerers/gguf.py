"""A GGUF file: a private llama.cpp runs it under each of the conditions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.evaluation.answerers.server import TASKS
from ropewalk.evaluation.conditions import (
    Condition,
    check_methods,
    check_reach,
    conditions_of,
    default_lengths,
)
from ropewalk.evaluation.in_llama_cpp import FileInLlamaCpp, InLlamaCpp, check_own_types
from ropewalk.evaluation.runner import Evaluation
from ropewalk.gguf.llama_cpp_run import CACHES
from ropewalk.models.source import resolve, stated_assumptions
from ropewalk.progress import share
from ropewalk.run_directory import check_run_place

if TYPE_CHECKING:
    from ropewalk.evaluation.answerers import Asked

PLACE = 2


def claims(asked: Asked) -> bool:
    model = asked.model
    known = isinstance(model, str | Path) and asked.server is None
    return known and resolve(model, allow_download=asked.allow_download).kind == "GGUF file"


@contextmanager
def opened(asked: Asked) -> Iterator[Evaluation]:
    """The file in a llama.cpp of its own, if it states all that llama.cpp needs."""
    asked.refuse(
        "tokenizer model_name fingerprint concurrency timeout",
        "{name} is for a server, and a GGUF file is served by a llama.cpp of its own; leave {name} "
        "out, or serve the file and give its address (`server`)",
    )
    check_own_types(asked.dtype, asked.device)
    check_methods(asked.methods, asked.to)
    source = resolve(asked.model)
    with FileInLlamaCpp(source, asked.engine, share(asked.progress, "reading the file")) as file:
        if asked.run is not None:
            check_run_place(asked.run, file.files)
        stated_assumptions(source, asked.notice, strict=asked.strict)
        present = file.present_plan
        conditions = conditions_of(present, asked.methods, asked.plans, asked.to)

        def lengths() -> Sequence[int]:
            return default_lengths(present.target_length, conditions, asked.to)

        settings = asked.settings(TASKS, "generate", lengths)
        check_reach(conditions, settings.lengths)
        each = with_caches(conditions, asked.cache)
        settings = asked.within_budget(settings, len(each))
        answerer = InLlamaCpp(file, each, settings, asked.notice)
        answerer.encoder = asked.in_chat(answerer.encoder)
        yield Evaluation(answerer, asked.documents, settings, asked.notice)


def with_caches(
    conditions: Sequence[Condition], caches: Sequence[str]
) -> list[tuple[Condition, str]]:
    """Each condition with each type of cache; the label names all but llama.cpp's own, f16."""
    return [
        (
            each if cache == CACHES[0] else each._replace(method=f"{each.method}, {cache} cache"),
            cache,
        )
        for each in conditions
        for cache in caches
    ]
