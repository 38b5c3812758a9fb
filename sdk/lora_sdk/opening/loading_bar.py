"""A progress bar of loading, for notebooks and terminals."""

from __future__ import annotations

import sys
from typing import Any

WIDTH = 40  # characters on a terminal


class LoadingBar:
    """`Engine(progress=LoadingBar())`: an HTML bar in a notebook, a line on stderr elsewhere."""

    def __init__(self, what: str = "loading") -> None:
        self._what = what
        self._handle: Any = None

    def __call__(self, done: int, total: int) -> None:
        """Show `done` of `total` bytes."""
        if not _in_notebook():
            share = done / total if total else 1.0
            bar = f"{'#' * int(share * WIDTH):<{WIDTH}}"
            end = "\n" if done >= total else ""
            sys.stderr.write(f"\r{self._what} {bar} {share:4.0%}{end}")
            sys.stderr.flush()
            return
        from IPython.display import HTML, display

        bar = HTML(
            f"{self._what} <progress value='{done}' max='{total}'></progress> "
            f"{done / 2**20:.1f} of {total / 2**20:.1f} MiB"
        )
        if self._handle is None:
            self._handle = display(bar, display_id=True)
        else:
            self._handle.update(bar)


def _in_notebook() -> bool:
    """Whether a kernel shows what is displayed."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config
