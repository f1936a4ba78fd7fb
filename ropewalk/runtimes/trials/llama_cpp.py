"""A GGUF file run in the real llama.cpp, with and without each of its rotary settings.

Whether a setting takes effect is seen, not believed: a copy of the file in which nothing but this
setting is neutralised must give other log-probabilities. Where it gives the same, the setting is a
silent no-op in this llama.cpp. And where the file's weights can be put into a stock transformers
model, that model with the schedule installed must give the same log-probabilities as llama.cpp.

- `no-effect`: llama.cpp computes the same result without the setting
- `model-differs`: with its weights loaded, the model does not follow the plan
"""

from __future__ import annotations

import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ropewalk.agreement import Agreement
from ropewalk.context_plan import FULL_ATTENTION, ContextPlan, PlanStep
from ropewalk.errors import RopewalkError, Unsupported
from ropewalk.extras import required_by
from ropewalk.gguf import llama_cpp_run
from ropewalk.gguf.header import F32, FREQUENCIES, LONG, GGUFHeader
from ropewalk.runtimes.finding import Finding
from ropewalk.runtimes.reading import LLAMA_CPP
from ropewalk.runtimes.trials import Trial, differs
from ropewalk.schedule import FloatArray, RotarySchedule

MOST_BYTES = 2**30
"""The largest file that is copied and run for every setting; a larger one is only loaded."""
TOKENS = 64
# What leaves a model as if the setting were not there.
_NEUTRAL = {
    "rope.scaling.attn_factor": 1.0,
    "rope.scaling.factor": 1.0,
    "rope.freq_base": None,  # another base, whatever it is
}


def tried(header: GGUFHeader, plan: ContextPlan | None, *, wrong: bool) -> Trial:
    """Run a file; unless it is wrong already, compare it with its own weights under a plan."""
    findings = list(without_settings(header))
    wrong = wrong or any(finding.wrong for finding in findings)
    ran: tuple[str, ...] = (f"run in {llama_cpp_run.runtime()}",)
    agreement = None
    if plan is not None and not wrong:  # what is named already would only be said again
        try:
            with required_by("its own model"):
                agreement = compared(header, plan.longest())
        except Unsupported as error:
            ran = (f"not compared with its weights in transformers: {error}", *ran)
        else:
            findings += [] if agreement.passed else [differs(LLAMA_CPP, agreement)]
            ran = ()
    loaded = "" if wrong else "loaded by llama.cpp"
    return Trial(LLAMA_CPP, agreement, tuple(findings), ran, loaded)


def without_settings(header: GGUFHeader) -> Iterator[Finding]:
    """Load the file, and neutralise its settings one by one."""
    try:
        count = min(TOKENS, _longest(header))
        whole = _log_probabilities(header.path, count)
    except RopewalkError as error:
        yield Finding(
            "refused",
            (LLAMA_CPP,),
            str(error),
            "it does not load",
            "convert or export the model again",
        )
        return
    if not np.isfinite(whole).all():
        yield Finding(
            "model-differs",
            (LLAMA_CPP,),
            "llama.cpp computes log-probabilities that are not numbers",
            "every answer is garbage",
            "convert or export the model again, with more precise weights",
        )
    if _bytes(header) > MOST_BYTES:
        return
    for name, part, start, content in _settings(header):
        with tempfile.TemporaryDirectory(prefix="ropewalk-verify-") as room:
            for path in _files(header):  # all parts of a split model, under their names
                shutil.copyfile(path, Path(room) / path.name)
            copy = Path(room) / header.path.name
            with (Path(room) / part.name).open("r+b") as file:
                file.seek(start)
                file.write(content)
            without = _log_probabilities(copy, count)
        if np.array_equal(whole, without):
            yield Finding(
                "no-effect",
                (LLAMA_CPP,),
                f"{name} changes nothing: llama.cpp computes the same without it",
                "the setting has no effect on the model",
                "export the plan in a way that llama.cpp honours (ropewalk export does)",
            )


def compared(header: GGUFHeader, schedule: RotarySchedule) -> Agreement:
    """llama.cpp against the file's own weights under this schedule, beyond the trained length."""
    from ropewalk.exporting import llama_cpp
    from ropewalk.exporting.gguf_file import COMPARED_WITH_WEIGHTS
    from ropewalk.gguf.weights import model_of, stored_type

    stored = stored_type(header)
    if stored not in llama_cpp.TOLERANCES:
        raise Unsupported(
            f"ropewalk does not know the rounding error of weights stored as {stored}"
        )
    if _bytes(header) > MOST_BYTES:
        raise Unsupported("it is too large to compute a second time")
    model = model_of(header)
    plan = ContextPlan(header.path.name, {FULL_ATTENTION: (PlanStep(schedule.length, schedule),)})
    vocabulary = int(model.state_dict()["model.embed_tokens.weight"].shape[0])
    most = min(schedule.geometry.original_length + llama_cpp.BEYOND, llama_cpp.MOST_TOKENS)
    length = min(most, schedule.length, _longest(header))
    step = max(1, length // COMPARED_WITH_WEIGHTS)
    tokens = np.random.default_rng(0).integers(vocabulary, size=length)
    said = llama_cpp_run.log_probabilities(
        header.path, tokens.tolist(), start=(length - 1) % step, step=step
    )
    return llama_cpp.beside(model, plan, tokens, said, llama_cpp.tolerance(stored, length))


def _settings(header: GGUFHeader) -> Iterator[tuple[str, Path, int, bytes]]:
    """Every rotary setting that is not neutral, and the bytes of a file that undo it."""
    for key, neutral in _NEUTRAL.items():
        value, place = header.number(key), header.places.get(f"{header.architecture}.{key}")
        if value is None or place is None or value == neutral:
            continue
        start, form = place
        yield key, header.path, start, struct.pack(form, value * 2 if neutral is None else neutral)
    for name in (FREQUENCIES, LONG):
        tensor = header.tensors.get(name)
        if tensor is None or tensor.kind != F32:
            continue
        factors = header.floats(name)
        if np.any(factors != 1):
            neutral_factors = np.ones(factors.size, dtype="<f4").tobytes()
            yield name, tensor.path or header.path, tensor.start, neutral_factors


def _files(header: GGUFHeader) -> list[Path]:
    return sorted({header.path, *(p.path for p in header.tensors.values() if p.path is not None)})


def _bytes(header: GGUFHeader) -> int:
    return sum(path.stat().st_size for path in _files(header))


def _longest(header: GGUFHeader) -> int:
    """The longest sequence after which llama.cpp still has room for one token more."""
    return max(1, int(header.number("context_length") or TOKENS) - 1)


def _log_probabilities(path: Path, count: int) -> FloatArray:
    tokens = [3 + i % 29 for i in range(count)]
    result = llama_cpp_run.log_probabilities(path, tokens, start=count // 2, top=8)
    return result.values
