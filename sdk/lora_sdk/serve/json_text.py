"""JSON of a request, with a bound on how many values it has before any of them is made: three bytes
of a text can become a hundred of memory."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from lora_sdk.serve.errors import ApiError

MAX_VALUES = (1 << 18) + (1 << 12)
"""Values of a request: token ids of a whole vocabulary, and what is around them."""
MAX_DEPTH = 256  # objects and lists within each other: what reads a schema calls itself

_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")


def read_json(raw: bytes | bytearray) -> Any:
    """The value of a text. ApiError 400 where it is none, has too many values, or is too deep."""
    _check_values(raw)
    try:
        value = json.loads(raw.decode("utf-8"), parse_constant=_refuse_constant)
        if _SURROGATE.search(raw):
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeDecodeError:
        raise ApiError(400, "the body is not UTF-8") from None
    except UnicodeEncodeError:
        raise ApiError(400, "the body holds half of a surrogate pair") from None
    except RecursionError:
        raise ApiError(400, "the body is nested too deeply") from None
    except ValueError as error:
        where = f" at character {error.pos}" if isinstance(error, json.JSONDecodeError) else ""
        raise ApiError(400, f"the body is not JSON{where}") from None
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH:
        raise ApiError(400, "the body is nested too deeply")
    return value


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level := [one for one in level if isinstance(one, dict | list)]:
        depth += 1
        level = [
            inner for one in level for inner in (one.values() if isinstance(one, dict) else one)
        ]
    return depth


def _check_values(raw: bytes | bytearray) -> None:
    """Counts first what also lies in texts; only where that is too much, without texts."""
    if _marks(raw) + raw.count(b'"') // 2 <= MAX_VALUES:
        return
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    texts = bare.count(b'"') // 2
    if texts <= MAX_VALUES:
        texts += _marks(b"".join(bare.split(b'"')[::2]))
    if texts > MAX_VALUES:
        raise ApiError(400, f"the body has more than {MAX_VALUES} texts, numbers and objects")


def _marks(raw: bytes | bytearray) -> int:
    """What makes a value, texts left out."""
    return sum(map(raw.count, (b",", b"[", b"{")))


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)  # NaN and Infinity are Python's own, not JSON
