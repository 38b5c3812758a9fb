"""A plan as JSON values and as the table that `lora plan` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from lora_host import abi
from lora_host.naming import counted, ranges
from lora_sdk.plan.banks import MIB, MatrixPlacement
from lora_sdk.plan.kv import tiles
from lora_sdk.plan.model_plan import BankUse, BoardPlan, Plan
from lora_sdk.plan.partition import Stage

COLUMNS = ("weights", "kv", "tables", "control", "free")
FEW = 8  # boards whose links are all printed
NAME = 6  # columns of boards' numbers; longer ones have a line of their own


def report(plan: Plan) -> dict[str, Any]:
    """The plan's figures; sizes are bytes, padding included where the name says "placed"."""
    return {
        "fits": True,
        "overlay": plan.overlay.name,
        "board_type": plan.board.name,
        "boards": plan.size,
        "ring": plan.route.ring,
        "route": list(plan.route.order),
        "hops": _hops(plan),
        "stages": [
            {"layers": [stage.layers.start, stage.layers.stop], "boards": _boards_of(plan, stage)}
            for stage in plan.stages
        ],
        "port_bits_per_second": _port_bits(plan),
        "context": plan.context,
        "longest_context": plan.context_limit,
        "model_positions": plan.config.positions,
        "sequences": plan.max_sequences,
        "kv_pages": plan.page_count,
        "scratch_pages": plan.scratch_pages,
        "rows_a_step": plan.row_limit,
        "rope": _rope(plan),
        "windows": _windows(plan),
        "experts": _experts(plan),
        "formats": _formats(plan.boards[0]),
        "kv_cache": plan.boards[0].kv.kind,
        "weight_bytes": plan.weight_bytes,
        "replica_bytes": plan.replica_bytes,
        "placed_bytes": sum(board.placed_bytes for board in plan.boards),
        "host_bytes": plan.host_bytes,
        "board": [_board(plan, board) for board in plan.boards],
        "link_bytes_a_decoded_token": [
            {"board": board, "port": port, "bytes": sent.frames, "payload_bytes": sent.payload}
            for (board, port), sent in sorted(plan.link_bytes(1, 1).items())
        ],
    }


def _hops(plan: Plan) -> int:
    """The most that a block travels: between stages from the first board of one to the last of the
    next, else in a gather of all boards."""
    between = 2 * plan.stage_boards - 1 if len(plan.stages) > 1 else 0
    return max(between, plan.size // 2 if plan.route.ring else plan.size - 1)


def _boards_of(plan: Plan, stage: Stage) -> list[int]:
    """Indices of a stage's boards in the cluster, by rank."""
    return [board.board for board in plan.boards if board.share.stage == stage]


def _port_bits(plan: Plan) -> float:
    """Bits a second of a port, each way: the lanes' or the user port's."""
    links, clock = plan.overlay.links, plan.overlay.clock_hz
    return min(float(links.lanes * links.lane_bits_per_second), 8.0 * links.port_bytes * clock)


def _rope(plan: Plan) -> dict[str, Any] | None:
    """Scaled rotary positions: their kind, and the context that fixes them where one does."""
    rope = plan.config.rope
    if rope is None or rope.kind == "default":
        return None
    return {"type": rope.kind, "context": rope.context or None}


def _windows(plan: Plan) -> dict[str, Any] | None:
    """Sliding windows: their positions, and how many layers have one."""
    windows = plan.config.windows
    if not windows:
        return None
    sizes = sorted({window for window in windows if window})
    return {
        "positions": sizes,
        "layers": sum(map(bool, windows)),
        "of": len(windows),
        "pages_returned": plan.config.read_positions > 0,
    }


def _experts(plan: Plan) -> dict[str, Any] | None:
    """Mixtures of experts: how many of how many a row chooses, in how many layers, and the bytes of
    matrices that a token reads of all boards' ones."""
    experts = plan.config.experts
    if experts is None:
        return None
    specs = [matrix.spec for board in plan.boards for matrix in board.matrices.values()]
    return {
        "chosen": experts.chosen,
        "of": experts.count,
        "layers": len(experts.layers),
        "expert_bytes": sum(spec.bytes for spec in specs if spec.experts),
        "expert_bytes_a_token": sum(spec.token_bytes for spec in specs if spec.experts),
        "matrix_bytes_a_token": sum(spec.token_bytes for spec in specs),
    }


def _formats(board: BoardPlan) -> dict[str, int]:
    """Matrices of a board by format."""
    return dict(Counter(str(matrix.spec.format) for matrix in board.matrices.values()))


def _board(plan: Plan, board: BoardPlan) -> dict[str, Any]:
    share = board.share
    return {
        "rank": board.rank,
        "board": board.board,
        "query_heads": [share.q_heads.start, share.q_heads.stop],
        "kv_heads": [share.kv_heads.start, share.kv_heads.stop],
        "columns": {
            name: [columns.start, columns.stop]
            for name, columns in (
                ("hidden", share.hidden),
                ("ffn", share.ffn),
                ("vocabulary", share.vocabulary),
            )
        },
        "banks": [_bank(plan, use) for use in board.use],
        "replicas": [
            {"what": replica.what, "why": replica.why, "bytes": replica.bytes}
            for replica in board.replicas
        ],
        "spilled": [_spilled(plan, matrix) for matrix in board.spilled],
        "spilled_kv": _spilled_kv(plan, board),
    }


def _bank(plan: Plan, use: BankUse) -> dict[str, Any]:
    names = (*COLUMNS, "adapters") if plan.adapters.slots else COLUMNS
    figures = {name: getattr(use, name) for name in names}
    return {"bank": plan.board.bank_name(use.bank), **figures, "usable": use.usable}


def _spilled(plan: Plan, matrix: MatrixPlacement) -> dict[str, Any]:
    """A matrix outside the weight banks, and the added time per token to stream it."""
    weight_banks = [plan.board.banks[bank].bandwidth for bank in plan.overlay.weight_banks]
    there = plan.board.banks[matrix.bank_first].bandwidth
    read = matrix.placed_bytes / matrix.spec.matrices * (matrix.spec.chosen or 1)
    extra = read / there - read / sum(weight_banks)
    return {
        "matrix": matrix.name,
        "bytes": matrix.bytes,
        "bank": plan.board.bank_name(matrix.bank_first),
        "modelled_extra_ms_a_token": extra * 1e3,
    }


def _spilled_kv(plan: Plan, board: BoardPlan) -> dict[str, Any] | None:
    """KV pages outside the weight banks, and the added time per token to read one of them, and as
    many as one sequence may have."""
    kv = board.kv
    if kv.spill is None:
        return None
    banks = range(kv.spill.bank_first, kv.spill.bank_first + kv.spill.bank_count)
    there = sum(plan.board.banks[bank].bandwidth for bank in banks)
    here = sum(plan.board.banks[bank].bandwidth for bank in plan.overlay.weight_banks)
    extra = (kv.page_bytes / there - kv.page_bytes / here) * 1e3
    return {
        "first_page": kv.first_spilled,
        "pages": kv.spilled_pages,
        "bytes": kv.spilled_pages * kv.page_bytes,
        "banks": [plan.board.bank_name(bank) for bank in banks],
        "modelled_extra_ms_a_page": extra,
        "modelled_extra_ms_a_token": extra * min(kv.spilled_pages, plan.max_tiles),
    }


def table(found: dict[str, Any]) -> str:
    """The text of `lora plan` for the figures that `report` made."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{found['boards']} x {found['board_type']}, overlay {found['overlay']}: yes, it fits; "
        f"MiB per bank"
    )
    columns = _columns(found["board"][0])
    yield f"{'board':<{NAME}} {'bank':<12}" + "".join(f"{name:>10}" for name in columns)
    for boards, board in _kinds(found["board"]):
        name = ranges(boards)
        if len(name) > NAME:
            yield f"boards {name}:"
            name = ""
        yield from _bank_lines(name, board)
    yield _cabling(found)
    yield from _stages(found)
    yield from _summary(found)
    yield from _remarks(found)
    yield from _links(found)


def _kinds(boards: list[dict[str, Any]]) -> Iterator[tuple[list[int], dict[str, Any]]]:
    """Boards with equal lines once, by the first of them, with the numbers of all."""
    alike: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for board in boards:
        alike.setdefault(tuple(_bank_lines("", board)), []).append(board)
    for run in alike.values():
        yield sorted(board["board"] for board in run), run[0]


def _stages(found: dict[str, Any]) -> Iterator[str]:
    """Which boards run which layers, where not all run all."""
    if len(found["stages"]) < 2:
        return
    each = len(found["stages"][0]["boards"])
    cuts = ", ".join(f"{start}-{stop - 1}" for start, stop in (
        stage["layers"] for stage in found["stages"]))  # fmt: skip
    yield (
        f"{len(found['stages'])} stages of {counted(each, 'board')}, by rank, with layers {cuts}; "
        "one after the other"
    )


def _links(found: dict[str, Any]) -> Iterator[str]:
    """What ports send, equal ones once; of many boards the busiest one alone."""
    links = found["link_bytes_a_decoded_token"]
    if found["boards"] > FEW:
        busiest = max(links, key=lambda link: link["bytes"])
        yield (
            f"links: {counted(found['boards'], 'board')}, at most {found['hops']} hops, "
            f"{found['port_bits_per_second'] / 1e9:g} Gb/s a port; the busiest port:"
        )
        links = [busiest]
    alike: dict[tuple[int, int, int], list[int]] = {}
    for link in links:
        sent = (link["port"], link["bytes"], link["payload_bytes"])
        alike.setdefault(sent, []).append(link["board"])
    for (port, size, payload), boards in alike.items():
        which = f"board {boards[0]}" if len(boards) == 1 else f"each of boards {ranges(boards)}"
        yield (f"link: {which}, port {port}: {size} B per decoded token, {payload} B of it payload")


def _cabling(found: dict[str, Any]) -> str:
    shape = "a ring" if found["ring"] else "a path" if found["boards"] > 1 else "no link"
    order = ranges(found["route"])
    return f"boards by rank: {order}; {shape}, cabled as {found.get('cluster') or 'by default'}"


def _bank_lines(board_name: str, board: dict[str, Any]) -> Iterator[str]:
    """One line per run of banks with equal figures."""
    columns = _columns(board)
    for figures, run in groupby(board["banks"], key=lambda bank: [bank[name] for name in columns]):
        names = [bank["bank"] for bank in run]
        name = names[0] if len(names) == 1 else f"{names[0]}..{names[-1].partition('[')[2]}"
        values = "".join(f"{figure / MIB:>10.1f}" for figure in figures)
        name = name.replace("..", "-").replace("]-", "-")
        yield f"{board_name:<{NAME}} {name:<12}{values}"


def _columns(board: dict[str, Any]) -> list[str]:
    """Figures of a bank; those of adapters only if there is room for them."""
    return [name for name in (*COLUMNS[:-1], "adapters", "free") if name in board["banks"][0]]


def _summary(found: dict[str, Any]) -> Iterator[str]:
    yield (
        f"context {found['context']} for {found['sequences']} sequences; the longest that fits one "
        f"sequence: {found['longest_context']} of the model's {found['model_positions']}"
    )
    whole = found["kv_pages"] // tiles(found["context"])
    if whole < found["sequences"]:
        yield (
            f"they share {found['kv_pages']} KV pages of {abi.TILE_POSITIONS} positions, enough "
            f"for {whole} of them at full length"
        )
    formats = ", ".join(f"{count} x {name}" for name, count in found["formats"].items())
    yield f"matrices of a board: {formats}; KV cache {found['kv_cache']}"
    yield (
        f"weights {_mib(found['weight_bytes'])} with {_mib(found['replica_bytes'])} of replicas; "
        f"{_mib(found['placed_bytes'])} are written with padding"
    )
    yield f"host memory: at most {_mib(found['host_bytes'])} for the boards' banks when emulated"


def _remarks(found: dict[str, Any]) -> Iterator[str]:
    replicas: dict[tuple[str, str], list[int]] = {}
    for board in found["board"]:
        for replica in board["replicas"]:
            replicas.setdefault((replica["what"], replica["why"]), []).append(replica["bytes"])
    for (what, why), sizes in replicas.items():
        yield f"replica: {what}, {why}: {_mib(sum(sizes))} on {counted(len(sizes), 'board')}"
    if found["windows"]:
        yield _window_line(found["windows"])
    if found["experts"]:
        yield _expert_line(found["experts"])
    rope = found["rope"]
    if rope and rope["context"]:
        yield (
            f"rotary positions: {rope['type']} for a context of {rope['context']}; another"
            " --ctx-size gives other logits"
        )
    spills: dict[str, list[int]] = {}
    for board in found["board"]:
        for line in _spill_lines(board, found["kv_pages"]):
            spills.setdefault(line, []).append(board["board"])
    for line, boards in spills.items():
        which = f"board {boards[0]}" if len(boards) == 1 else f"each of boards {ranges(boards)}"
        yield f"spill: {which} {line}"


def _window_line(windows: dict[str, Any]) -> str:
    sizes = ", ".join(map(str, windows["positions"]))
    return (
        f"windows: {windows['layers']} of {windows['of']} layers read the last {sizes} positions;"
        f" sequences {'return' if windows['pages_returned'] else 'keep'} the pages before them"
    )


def _expert_line(experts: dict[str, Any]) -> str:
    return (
        f"experts: each row takes {experts['chosen']} of {experts['of']} in "
        f"{counted(experts['layers'], 'layer')}; a token reads "
        f"{_mib(experts['expert_bytes_a_token'])} of their {_mib(experts['expert_bytes'])}, "
        f"{_mib(experts['matrix_bytes_a_token'])} of all matrices"
    )


def _spill_lines(board: dict[str, Any], pages: int) -> Iterator[str]:
    if board["spilled"]:
        yield _spill_line(board["spilled"])
    if board["spilled_kv"]:
        yield _spilled_kv_line(board["spilled_kv"], pages)


def _spill_line(spilled: list[dict[str, Any]]) -> str:
    cost = sum(matrix["modelled_extra_ms_a_token"] for matrix in spilled)
    size = sum(matrix["bytes"] for matrix in spilled)
    names = [matrix["matrix"] for matrix in spilled]
    listed = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
    return f"reads {_mib(size)} from DDR, {cost:.1f} ms more per token (modelled): {listed}"


def _spilled_kv_line(spilled: dict[str, Any], pages: int) -> str:
    return (
        f"keeps {spilled['pages']} of {pages} KV pages "
        f"({_mib(spilled['bytes'])}) in {', '.join(spilled['banks'])}, used when the others are "
        "taken; "
        f"{spilled['modelled_extra_ms_a_page']:.3f} ms more per token for each that a sequence "
        f"has, up to {spilled['modelled_extra_ms_a_token']:.1f} ms (modelled)"
    )


def _mib(count: int) -> str:
    return f"{count / MIB:.{1 if count >= MIB else 3}f} MiB"
