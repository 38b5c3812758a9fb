"""How a command ends: one line on stderr for an error, and an exit code.

0: done. 1: the work failed, or the content of a file is wrong. 2: the request is invalid or not
supported: an option, a name, a prompt. 130: Ctrl-C.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130


def run_command(command: click.Command, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a click command and return its exit code. It raises no exception."""
    import click
    from click.exceptions import NoArgsIsHelpError

    from lora_host.errors import LoraError

    if sys.stderr is None:  # closed by the parent process
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        return fail(
            name, "standard output is closed; expected an open one for the text", EXIT_FAILED
        )
    _write_utf8()
    warnings.showwarning = lambda message, *_args, **_more: say(name, "warning", message)
    logging.lastResort = _Said(name)  # of records that no handler takes
    try:
        code = command.main(arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except click.UsageError as error:
        if isinstance(error, NoArgsIsHelpError):  # a group without a command: its help
            print(error.format_message(), file=sys.stderr)
            return EXIT_USAGE
        path = name if error.ctx is None else error.ctx.command_path
        return fail(name, f"{_of_choice(error)} (try {path} --help)", EXIT_USAGE)
    except click.ClickException as error:
        return fail(name, error.format_message(), error.exit_code)
    except LoraError as error:
        return fail(name, error, EXIT_USAGE if error.usage else EXIT_FAILED)
    except BrokenPipeError:  # the reader of the text has exited
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        wrong = error.errno == errno.ENAMETOOLONG  # a name that no file can have
        code = EXIT_USAGE if wrong else EXIT_FAILED
        return fail(name, f"{where}{error.strerror or error}{_cure(error)}", code)
    except MemoryError:
        return fail(name, "this computer's memory is exhausted; use a smaller model", EXIT_FAILED)


class _Said(logging.Handler):
    """Log records from warnings on as lines of the command `name`."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self.name = name

    def emit(self, record: logging.LogRecord) -> None:
        """Say it."""
        say(str(self.name), record.levelname.lower(), record.getMessage())


def _of_choice(error: click.UsageError) -> str:
    """The message; a word that is none of a choice's gets the nearest one."""
    import click

    from lora_host.naming import did_you_mean

    said = error.format_message()
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param else None
    found = re.search(r": '(.*)' is not one of ", said)
    if not isinstance(kind, click.Choice) or found is None:
        return said
    hint = did_you_mean(found[1], [str(choice) for choice in kind.choices])
    return f"{said} {hint}" if hint.startswith("did you mean") else said


def _cure(error: OSError) -> str:
    from lora_host.writing import NO_ROOM

    return "; free some space, or write to another disk" if error.errno in NO_ROOM else ""


def _write_utf8() -> None:
    """UTF-8 whatever the locale; names of files are bytes."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="surrogateescape")
    if isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr.reconfigure(encoding="utf-8", errors="backslashreplace")


def fail(name: str, message: object, code: int) -> int:
    """Print the error and return `code`."""
    say(name, "error", message)
    return code


def say(name: str, kind: str, message: object) -> None:
    """Print one line on stderr, folded on a terminal."""
    from lora_host.errors import one_line
    from lora_sdk.cli.folding import for_people

    text = f"{name}: {kind}: {one_line(message)}"
    print(for_people(text, err=True), file=sys.stderr, flush=True)
