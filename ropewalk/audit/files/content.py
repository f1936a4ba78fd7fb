"""Every byte of an export, compared with the manifest or the digest that it carries.

- `bytes-changed`: a file is missing, or differs from the exported one
- `not-in-manifest`: (note) a file was added after the export
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

from ropewalk.audit.files.check import Checked, fault, listed, passed, unknown, wrong
from ropewalk.audit.files.finite import Report
from ropewalk.audit.files.gguf import ends_at
from ropewalk.errors import InputError, InvalidValue, shortened
from ropewalk.exporting.manifest import MANIFEST, Manifest, sha256
from ropewalk.gguf import provenance
from ropewalk.gguf.header import GGUFHeader
from ropewalk.models.safetensors_header import INDEX, SINGLE
from ropewalk.runtimes import targets
from ropewalk.runtimes.finding import Finding

NO_MANIFEST = "not compared: no manifest"
CONFIG = "config.json"
_changed = fault(
    "bytes-changed",
    "its content is not the one that was exported and compared",
    "copy it again, or export the model again",
)


def of_folder(folder: Path, progress: Report, parts: Collection[str] = ()) -> Checked:
    """The files of a folder compared with its manifest; without one, their bytes are not judged.

    `parts`: the files of a split GGUF model, which is all that is loaded, and needs no config.
    """
    if not folder.is_dir() or not (folder / MANIFEST).exists():
        return unknown("bytes", NO_MANIFEST)
    try:
        manifest = Manifest.read(folder)
    except InvalidValue as error:  # its own remedy would stand before that of the finding
        key = error.key.rpartition(f"{MANIFEST}: ")[2]  # the finding names the file
        said = f"{MANIFEST} cannot be read: {key} = {shortened(error.value)}"
        return wrong("bytes", _changed(f"{said}: {error.rule}"))
    except InputError as error:
        return wrong("bytes", _changed(str(error).partition("; ")[0]))
    if manifest.runtime and manifest.runtime not in targets():
        said = f"{MANIFEST} cannot be read: runtime = {shortened(manifest.runtime)}"
        return wrong("bytes", _changed(f"{said}: must be one of {', '.join(targets())}"))
    missing, strange, changed, before = [], [], [], 0
    for name, wanted in manifest.files.items():
        path = folder / name
        if not os.path.lexists(path):
            missing.append(name)
        elif not path.is_file():  # never opened: a pipe would wait for ever
            strange.append(f"{name} is {_kind(path)}, not a file{_linked(path)}")
        elif (
            path.stat().st_size != wanted.size
            or sha256(path, progress, before, manifest.bytes) != wanted.sha256
        ):
            changed.append(f"{name}{_linked(path)}")
        before += wanted.size
    present = {path.name for path in folder.iterdir()} - {MANIFEST}
    # These are loaded: a manifest that lists none of them is not of an export.
    needed = set(parts) or {CONFIG, *filter(_holds_weights, present)}
    if not parts and not any(map(_holds_weights, manifest.files)):
        needed.add(SINGLE)
    unlisted = sorted(needed - set(manifest.files))
    extra = [name for name in manifest.unlisted(folder) if name not in needed]
    notes = [_extra(extra)] if extra else []
    problems = [
        *([f"{_listed(unlisted)} not listed in {MANIFEST}"] if unlisted else []),
        *strange,
        *([f"{_listed(missing)} missing, and listed in {MANIFEST}"] if missing else []),
        *([f"{_listed(changed)} not as in {MANIFEST}"] if changed else []),
    ]
    if problems:
        return wrong("bytes", *map(_changed, problems), *notes)
    links = [*filter(None, (_linked(folder / name) for name in manifest.files))][:1]
    return passed("bytes", f"{len(manifest.files)} files match {MANIFEST}{''.join(links)}", *notes)


def of_file(header: GGUFHeader, progress: Report) -> Checked:
    """A GGUF file compared with the digest in its metadata."""
    seal = provenance.seal_of(header, progress)
    size = header.values.get(provenance.SIZE)
    if seal == "of another file" and isinstance(size, int) and ends_at(header, size):
        more = header.path.stat().st_size - size
        said = f"{more:,} bytes follow the {size:,} that the file was written with"
        return wrong("bytes", _changed(said))
    if seal == "none":
        return unknown("bytes", NO_MANIFEST)
    if seal == "of another file":
        return unknown("bytes", "not compared: the file was written anew since its digest was made")
    if seal == "broken":
        said = f"the file is not as it was written: {provenance.SHA256} in it is of other bytes"
        return wrong("bytes", _changed(said))
    return passed("bytes", f"as {provenance.SHA256} in the file says")


def _holds_weights(name: str) -> bool:
    return name.endswith(".safetensors") or name == INDEX


def _linked(path: Path) -> str:
    """The place that a link leads to, in words."""
    return f" (linked: {os.readlink(path)})" if path.is_symlink() else ""


def _kind(path: Path) -> str:
    link = "a link to " if path.is_symlink() else ""
    try:
        mode = path.stat().st_mode
    except OSError:
        return f"{link}nothing" if link else "unreadable"
    kinds = ((stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"), (stat.S_ISDIR, "a folder"))
    return link + next((kind for is_kind, kind in kinds if is_kind(mode)), "a device")


def _listed(names: list[str]) -> str:
    be = "is" if len(names) == 1 else "are"
    return f"{listed(names)} {be}"


def _extra(names: list[str]) -> Finding:
    return Finding(
        "not-in-manifest",
        (),
        f"{_listed(names)} not in {MANIFEST}",
        "added after the export, so not compared with the plan",
        "remove what does not belong to the model",
        wrong=False,
    )
