"""What is read from a server's answers, in the forms of each kind, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ropewalk.errors import InputError, RopewalkError, UnknownName
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.served.client import Client, ServerError, address
from ropewalk.evaluation.served.server import ChangedModel, Miscounted, Server, discover
from ropewalk.models.config import BUNDLED_FOLDER
from ropewalk.models.load import load_tokenizer
from tests.evaluation.served.bad_server import Reply, Wire, completed, listed, misbehaving, said

TOKENS = [0, 40, 41, 42]
Complete = Callable[[dict[str, Any], int], Reply]


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder(load_tokenizer(BUNDLED_FOLDER))


def well(asked: dict[str, Any], number: int) -> Reply:
    return said(completed(asked))


def client(wire: Wire) -> Client:
    return Client(address(wire.url), None, timeout=10.0, first_wait=0.01)


def opened(wire: Wire, encoder: Encoder | None, **more: Any) -> Server:
    return Server.open(client(wire), encoder, TOKENS, **more)


def changed(**changes: Any) -> Complete:
    """Well at first, when it is tried what the server takes; then with changes."""

    def complete(asked: dict[str, Any], number: int) -> Reply:
        return said(completed(asked, **(changes if number else {})))

    return complete


def answered(complete: Complete, encoder: Encoder, *, top: bool = False) -> Any:
    with misbehaving(complete) as wire:
        return opened(wire, encoder).complete(TOKENS, count=2, top=top)


def test_what_is_asked_and_what_is_read(encoder: Encoder) -> None:
    with misbehaving(well) as wire:
        answer = opened(wire, encoder).complete(TOKENS, count=7)
    assert (answer.text, answer.prompt_tokens, answer.top) == (" 12345", 4, None)
    asked = wire.asked[-1]
    assert asked["prompt"] == TOKENS
    assert (asked["max_tokens"], asked["temperature"], asked["model"]) == (7, 0, "m")
    assert "echo" not in asked  # llama.cpp takes it and gives nothing
    assert "logprobs" not in asked


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"usage": None}, "has no usage.prompt_tokens, without which a cut prompt"),
        ({"usage": {}}, "has no usage.prompt_tokens"),
        *(
            ({"usage": {"prompt_tokens": odd}}, "has no usage.prompt_tokens")
            for odd in (True, -1, 0, 10**300, 1e308, 3.0, "3", [3])
        ),
        ({"choices": []}, "has no choices[0].text"),
        ({"choices": [{"message": {"content": "chat"}}]}, "has no choices[0].text"),
        ({"choices": [{"text": None}]}, "has no choices[0].text"),
        ({"choices": 7}, "has no choices[0].text"),
        ({"choices": [{"text": "1", "finish_reason": "abort"}]}, "was broken off (abort)"),
        ({"choices": [7]}, "has no choices[0].text"),
        ({"choices": [{"text": "x" * 2001}]}, "has 2,001 characters for 2 tokens"),
    ],
)
def test_odd_answers(changes: dict[str, Any], told: str, encoder: Encoder) -> None:
    with pytest.raises(ServerError) as caught:
        answered(changed(**changes), encoder)
    assert told in str(caught.value)


@pytest.mark.parametrize(
    ("read", "told"),
    [
        (3, "read 3 tokens of a prompt of 4: it cuts prompts"),
        (5, "read 5 tokens of a prompt of 4: it adds a token, as a second BOS"),
        (30, "read 30 tokens of a prompt of 4: it puts a template around prompts"),
    ],
)
def test_counts_that_differ(read: int, told: str, encoder: Encoder) -> None:
    with pytest.raises(Miscounted, match=told):
        answered(changed(usage={"prompt_tokens": read}), encoder)


def test_a_model_that_changes_in_an_answer(encoder: Encoder) -> None:
    with pytest.raises(ChangedModel, match="changed its model meanwhile, from m to n"):
        answered(changed(model="n"), encoder)


def test_a_model_that_changes_in_the_list(encoder: Encoder) -> None:
    names = ["m"]
    with misbehaving(well, models=lambda: listed(names[0])) as wire:
        server = opened(wire, encoder)
        server.check_unchanged()
        names[0] = "other"
        with pytest.raises(ChangedModel, match="from m to other"):
            server.check_unchanged()
    context = [4096]
    models = lambda: listed("m", owner="vllm", max_model_len=context[0])  # noqa: E731
    with misbehaving(well, models=models) as wire:
        server = opened(wire, encoder)
        context[0] = 2048
        with pytest.raises(ChangedModel, match="length was 4096, now 2048"):
            server.check_unchanged()


def test_models_are_named_where_there_are_several() -> None:
    with misbehaving(well, models=lambda: listed("a", "b")) as wire:
        with pytest.raises(InputError, match=r"serves 2 models; name one \(`model_name`\): a, b"):
            discover(client(wire))
        assert discover(client(wire), "b").model == "b"
        with pytest.raises(UnknownName, match="unknown served model 'c'"):
            discover(client(wire), "c")
    with misbehaving(well, models=lambda: said({}, 404)) as wire:
        with pytest.raises(InputError, match="lists no model"):
            discover(client(wire))
        assert discover(client(wire), "mine").model == "mine"


TOP = [(40, -0.5), (41, -1.5)]


def logprobs(form: str, encoder: Encoder) -> dict[str, Any]:
    spelled = {token: encoder.tokenizer.decode([token]) for token, _ in TOP}
    if form == "llama.cpp":
        rows = [{"id": t, "token": spelled[t], "logprob": v} for t, v in TOP]
        return {"content": [{**rows[0], "top_logprobs": rows}]}
    if form == "vLLM":
        return {"top_logprobs": [{f"token_id:{t}": v for t, v in TOP}], "tokens": ["token_id:40"]}
    return {"top_logprobs": [{spelled[t]: v for t, v in TOP}], "tokens": [spelled[40]]}


@pytest.mark.parametrize("form", ["llama.cpp", "vLLM", "SGLang"])
def test_alternatives_in_the_forms_of_servers(form: str, encoder: Encoder) -> None:
    choice = {"text": "x", "logprobs": logprobs(form, encoder)}
    answer = answered(lambda asked, n: said(completed(asked, choices=[choice])), encoder, top=True)
    assert answer.top == tuple(TOP)


@pytest.mark.parametrize("ends", [False, True])
def test_fewer_alternatives_where_many_are_refused(ends: bool, encoder: Encoder) -> None:
    def few(asked: dict[str, Any], number: int) -> Reply:
        if asked.get("logprobs", 0) > 5:
            assert not ends  # the connection, as mlx_lm.server does
            return said({"error": {"message": "logprobs must be at most 5"}}, 400)
        return well(asked, number)

    with misbehaving(few) as wire:
        server = opened(wire, encoder)
        server.complete(TOKENS, count=1, top=True)
        server.complete(TOKENS, count=1, top=True)
        many = [20] * (6 if ends else 1)
        assert [asked.get("logprobs") for asked in wire.asked] == [None, *many, 5, 5]


@pytest.mark.parametrize("status", [400, 404])
def test_a_server_that_takes_text_alone(status: int, encoder: Encoder) -> None:
    tokens = encoder.sequence("def main(argument):").tolist()

    def text_alone(asked: dict[str, Any], number: int) -> Reply:
        if not isinstance(asked["prompt"], str):
            return said({"error": {"message": "prompt must be a string"}}, status)
        return said(completed(asked, usage={"prompt_tokens": len(tokens)}))

    with misbehaving(text_alone) as wire:
        assert opened(wire, encoder).complete(tokens, count=1).prompt_tokens == len(tokens)
        assert wire.asked[-1]["prompt"] == "def main(argument):"  # BOS is the server's affair
        with pytest.raises(InputError, match="this prompt as text becomes other tokens"):
            opened(wire, encoder).complete([0, 300, 41, 42, 43, 200, 200, 200], count=1)
        with pytest.raises(RopewalkError, match=r"only text; give the model's tokenizer|404"):
            opened(wire, None)


def test_what_servers_reveal(encoder: Encoder) -> None:
    def other(path: str) -> Reply:
        told: dict[str, object] = {
            "/version": {"version": "0.33.0"},
            "/get_server_info": {
                "version": "0.5.23",
                "context_length": 8192,
                "kv_cache_dtype": "fp8_e5m2",
                "api_key": "never kept",
            },
            "/api/version": {"version": "0.40"},
        }
        return said(told[path]) if path in told else said({}, 404)

    def show(asked: dict[str, Any], number: int) -> Reply:
        return said(
            {
                "details": {"quantization_level": "Q4_K_M"},
                "model_info": {"llama.context_length": 131072},
                "parameters": "num_ctx 4096",
            }
        )

    for owner, kind, version, length, revealed in (
        ("vllm", "vLLM", "0.33.0", 4096, {"root": "/models/x"}),
        ("sglang", "SGLang", "0.5.23", 4096, {"kv_cache_dtype": "fp8_e5m2"}),
        ("library", "Ollama", "0.40", None, {"parameters": "num_ctx 4096"}),
    ):
        models = lambda owner=owner: listed(  # noqa: E731
            "m", owner=owner, max_model_len=4096, root="/models/x"
        )
        with misbehaving(show, models=models, other=other) as wire:
            info = discover(client(wire))
        assert (info.kind, info.version, info.length) == (kind, version, length)
        assert revealed.items() <= info.revealed.items()
        assert "never kept" not in info.line
        assert wire.url in info.line


NUMBERS: list[object] = [None, True, -1, 10**300, 1e308, "²", "x", 7, [7], {"a": 1}, {}]
"""What may stand where a list, an object, a text or a small number should."""


@pytest.mark.parametrize("odd", NUMBERS, ids=lambda odd: str(odd)[:9])
def test_lists_of_models_that_are_nonsense(odd: object) -> None:
    shapes = [odd, {"data": odd}, {"data": [odd]}, {"data": [{"id": odd}]}]
    for shape in shapes:
        with misbehaving(well, models=lambda s=shape: said(s)) as wire:  # type: ignore[misc]
            if shape == {"data": [{"id": "²"}]} or shape == {"data": [{"id": "x"}]}:
                assert discover(client(wire)).length is None
            else:
                with pytest.raises(InputError, match="lists no model"):
                    discover(client(wire))


@pytest.mark.parametrize("odd", [*NUMBERS, 2**41], ids=lambda odd: str(odd)[:9])
def test_lengths_that_are_nonsense_are_not_known(odd: object) -> None:
    props = {"default_generation_settings": {"n_ctx": odd}, "total_slots": odd, "model_path": odd}
    for owner in ("llamacpp", "vllm", "sglang", "library", "x"):
        models = lambda owner=owner: listed(  # noqa: E731
            "m", owner=owner, max_model_len=odd, context_length=odd, meta=odd
        )
        with misbehaving(lambda *_: said(odd), models=models, other=lambda _: said(props)) as wire:
            info = discover(client(wire))
        assert info.length == (7 if odd == 7 and owner != "library" else None)
        assert len(info.line) < 2000


def test_names_that_are_too_long_are_refused() -> None:
    with misbehaving(well, models=lambda: listed("m" * 5000)) as wire:
        with pytest.raises(InputError, match="must have from 1 to 300 characters") as caught:
            discover(client(wire))
        assert len(str(caught.value)) < 300
    with (
        misbehaving(well, models=lambda: listed("")) as wire,
        pytest.raises(InputError, match="must have from 1 to 300 characters"),
    ):
        discover(client(wire))
    with misbehaving(well, models=lambda: listed("a  b")) as wire:
        server = opened(wire, None)
        assert wire.asked[-1]["model"] == "a  b"  # as the server spells it
        server.check_unchanged()


@pytest.mark.parametrize("odd", NUMBERS, ids=lambda odd: str(odd)[:9])
@pytest.mark.parametrize("place", ["logprobs", "content", "first", "rows", "row", "list"])
def test_alternatives_that_are_nonsense_are_none(odd: object, place: str, encoder: Encoder) -> None:
    given = {
        "logprobs": odd,
        "content": {"content": odd},
        "first": {"content": [odd]},
        "rows": {"top_logprobs": odd},
        "row": {"top_logprobs": [odd]},
        "list": {"content": [{"top_logprobs": odd}]},
    }[place]
    choice = {"text": "x", "logprobs": given}
    answer = answered(lambda asked, n: said(completed(asked, choices=[choice])), encoder, top=True)
    assert answer.top is None


@pytest.mark.parametrize(
    ("token", "value"),
    [
        *(("token_id:²", -1), ("token_id:-1", -1), ("token_id:9999999999", -1), ("token_id:", -1)),
        *(("token_id:1", odd) for odd in (None, True, "x", [1], 7, 1e308)),
    ],
)
def test_an_alternative_that_is_nonsense_is_left_out(
    token: str, value: object, encoder: Encoder
) -> None:
    rows = {"token_id:40": -0.5, token: value}
    entries = [{"id": 40, "logprob": -0.5}, {"id": token, "token": token, "logprob": value}]
    entries += [{"id": odd, "logprob": -1} for odd in (True, -5, 10**30, 1.5, None)]
    for told in ({"top_logprobs": [rows]}, {"content": [{"top_logprobs": entries}]}):
        choice = {"text": "x", "logprobs": told}
        answer = answered(
            lambda asked, n, c=choice: said(completed(asked, choices=[c])),  # type: ignore[misc]
            encoder,
            top=True,
        )
        assert answer.top == ((40, -0.5),)


def test_alternatives_without_end_are_refused(encoder: Encoder) -> None:
    many = {f"token_id:{i}": -12.0 for i in range(100_000)}
    entries = [{"id": i, "logprob": -12.0} for i in range(1001)]
    for told in ({"top_logprobs": [many]}, {"content": [{"top_logprobs": entries}]}):
        choices = [{"text": "x", "logprobs": told}]
        with pytest.raises(ServerError, match="alternatives of a token, and 20 are asked for"):
            answered(changed(choices=choices), encoder, top=True)
