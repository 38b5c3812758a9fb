"""Methods that forward to an attribute."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")


def forward(
    part: str, method: Callable[Concatenate[Any, P], Result]
) -> Callable[Concatenate[Any, P], Result]:
    """A method that calls `method` of the attribute `part`, with its signature and docstring."""

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return method(getattr(self, part), *args, **kwargs)

    return call
