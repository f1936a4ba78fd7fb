"""A folder with weights, run in stock transformers and compared with its plan.

A fresh process that knows nothing of ropewalk computes logits, at once and through the cache, as
far as the plan reaches; the same weights with the plan installed compute them too (gate.py).
"""

from __future__ import annotations

from pathlib import Path

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import GateFailed, InputError, Unsupported
from ropewalk.exporting.tokens import PROBE
from ropewalk.runtimes.finding import Finding
from ropewalk.runtimes.reading import STOCK
from ropewalk.runtimes.trials import Trial, differs, failed

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
        checkpoint = Checkpoint.open(str(folder))
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


def _fails(trap: str, what: str, consequence: str) -> Finding:
    return failed(trap, what, consequence, STOCK)
