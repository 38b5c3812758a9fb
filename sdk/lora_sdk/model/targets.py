"""Names of modules as compressed-tensors' `targets` and `ignore` mean them: a module's name, the
name of its class, or `re:` and a regular expression that a module's name begins with."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lora_host.errors import ModelError
from lora_sdk.model.fields import short

MAX_PATTERN = 256
MAX_REPEATS = 4
MAX_CHOICES = 12
_REPEATED_GROUP = re.compile(r"\)\s*[*+?{]")
_REPEAT = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\d*\})|(?<![\\(*+?}])\?")


@dataclass(frozen=True)
class Module:
    """A matrix's module: `names` in files and libraries, first the library's own, which
    patterns match; `kind` is its class, "Linear" or GPT-2's "Conv1D"."""

    names: tuple[str, ...]
    kind: str


class Targets:
    """A list of targets. ModelError names a pattern that is not a regular expression, or that could
    run forever. The file is not trusted, so repeated groups are refused and repetitions limited."""

    def __init__(self, items: Sequence[str], where: str) -> None:
        self._names = frozenset(item for item in items if not item.startswith("re:"))
        self._patterns = [_compile(item[3:], where) for item in items if item.startswith("re:")]

    def by_name(self, module: Module) -> bool:
        """Whether a name or a pattern matches."""
        if any(name in self._names for name in module.names):
            return True
        return any(pattern.match(module.names[0]) for pattern in self._patterns)

    def matches(self, module: Module) -> bool:
        """Whether a name, a pattern or the class matches."""
        return module.kind in self._names or self.by_name(module)


def _compile(text: str, where: str) -> re.Pattern[str]:
    involved = (
        len(text) > MAX_PATTERN
        or _REPEATED_GROUP.search(text)
        or len(_REPEAT.findall(text)) > MAX_REPEATS
        or text.count("|") > MAX_CHOICES
    )
    if involved:
        raise ModelError(
            f"{where}: pattern {short(text)} is too complex; expected at most {MAX_PATTERN}"
            f" characters, {MAX_REPEATS} repetitions, none of a group, {MAX_CHOICES} choices"
        )
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise ModelError(
            f"{where}: pattern {short(text)} is no regular expression: {error}"
        ) from None
