"""Values of the package longppl 0.3.0, which the tests compare with ours.

    pip download longppl==0.3.0 --no-deps -d /tmp/longppl
    python -m tests.evaluation.longppl_package /tmp/longppl/longppl-0.3.0-py3-none-any.whl

writes longppl.json: for each case the number of key tokens, LongPPL and perplexity, computed by the
package's own functions on models of transformers. The wheel is read, not installed.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import sys
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers import processors
from transformers import PreTrainedTokenizerFast

from ropewalk.data.corpora import HELD_OUT, Document, read_documents
from ropewalk.evaluation.conditions import Condition, conditions_of
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.tasks.needle import draw_fact
from ropewalk.models.install import applied
from ropewalk.models.load import LoadedModel, load
from tests.evaluation import tiny

SHA256 = "4764842acb4508378b2dd03d49c67e9d6ef5ca5c34308ca824e0da33a9a69db5"
RECORDED = Path(__file__).with_name("longppl.json")
CASES = ("itself", "another tokenizer")
TOKENS = 1400
"""Of the bundled model, whose window is 512."""
FACTS = 12


class Reader(NamedTuple):
    """A model under YaRN, so that it reads all of the document."""

    loaded: LoadedModel
    condition: Condition


@cache
def reader(name: str, target: int) -> Reader:
    """`bundled`, or `tiny`, whose weights are random and whose tokens are bytes; neither `bare`
    adds BOS."""
    if name == "tiny":
        loaded = tiny.loaded(bos=False)
    else:
        found = load("bundled")
        own = found.tokenizer if name == "bundled" else _bare(found.tokenizer)
        loaded = LoadedModel(name, found.model, own, found.present_plan)
    return Reader(loaded, conditions_of(loaded.present_plan, ["yarn"], (), target)[0])


def _bare(tokenizer: Any) -> PreTrainedTokenizerFast:
    backend = type(tokenizer.backend_tokenizer).from_str(tokenizer.backend_tokenizer.to_str())
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    return PreTrainedTokenizerFast(tokenizer_object=backend, bos_token=tokenizer.bos_token)


@cache
def document() -> Document:
    """Facts hidden in prose, prose that is longer than a short context, and the facts again."""
    random = Stream("longppl", 1)
    facts = [draw_fact(random, small=True).line for _ in range(FACTS)]
    prose = next(iter(read_documents(HELD_OUT))).text.splitlines(keepends=True)
    tokenizer = reader("bundled bare", TOKENS).loaded.tokenizer
    hidden = [line for each in zip(facts, prose[::2], prose[1::2], strict=False) for line in each]
    between = prose[2 * FACTS : 4 * FACTS]
    text = "".join([*hidden, *between, *facts, *prose[4 * FACTS :]])
    found = tokenizer.decode(tokenizer(text)["input_ids"][:TOKENS])
    assert len(tokenizer(found)["input_ids"]) == TOKENS
    return Document("facts", found)


def readers(case: str) -> tuple[Reader, Reader]:
    """The model that is measured, and the evaluator."""
    if case == "itself":
        return (reader("bundled bare", TOKENS),) * 2
    return reader("tiny", len(document().text.encode())), reader("bundled", TOKENS + 1)


def main(wheel: Path) -> None:
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    assert digest == SHA256, f"{wheel}: has the SHA-256 {digest}"
    sys.path.insert(0, str(wheel))  # of this process, which ends here
    package = importlib.import_module("longppl.longppl")
    found = {}
    for case in CASES:
        model, evaluator = readers(case)
        with ExitStack() as stack:
            for each in dict.fromkeys((model, evaluator)):
                assert each.condition.plan is not None
                stack.enter_context(applied(each.loaded.model, each.condition.plan))
            short = model.loaded.present_plan.original_length
            told = package.compute_longppl(
                document().text,
                model.loaded.model,
                evaluator.loaded.model,
                model.loaded.tokenizer,
                evaluator.loaded.tokenizer,
                trunc_len=short,
                sliding_window=short // 4,
            )
        found[case] = {key: float(value) for key, value in told.items()}
    RECORDED.write_text(json.dumps(found, indent=1) + "\n")
    print(RECORDED.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
