"""A config as plain JSON, from wherever it is: a file, a folder, or a transformers object."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ropewalk.errors import InputError, InvalidValue, Unsupported, shortened
from ropewalk.models.lengths import TRAINED
from ropewalk.untrusted import read_json, text_value

Config = dict[str, Any]
_FLOATS = {text: float(text) for text in ("Infinity", "-Infinity", "NaN")}
BUNDLED = "bundled"
"""The name of the model that ships with ropewalk."""
BUNDLED_FOLDER = Path(__file__).parents[1] / BUNDLED
BUNDLED_FOLDERS = {
    BUNDLED: BUNDLED_FOLDER,
    "bundled:2": BUNDLED_FOLDER.with_name("bundled_2"),
    "bundled:3": BUNDLED_FOLDER.with_name("bundled_3"),
}
"""The same model, trained from three seeds: so that it shows how much models differ."""
MAX_CONFIG_BYTES = 2**20
"""Published configs have a few kilobytes, and with the names of 20,000 classes less than this."""
SPECULATORS = "transformer_layer_config"
"""The part of a config of vllm-project/speculators that describes the drafter's layers."""
# Where a model of several parts keeps the part that reads text.
_TEXT_PARTS = (
    *("text_config", "thinker_config", "llm_config", "language_config", "vlm_config"),
    *("decoder", "decoder_config", SPECULATORS),
)


def for_stock_class(value: Any) -> Any:
    """A copy of a stored config as its class takes it; JSON has infinity as an object."""
    if isinstance(value, dict):
        if (tag := value.get("__float__")) in _FLOATS and len(value) == 1:
            return _FLOATS[tag]
        return {key: for_stock_class(own) for key, own in value.items()}
    return [for_stock_class(own) for own in value] if isinstance(value, list) else value


def _refuse_adapter(file: Path) -> None:
    """Name the folder of an adapter, which holds a part of a model."""
    if not file.is_file():
        return
    own = read_json(file, max_bytes=MAX_CONFIG_BYTES)
    base = own.get("base_model_name_or_path") if isinstance(own, dict) else None
    of = f" of {shortened(base)}" if base else ""
    raise InputError(
        f"{file.parent}: is the folder of an adapter{of}, not of a model; merge it into its base "
        "(PEFT: merge_and_unload, then save_pretrained), and give that folder"
    )


def load_config(source: object) -> Config:
    """A config as plain JSON: from a config.json, a model's folder, or a transformers object."""
    # A config that is in memory already.
    if isinstance(source, Mapping):
        return dict(source)
    if hasattr(source, "to_dict"):
        return dict(source.to_dict())
    if not isinstance(source, str | Path):
        raise InputError(
            f"{source!r} is not a config: give a config.json, a folder or a config object"
        )
    # A file, or a folder with one.
    path = config_file(source)
    if path != Path(source) and not path.is_file():
        _refuse_adapter(path.with_name("adapter_config.json"))
        raise InputError(
            f"{path}: there is no such file: the folder holds no config.json, so it is not a "
            "transformers model; give the folder that save_pretrained wrote"
        )
    value = read_json(path, max_bytes=MAX_CONFIG_BYTES)
    if not isinstance(value, dict):
        raise InputError(f"{path}: holds no JSON object; expected a transformers config.json")
    # Other JSON files of ours and of the hub are often given by mistake.
    if "schedules" in value and "model_type" not in value:
        raise InputError(
            f"{path}: is a plan, not a model; give the model's folder (a plan goes with --plan; to "
            "check what a plan does, export the model with it, and verify the export)"
        )
    for place, own in (("model_type", value), ("text_config.model_type", value.get("text_config"))):
        if isinstance(own, dict) and own.get("model_type") is not None:
            text_value(own["model_type"], f"{path}: {place}")
    return value


def config_file(path: str | Path) -> Path:
    """The file that holds the config of a folder, or the file itself."""
    path = Path(path)
    try:
        return path / "config.json" if path.is_dir() else path
    except OSError as error:  # a name that no file system takes
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None


@contextmanager
def named_in(file: str | Path | None) -> Iterator[None]:
    """Let errors name the file that states the value; a config without a file is `config`."""
    try:
        yield
    except InvalidValue as error:
        if error.key == TRAINED:  # no key of the file
            raise
        raise error.within("config" if file is None else f"{file}: ") from None
    except Unsupported as error:
        raise (error if file is None else Unsupported(f"{file}: {error}")) from None


def rope_type(rope: Mapping[str, object]) -> str:
    """The rope type that a setting names, under its new or its old key."""
    return str(rope.get("rope_type") or rope.get("type") or "default")


def text_config(config: Config) -> Config:
    """The part of a config that speaks of the language model: itself, or a part of it."""
    return text_part(config)[0]


def text_part(config: Config) -> tuple[Config, tuple[str, ...]]:
    """The same as `text_config`, and the keys that lead to it."""
    for key in _TEXT_PARTS:
        inner = config.get(key)
        if inner is not None and not isinstance(inner, dict) and key.endswith("_config"):
            raise InvalidValue(f"config.{key}", inner, "must be an object", "write {…}")
        # A decoder that is no more than a number of layers belongs to the config around it.
        if isinstance(inner, dict) and (key == "text_config" or inner.get("model_type")):
            found, path = text_part(inner)
            return found, (key, *path)
    return config, ()
