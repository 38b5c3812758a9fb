"""Runs Python code on emulated boards behind the real XRT, in a session of its own with an end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Mapping

from lora_host.xrt_environment import XrtEnvironment
from tests.processes import environment

PREAMBLE = """
import os, signal, sys, threading, time
from lora_host.cluster import Cluster
from lora_host.errors import *
from lora_host.overlay import load_overlay
def opened(*devices, overlay="lora_f_u280", **more):
    return Cluster.open(devices=devices, overlay=load_overlay(overlay), **more)
"""


def start(
    place: XrtEnvironment | Mapping[str, str], code: str, *arguments: str
) -> subprocess.Popen[str]:
    """A process that runs the preamble and `code`; its group is its own."""
    variables = place.variables if isinstance(place, XrtEnvironment) else place
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + textwrap.dedent(code), *arguments],
        env={**variables, "PYTHONPATH": environment()["PYTHONPATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 30) -> tuple[int, str, str]:
    """(exit code, stdout, stderr); the whole group is ended when time is over."""
    try:
        out, error = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, error = process.communicate()
        raise AssertionError(f"no end within {seconds} s: {out}{error}") from None
    return process.returncode, out, error


def said(place: XrtEnvironment | Mapping[str, str], code: str, *arguments: str) -> str:
    """Standard output of `code`, which must end well."""
    status, out, error = finish(start(place, code, *arguments))
    assert status == 0, out + error
    return out
