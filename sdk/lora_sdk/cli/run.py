"""`lora-run`: a prompt in, its continuation out."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of `lora-run`. Imports are inside the try, so that Ctrl-C is handled early."""
    try:
        from lora_host.errors import LoraError
        from lora_sdk.cli.outcome import EXIT_FAILED, fail, run_command

        try:
            from lora_sdk.cli.run_command import lora_run
        except LoraError as error:  # the C library is not built
            code = fail("lora-run", error, EXIT_FAILED)
        else:
            code = run_command(lora_run, "lora-run")
    except KeyboardInterrupt:
        code = 130
    sys.exit(code)
