"""A planned model as one GGUF file for llama.cpp, run there for real before it is called done.

What llama.cpp can say of a plan, the plainest that is exact:

    a new base (NTK, ABF)       rope.freq_base
    all pairs alike (linear)    rope.scaling.type = linear
    any other λ                 rope_freqs.weight = λ, with no scaling type
    m                           rope.scaling.attn_factor
    query scales                the weights of the query projection

Any λ goes to the architecture `llama`, as which Qwen2 is saved then. YaRN, llama3 and LongRoPE are
such a λ too: what llama.cpp makes of their own keys differs from what transformers does, or is
dropped. Architectures that take no λ (gguf/architectures.py) have YaRN with its defaults, by keys.
Kept initial positions, log-n and a change of factors with the length are refused by name.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ropewalk.context_plan import FULL_ATTENTION, ContextPlan
from ropewalk.errors import GateFailed, InvalidValue, Unsupported
from ropewalk.exporting import gate
from ropewalk.exporting.configs import modelfile
from ropewalk.exporting.folding import fold
from ropewalk.exporting.parity import Exported, NotTheSame, Parity
from ropewalk.exporting.staging import staged
from ropewalk.exporting.tokens import PROBE
from ropewalk.gguf import carried, llama_cpp_run
from ropewalk.gguf.architectures import architecture
from ropewalk.gguf.llama_cpp_run import LlamaCpp, LogProbabilities
from ropewalk.gguf.model import GGUFModel, check_installed
from ropewalk.gguf.rotation import FAMILIES, rope
from ropewalk.gguf.sentencepiece import OTHER_SPACES
from ropewalk.gguf.tokenizer import GGUFTokenizer
from ropewalk.models.checkpoint import Checkpoint
from ropewalk.models.config import present_plan
from ropewalk.models.install import applied
from ropewalk.models.load import load, load_tokenizer
from ropewalk.progress import Progress, Status, silent
from ropewalk.schedule import RotarySchedule

TARGET = "llama.cpp"
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
BEYOND = 500
"""How many positions beyond the trained length are compared."""
_WITHIN = 12
"""And how many before its end."""
_SEED = 8
_VERIFY = "run `ropewalk verify` on it"


def export(
    source: str | Path,
    plan: ContextPlan,
    out: Path,
    *,
    dtype: str = "F32",
    overwrite: bool = False,
    check: bool = True,
    progress: Progress = silent,
) -> Exported:
    """Write one GGUF file that makes llama.cpp follow the plan, and compare before it is there.

    `check=False` leaves out the comparison, which holds the model twice in memory.
    """
    check_installed()
    checkpoint = Checkpoint.open(str(source))
    schedule = _schedule(checkpoint, plan)
    folded = None if plan.query_scales is None else fold(checkpoint, plan, attention=False)
    tokenizer, config = load_tokenizer(checkpoint.folder), _config(checkpoint)
    said = rope(schedule)
    if config.model_type in FAMILIES and not _takes_factors(config.model_type):
        said = said.without_factors(schedule)
    model = GGUFModel(
        checkpoint,
        config=config,
        rope=said,
        length=plan.target_length,
        original_length=schedule.geometry.original_length,
        dtype=dtype,
        rewrite=None if folded is None else folded.rewrite,
    )
    words = GGUFTokenizer.read(tokenizer, model.config.vocab_size)
    warnings = [*(() if folded is None else folded.told), *words.warnings]
    if model.architecture == "llama" != model.config.model_type:
        warnings.append(
            f"saved as architecture {model.architecture}, which computes {model.config.model_type} "
            "too"
        )
    exported = Exported(
        target=TARGET,
        path=Path(out),
        parity=None,
        warnings=tuple(warnings),
        load=f"llama-cli -m {shlex.quote(str(out))} -c {plan.target_length}",
        elsewhere=modelfile(str(out), plan.target_length),
    )
    with staged(
        out, needs_bytes=model.bytes(), overwrite=overwrite, sources=(checkpoint.folder,)
    ) as path:
        progress(Status("export", 0.0, "writing"))
        model.write(path, plan if folded is None else folded.plan, words)
        carried.seal(path)
        if not check:
            return exported.with_warnings((f"not compared, as asked: {_VERIFY}",))
        if not llama_cpp_run.available():
            return exported.with_warnings(
                (f"not compared: {llama_cpp_run.absent()}; then {_VERIFY}",)
            )
        progress(Status("export", 0.4, "running llama.cpp and the planned model"))
        with gate.named_as(out, path):
            parity = _parity(model, plan, path, words)
        exported = replace(exported, parity=parity)
        if not parity.passed:
            raise NotTheSame(exported, parity)
    return exported


def _takes_factors(model_type: str) -> bool:
    """Whether the architecture that computes it takes factors; Qwen2's are computed by Llama's."""
    return model_type in ("mistral", "qwen2") or architecture(model_type).honours_factors


def tolerance(dtype: str, length: int) -> float:
    """How far log-probabilities may be off by rounding alone, in sequences of this length."""
    return max(TOLERANCES[dtype], _TOLERANCE_PER_POSITION * length)


def _schedule(checkpoint: Checkpoint, plan: ContextPlan) -> RotarySchedule:
    """The one schedule of a plan that this model can follow in llama.cpp."""
    present = present_plan(checkpoint.config)
    if set(plan.schedules) != set(present.schedules):
        raise InvalidValue(
            "plan.schedules",
            sorted(plan.schedules),
            f"this model has the layer types {sorted(present.schedules)}",
            "create the plan from this model's config",
        )
    if set(plan.schedules) != {FULL_ATTENTION}:
        raise Unsupported(
            f"layer types {sorted(plan.schedules)}: the export to GGUF writes models whose layers "
            "all rotate alike"
        )
    (first, *others) = plan.steps()
    if others:
        raise Unsupported(
            "llama.cpp does not change factors with the length of a sequence, and this plan has "
            f"steps up to {', '.join(str(step.up_to_length) for step in plan.steps())}; plan with "
            "one schedule"
        )
    pairs = present.longest().geometry.pairs
    if first.schedule.geometry.pairs != pairs:
        raise InvalidValue(
            "plan.schedules.full_attention",
            f"{first.schedule.geometry.pairs} pairs",
            f"the heads of this model have {pairs} rotary pairs",
            "create the plan from this model's config",
        )
    return first.schedule


def _config(checkpoint: Checkpoint) -> Any:
    """transformers' config object: with what its class fills in."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(
        checkpoint.folder, local_files_only=True, trust_remote_code=False
    )


def _parity(model: GGUFModel, plan: ContextPlan, path: Path, words: GGUFTokenizer) -> Parity:
    """Run both on the same tokens: log-probabilities, of what llama.cpp holds for likeliest."""
    loaded = load(str(model.checkpoint.folder), dtype="float32", device="cpu")
    length = min(model.original_length + BEYOND, plan.target_length)
    start = max(0, length - BEYOND - _WITHIN)
    vocabulary = len(loaded.tokenizer)
    tokens = np.random.default_rng(_SEED).integers(vocabulary, size=length)
    with llama_cpp_run.running(path, length=length + 1, threads=torch.get_num_threads()) as llama:
        _check_tokenizer(loaded.tokenizer, llama, words)
        said = llama.log_probabilities(tokens.tolist(), start=start)
    return beside(loaded.model, plan, tokens, said, model.dtype)


def beside(
    model: Any,
    plan: ContextPlan,
    tokens: NDArray[np.int64],
    said: LogProbabilities,
    dtype: str,
    *,
    check: bool = True,
) -> Parity:
    """What llama.cpp said of weights stored in a type, beside a model that follows the plan.

    `check` is that of `install`. It asks for weights whose attention can be seen to turn.
    """
    return Parity(
        runtime=llama_cpp_run.runtime(),
        quantity="log-probabilities",
        max_difference=difference(model, plan, tokens, said, check=check),
        tolerance=tolerance(dtype, len(tokens)),
        tokens=len(tokens) - said.start,
    )


def difference(
    model: Any,
    plan: ContextPlan,
    tokens: NDArray[np.int64],
    said: LogProbabilities,
    *,
    check: bool = True,
) -> float:
    """How far what llama.cpp said is from a model that follows the plan, at most."""
    count = len(tokens) - said.start
    with torch.inference_mode(), applied(model, plan, exact_angles=True, check=check):
        logits = model(
            torch.from_numpy(tokens)[None], logits_to_keep=count, use_cache=False
        ).logits[0]
    planned = logits.double().log_softmax(-1).gather(1, torch.from_numpy(said.tokens)).numpy()
    return float(np.abs(planned - said.values).max())


def _check_tokenizer(tokenizer: Any, llama: LlamaCpp, words: GGUFTokenizer) -> None:
    """Raise GateFailed where a text becomes other tokens, for more than was warned of."""
    text = PROBE
    if OTHER_SPACES not in words.warnings:
        text += "".join(f"a {token} b{token}\n" for token in tokenizer.all_special_tokens)
    ours, theirs = tokenizer(text)["input_ids"], llama.tokenize(text)
    if ours != theirs:
        at = next(
            (i for i, (one, other) in enumerate(zip(ours, theirs, strict=False)) if one != other),
            min(len(ours), len(theirs)),
        )
        raise GateFailed(
            f"export to {TARGET}",
            [
                f"llama.cpp tokenizes another way than transformers: {theirs[at : at + 5]} for "
                f"{ours[at : at + 5]}, behind {tokenizer.decode(ours[max(0, at - 8) : at])!r}"
            ],
        )
