"""gpt-oss' messages: each has a header with its channel, and what is said behind `<|message|>`.
The channel `analysis` holds thoughts, `commentary` with a recipient calls, all else the answer."""

from __future__ import annotations

import re

CALL, CALL_END, MESSAGE = "<|channel|>commentary to=functions.", "<|call|>", "<|message|>"
"""How a call is handed on to the parser of calls, whatever the order in its header."""

_HEADS = ("<|start|>", "<|channel|>", " to=")
_ENDS = ("<|end|>", CALL_END, "<|return|>", "<|start|>")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_LONGEST = max(map(len, _ENDS))
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_FUNCTION = re.compile(r"\bto=functions\.([\w.-]+)")
_HEADER_LENGTH = 512  # characters; what is longer is text


class HarmonyText:
    """Splits one text into thoughts and content, calls among the latter; as ReasoningText."""

    def __init__(self, thinks: bool | None) -> None:
        """`thinks`: what the prompt ends with, an open message of thoughts or of the answer; None:
        a header comes."""
        self._state = {None: "header", True: "analysis", False: "content"}[thinks]
        self._held = ""

    def push(self, text: str) -> tuple[str, str]:
        """The thoughts and the content that `text` makes definite."""
        self._held += text
        return self._take(final=False)

    def finish(self) -> tuple[str, str]:
        """The rest, once the text has ended."""
        return self._take(final=True)

    def _take(self, final: bool) -> tuple[str, str]:
        thoughts = content = ""
        while self._held:
            before = len(self._held), self._state
            if self._state == "header":
                content += self._header(final)
            else:
                said = self._body(final)
                if before[1] == "analysis":
                    thoughts += said
                else:
                    content += said
            if (len(self._held), self._state) == before:
                break
        return thoughts, content

    def _header(self, final: bool) -> str:
        """A message's header, if it is whole. Where none can come, content goes on."""
        head, mark, rest = self._held.partition(MESSAGE)
        may_be = any(head.startswith(one) or one.startswith(head) for one in _HEADS)
        if not may_be or len(head) > _HEADER_LENGTH or (final and not mark):
            self._state = "content"
            return ""
        if not mark:
            return ""
        self._held = rest
        channel, function = _CHANNEL.search(head), _FUNCTION.search(head)
        if function is not None:
            self._state = "call"
            return f"{CALL}{function.group(1)}{MESSAGE}"
        thinks = channel is not None and channel.group(1) == "analysis"
        self._state = "analysis" if thinks else "content"
        return ""

    def _body(self, final: bool) -> str:
        """What a message says, up to its end."""
        found = _END.search(self._held)
        if found is None:
            keep = 0 if final else _beginning(self._held)
            cut = len(self._held) - keep
            said, self._held = self._held[:cut], self._held[cut:]
            return said
        said = self._held[: found.start()] + (CALL_END if self._state == "call" else "")
        self._held = self._held[found.start() if found.group() == "<|start|>" else found.end() :]
        self._state = "header"
        return said


def _beginning(text: str) -> int:
    """How many characters at the end may begin a mark."""
    longest = min(len(text), _LONGEST - 1)
    return next(
        (n for n in range(longest, 0, -1) if any(one.startswith(text[-n:]) for one in _ENDS)), 0
    )
