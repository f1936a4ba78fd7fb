"""Training at a longer context with transformers' own Trainer, under a plan.

python examples/train.py                                       the bundled model, in half a minute
python examples/train.py path/to/model --to 32k --corpus books.jsonl --steps 2000 --rate 2e-5

The same command again goes on from the last checkpoint in the folder --out.
"""

import argparse
from functools import partial
from pathlib import Path

from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import get_last_checkpoint

import ropewalk as rw
from ropewalk.training import (
    RopewalkCallback,
    SpecialTokens,
    TokenStore,
    WindowCollator,
    Windows,
    WindowSettings,
    WindowStream,
)

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("model", nargs="?", default="bundled")
parser.add_argument("--to", default="1k", help="target length (1k)")
parser.add_argument("--corpus", default=str(Path(rw.__file__).parent), help="text to train on")
parser.add_argument("--steps", type=int, default=20)
parser.add_argument("--batch", type=int, default=2, help="windows of a step (2)")
parser.add_argument("--rate", type=float, default=1e-4, help="learning rate (1e-4)")
parser.add_argument("--out", type=Path, default=Path("runs/trained"))
asked = parser.parse_args()

plan = rw.plan(asked.model, asked.to, "yarn").plan
print(rw.build_data(asked.model, asked.corpus, asked.out / "tokens").summary())
loaded = rw.load(asked.model)
settings = WindowSettings(plan.target_length, "anchor")
special = SpecialTokens.of(loaded.tokenizer)
epoch = partial(Windows, TokenStore(asked.out / "tokens"), settings, special)
trainer = Trainer(
    loaded.model,
    TrainingArguments(
        output_dir=str(asked.out),
        max_steps=asked.steps,
        per_device_train_batch_size=asked.batch,
        learning_rate=asked.rate,
        save_steps=max(1, asked.steps // 2),
        logging_steps=max(1, asked.steps // 4),
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
    ),
    train_dataset=WindowStream(epoch, asked.steps * asked.batch),
    data_collator=WindowCollator(),
    processing_class=loaded.tokenizer,
    callbacks=[RopewalkCallback(plan, final=asked.out / "model")],
)
trainer.train(resume_from_checkpoint=get_last_checkpoint(asked.out))
print(rw.verify(asked.out / "model", plan=plan).summary())
