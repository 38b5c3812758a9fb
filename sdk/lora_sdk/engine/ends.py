"""Reports the ends of the requests of one call to the caller's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from lora_host.errors import LoraError
from lora_sdk.core.results import Result
from lora_sdk.engine.requests import Request

OnResult: TypeAlias = "Callable[[int, Result], None]"
OnError: TypeAlias = "Callable[[int, LoraError], None]"


class Ends:
    """The requests of one call, by the index of their prompt.

    `on_result` receives each result. `on_error` receives each LoraError, which is then not raised.
    If one of the two raises, the other requests are cancelled and `results` raises the same.
    """

    def __init__(self, on_result: OnResult | None, on_error: OnError | None) -> None:
        self._on_result = on_result
        self._on_error = on_error
        self._requests: dict[int, Request] = {}
        self._reported: set[int] = set()  # errors

    @property
    def requests(self) -> list[Request]:
        """The requests to run."""
        return list(self._requests.values())

    def add(self, index: int, make: Callable[[], Request]) -> None:
        """Make the request of prompt `index`."""
        try:
            request = make()
        except LoraError as error:
            if self._on_error is None:
                raise
            self._on_error(index, error)
            return
        self._requests[index] = request
        if self._on_result is not None or self._on_error is not None:
            request.on_end = lambda: self._report(index, request)

    def results(self) -> list[Result]:
        """Results of the requests, all ended, but for those whose error was reported. Raises the
        first error that was not."""
        return [
            request.result()
            for index, request in self._requests.items()
            if index not in self._reported
        ]

    def _report(self, index: int, request: Request) -> None:
        error = request.error
        try:
            if error is None:
                if self._on_result is not None:
                    self._on_result(index, request.result())
            elif self._on_error is not None and isinstance(error, LoraError):
                self._on_error(index, error)
                self._reported.add(index)
        except BaseException as raised:
            request.error = raised
            for other in self._requests.values():
                other.on_end = None  # nothing more is reported
                other.cancel()
            raise
