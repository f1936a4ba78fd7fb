"""What every task promises; a new task is tested by being there."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from functools import cache
from itertools import pairwise, takewhile

import numpy as np
import pytest

from ropewalk.errors import InvalidValue, UnknownName, Unsupported
from ropewalk.evaluation import samples
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.prose import FILLER
from ropewalk.evaluation.randomness import Stream
from ropewalk.evaluation.samples import MARGIN, DoesNotFit, Sample, generate
from ropewalk.evaluation.tasks import (
    QUESTIONS,
    Draft,
    Scene,
    Task,
    kv,
    lines,
    named,
    names,
    needle,
    passkey,
)
from tests.evaluation import tiny
from tests.forks import Forks

ENCODER = Encoder(tiny.tokenizer())
HAYSTACK = Haystack(tiny.documents())
LENGTH = 2048
LONG = 8192
COUNTED = ("oolong-count-syn", "oolong-compare-syn")
"""Tasks whose answers do not stand in the prompt."""
every_task = pytest.mark.parametrize("task", [named(name) for name in names()], ids=names())


SIZES = (ENCODER, tiny.LargeEncoder(tiny.tokenizer()))
each_size = pytest.mark.parametrize("encoder", SIZES, ids=["small", "large"])


@cache
def _samples(
    task: Task, count: int, length: int = LENGTH, seed: int = 0, encoder: Encoder = ENCODER
) -> tuple[Sample, ...]:
    return tuple(generate(task, encoder, HAYSTACK, length, count, seed))


def _long(task: Task, encoder: Encoder) -> tuple[Sample, ...]:
    return _samples(task, 6, LONG, 0, encoder)


@every_task
@each_size
def test_samples_fit_their_length_and_fill_it(task: Task, encoder: Encoder) -> None:
    for sample in _long(task, encoder):
        used = len(sample.prompt) + sample.allowance
        assert 0.98 * LONG <= used <= LONG
        least = 0 if encoder.is_small else task.allowance
        assert sample.allowance == max(least, len(sample.answer) + MARGIN)


@every_task
def test_fewer_samples_are_the_beginning_of_more(task: Task) -> None:
    few, more = _samples(task, 3), _samples(task, 8)
    for a, b in zip(few, more, strict=False):
        assert a.id == b.id
        np.testing.assert_array_equal(a.tokens, b.tokens)


def digests() -> dict[str, str]:
    """What all tasks draw, in both sizes."""
    found = {}
    for name in names():
        digest = hashlib.sha256()
        for encoder in SIZES:
            for sample in generate(named(name), encoder, HAYSTACK, LONG, 1, 0):
                digest.update(sample.tokens.tobytes())
                digest.update(repr((sample.id, sample.references, sample.parts)).encode())
        found[name] = digest.hexdigest()
    return found


def test_samples_are_the_same_in_another_process_with_another_hash_seed(fresh: Forks) -> None:
    done = fresh.run(["-c", f"from {__name__} import digests; print(hash('a'), digests())"])
    seed, _, said = done.stdout.partition(" ")
    assert seed != str(hash("a")), done.stderr
    assert said == f"{digests()}\n"


@every_task
@each_size
def test_every_sample_has_a_layout_of_its_own(task: Task, encoder: Encoder) -> None:
    """Two prompts differ in more than in the values that are asked for."""
    texts = set()
    for sample in _long(task, encoder):
        text = encoder.text(sample.prompt)
        for reference in sample.references:
            text = text.replace(reference.strip(), "…")
        texts.add(text)
    assert len(texts) == 6


@every_task
def test_samples_are_different_and_so_are_their_ids(task: Task) -> None:
    drawn = _samples(task, 8) + _samples(task, 8, seed=1) + _samples(task, 8, length=LENGTH // 2)
    assert len({sample.id for sample in drawn}) == 24
    assert len({sample.tokens.tobytes() for sample in drawn}) == 24


@every_task
def test_an_id_says_what_a_sample_was_made_from(task: Task) -> None:
    [first] = _samples(task, 1)
    other_corpus = Haystack(tiny.documents(2))
    other_tokenizer = Encoder(tiny.tokenizer(bos=False))
    others = [
        *_samples(replace(task, version=task.version + 1), 1),
        *generate(task, ENCODER, other_corpus, LENGTH, 1, 0),
        *generate(task, other_tokenizer, HAYSTACK, LENGTH, 1, 0),
    ]
    assert first.id not in {sample.id for sample in others}


@every_task
def test_depths_are_spread(task: Task) -> None:
    """A tenth of the context holds the answer of about a tenth of the samples."""
    drawn = [sample.depth for sample in _samples(task, 30)]
    if set(drawn) == {None}:
        return  # the answer has no one place
    depths = sorted(depth for depth in drawn if depth is not None)
    assert len(depths) == 30
    assert max(b - a for a, b in pairwise([0, *depths, 1])) < 0.25


@every_task
@each_size
def test_the_prompt_holds_the_answer_and_ends_with_the_question(
    task: Task, encoder: Encoder
) -> None:
    for sample in _long(task, encoder):
        prompt = encoder.text(sample.prompt)
        if task.name not in COUNTED:
            assert all(reference.strip() in prompt for reference in sample.references)
        assert encoder.text(sample.tokens) == prompt + sample.answer_text
        assert sample.depth is None or 0 <= sample.depth < 1
        assert all(0 <= p.start < p.stop <= len(sample.answer) for p in sample.parts)
        for distractor in sample.distractors:
            assert distractor in prompt


@every_task
@each_size
def test_the_answer_scores_and_nothing_else_does(task: Task, encoder: Encoder) -> None:
    for sample, other in pairwise(_long(task, encoder)):
        begun = sample.answer_text[: len(sample.answer_text) // 3]
        others = () if other.references == sample.references else (other.answer_text,)
        for wrong in (*others, *sample.distractors, begun):
            assert 0 <= task.score(wrong, sample.references) < 1
        assert task.score("", sample.references) == 0
        assert task.score(sample.answer_text, sample.references) == 1
        assert task.score(f"{sample.answer_text}\nand so on 99", sample.references) == 1


@every_task
@each_size
def test_what_is_written_after_the_end_changes_no_score(task: Task, encoder: Encoder) -> None:
    if not task.ends:
        return  # all that is written counts
    for sample in generate(task, encoder, HAYSTACK, LONG, 3, 0):
        answer = sample.answer_text
        assert not re.search(task.ends, answer)
        for before in ("", " ", "\n", "It is", "7 or "):
            for after in ("", "\n", ".", " 9", ", 12>", "9", f"\n{answer}"):
                written = f"{before}{answer}{after}"
                found = re.search(task.ends, written)
                kept = written[: found.end()] if found else written
                score = task.score(kept, sample.references)
                assert score == task.score(written, sample.references)


@every_task
@each_size
def test_questions_on_one_text_differ_at_its_end_only(task: Task, encoder: Encoder) -> None:
    if task.questions is None:
        return
    for units in (0, 1, 40):

        def scene(units: int = units) -> Scene:
            return Scene(Stream(task.name, units), 0.3, HAYSTACK, 0.5, encoder.is_small, LENGTH)

        found = task.questions(scene(), units)
        assert found[0] == task.draft(scene(), units)
        assert len({draft.answer for draft in found}) == len(found) <= QUESTIONS
        assert len(found) == QUESTIONS or units < QUESTIONS
        prompts = (draft.prompt for draft in found)
        letters = takewhile(lambda row: len(set(row)) == 1, zip(*prompts, strict=False))
        text = "".join(row[0] for row in letters)
        for draft in found:
            assert draft.answer.strip() in text
            assert len(found) == 1 or len(draft.prompt) - len(text) < 200


@every_task
def test_a_length_too_short_says_how_much_it_takes(task: Task) -> None:
    with pytest.raises(DoesNotFit, match=f"{task.name} does not fit in 12 tokens") as refusal:
        _samples(task, 1, length=12)
    enough = int(str(refusal.value).rsplit(maxsplit=1)[-1])
    assert len(_samples(task, 1, length=enough)) == 1
    with pytest.raises(DoesNotFit):
        _samples(task, 1, length=enough - 1)


def test_an_unknown_task_lists_those_there_are() -> None:
    with pytest.raises(UnknownName, match="needle"):
        named("haystack")


def _scene(depth: float, *, small: bool = True) -> Scene:
    return Scene(Stream(0), depth, HAYSTACK, 0.5, small, LENGTH)


def test_the_passkey_prompt_is_that_of_the_appendix() -> None:
    draft = passkey.draft(_scene(0.5), 3 * 5)
    number = draft.answer.strip()
    filler = " ".join(FILLER)
    assert draft.prompt.split("\n") == [
        passkey.TASK,
        f"{filler} {filler}",
        f"The pass key is {number}. Remember it. {number} is the pass key.",
        filler,
        "What is the pass key? The pass key is",
    ]
    assert len(number) == 5


def test_the_first_integer_answers_a_passkey() -> None:
    assert passkey.score(" 12345. The grass", (" 12345",))
    assert not passkey.score(" 99999, no: 12345", (" 12345",))
    assert not passkey.score(" 123456", (" 12345",))


def test_the_needle_of_a_small_model_is_a_line_that_begins_again() -> None:
    draft = needle.draft(_scene(0.4), 60)
    assert f"{draft.prompt.rpartition(chr(10))[2]}{draft.answer}\n" in draft.prompt


def test_long_eval_lines() -> None:
    draft = lines.draft(_scene(0.5), 6)
    rows = draft.prompt.split("\n")
    assert len(rows) == 8
    assert rows[3] == f"{rows[-1]}{draft.answer}>"
    assert len({row.split(" <")[0] for row in rows[:7]}) == 7
    assert lines.score("1 is wrong 4821>", ("4821",))
    assert not lines.score("48>\nline x: REGISTER_CONTENT is <4821>", ("4821",))
    with pytest.raises(Unsupported, match="has names for"):
        lines.draft(_scene(0.5), 10**6)


def test_key_value_pairs_of_a_small_model_have_three_to_confuse_them_with() -> None:
    draft = kv.draft(_scene(0.5), 80)
    keys = [row for row in draft.prompt.split("\n")[:-1] if row.startswith("# key ")]
    assert len(keys) == len({key[:8] for key in keys}) == 1 + kv.DISTRACTORS
    assert sum(key.startswith(draft.prompt.rpartition("\n")[2]) for key in keys) == 1


def test_key_value_pairs_of_others_are_json() -> None:
    draft = kv.draft(_scene(0.5, small=False), 20)
    table = json.loads(draft.prompt[draft.prompt.index("{") : draft.prompt.index("}") + 1])
    key = draft.prompt.rsplit('"', 3)[1]
    assert len(table) == 21
    assert table[key] == draft.answer


class JoiningTokenizer:
    """Joins a space and the digit after it, as many do."""

    bos_token_id, bos_token = None, None

    def __call__(self, text: str, **_: object) -> dict[str, list[int]]:
        codes = [ord(letter) for letter in text.replace(" 1", "\x01")]
        return {"input_ids": codes}

    def decode(self, tokens: list[int], **_: object) -> str:
        return "".join(map(chr, tokens)).replace("\x01", " 1")


def test_a_token_over_the_border_belongs_to_the_answer() -> None:
    encoder = Encoder(JoiningTokenizer())
    prompt, answer = samples.split(encoder, Draft("is ", "17", 0.0))
    assert encoder.text(prompt) == "is"
    assert encoder.text(answer) == " 17"


class LosingTokenizer(JoiningTokenizer):
    """Knows no digits."""

    def __call__(self, text: str, **more: object) -> dict[str, list[int]]:
        return super().__call__(re.sub(r"\d", "?", text), **more)


def test_a_tokenizer_that_cannot_keep_the_needle_is_refused() -> None:
    encoder: Encoder = Encoder(LosingTokenizer())
    with pytest.raises(InvalidValue, match=r"1234.*turns into ' \?\?\?\?'.*leave out the task"):
        samples.split(encoder, Draft("The number is", " 1234"))
