"""The gate of an export: stock transformers must compute the planned model.

The exported folder is loaded in a fresh process that knows nothing of ropewalk, and asked for the
logits of sequences below and beyond the trained length, at once and through the cache. The source
model with the plan installed answers the same, and two things are compared:

- frequencies: what the stock model turns by, with the plan's in float64. Stock code computes them
  in float32, and may be off by the rounding of that, which grows with the base and the factors;
- logits: with those of the planned model turned by the very float32 frequencies that the first
  check has passed. At position p, one last bit of a frequency is an angle of p · 2⁻²⁴, so without
  this the rounding of a power would be all that a comparison at long lengths could see.

Both models run in float32. Where the export rounds weights, the planned model's are rounded too.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from ropewalk.agreement import Agreement
from ropewalk.confined import confined
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import HELD_OUT, read_documents
from ropewalk.errors import GateFailed, RopewalkError, Unsupported
from ropewalk.exporting import fresh_process, stock_run
from ropewalk.models.install import applied, install
from ropewalk.models.load import load_stock_config, load_tokenizer
from ropewalk.models.logits import check_finite
from ropewalk.models.stock_config import is_dynamic
from ropewalk.schedule import FloatArray, RotarySchedule

TOLERANCE = 1e-5
"""The tolerance of logits in float32, in parts of their standard deviation if that is above 1: the
rounding of all that a model computes grows with what it computes."""
ROUNDS_TO = 100
"""If logits differ by up to this many times more, the rounding is measured (`rounding`): experts
are chosen by a comparison, and a model with large weights repeats each rounding larger."""
OTHER_ROUNDING = 4
"""The distance allowed between two right models, as a multiple of that under `rounding`: there each
output is moved once, and two implementations round a product and a sum each."""
CONTIGUOUS = 768
"""The longest sequence without gaps: beyond a trained length of 512, and bearable on a CPU."""
SPREAD = 64
"""The positions of the sequence that reaches the target with gaps."""
_SCRIPT = Path(stock_run.__file__)
_FLOAT32 = float(np.finfo(np.float32).eps)


@dataclass(frozen=True)
class TokenSequence:
    """Tokens at positions, computed at once, or in pieces through the cache."""

    ids: tuple[int, ...]
    positions: tuple[int, ...]
    cuts: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.positions[-1] + 1


@dataclass(frozen=True)
class StockAnswer:
    """Stock transformers' answer to one sequence."""

    logits: Tensor
    frequencies: Mapping[str, Tensor]
    """By the name of the buffer."""


@dataclass(frozen=True)
class Tokens:
    """Stock transformers' tokens of a text."""

    ids: tuple[int, ...] = ()
    error: str = ""
    """Why the tokenizer cannot be loaded."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Tokens:
        return cls(tuple(answer.get("ids", ())), str(answer.get("error", "")))


@dataclass(frozen=True)
class StockAnswers:
    """Stock transformers' answers about one folder."""

    answers: list[StockAnswer]
    """One for each sequence."""
    tokens: Tokens | None = None
    """The tokens of the text, if there was one."""


def sequences(plan: ContextPlan, ids: Sequence[int]) -> list[TokenSequence]:
    """The sequences to compute: short, long, and up to the plan's target; at once and cached."""
    original = min(s.schedule.geometry.original_length for s in _steps(plan))
    target = plan.target_length
    # Within and beyond the trained length without gaps, and to the target with gaps: a gap costs no
    # tokens, and the rotation sees positions only.
    short = _tokens_at(ids, range(min(original, target, CONTIGUOUS // 4)))
    long = _tokens_at(ids, range(min(target, CONTIGUOUS)))
    positions = _spread(target)
    for step in _steps(plan):  # stock code may switch schedules at the end of a step
        end = step.up_to_length
        positions |= {p for p in range(end - 2, end + 2) if 0 <= p < target}
    far = _tokens_at(ids, sorted(positions))
    # Through the cache: a prompt within the original length, single tokens across its end, and the
    # rest, since cached decoding may rotate by other rules than one forward.
    cached = []
    for whole in (long, far):
        inside = sum(p < original for p in whole.positions)
        first = max(1, min(inside, len(whole.ids) - 4) - 2)
        cuts = tuple(n for n in range(first, first + 5) if 0 < n < len(whole.ids))
        cached.append(replace(whole, cuts=cuts))
    return [short, long, far, *cached]


def to_compare(plan: ContextPlan, ids: Sequence[int]) -> list[TokenSequence]:
    """The sequences in which stock transformers must give the planned model's logits.

    Only where a sequence ends with a step of the ladder does dynamic NTK turn as the ladder says.
    Its base never shrinks again, so lengths rise.
    """
    if not is_dynamic(plan):
        return sequences(plan, ids)
    ends = sorted({step.up_to_length for step in _steps(plan)})
    return [_tokens_at(ids, sorted(_spread(end))) for end in ends]


def switches(plan: ContextPlan) -> bool:
    """True if stock code chooses among several schedules, by the longest position of a forward."""
    return any(len(steps) > 1 for steps in plan.schedules.values())


def probe_ids(folder: Path) -> list[int]:
    """Tokens of real text if the folder has a tokenizer, else any tokens."""
    # By its config class, since config.json may leave out a size that is the default.
    vocabulary = int(load_stock_config(folder).get_text_config().vocab_size)

    try:
        text = next(read_documents(HELD_OUT)).text[:20_000]
        ids = confined(load_tokenizer(folder))(text, add_special_tokens=False)["input_ids"]
    except Exception:  # each tokenizer class raises another error for missing files
        ids = []
    ids = [int(i) for i in ids if i < vocabulary]
    if len(ids) >= CONTIGUOUS:
        return ids[:CONTIGUOUS]
    # Any tokens will do: the gate compares two computations on the same ones.
    drawn = np.random.default_rng(0).integers(3, max(4, vocabulary), CONTIGUOUS)
    return [int(i) for i in drawn]


def ask_stock(
    jobs: Sequence[tuple[Path, Sequence[TokenSequence]]],
    dtype: torch.dtype = torch.float32,
    *,
    text: str = "",
) -> list[StockAnswers]:
    """The answers of stock transformers, in one fresh process for all folders.

    Where a text is given, the tokenizer of every folder is loaded too.
    """
    with tempfile.TemporaryDirectory(prefix="ropewalk-gate-") as folder_of_job:
        # The job and its answers travel as files: the process must import nothing of ropewalk,
        # which might patch the very transformers that is tested.
        job = {
            "threads": torch.get_num_threads(),
            "dtype": str(dtype).removeprefix("torch."),
            "answers": folder_of_job,
            "text": text,
            "models": [
                {"folder": str(Path(folder).resolve()), "sequences": [asdict(s) for s in batch]}
                for folder, batch in jobs
            ],
        }
        path = Path(folder_of_job) / "job.json"
        path.write_text(json.dumps(job), encoding="utf-8")
        process = fresh_process.run_script([str(_SCRIPT), str(path)])
        if process.returncode < 0:  # as Linux does when memory is short: no fault of the folder
            raise Unsupported("stock transformers was killed, as if memory is short; free some")
        if process.returncode:
            lines = process.stderr.strip().splitlines() or ["it said nothing"]
            raise GateFailed("stock transformers cannot run the export", [lines[-1]])
        return [
            StockAnswers(
                list(_answers(load_file(path.with_name(f"{n}.safetensors")), len(batch))),
                _tokens(path.with_name(f"{n}.tokens.json")),
            )
            for n, (_, batch) in enumerate(jobs)
        ]


@contextmanager
def named_as(out: str | Path, written: Path) -> Iterator[None]:
    """Name the export in errors as the user does: the hidden folder it is written to is removed."""
    try:
        yield
    except RopewalkError as error:
        text = str(error)
        for hidden in (written.resolve(), written):
            text = text.replace(str(hidden), str(out))
        error.args = (text,)
        raise


def agreement_with(
    model: Any, plan: ContextPlan, batch: Sequence[TokenSequence], answers: Sequence[StockAnswer]
) -> Agreement:
    """The agreement of the answers with the planned model; raises for other frequencies."""
    import transformers

    # Frequencies first: with others, logits would say nothing new. The planned model then takes
    # over the stock model's, so that their rounding is no part of the difference of logits.
    as_rounded = _with_frequencies(plan, batch, answers)
    differences, spreads = [], []
    for sequence, answer in zip(batch, answers, strict=True):
        logits = planned_logits(model, as_rounded, sequence)
        differences.append((logits - answer.logits).abs().max())
        spreads.append(logits.std())
    difference = float(torch.stack(differences).max())  # unlike Python's max, it keeps a NaN
    if not math.isfinite(difference):
        check_finite(model)  # names the weight that is no number
    # Just beyond the usual tolerance, the model's rounding is measured: some round more coarsely.
    tolerance = TOLERANCE * max(1.0, float(torch.stack(spreads).max()))
    tolerance, usual = widened(difference, tolerance, lambda: rounding(model, as_rounded, batch))
    return Agreement(
        f"transformers {transformers.__version__}",
        "logits",
        difference,
        tolerance,
        sum(len(sequence.ids) for sequence in batch),
        usual,
        length=max(sequence.length for sequence in batch),
    )


def widened(
    difference: float, usual: float, rounding: Callable[[], float]
) -> tuple[float, float | None]:
    """The tolerance, and the usual one if the model's own measured rounding is larger."""
    most = ROUNDS_TO * usual
    if not usual < difference < most:
        return usual, None
    tolerance = min(OTHER_ROUNDING * rounding(), most)
    return (tolerance, usual) if tolerance > usual else (usual, None)


def rounding(model: Any, plan: ContextPlan, batch: Sequence[TokenSequence]) -> float:
    """The distance by which logits move if every output of the model is rounded differently.

    Every module's output is off by a unit in its last place, up or down; what the layers above make
    of that is the rounding that no comparison can look below.
    """

    def moved(sequence: TokenSequence) -> float:
        plain = planned_logits(model, plan, sequence)
        with rounded_otherwise(model):
            other = planned_logits(model, plan, sequence)
        return float((plain - other).abs().max())

    return max(map(moved, batch))


@contextmanager
def rounded_otherwise(model: Any) -> Iterator[None]:
    """The last place of all that a model computes moved, up or down."""
    generator = torch.Generator().manual_seed(0)

    def shake(module: Any, inputs: Any, output: Any) -> Any:
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        up = torch.randint(2, output.shape, generator=generator) * 2 - 1
        return output * (1 + up * torch.finfo(output.dtype).eps)

    with ExitStack() as stack:
        for module in model.modules():
            if not any(module.children()):
                stack.callback(module.register_forward_hook(shake).remove)
        yield


def planned_logits(
    model: Any, plan: ContextPlan, sequence: TokenSequence, *, length: int | None = None
) -> Tensor:
    """The source model's logits under the plan, for sequences declared to `length`.

    Without a `length`, as stock code has it: if that switches, the plan is installed anew for the
    length that each piece reaches. (`install(by_current_length=True)` does that in float64, and
    stock code in float32.)
    """

    def follow(length: int) -> None:
        install(model, plan, length=length, check=False)

    with applied(model, plan, length=length, check=False):
        return stock_run.logits_of(
            model,
            sequence.ids,
            sequence.positions,
            sequence.cuts,
            before=follow if length is None and switches(plan) else None,
        )


def _with_frequencies(
    plan: ContextPlan, batch: Sequence[TokenSequence], answers: Sequence[StockAnswer]
) -> ContextPlan:
    """The plan with the float32 frequencies of the stock model, which are checked before."""
    schedules = {layer_type: list(steps) for layer_type, steps in plan.schedules.items()}
    for sequence, answer in zip(batch, answers, strict=True):
        # The step of the plan that stock code follows: if it switches, by the sequence's length.
        length = sequence.length if switches(plan) else plan.target_length
        for layer_type, steps in plan.schedules.items():
            n = next(n for n, step in enumerate(steps) if length <= step.up_to_length)
            schedule = steps[n].schedule
            frequencies = _frequencies(answer, layer_type)
            _check_frequencies(schedule, frequencies, layer_type)
            factors = schedule.geometry.factors_of(frequencies)
            schedules[layer_type][n] = replace(
                steps[n], schedule=replace(schedule, rescale_factors=factors)
            )
    return replace(plan, schedules={name: tuple(steps) for name, steps in schedules.items()})


def _frequencies(answer: StockAnswer, layer_type: str) -> FloatArray:
    for name, buffer in answer.frequencies.items():
        if name.rpartition(".")[2] in ("inv_freq", f"{layer_type}_inv_freq"):
            return np.asarray(buffer.double().numpy())
    raise GateFailed("export", [f"{layer_type}: the stock model has no inverse frequencies"])


def _check_frequencies(schedule: RotarySchedule, read: FloatArray, layer_type: str) -> None:
    """Refuse frequencies that differ from θᵢ = base^(-2i/d) / λᵢ by more than float32's
    rounding."""
    wanted = schedule.inverse_frequencies
    if read.shape != wanted.shape:
        raise GateFailed(
            "export",
            [f"{layer_type}: the stock model turns {read.size} pairs, the plan {wanted.size}"],
        )
    # Units in the last place: the rounded exponent moves the power by up to ln(base) of them, a
    # ramp between 1 and a factor by up to the factor, and a few operations by one each.
    units = 4 + math.log(schedule.geometry.base) + float(schedule.rescale_factors.max())
    # A difference, not a ratio, since the frequency of a resting pair is 0.
    excess = np.abs(read - wanted) - units * _FLOAT32 * wanted
    if not (excess <= 0).all():
        i = int(np.argmax(excess / np.maximum(wanted, _FLOAT32)))
        raise GateFailed(
            "export",
            [
                f"{layer_type}: pair {i} turns by {read[i]:.8g} a position in the stock model, "
                f"and by {wanted[i]:.8g} in the plan"
            ],
        )


def _answers(values: Mapping[str, Tensor], count: int) -> Iterator[StockAnswer]:
    for i in range(count):
        prefix = f"{i}.frequencies."
        yield StockAnswer(
            values[f"{i}.logits"],
            {k.removeprefix(prefix): v for k, v in values.items() if k.startswith(prefix)},
        )


def _tokens(path: Path) -> Tokens | None:
    return Tokens.of(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else None


def _spread(length: int) -> set[int]:
    """Positions from the first to the last of a length, in geometric distances."""
    return {0, length - 1, *(round(p) for p in np.geomspace(1, max(length - 1, 1), SPREAD))}


def _tokens_at(ids: Sequence[int], positions: Sequence[int]) -> TokenSequence:
    """The tokens at these positions; they repeat if there are more positions."""
    return TokenSequence(tuple(ids[i % len(ids)] for i in range(len(positions))), tuple(positions))


def _steps(plan: ContextPlan) -> list[Any]:
    return [step for steps in plan.schedules.values() for step in steps]
