"""Command lists to mutate, with a recomputed seal. They are registered and, if accepted, run."""

from __future__ import annotations

import zlib
from pathlib import Path
from random import Random

import numpy as np

from lora_host import abi
from lora_host.cluster import Cluster
from lora_host.errors import HangError
from lora_host.overlay import load_overlay
from lora_sdk.compile.isa import encode
from lora_sdk.compile.lower import lower
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.model.quantization import unit_scales
from lora_sdk.model.spec import ModelConfig
from lora_sdk.plan.placement import Plan, make_plan
from lora_sdk.step.step import Row, build_block
from tests.mutations import Subject
from tests.unit import plan_rig

_EDGES = (0, 1, 2, 7, 8, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 0x10000, 0x100000,
          0x7FFFFFFF, 0x80000000, 0xFFFFFFC0, 0xFFFFFFFF)  # fmt: skip
_HEADER = abi.dtype("list").itemsize
_CRC = abi.dtype("list").fields["crc"][1]  # type: ignore[index]
_TIMEOUTS = {"register_list_us": 2_000_000, "step_us": 2_000_000, "watchdog_ms": 1000}


class Board:
    """An emulated board with memory reserved for one model's list."""

    def __init__(self, config: ModelConfig, overlay: str, kernels: str = "native") -> None:
        self.overlay = load_overlay(overlay)
        self.plan: Plan = make_plan(config, self.overlay, plan_rig.board(), 1)
        commands = lower(config, self.plan, 0, unit_scales(config) if config.quantization else None)
        self.list = encode(commands, self.plan, 0, 0)
        self.cluster = Cluster.open(
            1, overlay=self.overlay, kernels=kernels, timeouts=_TIMEOUTS, threads=1
        )
        self._reserve()

    def _reserve(self) -> None:
        for bank, size in self.plan.boards[0].arenas.items():
            self.cluster.reserve(0, bank, size)

    def run(self, data: bytes) -> None:
        """Registers a list and runs one step of two rows with it."""
        control = self.plan.boards[0].control
        self.cluster.write(0, self.overlay.control_bank, control.list_offset, data)
        ops = [KvOp.table(0, 0, self.plan.page_count - 1), KvOp.length(0, 0)]
        rows = [Row(0, 0, 7, 0), Row(0, 1, 8, 1, parent=0, want_argmax=True)]
        block = build_block(rows, ops, (), 0, self.plan.config.embed_dim)
        try:
            self.cluster.register_list(0, 0, control.list_offset)
            self.cluster.step(block, control.block_offset)
        except HangError:
            self.cluster.reset()
            raise


def mutated(random: Random, data: bytes) -> bytes:
    """One to three words of header or commands changed, or commands copied or swapped; resealed."""
    words = np.frombuffer(data, np.uint32).copy()
    commands = words[_HEADER // 4 :].reshape(-1, 16)
    for _ in range(random.choice((1, 1, 2, 3))):
        kind = random.randrange(8)
        first, second = random.randrange(len(commands)), random.randrange(len(commands))
        if kind == 0:
            commands[first] = commands[second]
        elif kind == 1:
            commands[[first, second]] = commands[[second, first]]
        elif kind == 2:
            _change(random, words[: _HEADER // 4])
        else:
            _change(random, commands[first])
    words[_CRC // 4] = 0
    words[_CRC // 4] = zlib.crc32(words.tobytes())
    return words.tobytes()


def _change(random: Random, words: np.ndarray) -> None:
    at = random.randrange(len(words))
    value = int(words[at])
    shift = random.choice((0, 8, 16, 24))
    edge = random.choice(_EDGES)
    value = random.choice(
        (
            edge,
            value ^ 1 << random.randrange(32),
            value + random.choice((-64, -2, -1, 1, 2, 64)),
            value & ~(0xFF << shift) | (edge & 0xFF) << shift,
            value & 0xFFFF | edge << 16,
            value & 0xFFFF0000 | edge & 0xFFFF,
            int(random.choice(words)),
        )
    )
    words[at] = value & 0xFFFFFFFF


def lists(folder: Path) -> Subject:
    """Lists of five models: norms and activations of each kind, biases, experts, INT8, both."""
    path = folder / "list"
    boards = [
        Board(plan_rig.NARROW, "lora_f_u280"),
        Board(plan_rig.OPT_POST, "lora_f_u280"),
        Board(plan_rig.EXPERTS, "lora_f_u280"),
        Board(plan_rig.quantized(plan_rig.NARROW, "w8a8"), "lora_q_u280"),
        Board(plan_rig.quantized(plan_rig.EXPERTS_WIDE, "w4a8_dynamic"), "lora_w4a8_u280"),
    ]
    chosen = boards[0]

    def mutate(random: Random) -> bytes:
        nonlocal chosen
        chosen = random.choice(boards)
        return mutated(random, chosen.list)

    def close() -> None:
        for board in boards:
            board.cluster.close()

    return Subject(path, mutate, lambda: chosen.run(path.read_bytes()), close)
