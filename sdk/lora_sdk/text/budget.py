"""What rendering a template may cost. A template is a program of a foreign folder; time and memory
follow from the sizes of the values that it reads and makes, and these are counted, so that the
outcome is the same on a busy machine."""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Collection,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from threading import local
from typing import Any, NoReturn

LIMIT = 1 << 26
MAX_INPUT = 1 << 28
PER_INPUT = 64
"""More per unit of the messages: templates read them several times."""
STEP = 128
"""Cost of an iteration, call or filter, some microseconds; an element of a container has a quarter,
a macro's call more."""
MACRO = 8 * STEP
_ELEMENT = STEP // 4
_MAX_BITS = 4096
_HOLDERS = (list, tuple, set, frozenset, KeysView, ValuesView, ItemsView)
_MAX_DIGITS = 4  # of a width in a format


class TemplateLimit(Exception):
    """A template costs more than its budget, or does what has no bound."""


class Budget(local):
    """The rest of the budget of the rendering in this thread."""

    left = 0

    def start(self, given: object) -> None:
        """A rendering of `given` begins."""
        self.left = MAX_INPUT
        self.left = LIMIT + PER_INPUT * weight(self, given)

    def charge(self, cost: int) -> None:
        """TemplateLimit if the budget is spent."""
        self.left -= max(cost, 0)
        if self.left < 0:
            raise TemplateLimit("it takes too many steps or makes too much text")

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """The values, charged one by one."""
        for value in values:
            self.charge(_ELEMENT)
            yield value


def refuse(what: str) -> NoReturn:
    """TemplateLimit: what has no bound."""
    raise TemplateLimit(f"{what} is not supported")


def weight(budget: Budget, value: object, text: bool = True) -> int:
    """The cost of a value with all that it holds, as often as it holds it; with `text` that of
    writing it out. A namespace is an element, whatever it holds: nothing writes or reads it whole.
    TemplateLimit once it exceeds the budget."""
    total, rest = 0, [value]
    while rest:
        found = rest.pop()
        if isinstance(found, str | bytes):
            total += _ELEMENT + (len(found) if text else len(found) // STEP)
        elif isinstance(found, Mapping):
            total += 2 * _ELEMENT * (len(found) + 1)
            _within(budget, total)
            rest += found.keys()
            rest += found.values()
        elif isinstance(found, _HOLDERS):
            total += _ELEMENT * (len(found) + 1)
            _within(budget, total)
            rest += found
        elif isinstance(found, int) and found.bit_length() > _MAX_BITS:
            refuse(f"an integer of {found.bit_length()} bits")
        else:
            total += _ELEMENT
        _within(budget, total)
    return total


def _within(budget: Budget, total: int) -> None:
    if total > budget.left:
        budget.charge(total)


def length(value: object) -> int:
    """The cost of reading a value once, without what it holds."""
    if isinstance(value, str | bytes):
        return len(value)
    if isinstance(value, Collection):
        return _ELEMENT * len(value)
    return 0


# --- text methods and the filters of their names: cost before the call ---


def text_call(budget: Budget, name: str, value: Any, arguments: Sequence[Any]) -> None:
    """Charges a method of a string, or refuses it."""
    known = _METHODS.get(name)
    if known is not None:
        known(budget, value, arguments)
    budget.charge(len(value) + sum(map(length, arguments)))


def _replace(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    if len(arguments) >= 2:
        old, new = arguments[:2]
        budget.charge(len(value))
        budget.charge((value.count(old) + 1) * len(new))


def _width(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    budget.charge(max((abs(n) for n in arguments if isinstance(n, int)), default=0))


def _join(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    for items in arguments:
        if not isinstance(items, (*_HOLDERS, Mapping, str)):
            refuse("joining an iterator; make a list of it first")
        budget.charge(weight(budget, items) + len(value) * len(items))


def _split(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    separator = arguments[0] if arguments and isinstance(arguments[0], str | bytes) else None
    pieces = value.count(separator) if separator else len(value) // 2
    budget.charge((pieces + 1) * STEP)


def _backwards(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    """Searching backwards takes the product of both lengths."""
    wanted = max((len(text) for text in arguments if isinstance(text, str | bytes)), default=0)
    budget.charge(len(value) * (wanted // 8))


def _rsplit(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    _backwards(budget, value, arguments)
    _split(budget, value, arguments)


def _codec(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    if any(str(name).lower() not in ("utf-8", "utf8", "ascii", "replace") for name in arguments):
        refuse(f"the codec {arguments[0]!r:.40}")


def _format(budget: Budget, value: Any, arguments: Sequence[Any]) -> None:
    fields = value.replace("{{", "")
    if re.search(r"\{[^{}]*\{", fields):
        refuse("a format of a format")
    _fields(budget, value, fields.count("{"), arguments)


def _refused(name: str) -> Callable[[Budget, Any, Sequence[Any]], None]:
    return lambda budget, value, arguments: refuse(f"str.{name}")


_METHODS: dict[str, Callable[[Budget, Any, Sequence[Any]], None]] = {
    "replace": _replace,
    "join": _join,
    "split": _split,
    "splitlines": _split,
    "rsplit": _rsplit,
    **dict.fromkeys(("rfind", "rindex", "rpartition"), _backwards),
    **dict.fromkeys(("center", "ljust", "rjust", "zfill"), _width),
    **dict.fromkeys(("encode", "decode"), _codec),
    "format": _format,
    **{name: _refused(name) for name in ("expandtabs", "translate", "maketrans", "format_map")},
}


def percent(budget: Budget, value: str, arguments: object) -> None:
    """Charges `value % arguments`."""
    if "*" in value:
        refuse("a width '*'")
    _fields(budget, value, value.count("%"), [arguments])


def _fields(budget: Budget, value: str, count: int, arguments: Sequence[Any]) -> None:
    numbers = re.findall(r"\d+", value)
    if any(len(number) > _MAX_DIGITS for number in numbers):
        refuse(f"a width of more than {_MAX_DIGITS} digits")
    held = sum(weight(budget, one) for one in arguments)
    budget.charge(len(value) + sum(map(int, numbers)) + 4 * (count + 1) * held)


# --- operators ---


def times(budget: Budget, left: Any, right: Any) -> None:
    """Charges `left * right`."""
    for value, count in ((left, right), (right, left)):
        if isinstance(value, str | bytes) and isinstance(count, int):
            budget.charge(len(value) * abs(count))
        elif isinstance(value, list | tuple) and isinstance(count, int):
            budget.charge(weight(budget, value, text=False) * abs(count))


def power(left: Any, right: Any) -> None:
    """Refuses a power that is a large integer."""
    if isinstance(left, int) and isinstance(right, int):
        bits = left.bit_length() * abs(right)
        if bits > _MAX_BITS:
            refuse(f"an integer of {bits} bits")
