"""The cases that run on two and on four ranks. See test_sharded.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ropewalk.data.windows import IGNORED, Window
from ropewalk.errors import RopewalkError
from ropewalk.training import checkpoint
from ropewalk.training.parallel import Division, check_sharded
from tests.training import tiny
from tests.training.hybrids import trainable
from tests.training.sharded import Case, train, trainer, with_lora


class Edited(list[Window]):
    """Windows, some of them changed."""

    def __init__(self, store: Path, **labels: Any) -> None:
        own = tiny.stream(store)
        super().__init__(own[i] for i in range(16))
        for key, value in labels.items():
            number = int(key.removeprefix("of_"))
            self[number] = self[number]._replace(labels=value(self[number].labels))


def _no_labels(labels: Any) -> Any:
    return labels * 0 + IGNORED


def no_targets_on_a_rank(store: Path, out: Path) -> Any:
    windows = Edited(store, of_1=_no_labels, of_3=_no_labels)  # those of the second reader
    return train("half", Division(2), 2, windows=windows)(store, out)


def no_targets(store: Path, out: Path) -> Any:
    numbers = {f"of_{i}": _no_labels for i in range(4, 8)}
    return train("none", Division(2), 3, windows=Edited(store, **numbers))(store, out)


def not_finite_on_a_rank(store: Path, out: Path) -> Any:
    """Only the window of one rank has the token whose embedding is not a number."""
    windows = Edited(store)
    for i, window in enumerate(windows):
        windows[i] = window._replace(tokens=window.tokens.clip(0, 62))
    windows[5].tokens[7] = 63
    model = tiny.build()
    with torch.no_grad():
        model.get_input_embeddings().weight[63] = float("nan")
    return train("nan", Division(2), 3, windows=windows, model=model)(store, out)


def other_weights(store: Path, out: Path) -> Any:
    return trainer(store, out / "other", Division(2), model=with_lora(seed=dist.get_rank()))


def not_sharded(store: Path, out: Path) -> Any:
    check_sharded(tiny.build())


def heads(store: Path, out: Path) -> Any:
    model = tiny.build(num_attention_heads=3, num_key_value_heads=3)
    return train("heads", Division(sequence=2), model=model)(store, out)


def hybrid(store: Path, out: Path) -> Any:
    return train("hybrid", Division(2), model=trainable("falcon_h1"))(store, out)


def hybrid_in_sequence(store: Path, out: Path) -> Any:
    return trainer(store, out / "stretches", Division(sequence=2), model=trainable("falcon_h1"))


def other_number(store: Path, out: Path) -> Any:
    return trainer(store, out / "number", Division(shard=4))


def lora(store: Path, out: Path) -> Any:
    """Trained, saved, gone on with; the base is in no checkpoint."""
    run = out / "lora"
    trained = trainer(store, run, Division(2), 3, model=with_lora(), save_strategy="steps",
                      save_steps=2, final=run / "final")  # fmt: skip
    trained.train()
    again = trainer(store, run, Division(2), 3, model=with_lora())
    again.train(str(run / "checkpoint-2"))
    other = with_lora()
    with torch.no_grad():
        other.get_input_embeddings().weight[5, 0] += 1
    try:
        trainer(store, run, Division(2), 3, model=other).train(str(run / "checkpoint-2"))
    except RopewalkError as error:
        refused = str(error)
    saved = checkpoint._known(run / "checkpoint-2", "model.")
    base = trained.model.get_base_model()
    return {
        "equal": tiny.apart(tiny.course(trained), tiny.course(again)._replace(
            losses=tiny.course(trained).losses)),
        "losses": [tiny.course(trained).losses, tiny.course(again).losses],
        "saved": sorted(saved),
        "refused": refused,
        "sharded": isinstance(base, FSDPModule),
    }  # fmt: skip


def weighted(store: Path, out: Path) -> Any:
    windows = tiny.weighted(tiny.stream(store))
    return train("weighted", Division(sequence=2), windows=windows)(store, out)


def bfloat16(store: Path, out: Path) -> Any:
    return train("bfloat16", Division(2), bf16=True)(store, out)


def disk_full_on_a_rank(store: Path, out: Path) -> Any:
    """The second rank cannot write its shard: its folder is a file."""
    trained = trainer(store, out / "full", Division(2), 2, save_strategy="steps", save_steps=2)
    if dist.get_rank() == 1:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        trained.train()
    finally:
        if dist.get_rank() == 1:
            resource.setrlimit(
                resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            )


CASES: dict[int, dict[str, Case]] = {
    2: {
        "sharded 2": train("sharded 2", Division(2)),
        "sequence 2": train("sequence 2", Division(sequence=2)),
        "weighted sequence 2": weighted,
        "copied 2": train("copied 2", Division(replicate=2)),
        "tied 2": lambda store, out: train(
            "tied 2", Division(2), model=tiny.build(tie_word_embeddings=True)
        )(store, out),
        "no targets on a rank": no_targets_on_a_rank,
        "no targets": no_targets,
        "not finite on a rank": not_finite_on_a_rank,
        "other weights": other_weights,
        "not sharded": not_sharded,
        "heads": heads,
        "other number": other_number,
        "hybrid": hybrid,
        "hybrid in sequence": hybrid_in_sequence,
        "lora": lora,
        "bfloat16": bfloat16,
        "disk full on a rank": disk_full_on_a_rank,
        "gone on with": train("gone on with", Division(2), 4, resume="saved on 4/checkpoint-2"),
    },
    4: {
        "saved on 4": train(
            "saved on 4", Division(2, 1, 2), 4, save_strategy="steps", save_steps=2
        ),
        "sharded 4": train("sharded 4", Division(4)),
        "sequence 4": train("sequence 4", Division(sequence=4)),
        "sequence 2, copied 2": train("sequence 2, copied 2", Division(1, 2, 2)),
        "sharded 2, copied 2": train("sharded 2, copied 2", Division(2, 2)),
    },
}
