"""The cases that run on two and on four ranks. See test_sharded.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from ropewalk.data.windows import IGNORED, Window
from ropewalk.errors import RopewalkError
from ropewalk.models.load import read_model
from ropewalk.models.slices import Empty, without_weights
from ropewalk.training import checkpoint
from ropewalk.training.execution import Division
from ropewalk.training.parallel import Place, check_sharded, shard_for_training
from ropewalk.training.ranks import check_seen, check_shared
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


def _empty(out: Path, model: Any, dtype: torch.dtype = torch.float32) -> Empty:
    """A model that the first rank wrote, without its weights."""
    if dist.get_rank() == 0:
        model.save_pretrained(out, max_shard_size="20KB")
    dist.barrier()
    found = without_weights(out, dtype)
    assert isinstance(found, Empty), found
    return found


def read_in_parts(store: Path, out: Path) -> Any:
    ranks = dist.get_world_size()
    name = f"parts {ranks}"
    parts = _empty(out / f"model {ranks}", tiny.build())
    assert all(own.is_meta for own in parts.model.parameters())
    return train(name, Division(ranks), model=parts.model, weights=parts)(store, out)


def parts_of_each_kind(store: Path, out: Path) -> Any:
    """The names of weights and buffers that are not what one process loads, by model."""
    models = {
        "tied, rows that do not divide": tiny.build(tie_word_embeddings=True, vocab_size=65),
        "hybrid": trainable("falcon_h1"),
    }
    found = {}
    for name, model in models.items():
        for dtype in (torch.float32, torch.bfloat16):
            folder = out / f"{name} {dtype}"
            parts = _empty(folder, model, dtype)
            shard_for_training(parts.model, Place(Division(2), "cpu"))
            parts.read()
            whole = read_model(folder, dtype)
            for kind in ("named_parameters", "named_buffers"):
                mine, theirs = (dict(getattr(own, kind)()) for own in (parts.model, whole))
                found[f"{name}, {dtype}, {kind}"] = [
                    key
                    for key in {*mine, *theirs}
                    if mine[key].dtype != theirs[key].dtype
                    or not torch.equal(tiny.whole(mine[key]), theirs[key].detach())
                ]
    return found


def other_files(store: Path, out: Path) -> Any:
    """Copies are the same to the byte; then one has another byte."""
    own = out / f"seen {dist.get_rank()}"
    own.write_bytes(b"the same")
    check_seen({"plan": "a"}, {"weights": own})
    own.write_bytes(b"the same" if dist.get_rank() == 0 else b"the sane")
    check_seen({"plan": "a"}, {"weights": own})


def other_values(store: Path, out: Path) -> Any:
    check_seen({"plan": "a", "settings": dist.get_rank()}, {})


def other_folders(store: Path, out: Path) -> Any:
    own = out / f"disk of {dist.get_rank()}"
    own.mkdir()
    check_shared(out)
    assert not list(out.glob(".seen-*"))
    check_shared(own)


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
        "parts 2": read_in_parts,
        "parts of each kind": parts_of_each_kind,
        "other files": other_files,
        "other values": other_values,
        "other folders": other_folders,
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
        "parts 4": read_in_parts,
        "sharded 4": train("sharded 4", Division(4)),
        "sequence 4": train("sequence 4", Division(sequence=4)),
        "sequence 2, copied 2": train("sequence 2, copied 2", Division(1, 2, 2)),
        "sharded 2, copied 2": train("sharded 2, copied 2", Division(2, 2)),
    },
}
