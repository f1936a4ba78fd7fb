"""A question as a model's own chat template puts it, and when it is put so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from ropewalk.confined import confined
from ropewalk.errors import InputError, RopewalkError, shortened
from ropewalk.evaluation.tasks import Draft
from ropewalk.progress import Notice

if TYPE_CHECKING:
    from ropewalk.evaluation.encoding import Encoder

_ASKED, _ANSWERED, _AGAIN = "What was asked?", "What was answered.", "What was asked then?"
SETTINGS: dict[str, object] = {
    "enable_thinking": False,
    "thinking": False,
    "date_string": "01 Jan 2025",  # else a run could not go on tomorrow
}
"""Settings for templates that know these names."""
Messages = list[dict[str, str]]
Rendered = Callable[[Messages], str]
"""A conversation as text, up to where the model goes on with an answer."""


@dataclass(frozen=True)
class Chat:
    """The text around a question. A template puts every question alike, so it is asked once."""

    before: str
    after: str
    end: str
    """The text after an answer."""

    def put(self, draft: Draft) -> Draft:
        """The draft as a conversation; the answer is begun in the model's turn, if it is begun."""
        lines, _, last = draft.prompt.rpartition("\n")
        begun = draft.begun
        if begun is None:
            begun = last if lines else ""
        question = draft.prompt.removesuffix(begun).strip()
        begun = begun.strip()
        prompt = f"{self.before}{question}{self.after}{begun}"
        return draft._replace(prompt=prompt, answer=draft.answer if begun else draft.answer.strip())

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def chat_of(render: Rendered, system: str | None) -> Chat:
    """A template's text around a question; one that fails, or loses a part, is refused."""
    said = [] if system is None else [{"role": "system", "content": system}]
    said.append({"role": "user", "content": _ASKED})
    again = [
        *said,
        {"role": "assistant", "content": _ANSWERED},
        {"role": "user", "content": _AGAIN},
    ]
    try:
        prompt, whole = render(said), render(again)
    except RopewalkError:  # beyond its limits
        raise
    except Exception as error:  # templates are programs, and raise what they like
        raise InputError(
            f"the model's chat template fails: {shortened(str(error))}; "
            + ("leave out `system`, or " if system is not None else "")
            + "measure without it (`chat` off)"
        ) from None
    before, question, after = prompt.partition(_ASKED)
    _, answer, end = whole.partition(_AGAIN)[0].partition(_ANSWERED)
    if system is not None and system.strip() not in before:
        raise InputError(
            "the model's chat template drops the system text; leave out `system`, or measure "
            "without the template (`chat` off)"
        )
    if not question or not answer or _ASKED in after:
        raise InputError(
            "the model's chat template does not leave a question and its answer unchanged; measure "
            "without it (`chat` off)"
        )
    return Chat(before, after, end)


def chosen(
    encoder: Encoder, mode: Literal["auto", "on", "off"], system: str | None, notice: Notice
) -> Chat | None:
    """The template that questions go through; None if they are text to continue."""
    render = None if mode == "off" else rendered_by(encoder.tokenizer)
    if render is None or (mode == "auto" and encoder.is_small):
        chat = None
    else:
        chat = chat_of(render, system)
    if chat is None or (mode == "auto" and not encoder.ends_as(chat)):
        if mode == "on":
            raise InputError("the model has no chat template; leave out `chat`")
        if system is not None:
            raise InputError(
                "the system text needs a chat, and the model is asked without one; leave out "
                "`system`, or turn `chat` on"
            )
        return None
    notice("questions are put through the model's chat template (`chat` off: as text)")
    return chat


def rendered_by(tokenizer: Any) -> Rendered | None:
    """The template of a tokenizer, confined; thinking is off if the template can."""
    if getattr(tokenizer, "chat_template", None) is None:
        return None

    def render(messages: Messages) -> str:
        text: str = confined(tokenizer).apply_chat_template(
            messages, add_generation_prompt=True, **SETTINGS
        )
        return text

    return render
