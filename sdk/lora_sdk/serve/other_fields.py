"""Fields of requests that have no meaning here. One rule for every path and every object inside:
what cannot change an answer is ignored; what asks for something that is not done here is refused by
name; what nobody knows is ignored, unless the server is strict."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Any

_LOG = logging.getLogger("lora.serve")
_MOST_LOGGED = 512

NO_EFFECT = frozenset(
    (
        # OpenAI's, of requests: of its own storage, billing and speed, and hints to its own models
        *("store", "metadata", "service_tier", "user", "safety_identifier", "prediction"),
        *("prompt_cache_key", "prompt_cache_retention", "verbosity"),
        # of messages, parts and calls, as answers have them and libraries append them
        *("id", "index", "annotations", "cache_control", "reasoning"),
        *("provider_specific_fields", "thinking_blocks", "parsed", "parsed_arguments"),
        # vLLM's
        *("priority", "request_id", "guided_decoding_backend", "spaces_between_special_tokens"),
        # of /v1/messages
        *("inference_geo", "context_management", "eager_input_streaming", "caller"),
        # of /v1/responses
        *("max_tool_calls", "parallel_tool_calls", "truncation"),
    )
)
"""Names that cannot change an answer of this server."""


@dataclass(frozen=True)
class _Asking:
    """A field that may ask for what is not done: `why` not, `asks` by its value."""

    why: str
    asks: Callable[[Any], bool] = bool


def _other_than(*quiet: Any) -> Callable[[Any], bool]:
    return lambda value: value not in quiet


def _always(_value: Any) -> bool:
    return True


_NOT_STORED = _Asking("no answers are stored here; send the conversation as input")
_REFUSED = {
    # OpenAI's
    "modalities": _Asking("the model writes text alone", _other_than(["text"], [])),
    "audio": _Asking("the model writes text alone"),
    "web_search_options": _Asking("there is no search here", _always),
    "functions": _Asking("use tools"),
    "function_call": _Asking("use tools and tool_calls", _other_than("none", "auto")),
    "suffix": _Asking("use /v1/completions"),
    # of /v1/responses
    "previous_response_id": _NOT_STORED,
    "conversation": _NOT_STORED,
    "background": _NOT_STORED,
    "prompt": _Asking("no prompts are stored here; use input"),
    "tools": _Asking("use /v1/chat/completions"),
    "tool_choice": _Asking("use /v1/chat/completions", _other_than("none", "auto")),
    # of /v1/messages
    "container": _Asking("no code is run here"),
    "mcp_servers": _Asking("the server calls no tools itself"),
    # vLLM's
    "chat_template": _Asking("the model's own template is used"),
    "documents": _Asking("put them into the messages"),
    "echo": _Asking("use /v1/completions"),
    "guided_whitespace_pattern": _Asking("JSON is written without white space"),
    "whitespace_pattern": _Asking("JSON is written without white space"),
    "structural_tag": _Asking("not supported"),
    "kv_transfer_params": _Asking("not supported"),
    # of /infill
    "n_probs": _Asking("use /v1/completions with logprobs"),
    "load_inplace": _Asking("unload the adapter first"),
    "logits_processors": _Asking("not supported"),
    "mm_processor_kwargs": _Asking("the model reads text alone"),
    "vllm_xargs": _Asking("not supported"),
}


def admitted(value: Mapping[str, Any], known: Container[str], strict: bool) -> dict[str, Any]:
    """The fields of an object that are to be checked: those `known`, unless null, and those to be
    refused, the first of them. The rest is left out, each name once in a debug log."""
    kept, refused = {}, False
    for name, given in value.items():
        if name in known:
            if given is not None:
                kept[name] = given
        elif refused:
            continue
        elif _is_refused(name, given, strict):
            kept[name], refused = given, True
        else:
            _log_once(name)
    return kept


def why_refused(name: str) -> str:
    """What the error of a field that `admitted` kept, and that is not known, says."""
    known = _REFUSED.get(name)
    return "unknown field" if known is None else known.why


def _is_refused(name: str, value: Any, strict: bool) -> bool:
    if name in NO_EFFECT:
        return False
    if name in _REFUSED:
        return value is not None and _REFUSED[name].asks(value)
    return strict


_logged: set[str] = set()


def _log_once(name: str) -> None:
    if name in _logged or len(_logged) >= _MOST_LOGGED or not _LOG.isEnabledFor(logging.DEBUG):
        return
    _logged.add(name)
    _LOG.debug("ignored field of requests: %.60r", name)
