"""Screenshots of the sample report, in both colour schemes and at two widths.

    python -m docs.make_screenshots          needs chromium (`make test-browser` installs it)

Each carries the digest of the page that it shows: `make figures-check` finds one of an older page.
Look at them before they are committed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from docs.figures import DIGEST, ROOT

PAGE = ROOT / "docs" / "sample_report.html"


class Shot(NamedTuple):
    width: int
    height: int
    dark: bool


SHOTS = {
    "docs/images/report.png": Shot(1200, 1000, False),
    "docs/images/report-dark.png": Shot(1200, 1000, True),
    "docs/images/report-phone.png": Shot(500, 1000, True),
}


def screenshots() -> dict[str, str]:
    """The digest of the page that each should show, for docs/figures.py."""
    if not PAGE.exists():
        return {}
    digest = hashlib.sha256(PAGE.read_bytes()).hexdigest()
    return dict.fromkeys(SHOTS, digest)


def main() -> None:
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("chromium is not installed; see make test-browser")
    for name, digest in screenshots().items():
        shot = SHOTS[name]
        with tempfile.TemporaryDirectory() as folder:
            raw = Path(folder) / "shot.png"
            command = [
                *(chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
                *(f"--user-data-dir={folder}/profile", f"--window-size={shot.width},{shot.height}"),
                f"--blink-settings=preferredColorScheme={0 if shot.dark else 1}",
                *(f"--screenshot={raw}", PAGE.as_uri()),
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
            told = PngInfo()
            told.add_text(DIGEST, digest)
            with Image.open(raw) as image:
                image.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(
                    ROOT / name, pnginfo=told, optimize=True
                )
        print(f"{name}: taken")


if __name__ == "__main__":
    main()
