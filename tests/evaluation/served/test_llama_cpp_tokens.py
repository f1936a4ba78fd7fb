"""llama.cpp's tokens of a file: those of the folder that it was written from."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from ropewalk.errors import InputError
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.served.client import Client, address
from ropewalk.evaluation.served.llama_cpp_tokens import encoder_of
from ropewalk.gguf.llama_cpp_run import serving
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from tests.evaluation.served import made

TEXTS = ("", "a", "def f(x):\n    return x\n\n", "key QX4821", "straße 🙂 \t end", "<|end|> a")


def test_its_tokens_are_those_of_the_folder(tmp_path: Path) -> None:
    path = made.gguf(tmp_path / "model.gguf", dtype="Q8_0")
    with serving(path, length=256) as llama:
        assert urlsplit(llama.address).hostname == "127.0.0.1"
        found = encoder_of(Client(address(llama.address)), 1024, "digest")
        own = Encoder(load_tokenizer(BUNDLED_FOLDER), 1024)
        assert found.bos == own.bos
        assert found.is_small is own.is_small is True
        assert found.sha256 == "digest"
        for text in TEXTS:
            np.testing.assert_array_equal(found.pieces(text), own.pieces(text))
            np.testing.assert_array_equal(found.sequence(text), own.sequence(text))
        corpus = "a line of a corpus\n" * 60_000
        assert found.text(found.pieces(corpus)) == corpus, "in parts"
        assert found.pieces(corpus) is not found.pieces(corpus)
        answer = own.pieces("QX4821 straße")
        assert found.text(answer) == own.text(answer)
        few = encoder_of(Client(address(llama.address)), 2, "digest")
        with pytest.raises(InputError, match="vocabulary ends at 1"):
            few.pieces("straße")
