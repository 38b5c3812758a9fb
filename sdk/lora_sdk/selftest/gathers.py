"""Cases of the Router: a gather of activations, and the all-reduce of a norm over several boards.
In the all-reduce, local sums are gathered and every board adds them as one tree."""

from __future__ import annotations

import numpy as np

from lora_host import abi
from lora_sdk.compile.isa import Gather, Vector, float_bits

from . import answers
from .bench import ROWS, TABLES, Bytes, Case, Site, StepCase, Test, begin
from .moves import SLOT, STRIDE, move_in, move_out, operand
from .vectors import EPS

COLUMNS = 500  # 16 units, the last one partial: every board has a share, of different widths
_UNIT = abi.UNIT_COLUMNS


def _share(rank: int, boards: int) -> range:
    units = -(-COLUMNS // _UNIT)
    first, end = (min(COLUMNS, (rank + i) * units // boards * _UNIT) for i in range(2))
    return range(first, end)


def _whole(site: Site) -> np.ndarray:
    """All boards' columns, equal on every board: generated as for rank 0."""
    return Site(0, site.boards, site.control, site.banks, site.seed).half((ROWS, COLUMNS), 2.0)


def _gather(site: Site) -> Case:
    whole, share = _whole(site), _share(site.rank, site.boards)
    own = np.zeros_like(whole)
    own[:, share.start : share.stop] = whole[:, share.start : share.stop]
    command = Gather(
        what="gather", offset=0, stride=STRIDE, columns=COLUMNS, share_unit=_UNIT,
        segment_unit=_UNIT, element_bytes=2, collective=0,
    )  # fmt: skip
    commands = (move_in(site, 0, 2 * COLUMNS), command, move_out(site, 0, 1, 2 * COLUMNS))
    step = StepCase((operand(site, 1, whole, "gathered row"),), kv_ops=begin())
    return Case(commands, (operand(site, 0, own),), (step,), linked=True)


def _all_reduce(site: Site) -> Case:
    whole, share = _whole(site), _share(site.rank, site.boards)
    own = np.ascontiguousarray(whole[:, share.start : share.stop])
    gamma = np.linspace(0.5, 2, COLUMNS).astype(np.float16)
    y = answers.rms_norm(whole, answers.squares(whole, COLUMNS), COLUMNS, gamma, EPS)
    y = np.ascontiguousarray(y[:, share.start : share.stop])
    common = {
        "columns": len(share), "x_offset": 0, "x_stride": STRIDE, "z_offset": SLOT,
        "z_stride": STRIDE, "first": share.start, "extra": COLUMNS,
    }  # fmt: skip
    gather = Gather(
        what="sums of all boards", offset=SLOT, stride=STRIDE, columns=abi.SEGMENTS, share_unit=1,
        segment_unit=1, element_bytes=4, collective=0,
    )  # fmt: skip
    width = 2 * len(share)
    commands = (
        move_in(site, 0, width),
        Vector(what="local sums", op=abi.VEC_RMS_SUMS, **common),
        gather,
        Vector(
            what="norm", op=abi.VEC_RMS_APPLY, y_offset=2 * SLOT, y_stride=STRIDE,
            a_bank=site.banks.start, a_line=TABLES // abi.LINE_BYTES, scalar=float_bits(EPS),
            **common,
        ),
        move_out(site, 2, 3, width),
    )  # fmt: skip
    table = Bytes(site.banks.start, TABLES, gamma[share.start : share.stop].tobytes())
    step = StepCase((operand(site, 3, y, "norm of all boards' columns"),), kv_ops=begin())
    return Case(commands, (operand(site, 0, own), table), (step,), linked=True)


TESTS = (
    Test("Router", "gather", _gather, min_boards=2),
    Test("Router", "all-reduce of a norm's sums", _all_reduce, min_boards=2),
)
