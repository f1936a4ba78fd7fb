"""Writes a drafter beside the export of its target: a config under a plan, and links to its files.

Linked, so a drafter takes no second room; whoever trains it further saves to another folder.
"""

from __future__ import annotations

from pathlib import Path

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.exporting.manifest import MANIFEST, Manifest, is_listable
from ropewalk.exporting.staging import staged
from ropewalk.exporting.writing import lies_within, write_json
from ropewalk.models.config import Config


def write(
    home: Path, config: Config, plan: ContextPlan, runtime: str, out: Path, *, overwrite: bool
) -> None:
    """No code, no link that leads out of the folder, and no weight is copied or loaded."""
    with staged(out, needs_bytes=0, overwrite=overwrite, sources=(home,)) as folder:
        folder.mkdir()
        for path in home.iterdir():
            skip = path.name in ("config.json", PLAN, MANIFEST) or path.suffix == ".py"
            if not skip and is_listable(path.name) and path.is_file() and lies_within(path, home):
                (folder / path.name).symlink_to(path.resolve())
        write_json(folder / "config.json", config)
        write_json(folder / PLAN, plan.to_json())
        Manifest.of(folder, runtime=runtime).write(folder)
