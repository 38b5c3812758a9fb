"""`lora links` and `lora validate` for boards with a foreign container: tests that its banks and
link cores allow, and one line for what stays untested."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lora_host.board_types import counted_type, opened_type
from lora_host.naming import counted
from lora_sdk.cli.folding import show
from lora_sdk.cli.progress import ProgressBar, counting

if TYPE_CHECKING:
    from lora_host.cluster_file import BoardEntry, Cable
    from lora_host.lab.bare import BareBoards
    from lora_host.lab.bare_links import BareLinks

MIB = 1 << 20
TIMES = 2
NO_FRAMES = (
    "payload: not tested: the container has no lora_ctrl, without which nothing on the board can "
    "send a frame"
)
UNOPENED = (
    "payload: not tested: with --container lora_ctrl is not opened, without which nothing on the "
    "board can send a frame; name the overlay of this container with --overlay instead"
)

container_option = click.option(
    "--container", type=click.Path(path_type=Path), metavar="FILE",
    help="any xclbin, loaded instead of an overlay; for --device xrt:...",
)  # fmt: skip


def chosen_boards(
    devices: Sequence[str], cluster_file: str | None, boards: int | None, overlay: str | None
) -> tuple[tuple[BoardEntry, ...], tuple[Cable, ...]]:
    """The given boards and cabling. RequestError for options that conflict with a container."""
    from lora_host.cluster_file import BoardEntry, load_cluster, ring
    from lora_host.device_uri import check_uri
    from lora_host.errors import RequestError

    if overlay is not None:
        raise RequestError("--overlay and --container were both given; a board holds one of them")
    if boards is not None:
        raise RequestError("--boards selects emulated boards, which hold no container; name "
                           "boards with --device or --cluster")  # fmt: skip
    if cluster_file is not None:
        if devices:
            raise RequestError("--device and --cluster were both given; the file names the boards")
        file = load_cluster(cluster_file)
        return file.boards, file.cables
    for uri in devices:
        check_uri(uri)
    entries = tuple(BoardEntry(uri, None) for uri in devices)
    return entries, ring(len(devices)) if devices else ()


def validate_bare(boards: BareBoards, size: int) -> list[str]:
    """Test the memory of each bank. Returns the faults."""
    from lora_host.errors import OverlayError
    from lora_host.lab.memory import check_bare_memory

    if not boards.banks:
        raise OverlayError("the container uses no memory bank; expected at least one; lora inspect "
                           "shows what it has")  # fmt: skip
    total = len(boards.banks) * len(boards.boards)
    with ProgressBar("memory", unit="bank") as progress:
        results = list(counting(check_bare_memory(boards, size), progress, total))
    bad = [f"board {r.board} {r.bank}: {r.fault}" for r in results if r.fault]
    tested = sum(r.bytes for r in results) / MIB
    verdict = counted(len(bad), "fault") if bad else "right"
    banks = counted(len(results), "bank")
    show(f"memory: {banks}, {tested:.2f} MiB, read back by the host: {verdict}")
    return bad


def untested(boards: BareBoards) -> str:
    """One line: what `lora validate` cannot test with such a container."""
    if boards.has_control:
        return "units: not tested; name the overlay of this container with --overlay instead"
    return "units: not tested: the container has no lora_ctrl to run commands"


def links_bare(
    boards: BareBoards,
    entries: Sequence[BoardEntry],
    cables: Sequence[Cable],
    test: bool,
    discover: bool,
) -> list[str]:
    """Show, test or discover the links. Returns the problems."""
    from lora_host.errors import OverlayError
    from lora_host.lab.bare_links import BareLinks
    from lora_host.lab.link_words import status_words

    if not boards.cores:
        raise OverlayError(
            "the container has no link core, a free-running kernel named aurora...0 or ...1 "
            "expected; lora inspect shows what it has"
        )
    links = BareLinks(boards)
    if discover:
        raise SystemExit(_discover(links, entries))
    problems = _test(links, cables) if test else []
    kind = opened_type(entries[0].uri, None)
    if kind != "real":
        show(counted_type(len(entries), kind))
    for it in links.read():
        counters = " ".join(f"{name} {value}," for name, value in it.counters.items())
        show(
            f"board {it.board} port {it.port}: {'up' if it.healthy else 'down'} status "
            f"{it.status:#06x} ({status_words(it.status)}) framing "
            f"{'on' if it.framing else 'off'} width {it.width} B {counters.rstrip(',')}"
        )
    if test:
        show(UNOPENED if boards.has_control else NO_FRAMES)
    return problems


def _test(links: BareLinks, cables: Sequence[Cable]) -> list[str]:
    from lora_host.lab.cabling import Cabling, compare

    problems: list[str] = []
    for turn in range(1, TIMES + 1):
        links.bring_up()
        links.idle()
        state = links.read()
        silent = tuple((it.board, it.port) for it in state if not it.healthy)
        found = [
            f"board {it.board} port {it.port}: {', '.join(it.errors)} on an idle link"
            for it in state
            if it.healthy and it.errors
        ]
        actual, lines = links.cabling()
        found += lines + compare(Cabling(tuple(actual), tuple(lines), silent), cables)
        verdict = "problems" if found else "no problem"
        show(
            f"run {turn} of {TIMES}: {counted(len(cables), 'cable')} expected, {len(actual)} "
            f"found by reset, {verdict}"
        )
        problems += [line for line in found if line not in problems]
    links.bring_up()
    return problems


def _discover(links: BareLinks, entries: Sequence[BoardEntry]) -> int:
    import yaml

    links.bring_up()
    cables, problems = links.cabling()
    links.bring_up()
    content = {
        "boards": [{"uri": entry.uri} for entry in entries],
        "cables": [vars(cable) for cable in cables],
    }
    for line in problems:
        show(line, err=True)
    click.echo(yaml.safe_dump(content, sort_keys=False), nl=False)
    return warn_without_cables(len(entries), len(cables))


def warn_without_cables(boards: int, cables: int) -> int:
    """The exit code of --discover: 1, with a warning, if nothing joins several boards."""
    if cables or boards < 2:
        return 0
    show(
        f"warning: no cable found between {counted(boards, 'board')}; is each in its port? A busy "
        "computer may miss links that come up late: run it again",
        err=True,
    )
    return 1
