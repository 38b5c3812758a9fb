"""Log probabilities in the forms of OpenAI's two protocols and of vLLM."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lora_sdk.sampling.logprobs import PositionLogprobs, TokenLogprob
from lora_sdk.text.streaming import Detokenizer, TextPlaces
from lora_sdk.text.tokenizer import Tokenizer


class TokenNames:
    """How tokens are written in an answer: as their text, bytes where they are not a text of their
    own ("bytes:\\xe2\\x80"), or with `as_ids` "token_id:7"."""

    def __init__(self, tokenizer: Tokenizer, as_ids: bool = False) -> None:
        self._tokenizer = tokenizer
        self._as_ids = as_ids

    def name(self, token: int) -> str:
        """The token in an answer."""
        if self._as_ids:
            return f"token_id:{token}"
        data = self._tokenizer.token_bytes(token)
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def chat(self, entries: Sequence[PositionLogprobs]) -> dict[str, Any]:
        """`logprobs` of a chat choice."""
        return {
            "content": [
                {
                    **self._entry(entry.chosen),
                    "top_logprobs": [self._entry(one) for one in entry.top],
                }
                for entry in entries
            ],
            "refusal": None,
        }

    def prompt(self, entries: Sequence[PositionLogprobs | None]) -> list[dict[str, Any] | None]:
        """vLLM's `prompt_logprobs`: by token id, None for the first token."""
        return [None if entry is None else self._by_id(entry) for entry in entries]

    def _by_id(self, entry: PositionLogprobs) -> dict[str, Any]:
        return {
            str(one.token): {
                "logprob": one.logprob,
                "rank": one.rank,
                "decoded_token": self.name(one.token),
            }
            for one in (entry.chosen, *entry.top)
        }

    def _entry(self, one: TokenLogprob) -> dict[str, Any]:
        data = self._tokenizer.token_bytes(one.token)
        return {"token": self.name(one.token), "logprob": one.logprob, "bytes": list(data)}


def echo_offsets(
    tokenizer: Tokenizer, tokens: Sequence[int], text: str, added: Sequence[int]
) -> list[int]:
    """Where the tokens of a prompt begin in the `text` that echo shows. `added`: the special tokens
    that are not in a prompt given as text, which shows all others, as one given as tokens does."""
    skipped = len(added)
    places = TextPlaces(Detokenizer(tokenizer, skip_special=False))
    offsets = [0] * skipped + [places.push(token) for token in tokens[skipped:]]
    return [min(offset, len(text)) for offset in offsets]


class CompletionLogprobs:
    """`logprobs` of a text completion, in parts as they come: offsets go on from part to part.
    `places`: of the new tokens."""

    def __init__(self, names: TokenNames, places: TextPlaces) -> None:
        self._names = names
        self._places = places

    def part(
        self,
        tokens: Sequence[int],
        entries: Sequence[PositionLogprobs | None],
        offsets: Sequence[int] = (),
    ) -> dict[str, Any]:
        """Those of the next tokens; an entry is None for the first token of a prompt. `offsets`: of
        an echoed prompt's tokens, which come first."""
        new = [self._places.push(token) for token in tokens[len(offsets) :]]
        return {
            "tokens": [self._names.name(token) for token in tokens],
            "token_logprobs": [
                None if entry is None else entry.chosen.logprob for entry in entries
            ],
            "top_logprobs": [None if entry is None else self._top(entry) for entry in entries],
            "text_offset": [*offsets, *new],
        }

    def _top(self, entry: PositionLogprobs) -> dict[str, float]:
        """The likeliest tokens and the chosen one. Of tokens that are written alike, the first."""
        found: dict[str, float] = {}
        for one in (*entry.top, entry.chosen):
            found.setdefault(self._names.name(one.token), one.logprob)
        return found
