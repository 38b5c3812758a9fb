"""Operators of a step from a model's shape: what a design runs, on any number of boards."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.timing import costs
from lora_sdk.timing.adapter_ops import ADAPTER_BYTES, AdapterUse
from lora_sdk.timing.machine import Machine
from lora_sdk.timing.ops import ADAPTER, ATTENTION, LINK, MPU, ROUTER, VECTOR, VFU, WEIGHTS, Op
from lora_sdk.timing.step import StepShape

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig

ATTENTION_STARTS = 3  # q.k, SoftMax and s.v are an operator each: with qkv, o, up, down and two
#                       norms the nine of a block
MAX_BOARDS = 1024


def step_ops(
    machine: Machine,
    config: ModelConfig,
    boards: int,
    step: StepShape,
    adapter: AdapterUse | None = None,
) -> list[Op]:
    """The operators of one step on the board with the largest share, in order; with `adapter`,
    every row uses it.

    RequestError where the model or the adapter cannot be sharded to so many boards."""
    if not 1 <= boards <= min(MAX_BOARDS, config.heads):
        raise RequestError(
            f"{boards} boards: the model has {config.heads} query heads and each board needs one; "
            f"use 1 to {min(MAX_BOARDS, config.heads)}"
        )
    if adapter is not None:
        adapter.check(boards)
    block = _block(machine, config, boards, step, adapter)
    ops: list[Op] = []
    for layer in range(config.layers):
        base = len(ops)
        for op in block:
            after = tuple(base + place for place in op.after if base + place >= 0)
            ops.append(replace(op, layer=layer, after=after))
    if machine.lm_head:
        _head(ops, machine, config, boards, step)
    return ops


def _block(
    machine: Machine, config: ModelConfig, boards: int, step: StepShape, adapter: AdapterUse | None
) -> list[Op]:
    """One decoder block; `after` counts from the block's first operator."""
    build = _Builder(machine, boards, step.rows, adapter)
    heads = math.ceil(config.heads / boards)
    kv_heads = min(config.kv_heads, math.ceil(config.kv_heads / boards))
    q_width, kv_width = heads * config.head_dim, kv_heads * config.head_dim
    ups = 2 if config.gated else 1
    columns = math.ceil(config.hidden / boards)
    build.norm("attn norm", config)
    build.gather("gather qkv", config.hidden)
    build.adapted("qkv", config.hidden, q_width + 2 * kv_width, 3, blocked_b=True)
    build.attention(config, step, heads, kv_heads, boards)
    build.gather("gather o", config.heads * config.head_dim)
    build.adapted("o", config.heads * config.head_dim, columns)
    build.norm("mlp norm", config)
    build.gather("gather up", config.hidden)
    build.adapted("up", config.hidden, math.ceil(ups * config.ffn / boards), ups, blocked_b=True)
    build.gather("gather down", config.ffn)
    build.adapted("down", config.ffn, columns)
    return build.ops


def _head(
    ops: list[Op], machine: Machine, config: ModelConfig, boards: int, step: StepShape
) -> None:
    """Final norm, gather and lm_head of the sampled rows."""
    build = _Builder(machine, boards, step.sampled)
    if config.final_norm:
        build.norm("final norm", config)
    build.gather("gather lm_head", config.embed_dim)
    build.matrix("lm_head", config.embed_dim, math.ceil(config.vocabulary / boards))
    base = len(ops)
    ops.extend(replace(op, after=tuple(base + place for place in op.after)) for op in build.ops)


class _Builder:
    """A chain of operators, each behind the one before."""

    def __init__(
        self, machine: Machine, boards: int, rows: int, adapter: AdapterUse | None = None
    ) -> None:
        self.machine = machine
        self.boards = boards
        self.rows = rows
        self.adapter = adapter
        self.ops: list[Op] = []

    def _add(self, **fields: object) -> None:
        self.ops.append(Op(layer=-1, after=(len(self.ops) - 1,), **fields))  # type: ignore[arg-type]

    def matrix(self, what: str, k: int, n: int) -> None:
        machine = self.machine
        passes = costs.matrix_passes(machine, self.rows)
        once = k * n * machine.weight_bytes
        rate = machine.stream_rate if self.rows == 1 else machine.prefill_rate
        behind = bool(self.ops) and self.ops[-1].unit == ROUTER and not machine.stalled
        self._add(
            unit=MPU,
            category=WEIGHTS,
            what=what,
            start=machine.start_cycles,
            compute=costs.matrix_cycles(machine, self.rows, k, n),
            stream=once * passes / rate,
            bytes=once * passes,
            macs=float(self.rows) * k * n,
            segments=behind,
            local=1 / self.boards,
        )

    def adapted(self, what: str, k: int, n: int, modules: int = 1, blocked_b: bool = False) -> None:
        """A product and what the adapter adds: A behind it, so that it still hides the gather of
        its input, then h's gather where A is sharded, then B, which ends the same operator."""
        self.matrix(what, k, n)
        if self.adapter is None:
            return
        down = modules * self.adapter.down_ranks(self.boards)
        self._factor(f"{what} adapter A", k, down, self.machine.start_cycles)
        values = self.adapter.gathered(self.boards, modules)
        if values:
            start = self.machine.start_cycles
            self.gather(f"gather {what} adapter", values, ADAPTER_BYTES, start)
        self._factor(f"{what} adapter B", self.adapter.up_ranks(self.boards, blocked_b), n, 0.0)

    def _factor(self, what: str, k: int, n: int, start: float) -> None:
        machine = self.machine
        size = float(k * n * ADAPTER_BYTES * costs.matrix_passes(machine, self.rows))
        self._add(
            unit=MPU,
            category=ADAPTER,
            what=what,
            start=start,
            compute=costs.matrix_cycles(machine, self.rows, k, n),
            stream=size / machine.stream_rate,
            bytes=size,
            macs=float(self.rows) * k * n,
        )

    def norm(self, what: str, config: ModelConfig) -> None:
        machine, layer_norm = self.machine, config.norm == "layernorm"
        columns = config.hidden / (1 if machine.replicated_norms else self.boards)
        cycles = costs.norm_cycles(machine, self.rows, math.ceil(columns), layer_norm)
        self._add(unit=VFU, category=VECTOR, what=what, start=machine.start_cycles, compute=cycles)
        if self.boards > 1 and not machine.replicated_norms:
            exposed = costs.exchange_cycles(machine, self.boards, self.rows, cycles)
            self._add(unit=ROUTER, category=LINK, what=f"exchange {what}", compute=exposed,
                      link_bytes=float(machine.row_group * 2 * math.ceil(
                          self.rows / machine.row_group)))  # fmt: skip

    def gather(
        self, what: str, columns: int, element: int | None = None, start: float = 0.0
    ) -> None:
        if self.boards == 1:
            return
        cycles, sent = costs.gather_cycles(
            self.machine,
            self.boards,
            columns,
            self.rows,
            element or self.machine.activation_bytes,
        )
        self._add(
            unit=ROUTER, category=LINK, what=what, start=start, compute=cycles, link_bytes=sent
        )

    def attention(
        self, config: ModelConfig, step: StepShape, heads: int, kv_heads: int, boards: int
    ) -> None:
        machine = self.machine
        softmax = costs.softmax_cycles(machine, step.rows, heads, step.visible)
        products = costs.attention_cycles(machine, config.head_dim, heads, step.visible)
        read = _kv_bytes(machine, config, step, kv_heads if machine.kv_grouped else heads, boards)
        self._add(
            unit=MPU,
            category=ATTENTION,
            what="attention",
            start=ATTENTION_STARTS * machine.start_cycles,
            compute=products + softmax,
            vector=softmax,
            stream=read / machine.stream_rate,
            bytes=read,
            macs=costs.attention_macs(config.head_dim, heads, step.visible),
        )


def _kv_bytes(
    machine: Machine, config: ModelConfig, step: StepShape, heads: int, boards: int
) -> float:
    """Bytes of K and V of one block that come from memory: what the on-chip cache, shared by all
    blocks and by a board's share of the heads, does not hold."""
    position = 2.0 * heads * config.head_dim * machine.kv_bytes
    held = machine.kv_onchip_bytes / (position * config.layers)
    return max(0.0, step.kv_positions - held) * position
