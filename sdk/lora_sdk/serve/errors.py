"""Errors as clients of OpenAI's protocol expect them: a status and one JSON object. What a message
says is of the request alone; paths and stack traces stay in the server's log."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lora_host.errors import AdapterError, LoraError, ModelError, RequestError
from lora_sdk.arguments.option import options_of
from lora_sdk.sampling import BeamSearchParams

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
_ANTHROPIC = {
    **_KINDS,
    413: "request_too_large",
    503: "overloaded_error",
}
# Errors of an argument begin with its name.
_NAMED = {"beam_width": "best_of"}
_PARAMETER = re.compile(r"(\w+)\b")


def is_anthropic(path: str) -> bool:
    """Whether a path speaks Anthropic's protocol."""
    return path.removeprefix("/v1").split("/")[1:2] == ["messages"]


class ApiError(Exception):
    """An answer with `status`. `param`: the field of the request that is at fault; `code`: for
    programs; `retry_after`: seconds after which another try makes sense."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def body(self, path: str = "") -> dict[str, object]:
        """The JSON object, in the form of a path's protocol."""
        if is_anthropic(path):
            kind = _ANTHROPIC.get(self.status, "api_error" if self.status >= 500 else None)
            error = {"type": kind or "invalid_request_error", "message": str(self)}
            return {"type": "error", "error": error}
        kind = _KINDS.get(self.status, "server_error" if self.status >= 500 else None)
        return {
            "error": {
                "message": str(self),
                "type": kind or "invalid_request_error",
                "param": self.param,
                "code": self.code,
            }
        }

    def headers(self) -> Mapping[str, str]:
        """Headers that go with the answer."""
        headers = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(self.retry_after)
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return headers


def renamed(error: ApiError, names: Mapping[str, str]) -> ApiError:
    """The same error with the name that a field has in this request, in `param` and at the
    beginning of the message. `names`: by the names that the error may have."""
    old = error.param or ""
    if old not in names:
        return error
    new, message = names[old], str(error)
    found = _PARAMETER.match(message)
    if found is not None and found.group(1) == old:
        message = new + message[found.end() :]
    return ApiError(
        error.status, message, param=new, code=error.code, retry_after=error.retry_after
    )


class GrammarError(RequestError):
    """A text cannot keep to its grammar. `field`: of the request that has it, if known."""

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ClientGone(Exception):
    """The client has dropped its connection; nobody reads an answer."""


def unavailable(message: str) -> ApiError:
    """The answer while the server loads, drains or has lost its boards."""
    return ApiError(503, message, code="unavailable", retry_after=1)


def from_engine(error: LoraError, field: str | None = None) -> ApiError:
    """What a client is told of an engine's error. `field`: of the request, where the error does
    not begin with one."""
    if isinstance(error, RequestError):
        found = _PARAMETER.match(str(error))
        name = found.group(1) if found is not None else ""
        field = error.field if isinstance(error, GrammarError) else field
        named = name in options_of(BeamSearchParams)
        return renamed(ApiError(400, str(error), param=name if named else field), _NAMED)
    if isinstance(error, AdapterError):  # unloaded since the request came
        return ApiError(404, "the adapter is not loaded", param="model", code="model_not_found")
    if isinstance(error, ModelError):
        return ApiError(500, "the model's values cannot be used", code="model_error")
    return unavailable("the boards failed")
