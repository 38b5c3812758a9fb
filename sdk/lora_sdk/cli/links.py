"""`lora links`: status, payload test and cabling of the boards' links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from lora_host.board_types import counted_type
from lora_host.naming import counted
from lora_sdk.cli.bare import chosen_boards, container_option, links_bare, warn_without_cables
from lora_sdk.cli.boards_flags import board_flags, overlay_for
from lora_sdk.cli.folding import GLUE, show

TIMES = 2  # a link that comes up once may not come up again


@click.command("links")
@board_flags
@container_option
@click.option(
    "--test", is_flag=True, help="payload in both directions on every cable, and cabling, twice"
)
@click.option("--discover", is_flag=True, help="write a cluster file of the actual cabling")
def links(
    devices: tuple[str, ...],
    cluster_file: str | None,
    boards: int | None,
    overlay: str | None,
    container: Path | None,
    test: bool,
    discover: bool,
) -> None:
    """Show the links' registers; links are down until something brings them up, as --test does.
    --test tests the cables. --discover > cluster.yaml writes which ports are connected.

    The overlay is loaded first. The exit code is 1 if an expected cable, of --cluster or of a ring,
    is missing, is in another port, or delivers wrong bytes; with --discover, if no cable joins the
    boards. With --container, link cores of any xclbin are shown, and their cables are found by
    reset. Payload tests need an overlay.

    \b
    lora links --cluster lab.yaml --test
    lora links --device xrt:0 --device xrt:1 --discover > lab.yaml
    lora links --device xrt:0 --container aurora.xclbin --discover"""
    from lora_host.cluster import Cluster
    from lora_sdk.plan.partition import check_board_count

    if boards is not None:
        check_board_count(boards)
    if container is not None:
        _bare(chosen_boards(devices, cluster_file, boards, overlay), container, test, discover)
        return
    chosen = overlay_for(overlay, devices, cluster_file)
    with Cluster.open(boards, devices, cluster_file, overlay=chosen) as cluster:
        if discover:
            _say_boards(cluster, devices, cluster_file, err=True)
            raise SystemExit(_discover(cluster))
        _say_boards(cluster, devices, cluster_file)
        problems = _test(cluster) if test else []
        _show(cluster)
    _end(problems)


def _bare(chosen: Any, container: Path, test: bool, discover: bool) -> None:
    from lora_host.lab.bare import BareBoards

    entries, cables = chosen
    with BareBoards([entry.uri for entry in entries], container) as held:
        problems = links_bare(held, entries, cables, test, discover)
    _end(problems)


def _end(problems: list[str]) -> None:
    for line in problems:
        show(f"problem: {line}")
    if problems:
        raise SystemExit(1)


def _say_boards(
    cluster: Any, devices: tuple[str, ...], cluster_file: str | None, err: bool = False
) -> None:
    """Nobody takes boards of this process for cards."""
    if not devices and cluster_file is None:
        show(cluster.why, err=err)
    elif cluster.board_type != "real":
        show(counted_type(cluster.size, cluster.board_type), err=err)


def _discover(cluster: Any) -> int:
    from lora_host.lab.cabling import actual, cluster_text

    serials = [info.serial for info in cluster.infos]
    cabling = actual(cluster.links_discover(), serials)
    click.echo(cluster_text(cluster.entries, serials, cabling), nl=False)
    for line in cabling.problems:
        show(line, err=True)
    return warn_without_cables(cluster.size, len(cabling.cables)) if cabling.told_apart else 1


def _test(cluster: Any) -> list[str]:
    from lora_host.errors import LinkError
    from lora_host.lab.cabling import actual, compare

    serials = [info.serial for info in cluster.infos]
    problems: list[str] = []
    for turn in range(1, TIMES + 1):
        cabling = actual(cluster.links_discover(), serials)
        found = [*cabling.problems, *compare(cabling, cluster.cables)]
        if not found:
            try:
                cluster.links_up(cluster.cables)
            except LinkError as error:
                found = [str(error)]
        verdict = "problems" if found else "no problem"
        show(
            f"run {turn} of {TIMES}: {counted(len(cluster.cables), 'cable')} expected, "
            f"{len(cabling.cables)} found, {verdict}"
        )
        problems += [line for line in found if line not in problems]
    return problems


def _show(cluster: Any) -> None:
    from lora_host import abi
    from lora_host.lab.link_words import configuration_words, status_words

    for board in range(cluster.size):
        for port in range(abi.PORTS):
            it = cluster.link_status(board, port)
            shape = configuration_words(it.configuration)
            said = (
                ("status", f"{it.status:#06x} ({status_words(it.status)})"),
                ("configuration", f"{it.configuration:#x} ({shape})"),
                ("frames", it.frames_received),
                ("with errors", it.frames_with_errors),
                ("overflows", it.rx_overflows),
                ("times down", f"{it.channel_down} (resets count)"),
            )
            state = "up" if it.healthy else "down"
            words = [f"{name.replace(' ', GLUE)}{GLUE}{value}" for name, value in said]
            show(f"board {board} port {port}: {', '.join([state, *words])}")
