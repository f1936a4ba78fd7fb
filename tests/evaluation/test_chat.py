"""Questions through chat templates, in process and in the real llama.cpp."""

from __future__ import annotations

import copy
import hashlib
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ropewalk as rw
from ropewalk.errors import InputError
from ropewalk.evaluation import encoding
from ropewalk.evaluation.answerers.server import encoder_of
from ropewalk.evaluation.chat import Chat, chat_of, rendered_by
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import generate
from ropewalk.evaluation.tasks import Draft, named
from ropewalk.exporting.llama_cpp import export
from ropewalk.models.load import LoadedModel
from ropewalk.records import EvalRecord
from ropewalk.run_directory import RECORDS, read_journal
from tests.evaluation import tiny
from tests.gguf.gguf_cases import bundled_folder, unproven

BEGIN, END = "<|im_start|>", "<|im_end|>"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking | default(true) %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
WITH_BOS = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content | trim }}<|im_end|>"
    "{% endfor %}{% if add_generation_prompt %}assistant:\n\n{% endif %}"
)
DATED = CHATML + "{% if date_string is not defined %}{{ strftime_now('%f') }}{% endif %}"
DROPS_SYSTEM = CHATML.replace("in messages %}", "in messages if m.role != 'system' %}")
FAILS = "{{ raise_exception('roles must be these') }}"
SAYS_ALL_AGAIN = "{% for m in messages %}{{ m.content | upper }}{% endfor %}"


def tokenizer(template: str | None = CHATML, *, ends: str | None = END) -> Any:
    own = copy.deepcopy(tiny.tokenizer())
    own.add_special_tokens({"additional_special_tokens": [BEGIN, END]})
    own.chat_template, own.eos_token = template, ends
    return own


def chat(template: str = CHATML, system: str | None = None) -> Chat:
    render = rendered_by(tokenizer(template))
    assert render is not None
    return chat_of(render, system)


@pytest.mark.parametrize("template", [CHATML, WITH_BOS])
@pytest.mark.parametrize("system", [None, "Be brief."])
def test_a_question_is_what_the_template_itself_makes_of_it(
    template: str, system: str | None
) -> None:
    own = tokenizer(template)
    encoder = Encoder(own).with_chat(chat(template, system))
    draft = Draft("Some text.\nWhat is it?\nIt is", " 12")
    put = encoder.chat.put(draft) if encoder.chat else draft
    said = [{"role": "user", "content": "Some text.\nWhat is it?"}]
    said = said if system is None else [{"role": "system", "content": system}, *said]
    tokens = own.apply_chat_template(
        said, add_generation_prompt=True, enable_thinking=False, return_dict=False
    )
    begun = own("It is", add_special_tokens=False)["input_ids"]
    assert encoder.prompt(put.prompt).tolist() == [*tokens, *begun]
    assert put.answer == " 12"
    assert ("<think>\n\n</think>" in put.prompt) is (template == CHATML)


@pytest.mark.parametrize(
    ("draft", "prompt", "answer"),
    [
        (Draft("Text. Which?\nIt is", " 1"), "[Text. Which?]It is", " 1"),
        (Draft("Text. Which? It is", " 1", begun=" It is"), "[Text. Which?]It is", " 1"),
        (Draft("Say it.\nAssistant:", " 1", begun=""), "[Say it.\nAssistant:]", "1"),
        (Draft("Which one?", " 1"), "[Which one?]", "1"),
    ],
)
def test_the_answer_is_begun_in_the_turn_of_the_model(
    draft: Draft, prompt: str, answer: str
) -> None:
    put = Chat("[", "]", "").put(draft)
    assert (put.prompt, put.answer) == (prompt, answer)


def test_a_date_in_a_template_is_the_same_tomorrow() -> None:
    assert chat(DATED) == chat(DATED) == chat(CHATML)


def test_every_task_can_be_put_as_a_chat() -> None:
    encoder = Encoder(tokenizer()).with_chat(chat())
    haystack = Haystack(tiny.documents())
    for name in (
        "passkey",
        "kv",
        "qa-1-syn",
        "mrcr-2-syn",
        "graphwalks-bfs-syn",
        "nolima-onehop-syn",
    ):
        [sample] = generate(named(name), encoder, haystack, 4096, 1, 0)
        text = encoder.tokenizer.decode(sample.prompt.tolist())
        assert text.startswith(f"{BEGIN}user\n")
        assert text.count(f"{END}\n{BEGIN}assistant\n") == 1
        assert len(sample.prompt) + sample.allowance <= 4096
        plain = next(generate(named(name), Encoder(tokenizer()), haystack, 4096, 1, 0))
        assert sample.id != plain.id
        assert set(sample.references) == set(plain.references)


@pytest.mark.parametrize(
    ("template", "system", "told"),
    [
        (FAILS, None, "fails: 'roles must be these'; measure without it"),
        (FAILS, "Be brief.", "leave out `system`, or measure without"),
        (DROPS_SYSTEM, "Be brief.", "drops the system text"),
        (SAYS_ALL_AGAIN, None, "does not leave a question and its answer unchanged"),
    ],
)
def test_templates_that_lose_something_are_refused(
    template: str, system: str | None, told: str
) -> None:
    with pytest.raises(InputError, match=told):
        chat(template, system)
    if template == DROPS_SYSTEM:
        assert chat(template).before == f"{BEGIN}user\n"


def loaded(own: Any) -> LoadedModel:
    return LoadedModel("tiny", tiny.model(vocab_size=len(own)), own, tiny.loaded().present_plan)


def evaluated(own: Any, **changes: Any) -> list[str]:
    told: list[str] = []
    settings = {"tasks": ["kv"], "lengths": [512], "samples": 3, "corpus": tiny.documents()}
    rw.evaluate(loaded(own), **{**settings, "mode": "generate", **changes}, notice=told.append)
    return told


@pytest.mark.parametrize(
    ("template", "ends", "asked", "is_put"),
    [
        (CHATML, END, "auto", True),
        (CHATML, END, "off", False),
        (CHATML, None, "auto", False),  # a base model, whose tokenizer carries a template
        (CHATML, None, "on", True),
        (None, END, "auto", False),
    ],
)
def test_an_instruct_model_is_asked_in_a_chat_unless_told(
    template: str | None,
    ends: str | None,
    asked: str,
    is_put: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(encoding, "SMALL_VOCABULARY", 0)
    run = tmp_path / "run"
    told = evaluated(tokenizer(template, ends=ends), chat=asked, run=run)
    assert any("chat template" in line for line in told) is is_put
    records = [EvalRecord.from_json(line) for line in read_journal(run / RECORDS)]
    assert all((record.prompt is not None) is is_put for record in records)


def test_records_hold_the_digest_of_the_prompt_and_another_system_text_is_another_run(
    tmp_path: Path,
) -> None:
    own, run = tokenizer(), tmp_path / "run"
    evaluated(own, chat="on", system="Be brief.", run=run)
    encoder = Encoder(own).with_chat(chat(system="Be brief."))
    wanted = {
        hashlib.sha256(np.array(sample.prompt, dtype="<i8").tobytes()).hexdigest()
        for sample in generate(named("kv"), encoder, Haystack(tiny.documents()), 512, 3, 0)
    }
    assert {line["prompt"] for line in read_journal(run / RECORDS)} == wanted
    before = (run / RECORDS).read_bytes()
    evaluated(own, chat="on", system="Be brief.", run=run)
    with pytest.raises(InputError, match="different configuration"):
        evaluated(own, chat="on", system="Be long.", run=run)
    assert (run / RECORDS).read_bytes() == before


@pytest.mark.parametrize(
    ("own", "changes", "told"),
    [
        (tokenizer(None), {"chat": "on"}, "has no chat template"),
        (tokenizer(), {"chat": "off", "system": "Be brief."}, "needs a chat"),
        (tokenizer(), {"system": "Be brief."}, "needs a chat"),  # a small model
    ],
)
def test_a_chat_that_cannot_be(own: Any, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        evaluated(own, **changes)


def test_an_answer_ends_where_the_template_ends_it() -> None:
    own = tokenizer(ends=None)
    encoder = Encoder(own).with_chat(chat())
    written = np.array(own("12<|im_end|>\n3", add_special_tokens=False)["input_ids"])
    assert encoder.text(encoder.until_end(written)) == "12"
    assert not Encoder(own).ends_as(chat())
    assert Encoder(own, ends=[own.convert_tokens_to_ids(END)]).ends_as(chat())


def test_a_servers_tokenizer_knows_the_ends_of_its_folder(tmp_path: Path) -> None:
    own = tokenizer(ends=None)
    own.save_pretrained(tmp_path)
    assert not encoder_of(tmp_path).ends_as(chat())
    (tmp_path / "generation_config.json").write_text(
        f'{{"eos_token_id": [1, {own.convert_tokens_to_ids(END)}]}}'
    )
    assert encoder_of(tmp_path).ends_as(chat())


def test_llama_cpp_puts_a_question_as_transformers_does(tmp_path: Path) -> None:
    """The same answers to the same prompts, by their digests and ids of samples."""
    folder = bundled_folder(tmp_path / "model")
    template = re.sub(r"<\|im_\w+\|>", "//", CHATML)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    file = tmp_path / "model.gguf"
    unproven(export)(folder, rw.inspect(folder).plan, file, dtype="F32")
    asked: dict[str, Any] = {"tasks": ["needle"], "lengths": [256], "samples": 3, "chat": "on"}
    found = {}
    for name, model in (("folder", folder), ("file", file)):
        run = tmp_path / name
        rw.evaluate(model, **asked, mode="generate", system="Be brief.", run=run)
        lines = read_journal(run / RECORDS)
        found[name] = [
            (line["prompt"], str(line["answer"]).split("\n")[0])
            for line in lines
            if line["metric"] == "task_score"
        ]
    assert len(found["file"]) == 3
    assert found["file"] == found["folder"]
