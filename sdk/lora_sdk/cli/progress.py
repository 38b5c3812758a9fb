"""Progress bar on stderr. Without a terminal silent, or a line per step."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tqdm import tqdm


T = TypeVar("T")


class ProgressBar:
    """A context manager and callback: call it with (done, total). `lines`: where stderr is no
    terminal, a line for each step in place of nothing."""

    def __init__(
        self, what: str, unit: str = "B", quiet: bool = False, lines: bool = False
    ) -> None:
        self._what = what
        self._unit = unit
        self._shown = sys.stderr.isatty() and not quiet
        self._lines = lines and not self._shown and not quiet
        self._told = -1
        self._bar: tqdm[Any] | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bar from the terminal."""
        if self._bar is not None:
            self._bar.close()

    def __call__(self, done: int, total: int) -> None:
        if self._lines and done != self._told:
            self._told = done
            print(f"{self._what}: {done} of {total}", file=sys.stderr, flush=True)
        if not self._shown:
            return
        if self._bar is None:
            self._bar = self._open(total)
        self._bar.update(done - self._bar.n)

    def _open(self, total: int) -> tqdm[Any]:
        from tqdm import tqdm

        bar: tqdm[Any] = tqdm(
            total=total,
            desc=self._what,
            unit=self._unit,
            unit_scale=self._unit == "B",  # others are counted: 4/25
            unit_divisor=1024,
            leave=False,
            file=sys.stderr,
        )
        return bar


def counting(items: Iterable[T], progress: ProgressBar, total: int) -> Iterator[T]:
    """The items, each counted when it is there."""
    progress(0, total)
    for done, item in enumerate(items, 1):
        progress(done, total)
        yield item
