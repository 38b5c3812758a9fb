"""Streams text from tokens as deltas. No later token can change text that was already emitted.

Held back are bytes of an incomplete UTF-8 character, and a suffix that may begin a stop string.
"""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.text.tokenizer import Tokenizer

_UNKNOWN = "\ufffd"  # what decoders emit for bytes that are not UTF-8
_CONTEXT = 5  # prompt tokens that can affect the text of the first new token


class Detokenizer:
    """Turns tokens into text incrementally. The deltas joined are the text of all tokens."""

    def __init__(
        self, tokenizer: Tokenizer, prompt: Sequence[int] = (), skip_special: bool = True
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window = list(prompt[-_CONTEXT:])
        # If the prompt ends in the middle of a character, its bytes are emitted with the token
        # that completes the character.
        text = self._decode()
        self.waiting = self._held(text)
        """The number of characters at the end that are not whole yet."""
        self._shown = len(text) - self.waiting
        self._clean = len(self._window)
        self._whole = tokenizer.joins_bytes and self._shown == len(text)

    def push(self, token: int) -> str:
        """The text that is final after `token`; "" while a character is incomplete."""
        if self._whole:
            delta = self._tokenizer.alone(token, self._skip_special)
            if _UNKNOWN not in delta:
                return delta
            self._window, self._shown, self._whole = [], 0, False
        self._window.append(token)
        text = self._decode()
        ready = max(self._shown, len(text) - self._held(text))
        delta = text[self._shown : ready]
        self._shown, self.waiting = ready, len(text) - ready
        if ready == len(text) and delta:
            self._move_window()
        return delta

    def finish(self) -> str:
        """The text held back, with incomplete characters as U+FFFD."""
        if self._whole:
            return ""
        text = self._decode()
        delta = text[self._shown :]
        self._shown, self.waiting = len(text), 0
        return delta

    def _move_window(self) -> None:
        """Keep only the tokens since the last character boundary as context, so that decoding
        stays short. None are needed if the text is that of the tokens' bytes joined."""
        self._whole = self._tokenizer.joins_bytes
        if self._whole:
            return
        self._window = self._window[self._clean :]
        self._clean = len(self._window)
        if self._clean == 1:
            self._shown = len(self._tokenizer.alone(self._window[0], self._skip_special))
        else:
            self._shown = len(self._decode())

    def _decode(self) -> str:
        return self._tokenizer.decode(self._window, skip_special=self._skip_special)

    def _held(self, text: str) -> int:
        """The number of characters at the end that a later token may still change."""
        trailing = len(text) - len(text.rstrip(_UNKNOWN))
        # Byte-level decoders emit one U+FFFD for an incomplete character. Byte-fallback decoders
        # emit one per byte, at most three.
        return min(trailing, 3 if self._tokenizer.byte_fallback else 1)


class TextPlaces:
    """Where the texts of tokens begin in the text that a Detokenizer makes of them."""

    def __init__(self, detokenizer: Detokenizer, start: int = 0) -> None:
        """`start`: characters of the text before."""
        self._detokenizer = detokenizer
        self._end = start

    def push(self, token: int) -> int:
        """The place of the next token, in characters. Where it goes on with a character, that
        character's; where it has no text, the end of the text so far."""
        waiting, place = self._detokenizer.waiting, self._end
        delta = self._detokenizer.push(token)
        self._end += len(delta)
        broken = len(delta) - len(delta.lstrip(_UNKNOWN))  # characters that it does not go on with
        return place + min(waiting, broken)


class StopMatcher:
    """Finds the first stop string in a growing text. Holds back text that may begin one."""

    def __init__(self, stops: Sequence[str], include: bool = False) -> None:
        self._stops = tuple(stops)
        self._include = include
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str, match: bool = True) -> str:
        """The text that can be emitted now. With `match` False all of it (min_tokens)."""
        if self.matched is not None:
            return ""
        held = self._held + text
        if not match:
            self._held = ""
            return held
        found = [(held.find(stop), -len(stop), stop) for stop in self._stops if stop in held]
        if found:
            start, _, self.matched = min(found)
            self._held = ""
            return held[: start + (len(self.matched) if self._include else 0)]
        keep = self._partial_stop(held)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def finish(self) -> str:
        """The text held back, when generation ends without a stop string."""
        held, self._held = self._held, ""
        return held

    def _partial_stop(self, text: str) -> int:
        """Length of the longest suffix of `text` that is a prefix of a stop string."""
        longest = max((len(stop) for stop in self._stops), default=1) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0


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
            text = self._matcher.push(text, match)
            self.matched = self._matcher.matched
        self._deltas.append(text)
        return text

    def finish(self) -> str:
        """The remaining text, after the last token."""
        text = self._matcher.push(self._detokenizer.finish()) + self._matcher.finish()
        self.matched = self._matcher.matched
        self._deltas.append(text)
        return text
