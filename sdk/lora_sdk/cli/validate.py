"""`lora validate`: tests boards, links and units."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lora_host.board_types import counted_type, opened_type
from lora_host.naming import counted
from lora_sdk.cli.bare import chosen_boards, container_option, untested, validate_bare
from lora_sdk.cli.boards_flags import board_flags, overlay_for
from lora_sdk.cli.folding import show
from lora_sdk.cli.progress import ProgressBar, counting

MIB = 1 << 20


@click.command("validate")
@board_flags
@container_option
@click.option("--memory", is_flag=True, help="test only the memory of each bank")
@click.option("--mib", type=click.IntRange(1), default=1, show_default=True,
              help="MiB of each bank that the memory test covers")  # fmt: skip
def validate(
    devices: tuple[str, ...],
    cluster_file: str | None,
    boards: int | None,
    overlay: str | None,
    container: Path | None,
    memory: bool,
    mib: int,
) -> None:
    """Test the memory of each bank, every cable, each unit alone, and all units together.

    Each unit runs tiny command lists, whose results are compared with results computed on this
    computer. Then a demo model's logits on these boards must equal, byte for byte, those of one
    emulated board; simulated cards get a small random model. The exit code is 1 if there is a
    fault. With --container any xclbin works: then the host writes and reads every bank.

    \b
    lora validate --boards 2
    lora validate --device xrt:0 --container vadd.xclbin --memory --mib 64"""
    from lora_host.cluster import Cluster
    from lora_sdk.plan.partition import check_board_count

    if container is not None:
        entries = chosen_boards(devices, cluster_file, boards, overlay)[0]
        _bare([entry.uri for entry in entries], container, memory, mib * MIB)
        return
    chosen = overlay_for(overlay, devices, cluster_file)
    faults: list[str] = []
    with Cluster.open(boards, devices, cluster_file, overlay=chosen) as cluster:
        size, kind = cluster.size, cluster.board_type
        if not memory:  # the units' lists are a model's
            check_board_count(size)
        faults += _memory(cluster, mib * MIB)
    if not memory:
        with Cluster.open(boards, devices, cluster_file, overlay=chosen) as cluster:
            wrong = _links(cluster)
            faults += wrong or _units(cluster)
        faults += _answers(devices, cluster_file, size, chosen, kind == "simulated")
    _end(faults, size, kind)


def _bare(uris: Sequence[str], container: Path, memory: bool, size: int) -> None:
    from lora_host.lab.bare import BareBoards

    with BareBoards(uris, container) as held:
        faults = validate_bare(held, size)
        if not memory:
            show(untested(held))
        kind = opened_type(uris[0], None)
    _end(faults, len(uris), kind)


def _end(faults: Sequence[str], size: int, kind: str) -> None:
    for line in faults:
        show(f"fault: {line}")
    if faults:
        raise SystemExit(1)
    show(f"{counted_type(size, kind)}: sound")


def _memory(cluster: Any, size: int) -> list[str]:
    from lora_host.lab.memory import check_memory

    banks = cluster.size * len(cluster.overlay.board.banks)
    with ProgressBar("memory", unit="bank") as progress:
        results = list(counting(check_memory(cluster, size), progress, banks))
    bad = [f"board {r.board} {r.bank}: {r.fault}" for r in results if r.fault]
    total = sum(r.bytes for r in results) / MIB
    show(f"memory: {len(results)} banks, {total:.0f} MiB: {_verdict(bad)}")
    return bad


def _links(cluster: Any) -> list[str]:
    from lora_host.errors import LinkError

    if not cluster.cables:
        show("links: not tested: no cable")
        return []
    bad = []
    try:
        cluster.links_up(cluster.cables)
    except LinkError as error:
        bad.append(str(error))
    cables = counted(len(cluster.cables), "cable")
    show(f"links: {cables}, payload in both directions: {_verdict(bad)}")
    return bad


def _units(cluster: Any) -> list[str]:
    from lora_sdk.selftest.units import check_units, operations

    bad, done = [], 0
    with ProgressBar("units alone", unit="operation") as progress:
        results = list(counting(check_units(cluster), progress, operations(cluster)))
    for result in results:
        name = f"unit {result.unit}, {result.what}"
        if result.fault:
            bad.append(f"{name}: {result.fault}")
        if result.skipped:
            show(f"{name}: not tested: {result.skipped}")
        done += not result.skipped
    show(f"units alone: {done} operations on {counted(cluster.size, 'board')}: {_verdict(bad)}")
    return bad


def _answers(
    devices: Sequence[str], cluster_file: str | None, size: int, overlay: Any, simulated: bool
) -> list[str]:
    from lora_host.errors import LoraError
    from lora_sdk.cli.known_answers import STEPS, logits, sample_for

    with sample_for(simulated) as sample, ProgressBar("known answers", unit="step") as progress:
        progress(0, STEPS)
        boards = {"boards": size, "devices": devices, "cluster_file": cluster_file}
        try:
            found = logits(
                lambda done: progress(done, STEPS), **boards, overlay=overlay, **sample.options
            )
        except LoraError as error:
            bad = [f"known answers: {error}"]
        else:
            theirs = logits(boards=1, **sample.options)
            bad = [
                f"known answers: logits of step {step} differ from the emulated board's"
                for step, pair in enumerate(zip(found, theirs, strict=True))
                if pair[0] != pair[1]
            ]
    what = "matrix, vector, DMA" + (" and router units" if size > 1 else " units")
    show(f"known answers of {what}: {STEPS} steps of {sample.name}: {_verdict(bad)}")
    return bad


def _verdict(bad: Sequence[str]) -> str:
    return counted(len(bad), "fault") if bad else "right"
