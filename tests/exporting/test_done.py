"""The bundled model, extended by search and exported, does its work in stock transformers alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document
from ropewalk.evaluation import tasks
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import Sample, generate
from ropewalk.exporting import fresh_process
from ropewalk.models.config import BUNDLED, BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from ropewalk.runtimes import targets
from tests.exporting.folders import answered_here
from tests.gguf.gguf_cases import FOUND, named_plan

# All that a user of transformers needs to know.
STOCK = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
torch.set_num_threads(1)
answers = []
for folder in sys.argv[2:]:
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    for prompt, allowance in json.load(open(sys.argv[1])):
        ids = torch.tensor([prompt])
        written = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=allowance, do_sample=False
        )
        answers.append(tokenizer.decode(written[0, len(prompt):]))
print(json.dumps(answers))
"""
SERVED, BEYOND = (1024, 2048), 4096


def samples() -> list[Sample]:
    """Two pass keys at every length, all beyond the window of 512, the last beyond the plan too."""
    encoder = Encoder(load_tokenizer(BUNDLED_FOLDER))
    unused = Haystack([Document("unused", "the task has a filler of its own")])
    passkey = tasks.named("passkey")
    return [own for n in (*SERVED, BEYOND) for own in generate(passkey, encoder, unused, n, 2, 0)]


@pytest.mark.slow
def test_the_exported_folder_alone_finds_the_pass_key_beyond_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(fresh_process, "run_script", answered_here)
        for name, plan in (("searched", ContextPlan.read(FOUND)), ("plain", named_plan("plain"))):
            targets()["transformers"].write(BUNDLED, plan, tmp_path / name)
    asked = samples()
    prompts = tmp_path / "prompts.json"
    prompts.write_text(json.dumps([(own.prompt.tolist(), own.allowance) for own in asked]))
    folders = [str(tmp_path / name) for name in ("searched", "plain")]
    done = subprocess.run(
        [sys.executable, "-I", "-c", STOCK, str(prompts), *folders],
        capture_output=True,
        text=True,
        check=True,
    )
    written = json.loads(done.stdout)
    passkey = tasks.named("passkey")
    right = [
        passkey.score(text, own.references) for text, own in zip(written, 2 * asked, strict=True)
    ]
    searched, plain = right[: len(asked)], right[len(asked) :]
    assert all(searched[:-2])
    # It is the plan that does it.
    assert not all(plain[2:-2])
    assert not any(plain[-2:])
