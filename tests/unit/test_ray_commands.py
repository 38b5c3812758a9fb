"""Options of `lora ray`, `serve --ray` and `batch` that are refused before anything starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.commands import LORA, command, one_line_error

MISSING = f"import sys; sys.modules['ray'] = None\n{LORA}"


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("ray", "start", "--host", "10.0.0.1"), ("reached from other machines", "RAY_USE_TLS=1")),
        (("ray", "start", "--host", "here"), ("--host 'here'", "IP address")),
        (("ray", "start", "--host", "10.0.0.1", "--insecure", "--join", "10.0.0.2:1"),
         ("--join needs --token-file",)),
        (("ray", "start", "--join", "10.0.0.2:1"), ("--join needs --host",)),
        (("ray", "start", "--emulated", "u280"), ("--emulated 'u280'", "u280=N")),
        (("serve", "--replicas", "2"), ("--replicas needs --ray",)),
        (("serve", "--ray", "--spare", "emu:u280"), ("--spare",)),
        (("serve", "--ray", "--ray-token-file", "x"), ("--ray-token-file needs --ray-address",)),
        (("serve", "--ray", "--ray-address", "nowhere"), ("'nowhere'", "HOST:PORT")),
        (("serve", "--ray", "--ray-address", "127.0.0.1:1"), ("no Ray cluster at 127.0.0.1:1",)),
        (("serve", "--ray", "--device", "emu:u280", "--replicas", "2"), ("1 device;", "need 2")),
        (("serve", "--boardd", "tcp:a:1"), ("--boardd needs --ray",)),
        (("serve", "--ray", "--boardd", "tcp:a:1"), ("--boardd needs --boards",)),
        (("serve", "--ray", "--boards", "2", "--boardd", "a:1"), ("'a:1'", "tcp:HOST:PORT")),
        (("ray", "start", "--boardd", "here"), ("'here'", "unix:PATH")),
        (("ray", "start", "--boardd", "tcp:a:1", "--keys", "/nowhere"), ("/nowhere/token",)),
    ],
)  # fmt: skip
def test_bad_options_are_refused(words: tuple[str, ...], parts: tuple[str, ...]) -> None:
    one_line_error(command(LORA, *words), *parts)


def test_without_ray_the_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "in").write_text('"import os"\n')
    for words in (
        ("serve", "--ray"), ("ray", "start", "--emulated", "u280=1"),
        ("batch", tmp_path / "in", tmp_path / "out", "--ray", "-q"),
    ):  # fmt: skip
        one_line_error(command(MISSING, *words), ".[ray]")
    assert sys.modules.get("ray", 0) is not None
