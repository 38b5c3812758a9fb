"""The Python functions that C calls while a run is polled or after a token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import native


class Listener:
    """Hears the tokens of a greedy loop. An exception of `hear` ends the loop and is kept in
    `raised`, since it must not cross C frames."""

    __slots__ = ("hear", "raised")

    def __init__(self, hear: Callable[[int], bool | None]) -> None:
        self.hear = hear
        self.raised: BaseException | None = None


@cache
def bind() -> None:
    """Binds the functions to the extension, once a process."""
    ffi = native.ffi()

    def cancelled(context: Any) -> int:
        return int(ffi.from_handle(context).pressed)

    from_handle = ffi.from_handle

    def token(context: Any, value: int) -> int:
        listener = from_handle(context)
        try:
            return 1 if listener.hear(value) else 0
        except BaseException as error:
            listener.raised = error
            return 1

    ffi.def_extern(name="lora_py_cancelled", error=1)(cancelled)
    ffi.def_extern(name="lora_py_token", error=1)(token)
