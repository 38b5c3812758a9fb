"""Reports the ends of the requests of one call to the caller's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from lora_host.errors import LoraError, RequestError
from lora_sdk.engine.requests import OnDelta, Request
from lora_sdk.engine.submission import Prompt, params_of, prompts_of
from lora_sdk.sampling import SamplingParams
from lora_sdk.step.results import Result

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


def ends_of(
    make: Callable[..., Request],
    prompts: Prompt | Sequence[Prompt],
    params: SamplingParams | Sequence[SamplingParams] | None,
    fields: Mapping[str, Any],
    on_delta: OnDelta | None,
    on_result: OnResult | None,
    on_error: OnError | None,
) -> tuple[Ends, bool]:
    """The requests of a call of `generate`, made by RequestMaker.request, and whether it has a
    single prompt. RequestError: a bad argument; of one of several prompts only without on_error."""
    several, single = prompts_of(prompts)
    each = params_of(params, fields, len(several))
    if on_delta is not None and not single:
        raise RequestError("on_delta takes a single prompt; use stream or astream for several")
    if on_error is not None and single:
        raise RequestError("on_error takes several prompts; a single one raises its error")
    ends = Ends(on_result, on_error)
    for index, (prompt, one) in enumerate(zip(several, each, strict=True)):
        named = None if single or on_error is not None else index  # in messages
        ends.add(index, partial(make, prompt, one, on_delta, named))
    return ends, single
