"""Streams text from tokens as deltas. No later token can change text that was already emitted.

Held back are bytes of an incomplete UTF-8 character, runs of byte tokens (`ByteFallback`), and a
suffix that may begin a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.text.decoding import RUN, begun
from lora_sdk.text.tokenizer import Tokenizer


class Detokenizer:
    """Turns tokens into text incrementally. The deltas joined are the text of all tokens at once:
    of the prompt's and these, without the characters that the prompt's tokens make whole."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int] = (), skip_special: bool = True
    ) -> None:
        self._decoding = tokenizer.decoding(skip_special)
        self._state, self._prompt = self._decoding.start, 0
        for token in _context(tokenizer, prompt):
            self.push(token)
        # If the prompt ends in the middle of a character, its bytes are emitted with the token
        # that completes the character.
        self._prompt = len(self._decoding.held(self._state, True))

    def push(self, token: int) -> str:
        """The text that is final after `token`; "" while that is not sure."""
        decoding = self._decoding
        if self._state is decoding.rest and not self._prompt:
            delta = decoding.plain.get(token)
            if delta is not None:
                return delta
        self._state, delta = decoding.push(self._state, token)
        if self._prompt:
            cut = self._prompt
            self._prompt -= min(cut, len(delta))
            return delta[cut:]
        return delta

    def held(self, whole: bool) -> str:
        """The text that comes if no token follows. With `whole` without characters of which bytes
        are missing. "" where a decoder needs all tokens at once, since this is for every token."""
        return "" if self._decoding.at_the_end else self._ending(whole)

    def finish(self) -> str:
        """The text held back, with incomplete characters as U+FFFD."""
        delta = self._ending(False)
        self._state, self._prompt = self._decoding.start, 0
        return delta

    def _ending(self, whole: bool) -> str:
        return self._decoding.held(self._state, whole)[self._prompt :]


def _context(tokenizer: Tokenizer, prompt: Sequence[int]) -> Sequence[int]:
    """The prompt's last tokens, which can affect the text of new ones."""
    if len(prompt) <= RUN:
        return prompt
    last = prompt[-RUN:]
    inside = (b"\x80" <= tokenizer.token_bytes(token) < b"\xc0" for token in last)  # a character
    return last[next((place for place, one in enumerate(inside) if not one), 0) :]


class TextPlaces:
    """Where the texts of tokens begin in the text that a Detokenizer makes of them."""

    def __init__(self, detokenizer: Detokenizer, start: int = 0) -> None:
        """`start`: characters of the text before."""
        self._detokenizer = detokenizer
        self._end = start

    def push(self, token: int) -> int:
        """The place of the next token, in characters. Where it goes on with a character, that
        character's; where it has no text, the end of the text so far."""
        held, whole = (self._detokenizer.held(whole) for whole in (False, True))
        end, delta = self._end, self._detokenizer.push(token)
        self._end += len(delta)
        if delta.startswith(held):  # an incomplete character stays one
            return end + len(held)
        if delta and not delta.startswith(whole):  # each byte is U+FFFD now, its own the last
            return end + len(delta) - 1
        return end + len(whole)


class StopMatcher:
    """Finds the first stop string in a growing text. Holds back text that may begin one."""

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        self._free = 0  # characters to come that no stop string may have
        self.matched: str | None = None

    def push(self, text: str, match: bool = True, ahead: str = "") -> str:
        """The text that can be emitted now. With `match` False all of it (min_tokens). `ahead`:
        what comes next if the text ends here; a stop string that ends in it does so."""
        if self.matched is not None:
            return ""
        if not match:
            held, self._held, self._free = self._held + text, "", len(ahead)
            return held
        free = text[: self._free]
        self._free -= len(free)
        held = self._held + text[len(free) :]
        text = held + ahead[self._free :]
        found = [(text.find(stop), -len(stop), stop) for stop in self._stops if stop in text]
        if found:
            start, _, self.matched = min(found)
            self._held = ""
            return free + text[: start + (len(self.matched) if self._include else 0)]
        kept = len(held) - begun(held, self._stops)
        self._held = held[kept:]
        return free + held[:kept]

    def finish(self) -> str:
        """The text held back, when generation ends without a stop string."""
        held, self._held = self._held, ""
        return held


class TextStream:
    """Detokenizer and StopMatcher of one sample."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        prompt: Sequence[int],
        stops: Sequence[str],
        include_stop: bool,
        skip_special: bool,
    ) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, prompt, skip_special)
        self._matcher = StopMatcher(stops, include_stop)
        self._stops = bool(stops)
        self._deltas: list[str] = []
        self.matched: str | None = None
        """The stop string that ended the text."""

    @property
    def text(self) -> str:
        """All text emitted so far."""
        return "".join(self._deltas)

    def token_text(self, token: int) -> str:
        """The text of one token alone, also of a special one."""
        return self._tokenizer.alone(token, False)

    def push(self, token: int, match: bool = True) -> str:
        """The text that can be emitted after `token`."""
        text = self._detokenizer.push(token)
        if self._stops:
            text = self._matcher.push(text, match, self._detokenizer.held(True))
            self.matched = self._matcher.matched
        self._deltas.append(text)
        return text

    def finish(self) -> str:
        """The remaining text, after the last token."""
        text = self._matcher.push(self._detokenizer.finish()) + self._matcher.finish()
        self.matched = self._matcher.matched
        self._deltas.append(text)
        return text
