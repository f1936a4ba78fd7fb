"""A planned model as one GGUF file for llama.cpp, run there for real before it is called done.

How a plan is said there stands in gguf/settings.py, and what a model type needs besides in
gguf/families. Kept initial positions,
log-n and a change of factors with the length are refused by name.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ropewalk.agreement import Agreement
from ropewalk.confined import confined
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed
from ropewalk.exporting import gate
from ropewalk.exporting.exported import Exported, NotTheSame, modelfile
from ropewalk.exporting.staging import staged
from ropewalk.exporting.tokens import PROBE, first_difference
from ropewalk.gguf import llama_cpp_run, provenance
from ropewalk.gguf.families import check_reaches, family, rotation_of
from ropewalk.gguf.llama_cpp_run import CannotLoad, LogProbabilities, RunningLlamaCpp, reading
from ropewalk.gguf.model import GGUFModel, check_installed
from ropewalk.gguf.sentencepiece import OTHER_SPACES
from ropewalk.gguf.settings import only_schedule
from ropewalk.gguf.tokenizer import GGUFTokenizer
from ropewalk.gguf.weights import rounded
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import ConfigReader, present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import load, load_stock_config, load_tokenizer
from ropewalk.progress import Progress, Status, silent
from ropewalk.schedule import RotarySchedule

TARGET = "llama.cpp"
PACKED = ("mxfp4",)
"""Quantisations of transformers whose bytes GGML knows, in another order."""
# The largest difference of log-probabilities that counts as rounding. Measured on the bundled model
# over six plans (tests/exporting/test_llama_cpp.py), each about three times the worst seen:
TOLERANCES = {
    "F32": 1e-3,  # 3.7e-4: sums in another order, and angles in float32
    "F16": 0.05,  # 0.016: weights and what they multiply are rounded to 11 bits
    "BF16": 0.4,  # 0.12: the same, to 8 bits
    "Q8_0": 1.5,  # 0.54: the same, to 8 bits that share a scale by blocks of 32
}
# llama.cpp computes angles in float32, whose error grows with the position: 1e-3 per 1024 of them
# is again about three times what F32 shows up to 4090.
_TOLERANCE_PER_POSITION = 1e-3 / 1024
ROUNDING = 4
"""The largest difference allowed in rounded types, as a multiple of the largest change that
rounding causes in transformers."""
MEDIAN = 1.5
"""The same for medians."""
_CHOOSING = (".router", ".gate")
"""The modules that choose among experts, which a file has in F32."""
BEYOND = 500
"""The number of positions beyond the trained length that are compared."""
MOST_TOKENS = 2048
"""The longest text on which it is run, unless a CPU reads a longer one in under a minute."""
_FARTHEST, _BEARABLE = 4 * MOST_TOKENS, 10**12
"""The longest such text, and its tokens times the parameters of the model at most."""
_WITHIN = 12
"""The number of positions before the trained length's end that are compared."""
_SEED = 8
_CHECK = "run `ropewalk verify` on the model's folder"
_VERIFY = "run `ropewalk verify` on it"


def opened(source: str | Path) -> Checkpoint:
    """The weights of a folder, some of which may be packed."""
    return Checkpoint.open(str(source), packed=PACKED)


def export(
    source: str | Path,
    plan: ContextPlan,
    out: Path,
    *,
    dtype: str = "F32",
    overwrite: bool = False,
    progress: Progress = silent,
) -> Exported:
    """Write one GGUF file that makes llama.cpp follow the plan, and compare before it is there."""
    # The plan in the model's architecture; refusals come before anything is written.
    check_installed()
    checkpoint = opened(source)
    reader = ConfigReader(checkpoint.config)
    kind = family(reader.model_type, reader.outer_type)
    schedule = _schedule(checkpoint, plan)
    whole = load_stock_config(checkpoint.folder)
    config, tokenizer = whole.get_text_config(), load_tokenizer(checkpoint.folder)
    rotation = rotation_of(kind, plan)
    model = GGUFModel(
        checkpoint,
        config=config,
        rotation=rotation,
        length=plan.target_length,
        original_length=schedule.geometry.original_length,
        dtype=dtype,
    )
    # Warnings: parts that the file lacks, or has in another way.
    words = GGUFTokenizer.read(tokenizer, model.config.vocab_size)
    warnings = [*words.warnings]
    if config is not whole:
        warnings.append(
            "only the language model is written: llama.cpp takes what reads pictures or sound from "
            "a second file (mmproj)"
        )
    if rotation.architecture.name != kind.architectures[0]:
        warnings.append(
            f"saved as architecture {rotation.architecture.name}, which computes "
            f"{config.model_type} too"
        )
    exported = Exported(
        target=TARGET,
        path=Path(out),
        agreement=None,
        warnings=tuple(warnings),
        load=f"llama-cli -m {shlex.quote(str(out))} -c {plan.target_length}",
        elsewhere=modelfile(str(out), plan.target_length),
    )
    # Written under a temporary name, run, and compared before it gets its own.
    with staged(
        out, needs_bytes=model.bytes(), overwrite=overwrite, sources=(checkpoint.folder,)
    ) as path:
        progress(Status("export", 0.0, "writing"))
        model.write(path, plan, words)
        provenance.seal(path)
        if not llama_cpp_run.available():
            return exported.with_warnings(
                (f"written, and not run: {llama_cpp_run.absent()}; then {_VERIFY}",)
            )
        try:
            with gate.named_as(out, path):
                agreement = _agreement(model, plan, path, words, progress)
        except CannotLoad as error:
            reason = f"llama.cpp cannot load it: {error.reason}"
            raise GateFailed(f"{out} was not written", [reason, _CHECK]) from None
        exported = replace(exported, agreement=agreement)
        if not agreement.passed:
            raise NotTheSame(exported, agreement)
    return exported


def tolerance(dtype: str, length: int) -> float:
    """The tolerance of log-probabilities by rounding alone, in sequences of this length."""
    return max(TOLERANCES[dtype], _TOLERANCE_PER_POSITION * length)


def _schedule(checkpoint: Checkpoint, plan: ContextPlan) -> RotarySchedule:
    """The one schedule of a plan that this model can follow in llama.cpp."""
    plan.check_pairs(present_plan(checkpoint.config))
    check_reaches(plan)
    return only_schedule(plan)


def _agreement(
    model: GGUFModel, plan: ContextPlan, path: Path, words: GGUFTokenizer, progress: Progress
) -> Agreement:
    """Run both on the same tokens: log-probabilities of llama.cpp's likeliest tokens."""
    loaded = load(str(model.checkpoint.folder), dtype="float32", device="cpu")
    length = _compared_length(model.original_length, plan.target_length, loaded.model)
    start = max(0, length - BEYOND - _WITHIN)
    vocabulary = len(loaded.tokenizer)
    tokens = np.random.default_rng(_SEED).integers(vocabulary, size=length)
    with llama_cpp_run.running(path, length=length + 1) as llama:
        _check_tokenizer(loaded.tokenizer, llama, words)
        report = reading(progress, 0.0, "the exported file", length, 0.7)
        said = llama.log_probabilities(tokens.tolist(), start=start, report=report)
    progress(Status("compare", 0.7, "transformers reads the same under the plan"))
    exact = _planned(loaded.model, plan, tokens, said)
    again = partial(_planned, loaded.model, plan, tokens, said, check=False)
    usual = max(tolerance(model.rounded, length), model.family.tolerance)
    agreement = _compared(exact, said, usual)
    if model.rounded != "F32":
        return _with_rounding(agreement, model, loaded.model, exact, said, again)

    def moved() -> float:  # where experts are chosen, the last place may choose another one
        with gate.rounded_otherwise(loaded.model):
            return float(np.abs(again() - exact).max())

    allowed, before = gate.widened(agreement.max_difference, usual, moved)
    return replace(agreement, tolerance=allowed, usual=before)


def _compared_length(original: int, target: int, model: Any) -> int:
    """The length of the text: beyond the original one if a CPU reads that in under a minute."""
    reach = min(original + BEYOND, target - 1)  # llama.cpp keeps one to write
    parameters = sum(weight.numel() for weight in model.parameters())
    is_bearable = reach <= _FARTHEST and reach * parameters <= _BEARABLE
    return reach if is_bearable else min(reach, MOST_TOKENS)


def _with_rounding(
    agreement: Agreement,
    source: GGUFModel,
    model: Any,
    exact: NDArray[np.float64],
    said: LogProbabilities,
    again: Callable[[], NDArray[np.float64]],
) -> Agreement:
    """The same compared with the model whose weights are rounded as in the file, and stay so.

    How far rounding moves the model is measured in transformers alone, so that a file that is
    written wrongly does not excuse itself.
    """
    _round_weights(model, source)
    ours = again()
    with _rounding_inputs(model, source.rounded):
        moved = np.abs(again() - exact)
    least = max(TOLERANCES["F32"], source.family.tolerance)
    agreement = replace(
        agreement,
        median_difference=float(np.median(np.abs(ours - said.values))),
        median_tolerance=least + MEDIAN * float(np.median(moved)),
    )
    if agreement.max_difference <= agreement.tolerance:
        return agreement
    allowed = math.inf if source.experts else ROUNDING * float(moved.max())
    if allowed <= agreement.tolerance:
        return agreement
    return replace(agreement, tolerance=allowed, usual=agreement.tolerance)


def _round_weights(model: Any, source: GGUFModel) -> None:
    """Round the matrices that the file rounds, by the rows in which they stand there."""
    if source.dtype == "F32":
        return
    for path, module in model.named_modules():
        if path.endswith(_CHOOSING) or (source.packed and path.endswith(".experts")):
            continue
        turned = getattr(module, "is_transposed", False)  # of experts; the file has rows of outputs
        for name, weight in module.named_parameters(recurse=False):
            if weight.dim() < 2 or name.endswith("bias"):
                continue
            values = weight.detach().mT.contiguous() if turned else weight.detach()
            values = rounded(values, source.dtype)
            weight.data.copy_(values.mT if turned else values)


@contextmanager
def _rounding_inputs(model: Any, kind: str) -> Iterator[None]:
    """Round the inputs of weights to a type, as llama.cpp does."""

    def round_first(module: Any, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        first, *others = inputs
        return (rounded(first, kind), *others)

    with ExitStack() as stack:
        for module in model.modules():
            multiplies = any(weight.dim() > 1 for weight in module.parameters(recurse=False))
            if multiplies and not isinstance(module, torch.nn.Embedding):
                stack.callback(module.register_forward_pre_hook(round_first).remove)
        yield


def beside(
    model: Any, plan: ContextPlan, tokens: NDArray[np.int64], said: LogProbabilities, allowed: float
) -> Agreement:
    """Compare llama.cpp's answers with a model under the plan.

    Without the check of `install`: weights of any origin are compared, also those of a layer that
    attends by nothing.
    """
    return _compared(_planned(model, plan, tokens, said, check=False), said, allowed)


def _compared(planned: NDArray[np.float64], said: LogProbabilities, tolerance: float) -> Agreement:
    return Agreement(
        runtime=llama_cpp_run.runtime(),
        quantity="log-probabilities",
        max_difference=float(np.abs(planned - said.values).max()),
        tolerance=tolerance,
        tokens=len(planned),
        length=said.positions[-1] + 1,
    )


def difference(
    model: Any, plan: ContextPlan, tokens: NDArray[np.int64], said: LogProbabilities
) -> float:
    """The largest distance of llama.cpp's answers from a model under the plan."""
    return float(np.abs(_planned(model, plan, tokens, said, check=False) - said.values).max())


def _planned(
    model: Any,
    plan: ContextPlan,
    tokens: NDArray[np.int64],
    said: LogProbabilities,
    *,
    check: bool = True,
) -> NDArray[np.float64]:
    """The log-probabilities of the tokens that llama.cpp named, by a model under the plan."""
    with torch.inference_mode(), applied(model, plan, exact_angles=True, check=check):
        logits = model(
            torch.from_numpy(tokens)[None],
            logits_to_keep=torch.tensor(said.positions),
            use_cache=False,
        ).logits[0]
    chosen: NDArray[np.float64] = (
        logits.double().log_softmax(-1).gather(1, torch.from_numpy(said.tokens)).numpy()
    )
    return chosen


def _check_tokenizer(tokenizer: Any, llama: RunningLlamaCpp, words: GGUFTokenizer) -> None:
    """Raise GateFailed if a text becomes other tokens, for more than was warned of."""
    text, tokenizer = PROBE, confined(tokenizer)
    if OTHER_SPACES not in words.warnings:
        text += "".join(f"a {token} b{token}\n" for token in tokenizer.all_special_tokens)
    ours, theirs = tokenizer(text)["input_ids"], llama.tokenize(text)
    if ours != theirs:
        at = first_difference(ours, theirs)
        raise GateFailed(
            f"export to {TARGET}",
            [
                f"llama.cpp tokenizes another way than transformers: {theirs[at : at + 5]} for "
                f"{ours[at : at + 5]}, behind {tokenizer.decode(ours[max(0, at - 8) : at])!r}"
            ],
        )
