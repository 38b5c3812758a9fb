"""`lora top`: a live view of a server in the terminal."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import click

from lora_host.errors import RequestError, TransportError
from lora_host.naming import install
from lora_host.schema_match import surely_valid
from lora_sdk.cli.finite_number import FiniteNumber
from lora_sdk.serve.settings import key_lines
from lora_sdk.serve.status_schema import SCHEMA

if TYPE_CHECKING:
    from jsonschema import ValidationError

EPILOG = """\b
Examples:
  lora top
  lora top --url http://lab7:8000 --api-key-file ~/.lora-key
  lora top --json --once | jq .requests

Ctrl-C ends it. Exit code: 0 ended, 1 the server does not answer, 2 refused."""
_MAX_BYTES = 1 << 22
_TIMEOUT = 5.0  # seconds


@click.command("top", epilog=EPILOG)
@click.option("--url", default="http://127.0.0.1:8000", show_default=True, help="a lora serve")
@click.option("--api-key-file", metavar="FILE", help="its first line that is no comment is the key")
@click.option(
    "--interval", type=FiniteNumber(0.1, 60), default=1.0, show_default=True, help="seconds"
)
@click.option("--once", is_flag=True, help="show one state and end")
@click.option("--json", "as_json", is_flag=True, help="print a JSON object for each state")
def top(url: str, api_key_file: str | None, interval: float, once: bool, as_json: bool) -> None:
    """Show boards, rows, queue and tokens a second of a running server."""
    states = _states(_request(url, api_key_file), interval, once)
    if as_json:
        for state in states:
            click.echo(json.dumps(state))
        return
    try:
        from rich.live import Live

        from lora_sdk.cli.top_view import view
    except ImportError as error:
        raise RequestError(
            f"lora top needs the package {error.name}; {install('serve')}, or use --json"
        ) from None
    if not (once or sys.stdout.isatty()):
        raise RequestError("lora top draws on a terminal; expected --once or --json elsewhere")
    last: dict[str, Any] | None = None
    with Live(auto_refresh=False) as live:
        for state in states:
            live.update(view(state, last), refresh=True)
            last = state


def _request(url: str, api_key_file: str | None) -> Request:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise RequestError(f"--url is {url!r:.100}; expected http://HOST:PORT")
    headers = (
        {}
        if api_key_file is None
        else {"Authorization": f"Bearer {key_lines(Path(api_key_file))[0]}"}
    )
    return Request(f"{url.rstrip('/')}/status", headers=headers)


def _states(request: Request, interval: float, once: bool) -> Iterator[dict[str, Any]]:
    yield _ask(request)
    while not once:
        time.sleep(interval)
        yield _ask(request)


def _ask(request: Request) -> dict[str, Any]:
    """The server's /status. TransportError where it does not answer as one."""
    try:
        with urlopen(request, timeout=_TIMEOUT) as reply:
            found = json.loads(reply.read(_MAX_BYTES))
    except HTTPError as error:
        why = "send its key with --api-key-file" if error.code == 401 else "is it a lora serve?"
        raise TransportError(f"{request.full_url} answers {error.code}; {why}") from None
    except (URLError, HTTPException, OSError) as error:
        reason = getattr(error, "reason", error)
        raise TransportError(
            f"{request.full_url} does not answer ({reason}); start lora serve or name another --url"
        ) from None
    except (ValueError, RecursionError):
        found = None
    problem = None if surely_valid(SCHEMA, found) else _problem(found)
    if problem is not None:
        raise TransportError(
            f"{request.full_url} is not the status of a lora serve: "
            f"{problem.json_path} has another form"
        )
    assert isinstance(found, dict)
    return found


def _problem(found: object) -> ValidationError | None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    problem: ValidationError | None = best_match(Draft202012Validator(SCHEMA).iter_errors(found))
    return problem
