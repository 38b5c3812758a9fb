"""The Python functions that C calls while a run is polled or after a token."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from . import native


class Listener:
    """Hears the tokens of a greedy loop. An exception of `hear` ends the loop and is kept in
    `raised`, since it must not cross C frames."""

    def __init__(self, hear: Callable[[int], bool | None] | None) -> None:
        self.hear = hear
        self.raised: BaseException | None = None

    def __call__(self, token: int) -> int:
        try:
            return int(bool(self.hear and self.hear(token)))
        except BaseException as error:
            self.raised = error
            return 1


@cache
def bind() -> None:
    """Binds the functions to the extension, once a process."""
    ffi = native.ffi()

    def cancelled(context: Any) -> int:
        return int(ffi.from_handle(context).pressed)

    def token(context: Any, value: int) -> int:
        return int(ffi.from_handle(context)(value))

    ffi.def_extern(name="lora_py_cancelled", error=1)(cancelled)
    ffi.def_extern(name="lora_py_token", error=1)(token)
