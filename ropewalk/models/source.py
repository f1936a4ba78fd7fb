"""The meaning of a MODEL argument: one resolver for every verb, in the shell and in Python.

    a path that exists      a model's folder, a config.json, a GGUF file
    bundled                 the model that ships with ropewalk; bundled:2 and bundled:3 are the
                            same, trained from other seeds
    llama-3.1-8b            a name of the catalogue, or its hub id: the published config, no weights
    any other hub id        downloaded, where allowed: only the config, or the whole model
    an object               a transformers config, a live model, or what `load` returned

The first that matches wins, in this order. Resolving and reading a config need no torch.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

from ropewalk.context_plan import ContextPlan
from ropewalk.errors import (
    InputError,
    InvalidValue,
    RopewalkError,
    UnknownName,
    first_line,
    printable,
)
from ropewalk.extras import required_by
from ropewalk.models.placement import check_placement
from ropewalk.outputs import check_unicode
from ropewalk.progress import Notice
from ropewalk.run_directory import check_run_place

if TYPE_CHECKING:
    # All that reads configs is imported where one is read: `--help` reads none.
    from ropewalk.gguf.header import GGUFHeader
    from ropewalk.models.config import Config
    from ropewalk.models.recipes import Documented

Model: TypeAlias = str | Path | Mapping[str, Any] | Any
"""Any: a transformers config, a live model, or what `load` returned."""

Kind = Literal[
    "folder",
    "config file",
    "GGUF file",
    "bundled",
    "catalogue",
    "hub",
    "config",
    "live model",
    "model in memory",
]
"""A live model is what `load` returned, with its tokenizer; other models in memory lack one."""
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# What a download brings: no pickles and no code; card and licence, which an extension carries on.
_FETCHED = (
    *("*.json", "model*.safetensors", "*.txt", "tokenizer.model", "*.jinja"),
    *("README.md", "LICENSE*", "NOTICE*"),
)


@dataclass(frozen=True, eq=False)
class Source:
    """A model, found but not loaded."""

    name: str
    """The name as given; for an object, the name stored in it."""
    kind: Kind
    path: Path | None = None
    """The folder or file, if there is one."""
    value: Any = None
    """The config, the live model, or the catalogue's entry."""
    allow_download: bool = False
    installed: ContextPlan | None = None
    """The plan that a live model follows instead of its config's."""
    stated_length: int | None = None
    """The trained length that the user states."""

    @property
    def origin(self) -> str:
        """The origin of the config, in words."""
        if self.kind == "catalogue":
            return f"catalogue: {self.value.source}"
        return self.kind if self.path is None else f"{self.kind}: {self.path}"

    @property
    def places(self) -> tuple[Path, ...]:
        """The folder or file that nothing may be written to."""
        return () if self.path is None else (self.path,)

    @property
    def short_name(self) -> str:
        """The model's own name, without the places that it comes from."""
        if self.kind not in ("folder", "config file", "GGUF file") or self.path is None:
            return self.name.rpartition("/")[2]
        path = self.path.resolve()
        if path.parent.name == "snapshots":  # of the hub's cache, models--ORG--NAME/snapshots/HASH
            return path.parents[1].name.rpartition("--")[2]
        return printable(path.name)

    @cached_property
    def config(self) -> Config:
        """The transformers config. A GGUF file has none."""
        from ropewalk.models.config import load_config

        if self.kind == "GGUF file":
            raise InputError(
                f"{self.name}: is a GGUF file, which holds no transformers config; give the folder "
                "that it was converted from"
            )
        if self.kind == "catalogue":
            return dict(self.value.config)
        if self.kind == "hub":
            return load_config(_fetched(self.name, "config.json"))
        if self.kind == "live model":
            return load_config(self.value.model.config)
        return load_config(self.value if self.path is None else self.path)

    @cached_property
    def header(self) -> GGUFHeader:
        """The header of a GGUF file, with the tensors of all its parts."""
        from ropewalk.gguf.parts import read_model

        assert self.path is not None
        return read_model(self.path)

    @cached_property
    def present_plan(self) -> ContextPlan:
        """The model's present plan."""
        if self.kind == "GGUF file":
            from ropewalk.gguf import rotation

            return rotation.present_plan(self.header, self.name)
        if self.kind == "live model":
            plan: ContextPlan = self.value.present_plan
            return plan
        from ropewalk.models.config import present_plan

        return self.installed or present_plan(
            self.config, self.name, file=self.config_file, trained=self._known_length
        )

    @property
    def config_file(self) -> Path | str | None:
        """The file that states the config, as errors name it; None for what has no file."""
        if self.kind == "hub":
            return f"{self.name}/config.json"
        from ropewalk.models.config import config_file

        return None if self.path is None else config_file(self.path)

    @cached_property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions made in reading the config or the GGUF header."""
        if self.kind == "GGUF file":
            from ropewalk.gguf import rotation

            return rotation.assumptions(self.header)
        from ropewalk.models.assumptions import assumptions

        # The catalogue's length may differ from the config's, and the user's is meant to.
        by = "" if self.stated_length or self.kind != "catalogue" else "the catalogue"
        guesses = assumptions(self.config, self.config_file, trained=self._known_length, by=by)
        return tuple(each.text for each in guesses)

    @property
    def _known_length(self) -> int | None:
        """The trained length, if the user or the catalogue states it."""
        catalogued = self.value.trained_length if self.kind == "catalogue" else None
        return self.stated_length or catalogued

    @cached_property
    def trained_length(self) -> int:
        """The length up to which its publisher says that it works (lengths.py has the rule)."""
        if self.kind in ("GGUF file", "live model") or self.installed is not None:
            present = self.present_plan
            return present.longest(present.main_layer).length
        from ropewalk.models.config import ConfigReader, named_in

        reader = ConfigReader(self.config, trained=self._known_length)
        with named_in(self.config_file):
            return reader.lengths().trained

    @cached_property
    def documented(self) -> Documented | None:
        """The vendor's documentation for a model of this structure; None if none is known."""
        if self.kind == "GGUF file" or self.installed is not None:
            return None
        from ropewalk.models.recipes import documented

        return documented(self.config, trained=self._known_length)

    def with_trained_length(self, length: int | None) -> Source:
        """The same model, with the trained length that the user states."""
        if length is None:
            return self
        if self.kind in ("GGUF file", "live model") or self.installed is not None:
            raise InputError(
                f"{self.name}: `trained_length` is only for a config, and this is a {self.kind}; "
                "give the folder or the config.json that it was made from"
            )
        return replace(self, stated_length=length)

    @property
    def has_weights(self) -> bool:
        """True if weights are available or may be downloaded."""
        return self.kind in ("folder", "bundled", "live model") or (
            self.allow_download and self.kind in ("hub", "catalogue")
        )

    @property
    def files(self) -> str:
        """The argument by which an export finds its files: of a hub id, those that were fetched."""
        if self.kind == "bundled":
            return self.name
        return str(self.path if self.kind == "GGUF file" else self.folder)

    @cached_property
    def folder(self) -> Path:
        """The folder with config, weights and tokenizer; a source without one is refused."""
        if self.kind in ("folder", "bundled"):
            assert self.path is not None
            check_unicode(self.path)
            return self.path
        if self.allow_download and self.kind in ("hub", "catalogue"):
            return _fetched(self.value.hub_id if self.kind == "catalogue" else self.name)
        raise InputError(f"{self.name}: {_NO_WEIGHTS[self.kind]}")


_IN_MEMORY = (
    "is a model in memory, and this needs a model's folder, since it copies and compares files; "
    "save the model and its tokenizer with save_pretrained, and pass that folder"
)
_NO_WEIGHTS = {
    "config file": "is a file; give the folder that holds config.json and weights",
    "GGUF file": (
        "is a GGUF file; give the folder of safetensors that it was converted from (`evaluate` "
        "measures the file itself, and `extend` extends it)"
    ),
    "catalogue": (
        "the catalogue knows its config and holds no weights; give the model's folder, or allow a "
        "download from the Hugging Face hub (`allow_download`)"
    ),
    "config": "is a config without weights; give the folder that holds both",
    "live model": _IN_MEMORY,
    "model in memory": _IN_MEMORY,
}


def resolve(model: Model, *, allow_download: bool = False) -> Source:
    """Resolve a model argument to a source."""
    if isinstance(model, Source):
        return model
    if hasattr(model, "present_plan"):  # what `load` returned
        loaded: Any = model
        return Source(loaded.name, "live model", value=loaded)
    if isinstance(model, Mapping) or hasattr(model, "to_dict"):
        from ropewalk.models.config import load_config

        config = load_config(model)
        name = str(config.get("_name_or_path") or config.get("model_type") or "model")
        return Source(name, "config", value=config)
    if hasattr(model, "config") and hasattr(model, "parameters"):
        source = resolve(model.config)
        return replace(source, kind="model in memory", installed=installed_plan(model))
    if not isinstance(model, str | Path):
        raise InvalidValue(
            "model",
            model,
            "is not a model",
            "give a folder, a config.json, a GGUF file, a name, a transformers config, or a loaded "
            "model",
        )
    return _named(str(model), allow_download)


def installed_plan(model: object) -> ContextPlan | None:
    """The plan that models/install.py has put into a live model, if any."""
    installation = getattr(model, "_ropewalk", None)
    plan: ContextPlan | None = installation and installation.setting and installation.setting.plan
    return plan


def _named(name: str, allow_download: bool) -> Source:
    if not name.strip():
        raise InputError(f"{name[:80]!r}: is not a model; give a folder, a file or a known name")
    # A path that exists has priority over every name.
    path = Path(name)
    try:
        exists = path.exists()
    except (OSError, ValueError) as error:  # ValueError: a zero byte
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{name[:80]}: is not a path ({reason}); check it") from None
    if exists:
        return _of_path(printable(name), path)
    from ropewalk.models import catalogue
    from ropewalk.models.config import BUNDLED, BUNDLED_FOLDERS

    if name.partition(":")[0] == BUNDLED:
        if name not in BUNDLED_FOLDERS:
            raise UnknownName("model", name, tuple(BUNDLED_FOLDERS))
        if not BUNDLED_FOLDERS[name].is_dir():
            raise InputError(f"{name}: this copy of ropewalk lacks the model; reinstall ropewalk")
        return Source(name, "bundled", BUNDLED_FOLDERS[name])
    # A name that is not known may be one of the hub, which is asked only if that is allowed.
    try:
        entry = catalogue.find(name)
    except UnknownName as error:
        close = difflib.get_close_matches(name[:80].lower(), error.valid, n=3, cutoff=0.5)
        if not _HUB_ID.fullmatch(name):
            raise InputError(f"{name}: there is no such file or folder; check the path") from None
        if allow_download:
            return Source(name, "hub", allow_download=True)
        hint = f"; the closest known names are {', '.join(close)}" if close else ""
        raise InputError(
            f"{name}: there is no such file or folder, and no known model of that name{hint}; "
            "to fetch it from the Hugging Face hub, add `allow_download`"
        ) from None
    return Source(name, "catalogue", value=entry, allow_download=allow_download)


def _of_path(name: str, path: Path) -> Source:
    if path.is_dir():
        return Source(name, "folder", path)
    if path.suffix.lower() == ".json":
        return Source(name, "config file", path)
    from ropewalk.gguf.header import is_gguf

    try:
        if path.is_file() and is_gguf(path):
            return Source(name, "GGUF file", path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from None
    raise InputError(f"{path}: is neither a model's folder, nor a config.json, nor a GGUF file")


@required_by("fetching from the hub")
def _fetched(hub_id: str, file: str = "") -> Path:
    """A folder of the hub, or one file of it: the config is all that planning needs."""
    from huggingface_hub import hf_hub_download, snapshot_download

    try:
        if file:
            return Path(hf_hub_download(hub_id, file))
        return Path(snapshot_download(hub_id, allow_patterns=list(_FETCHED)))
    except (OSError, ValueError) as error:
        said = f"{hub_id}: cannot be fetched from the hub: {first_line(error)}"
        raise RopewalkError(said) from None


class Loading(NamedTuple):
    """The way to load a model."""

    dtype: str
    device: str
    allow_download: bool


def runnable(
    model: Model,
    how: Loading,
    *,
    strict: bool,
    notice: Notice,
    run: Path | None = None,
    weights: bool = True,
    by_llama_cpp: bool = False,
) -> Source:
    """A model to load, once all is refused that can be refused before torch is imported.

    Without `weights`, a config is enough. `by_llama_cpp`: a GGUF file will do too.
    """
    check_placement(how.dtype, how.device)
    source = resolve(model, allow_download=how.allow_download)
    if run is not None:
        check_run_place(run, source.places)
    runs = source.has_weights or (by_llama_cpp and source.kind == "GGUF file")
    if weights and isinstance(model, str | Path) and not runs:
        source.folder  # noqa: B018 - says why there are none
    stated_assumptions(source, notice, strict=strict)
    return source


def stated_assumptions(source: Source, notice: Notice, *, strict: bool) -> tuple[str, ...]:
    """The assumptions made in reading the model: each is a warning, or an error if `strict`."""
    texts = source.assumptions
    if texts and strict:
        raise InputError(
            f"{'; '.join(texts)}: `strict` allows no assumption; correct the file, or leave "
            "`strict` out"
        )
    for text in texts:
        notice(f"warning: {text}")
    return texts
