"""From a plan to a folder that stock transformers loads, and back: the folder is checked."""

from pathlib import Path
from tempfile import TemporaryDirectory

import ropewalk as rw

planned = rw.plan("bundled", "1k", "yarn")
with TemporaryDirectory() as place:
    out = Path(place) / "longer"
    print(rw.export("bundled", planned, runtime="transformers", out=out).summary())
    print(rw.verify(out, plan=planned).summary())
