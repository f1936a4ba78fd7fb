"""A folder with weights, run in stock transformers and compared with its plan.

A fresh process that knows nothing of ropewalk computes logits, at once and through the cache, as
far as the plan reaches; the same weights with the plan installed compute them too (gate.py).
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed, InputError, Unsupported, first_line
from ropewalk.exporting.tokens import PROBE
from ropewalk.runtimes.finding import ExaminedModel, Finding
from ropewalk.runtimes.reading import MEASURED, STOCK, is_headless
from ropewalk.runtimes.trials import Trial, differs, failed

if TYPE_CHECKING:
    from ropewalk.models.checkpoint import Checkpoint

MOST_BYTES = 8 * 2**30
"""The most bytes of weights in float32, of which two copies are in memory."""


def tried(folder: Path, plan: ContextPlan, *, tokenizer: bool) -> Trial:
    """Run a folder whose weights are there, as far as that can be done here.

    `tokenizer`: its tokenizer is loaded too, in the same process.
    """
    import torch

    from ropewalk.exporting import gate
    from ropewalk.exporting.stock_run import settle
    from ropewalk.models.checkpoint import Checkpoint
    from ropewalk.models.load import read_model

    # A failure is a finding of the folder, or a note that it was not run, and why.
    try:
        checkpoint = _with_head(Checkpoint.open(str(folder)))
        if checkpoint.bytes(torch.float32) > MOST_BYTES:
            return Trial(notes=("too large to be run here: only its rotary modules were measured",))
        model = settle(read_model(checkpoint.folder, torch.float32))
        sequences = gate.to_compare(plan, gate.probe_ids(checkpoint.folder))
        text = PROBE if tokenizer else ""
        (answered,) = gate.ask_stock([(checkpoint.folder, sequences)], text=text)
        agreement = gate.agreement_with(model, plan, sequences, answered.answers)
    except GateFailed as error:
        said = "; ".join(error.problems)
        return Trial(findings=(_fails("model-differs", said, "it does not follow the plan"),))
    except Unsupported as error:
        return Trial(notes=(f"the model was not run: {error}",))
    except InputError as error:
        return Trial(findings=(_fails("refused", str(error), "it does not load"),))
    # Logits can agree and still be of no use.
    findings = [] if agreement.passed else [differs(STOCK, agreement)]
    if all(answer.logits.std() == 0 for answer in answered.answers):
        said = "every token has the same logit at every position"
        findings.append(_fails("no-effect", said, "no input has an effect: weights are zero"))
    if (tokens := answered.tokens) is not None and tokens.error:
        said = f"stock transformers cannot load the tokenizer ({tokens.error})"
        findings.append(_fails("tokenizer-broken", said, "no text becomes tokens"))
    loaded = "loaded whole by stock transformers"
    return Trial(STOCK, agreement, tuple(findings), loaded=loaded)


def without_numbers(
    subject: ExaminedModel, found: Collection[Finding], folder: Path | None
) -> tuple[Finding, ...]:
    """Faults, unless one is found, of a text read and decoded on the meta device: by shapes alone.

    `folder`: its weights are loaded in that way too, by their headers.
    """
    measured = any(r.source == MEASURED and not r.unread for r in subject.readings)
    if not measured or any(each.wrong and each.concerns(STOCK) for each in found):
        return ()
    import torch

    from ropewalk.models.checkpoint import Checkpoint
    from ropewalk.models.load import quiet, read_model
    from ropewalk.models.renamed import cache_name
    from ropewalk.runtimes.trials import stock_rotary

    meta = torch.device("meta")
    try:
        with quiet(), meta, torch.no_grad():
            if (model := stock_rotary.model_of(subject.config)).can_generate():
                tokens, cache = torch.zeros((1, 8), dtype=torch.long), cache_name(model)
                read = model(tokens, use_cache=True)
                model(tokens[:, :1], **{cache: getattr(read, cache, None)})
        if folder:
            checkpoint = _with_head(Checkpoint.open(str(folder)))
            read_model(checkpoint.folder, torch.bfloat16, device_map={"": meta})
    except (Unsupported, ImportError, NotImplementedError):
        return ()
    except Exception as error:  # whatever the class raises
        # Some go by numbers, which are not there.
        unknown = isinstance(error.__context__, ImportError | NotImplementedError)
        what, fails = first_line(error), "it does not load, or fails when it runs"
        return () if unknown or "meta" in what else (_fails("refused", what, fails),)
    return ()


def _with_head(checkpoint: Checkpoint) -> Checkpoint:
    """The same, unless it is meant for a class that embeds or rates a text."""
    if is_headless(checkpoint.config) and not checkpoint.config.get("tie_word_embeddings"):
        raise Unsupported("its class has no output head")
    return checkpoint


def _fails(trap: str, what: str, consequence: str) -> Finding:
    return failed(trap, what, consequence, STOCK)
