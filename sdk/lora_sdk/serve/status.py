"""`/status`: the server's state as JSON, and the page at `/` that shows it in a browser."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import TYPE_CHECKING

from fastapi.responses import Response

from lora_sdk.serve.lifecycle import State

if TYPE_CHECKING:
    from lora_sdk.serve.board_metrics import BoardReading
    from lora_sdk.serve.service import Service


_SCRIPTS = ("common.js", "plots.js", "map.js", "boards.js", "try.js", "live.js")


def package_version() -> str:
    """The installed version, or "unknown"."""
    try:
        return version("lora-fpga")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


async def status(service: Service) -> dict[str, object]:
    """All counts are totals since the start; a reader takes differences. `boards` is empty, `kv`
    None and `context` 0 until the model is loaded. `chat`: whether messages are taken."""
    told: dict[str, object] = {
        "version": package_version(),
        "model": service.settings.name,
        "adapters": service.adapters,
        "chat": service.chats,
        "context": 0,
        **service.lifecycle.as_dict(),
        "uptime": round(time.monotonic() - service.started, 3),
        "requests": {
            "running": service.gate.running,
            "waiting": service.gate.waiting,
            "capacity": service.gate.capacity,
            "max_waiting": service.settings.max_queue,
        },
        "new_tokens": 0,
        "boards": [],
        "kv": None,
        "weight_notices": [one.as_dict() for one in service.weight_notices.latest],
    }
    if service.lifecycle.state is State.READY:
        tokens = told["new_tokens"] = service.engine.new_tokens
        told["context"] = service.engine.context
        told.update(service.metrics.history.as_dict(tokens))
        backend = service.backend
        reading = await service.metrics.boards.refresh(backend.read)
        told["boards"] = list(backend.board_rows(reading))
        if reading is not None:
            told.update(_counts(reading))
    return told


def _counts(reading: BoardReading) -> dict[str, object]:
    return {
        "kv": {
            "pages": reading.kv.total,
            "held": reading.kv.held,
            "cached": reading.kv.cached,
            "free": reading.kv.free,
        },
        "steps": reading.steps,
        "redone_steps": reading.redone,
        "speculation": {
            "verifications": reading.drafts,
            "drafted": reading.drafted,
            "accepted": reading.accepted,
        },
    }


def page() -> Response:
    """The page. It has no data of its own: its script asks `/status`, with the reader's key."""
    text, policy = _page()
    headers = {
        "content-security-policy": policy,
        "cache-control": "no-cache",
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
    }
    return Response(text, headers=headers, media_type="text/html")


@cache
def _page() -> tuple[bytes, str]:
    """The page with its style and scripts in it, and a policy that allows these and nothing
    else."""
    folder = files(__package__).joinpath("page")
    text = folder.joinpath("page.html").read_bytes()
    script = b"".join(folder.joinpath(name).read_bytes() for name in _SCRIPTS)
    for tag, code in ((b"style", folder.joinpath("page.css").read_bytes()), (b"script", script)):
        text = text.replace(b"<%b></%b>" % (tag, tag), b"<%b>\n%b</%b>" % (tag, code, tag))
    hashes = {
        kind: " ".join(map(_hashed, re.findall(rb"<%b>(.*?)</%b>" % (tag, tag), text, re.DOTALL)))
        for kind, tag in (("script", b"script"), ("style", b"style"))
    }
    return text, (
        f"default-src 'none'; script-src {hashes['script']}; style-src {hashes['style']}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


def _hashed(code: bytes) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code).digest()).decode()}'"
