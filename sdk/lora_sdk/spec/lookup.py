"""Prompt look-up: what followed the last tokens where they stood before (Saxena, 2023).

The candidates after a node are the tokens that followed the longest n-gram of accepted and drafted
tokens which ends at the node, the latest first, then those of shorter n-grams. A branch is at most
twice as deep as the n-gram that ends at the root: a short match says little, and rows cost time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lora_host.errors import RequestError
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.spec.tree import Tree

_FOLLOWERS = 16  # kept of an n-gram, the latest ones


class Lookup:
    """Looks up n-grams of `shortest` to `longest` tokens in the sequence itself."""

    name = "lookup"
    hidden_layers: tuple[int, ...] = ()
    deterministic = True

    def __init__(self, shortest: int = 1, longest: int = 8) -> None:
        if not 1 <= shortest <= longest <= 16:
            raise RequestError(
                f"look-up of n-grams of {shortest} to {longest} tokens; expected 1 to 16, the "
                "shorter first"
            )
        self._lengths = range(longest, shortest - 1, -1)

    def open(self) -> LookupDrafting:
        """Proposals for a new sequence."""
        return LookupDrafting(self._lengths)

    def close(self) -> None:
        """There is nothing to give back."""


class LookupDrafting:
    """The n-grams of one sequence and what followed each."""

    def __init__(self, lengths: range) -> None:
        self._lengths = lengths
        self._tokens: list[int] = []
        self._followers: dict[tuple[int, ...], list[int]] = {}

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """Note what followed the n-grams before each token."""
        for token in tokens:
            for gram in self._grams(self._tokens):
                followers = self._followers.setdefault(gram, [])
                if token in followers:
                    followers.remove(token)
                followers.append(token)
                del followers[:-_FOLLOWERS]
            self._tokens.append(token)

    def propose(self, pending: int, tree: Tree) -> Tokens:
        """See Drafting. A node without a known n-gram ends its branch."""
        proposed: Tokens = [None] * tree.size
        proposed[0] = pending
        recent = self._tokens[-self._lengths.start :]
        behind = {0: [*recent, pending]}  # tokens up to each node, as many as an n-gram needs
        deepest = 2 * self._matched(behind[0])
        for node in range(tree.size):
            children = tree.children(node)
            if proposed[node] is None or not children or tree.depths[node] >= deepest:
                continue
            tokens = behind.pop(node)
            found = self._candidates(tokens, len(children))
            for child, token in zip(children, found, strict=False):
                proposed[child] = token
                behind[child] = [*tokens[-self._lengths.start :], token]
        return proposed

    def fork(self) -> LookupDrafting:
        """A copy."""
        other = LookupDrafting(self._lengths)
        other._tokens = list(self._tokens)
        other._followers = {gram: list(tokens) for gram, tokens in self._followers.items()}
        return other

    def close(self) -> None:
        """There is nothing to give back."""

    def _candidates(self, tokens: Sequence[int], count: int) -> list[int]:
        found: list[int] = []
        for gram in self._grams(tokens):
            for token in reversed(self._followers.get(gram, ())):
                if token not in found:
                    found.append(token)
                    if len(found) == count:
                        return found
        return found

    def _matched(self, tokens: Sequence[int]) -> int:
        """Length of the longest known n-gram that ends with the last token, 0 for none."""
        return next((len(gram) for gram in self._grams(tokens) if gram in self._followers), 0)

    def _grams(self, tokens: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The n-grams that end with the last token, longest first."""
        return (tuple(tokens[-n:]) for n in self._lengths if n <= len(tokens))
