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


def claims(call: Asked) -> bool:
    model = call.model
    is_file = isinstance(model, str | Path) and call.server is None
    return is_file and resolve(model, allow_download=call.how.allow_download).kind == "GGUF file"


@contextmanager
def opened(call: Asked) -> Iterator[Evaluation]:
    """The file in a llama.cpp of its own, if it states all that llama.cpp needs."""
    call.refuse(
        "tokenizer model_name fingerprint concurrency timeout",
        "{name} is for a server, and a GGUF file is served by a llama.cpp of its own; leave {name} "
        "out, or serve the file and give its address (`server`)",
    )
    check_own_types(call.how)
    check_methods(call.methods, call.to)
    source = resolve(call.model)
    with FileInLlamaCpp(source, call.engine, share(call.progress, "reading the file")) as file:
        if call.run is not None:
            check_run_place(call.run, file.files)
        stated_assumptions(source, call.notice, strict=call.strict)
        present = file.present_plan
        conditions = conditions_of(present, call.methods, call.plans, call.to)

        def lengths() -> Sequence[int]:
            return default_lengths(present.target_length, conditions, call.to)

        settings = call.settings(TASKS, "generate", lengths)
        check_reach(conditions, settings.lengths)
        each = with_caches(conditions, call.cache)
        settings = call.within_budget(settings, len(each))
        answerer = InLlamaCpp(file, each, settings, call.notice)
        answerer.encoder = call.in_chat(answerer.encoder)
        yield Evaluation(answerer, call.documents, settings, call.notice)


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
