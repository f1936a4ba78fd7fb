"""Loading a model to run: a local folder, the bundled model, or a hub id if that is allowed.

Weights are read only from safetensors, no code in a model's folder is run, and nothing is
downloaded unless the caller allows it. The files are checked before any weight is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch

from ropewalk.confined import trial
from ropewalk.context_plan import ContextPlan
from ropewalk.errors import InputError, InvalidValue, Unsupported, first_line, shortened
from ropewalk.extras import required_by
from ropewalk.lengths import format_length
from ropewalk.models.config import Config, ConfigReader, load_config, present_plan
from ropewalk.models.dividing import distributed
from ropewalk.models.placement import check_placement
from ropewalk.models.safetensors_header import INDEX, PICKLES, SINGLE, read_header, read_index
from ropewalk.models.source import resolve

# transformers loads under settings of the whole process, and threads would miss tied weights.
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run, with its present plan."""

    name: str
    model: Any
    tokenizer: Any
    present_plan: ContextPlan

    def __repr__(self) -> str:
        serves = format_length(self.present_plan.target_length)
        return f"<LoadedModel {self.name}: {self.dtype} on {self.device}, serves {serves}>"

    @property
    def dtype(self) -> str:
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def vocabulary(self) -> int:
        """The number of tokens it has embeddings for."""
        return int(self.model.get_input_embeddings().weight.shape[0])

    @property
    def device(self) -> str:
        return str(self.model.device)


def whole(model: Any, device: torch.device) -> None:
    """Move the whole model to a device, as is the default."""
    model.to(device)


def load(
    source: object,
    *,
    tokenizer: Any = None,
    dtype: str = "auto",
    device: str = "auto",
    allow_download: bool = False,
    place: Callable[[Any, torch.device], None] = whole,
    parts: int = 1,
) -> LoadedModel:
    """Load a folder, `bundled`, or, with `allow_download`, a model from the Hugging Face hub.

    A loaded model is returned unchanged; a live transformers model needs a `tokenizer` too. The
    default `device` is the first one available of cuda, mps and cpu. The default `dtype` is that of
    the checkpoint on an accelerator, and float32 on a CPU, where half precision is slower and less
    accurate. `place` moves the model to the device; `sharding.shard` splits it over several.
    `parts`: read this rank's part of each layer's heads (dividing.py), of so many.
    """
    with required_by("load"):
        if isinstance(source, LoadedModel):
            return source
        if isinstance(source, torch.nn.Module):
            if tokenizer is None:
                raise InputError(
                    "a model in memory needs a tokenizer; pass it: load(model, tokenizer=…)"
                )
            live: Any = source
            if hasattr(live, "peft_config"):
                raise Unsupported(
                    "a model with adapters of peft in it is not read; give model.merge_and_unload()"
                )
            resolved = resolve(live)
            return LoadedModel(resolved.name, live.eval(), tokenizer, resolved.present_plan)
        check_placement(dtype, device)
        chosen_device = _device(device)
        chosen_dtype = _dtype(dtype, chosen_device)
        resolved = resolve(source, allow_download=allow_download)
        folder = resolved.folder
        plan = present_plan(checked_config(folder), resolved.name, file=folder / "config.json")
        checked_weights(folder)
        tokenizer = tokenizer or load_tokenizer(folder)
        if parts > 1:
            model = read_model(folder, chosen_dtype, distributed_config=distributed(parts))
        else:
            model = read_model(folder, chosen_dtype)
            place(model, chosen_device)
        return LoadedModel(resolved.name, model.eval(), tokenizer, plan)


def placement(dtype: str, device: str, config: Config) -> tuple[torch.device, int]:
    """The device that a model of this config would go to, and the bytes of its numbers there."""
    place = _device(device)
    chosen = _dtype(dtype, place)
    if isinstance(chosen, str):
        stated = str(config.get("dtype") or config.get("torch_dtype")).removeprefix("torch.")
        chosen = getattr(torch, stated, torch.bfloat16)
    return place, chosen.itemsize if isinstance(chosen, torch.dtype) else torch.bfloat16.itemsize


def _device(name: str) -> torch.device:
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, TypeError):
        raise InvalidValue(
            "device", name, "is not a device of this machine", "give auto or cpu"
        ) from None
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype | str:
    if name == "auto":
        return torch.float32 if device.type == "cpu" else "auto"
    dtype: torch.dtype = getattr(torch, name)
    return dtype


_SERVE_IT = "serve it with the settings of `ropewalk plan`"


def checked_config(folder: Path) -> Config:
    """The config of a model folder, whose model type the installed transformers knows."""
    from transformers import CONFIG_MAPPING

    config = load_config(folder)
    kind = config.get("model_type")
    if kind in CONFIG_MAPPING:
        if ConfigReader(config).is_encoder:
            raise Unsupported(
                f"{folder}: this {kind} is an encoder, which predicts no next token, so ropewalk "
                f"cannot run it; {_SERVE_IT}"
            )
        return config
    if config.get("auto_map"):
        raise Unsupported(
            f"{folder}: model type {kind!r} needs custom code from that folder, which ropewalk "
            "never runs; use a version of transformers that knows the type"
        )
    raise Unsupported(
        f"{folder}: the installed transformers does not know model type {kind!r}; a newer one may"
    )


def checked_weights(folder: Path) -> list[Path]:
    """The weight files of a model folder: every one there, safetensors, and whole."""
    paths = _weight_files(folder)
    for path in paths:
        try:
            read_header(path)
        except InputError as error:
            raise InputError(f"{path.parent}/{error}; copy the file again") from None
    return paths


def _weight_files(folder: Path) -> list[Path]:
    if (folder / SINGLE).is_file():
        return [folder / SINGLE]
    if (folder / INDEX).is_file():
        return _shards(folder)
    pickles = sorted(path.name for pattern in PICKLES for path in folder.glob(pattern))
    if pickles:
        raise Unsupported(
            f"{folder}: has its weights only as a pickle ({pickles[0]}), and reading a pickle can "
            "run any code; if you trust it, convert it once: from transformers import "
            f"AutoModelForCausalLM; AutoModelForCausalLM.from_pretrained({str(folder)!r})"
            ".save_pretrained(new_folder), then copy its tokenizer files to new_folder"
        )
    raise InputError(
        f"{folder}: holds a config but no weights ({SINGLE} or {INDEX}); "
        "give the folder that holds both config and weights"
    )


def _shards(folder: Path) -> list[Path]:
    try:
        index, complete = read_index(folder / INDEX)
    except InputError as error:
        raise InputError(f"{folder}/{error}; copy it again") from None
    if not complete:
        raise InputError(
            f"{folder / INDEX}: has no object `metadata`, without which transformers loads no "
            'shards; add "metadata": {}'
        )
    shards = sorted(set(index.values()))
    missing = [name for name in shards if not (folder / name).is_file()]
    if missing:
        raise InputError(
            f"{folder}: {len(missing)} of its {len(shards)} weight files are missing: "
            f"{', '.join(missing[:3])}{', …' if len(missing) > 3 else ''}; copy or download them"
        )
    return [folder / name for name in shards]


def load_stock_config(folder: Path) -> Any:
    """transformers' config object of a model folder, with what its class fills in."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # whatever its class says of values that it does not take
        raise InputError(
            f"{folder}: transformers rejects its config.json "
            f"({shortened(' '.join(str(error).split()))}); correct or restore the file"
        ) from None


def _check_is_text_model(folder: Path) -> None:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    config = load_stock_config(folder)
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        kind = shortened(config.model_type)
        raise Unsupported(
            f"{folder}: transformers has no class that runs a {kind} on text alone, so ropewalk "
            f"cannot; {_SERVE_IT}, or give its text model in a folder of its own"
        )


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a model folder, which a child has loaded before (confined.py)."""
    from transformers import AutoTokenizer, PreTrainedTokenizerBase

    trial(folder)
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
        if not isinstance(tokenizer, PreTrainedTokenizerBase):  # any class can be named
            raise TypeError(f"its tokenizer_class, {type(tokenizer).__name__}, is no tokenizer")
        return tokenizer
    except Exception as error:  # whatever the many tokenizer classes raise for missing files
        if (folder / "config.json").is_file():
            load_stock_config(folder)
        raise InputError(
            f"{folder}: its tokenizer cannot be loaded ({first_line(error)}); "
            "copy the tokenizer files of the model there"
        ) from None


def read_model(folder: Path, dtype: torch.dtype | str, **options: Any) -> Any:
    """The model of a folder whose files have been checked, on the CPU unless asked otherwise."""
    from transformers import AutoModelForCausalLM

    try:
        with _ONE_AT_A_TIME, quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,  # reported, and refused below
                output_loading_info=True,
                **options,
            )
    except MemoryError:
        raise
    except Exception as error:  # whatever the many model classes raise for what a config says
        _check_is_text_model(folder)
        said = first_line(error)
        raise InputError(
            f"{folder}: transformers cannot load it: {type(error).__name__}: {said}"
        ) from None
    # transformers would fill these with random numbers, and go on.
    absent = sorted(report["missing_keys"])
    other = sorted(name for name, *_ in report["mismatched_keys"])
    for names, fault in (
        (absent, "no file holds {} that the config asks for ({})"),
        (other, "{} have another shape than the config asks for ({})"),
    ):
        if names:
            count = "1 tensor" if len(names) == 1 else f"{len(names)} tensors"
            shown = f"{', '.join(names[:3])}{', …' if len(names) > 3 else ''}"
            raise InputError(
                f"{folder}: {fault.format(count, shown)}: the model does not load; "
                "check that config and weights belong together"
            )
    return model


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' reports and progress bars: what matters of them, we say."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
