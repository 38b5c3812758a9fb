"""What a model thinks before it answers, apart from the answer, as the text comes."""

from __future__ import annotations

from dataclasses import dataclass

from lora_sdk.serve.harmony import HarmonyText

_SPACE = "\r\n"


@dataclass(frozen=True)
class ReasoningFormat:
    """How a family of models writes thoughts: between `begin` and `end`. `special`: these are
    special tokens, which a text leaves out. `assumed`: a text begins with thoughts where the prompt
    says nothing of them. `hint`: a text that templates of the family hold, if not these."""

    name: str
    begin: str
    end: str
    special: bool = False
    assumed: bool = False
    hint: str = ""

    def asked_by(self, template: str) -> bool:
        """Whether a chat template is of the family."""
        if self.hint:
            return self.hint in template
        return self.begin in template or self.end in template

    def thinks(self, prompt: str) -> bool | None:
        """Whether the answer to `prompt` begins with thoughts: its end says so, as templates write
        it; None where the text itself will."""
        prompt = prompt.rstrip()
        if prompt.endswith(self.begin):
            return True
        if prompt.endswith(self.end):
            return False
        return True if self.assumed else None


FORMATS = {
    one.name: one
    for one in (
        ReasoningFormat("qwen3", "<think>", "</think>"),
        ReasoningFormat("deepseek_r1", "<think>", "</think>", assumed=True),
        ReasoningFormat("mistral", "[THINK]", "[/THINK]", special=True),
        ReasoningFormat(
            "gpt_oss",
            "<|channel|>analysis<|message|>",
            "<|channel|>final<|message|>",
            special=True,
            hint="<|channel|>",
        ),  # whose texts HarmonyText splits
    )
}
AUTO, OFF = "auto", "none"


def reasoning_format(chosen: str, template: str) -> ReasoningFormat | None:
    """The format named `chosen`; AUTO: the one whose words the chat template holds; OFF: none."""
    if chosen != AUTO:
        return FORMATS.get(chosen)
    return next((one for one in FORMATS.values() if one.asked_by(template)), None)


def answer_text(format: ReasoningFormat | None, thinks: bool | None) -> ReasoningText | HarmonyText:
    """What splits an answer. `thinks`: what the prompt says."""
    if format is not None and format.name == "gpt_oss":
        return HarmonyText(thinks)
    return ReasoningText(format, thinks)


class ReasoningText:
    """Splits one text into thoughts and content. Line ends around either are left out."""

    def __init__(self, format: ReasoningFormat | None, thinks: bool | None = False) -> None:
        """`thinks`: what the prompt says. `format` None: all is content, as it is."""
        self._format = format
        self._state = "plain" if format is None or thinks is False else "open"
        if thinks and format is not None:
            self._state = "thinks"
        self._begun = False  # what comes now has had a character
        self._held = ""

    def push(self, text: str) -> tuple[str, str]:
        """The thoughts and the content that `text` makes definite."""
        if self._format is None or self._state == "plain":
            return "", text
        self._held += text
        if self._state == "open":
            self._open(self._format)
        thoughts = self._thoughts(self._format) if self._state == "thinks" else ""
        return thoughts, self._content() if self._state == "content" else ""

    def finish(self) -> tuple[str, str]:
        """The rest, once the text has ended."""
        held, self._held = self._held, ""
        if self._state == "thinks":
            return self._shown(held.rstrip(_SPACE)), ""
        return "", held if self._state == "open" else ""

    def _open(self, form: ReasoningFormat) -> None:
        """Whether the text begins with thoughts."""
        begun = self._held.lstrip()
        if begun.startswith(form.begin):
            self._held, self._state = begun[len(form.begin) :], "thinks"
        elif not form.begin.startswith(begun):
            self._state, self._begun = "content", True

    def _thoughts(self, form: ReasoningFormat) -> str:
        held = self._held.removeprefix(form.begin) if not self._begun else self._held
        if not self._begun and form.begin.startswith(self._held):
            return ""  # some models repeat what the prompt ends with
        thoughts, end, rest = held.partition(form.end)
        if end:
            self._held, self._state = rest, "content"
            thoughts = self._shown(thoughts.rstrip(_SPACE))
            self._begun = False
            return thoughts
        keep = len(held) - _end_of_final(held, form.end)
        self._held = held[keep:]
        return self._shown(held[:keep])

    def _content(self) -> str:
        held, self._held = self._held, ""
        return self._shown(held)

    def _shown(self, text: str) -> str:
        """The text without line ends before its first character."""
        text = text if self._begun else text.lstrip(_SPACE)
        self._begun = self._begun or bool(text)
        return text


def _end_of_final(text: str, end: str) -> int:
    """How many characters at the end of `text` may be line ends before `end`, and its beginning."""
    longest = min(len(text), len(end) - 1)
    partial = next(n for n in range(longest, -1, -1) if end.startswith(text[len(text) - n :]))
    before = text[: len(text) - partial]
    return partial + len(before) - len(before.rstrip(_SPACE))
