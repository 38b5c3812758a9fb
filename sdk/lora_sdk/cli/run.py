"""`lora-run`: a prompt in, its continuation out."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `lora-run`. Imports are inside the try, so that Ctrl-C is handled early."""
    try:
        from lora_sdk.cli.outcome import run_command
        from lora_sdk.cli.run_command import lora_run

        code = run_command(lora_run, "lora-run")
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
