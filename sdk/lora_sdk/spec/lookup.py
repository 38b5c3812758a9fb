"""Prompt look-up: proposes the tokens that followed an earlier occurrence of the last tokens
(Saxena, 2023).

The candidates after a node are the tokens that followed earlier occurrences of the n-gram that ends
at the node. Longer n-grams come first, then later occurrences. The n-gram may contain accepted and
drafted tokens. The best candidate after a best candidate is the next token of the same occurrence.
A branch is at most twice as deep as the n-gram that ends at the root: a short match predicts
little, and rows take time.
"""

from __future__ import annotations

from collections.abc import Sequence

from lora_host.errors import RequestError
from lora_sdk.spec.proposer import Hidden, Tokens
from lora_sdk.step.tree_shape import TreeShape

_LATEST = 64  # max occurrences of a token that are searched


class Lookup:
    """Looks up n-grams of at most `longest` tokens in the sequence itself."""

    name = "lookup"
    hidden_layers: tuple[int, ...] = ()

    def __init__(self, longest: int = 8) -> None:
        if not 1 <= longest <= 64:
            raise RequestError(f"look-up of n-grams of {longest} tokens; expected 1 to 64")
        self._longest = longest

    def open(self) -> LookupDrafting:
        """Proposals for a new sequence."""
        return LookupDrafting(self._longest)

    def close(self) -> None:
        """There is nothing to give back."""


class LookupDrafting:
    """One sequence's tokens and the indices at which each occurs."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._tokens: list[int] = []
        self._indices: dict[int, list[int]] = {}

    def accept(self, tokens: Sequence[int], hidden: Hidden | None = None) -> None:
        """See Drafting."""
        for token in tokens:
            self._indices.setdefault(token, []).append(len(self._tokens))
            self._tokens.append(token)

    def propose(self, pending: int, tree: TreeShape) -> Tokens:
        """See Drafting. A node without a match ends its branch."""
        proposed: Tokens = [None] * tree.size
        proposed[0] = pending
        start = len(self._tokens)
        found, matched = self._search([pending], len(tree.children(0)))
        paths: dict[int, tuple[list[int], int]] = {}  # drafted tokens, distance to their occurrence
        self._set_tokens(tree.children(0), found, [pending], proposed, paths)
        for node in range(1, tree.size):
            children = tree.children(node)
            if node not in paths or not children or tree.depths[node] >= 2 * matched:
                continue
            path, back = paths.pop(node)
            index = start + len(path) - back
            following = self._tokens[index] if index < start else path[index - start]
            found = [(following, back)]
            if len(children) > 1:
                more, _ = self._search(path, len(children))
                found += [one for one in more if one[0] != following]
            self._set_tokens(children, found, path, proposed, paths)
        return proposed

    def fork(self) -> LookupDrafting:
        """A copy."""
        other = LookupDrafting(self._longest)
        other._tokens = list(self._tokens)
        other._indices = {token: list(indices) for token, indices in self._indices.items()}
        return other

    def close(self) -> None:
        """There is nothing to give back."""

    @staticmethod
    def _set_tokens(
        children: Sequence[int],
        found: Sequence[tuple[int, int]],
        path: list[int],
        proposed: Tokens,
        paths: dict[int, tuple[list[int], int]],
    ) -> None:
        for child, (token, back) in zip(children, found, strict=False):
            proposed[child] = token
            paths[child] = [*path, token], back

    def _search(self, path: Sequence[int], count: int) -> tuple[list[tuple[int, int]], int]:
        """At most `count` distinct tokens that followed the last tokens of text and path: longest
        match first, then the latest. Each with its distance from the node that it would become.
        Also the length of the best match, 0 for none."""
        tokens, total = self._tokens, len(self._tokens) + len(path)
        recent = [*tokens[-self._longest :], *path][-self._longest :]
        best: dict[int, tuple[int, int]] = {}
        for index in reversed(self._indices.get(recent[-1], ())[-_LATEST:]):
            following = tokens[index + 1] if index + 1 < len(tokens) else path[0]
            length = 1
            while length < len(recent) and length <= index:
                if tokens[index - length] != recent[-1 - length]:
                    break
                length += 1
            if length > best.get(following, (0, 0))[0]:
                best[following] = length, total - index - 1
        order = sorted(best.items(), key=lambda item: (-item[1][0], item[1][1]))[:count]
        found = [(token, back) for token, (_, back) in order]
        return found, order[0][1][0] if order else 0
