"""Functions whose arguments are the fields of a described dataclass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from lora_host.errors import RequestError
from lora_host.naming import did_you_mean
from lora_sdk.arguments.describe import arguments_text
from lora_sdk.arguments.option import options_of

P = ParamSpec("P")
Self = TypeVar("Self")
Arguments = TypeVar("Arguments")
Owner = TypeVar("Owner", bound=type)


class ShortSignature(inspect.Signature):
    """All parameters, of which the text names a few: `help` and notebooks print it before the
    docstring, which describes each."""

    __slots__ = ()

    def __str__(self) -> str:
        first = [
            one.name if one.default is one.empty else f"{one.name}={one.default!r}"
            for one in list(self.parameters.values())[:SHOWN]
        ]
        return f"({', '.join([*first, *['...'] * (len(self.parameters) > SHOWN)])})"

    def format(self, **_width: Any) -> str:
        """As `help` asks for it from Python 3.13 on."""
        return str(self)


SHOWN = 3


def named_arguments(owner: Owner) -> Owner:
    """Class decorator for a described dataclass: RequestError names an unknown argument."""
    init: Callable[..., None] = owner.__init__  # type: ignore[misc]
    names = options_of(owner).keys()

    @wraps(init)
    def call(self: object, /, *args: Any, **kwargs: Any) -> None:
        if not kwargs.keys() <= names:
            unknown = next(name for name in kwargs if name not in names)
            raise RequestError(f"argument {unknown!r} is unknown; {did_you_mean(unknown, names)}")
        init(self, *args, **kwargs)

    owner.__init__ = call  # type: ignore[misc]
    return owner


def arguments_of(
    made: Callable[P, Arguments],
) -> Callable[[Callable[[Self, Arguments], None]], Callable[Concatenate[Self, P], None]]:
    """Decorator: callers pass the fields of the dataclass `made`, the method receives the object.
    Type checkers, `inspect.signature` and `help` see the fields as the method's arguments, each
    with its description."""
    owner = cast("type", made)

    def wrap(method: Callable[[Self, Arguments], None]) -> Callable[Concatenate[Self, P], None]:
        def call(self: Self, /, *args: P.args, **kwargs: P.kwargs) -> None:
            method(self, made(*args, **kwargs))

        call.__name__, call.__qualname__ = method.__name__, method.__qualname__
        call.__module__ = method.__module__
        call.__doc__ = f"{inspect.cleandoc(method.__doc__ or '')}\n\n{arguments_text(owner)}\n"
        first = next(iter(inspect.signature(method).parameters.values()))
        fields = inspect.signature(owner)
        parameters = [first, *fields.parameters.values()]
        call.__signature__ = ShortSignature(  # type: ignore[attr-defined]
            parameters, return_annotation=fields.return_annotation
        )
        return call

    return wrap
