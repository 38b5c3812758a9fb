"""Recurrences in the place of attention (docs/numbers.md, 3.17 to 3.20), from the beginning of a
row's text each time: the states that pages hold are not read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host import abi
from lora_host.emu.kv_pages import TILE, kv_block, page_table, slots_of_path
from lora_host.emu.unit_call import BANK_ONCHIP, LINE_BYTES, UnitCall, padded
from lora_host.numerics import F32, exp32, ln_64

NORM_EPS = np.float32(1e-6)
SOFTPLUS_LINEAR = np.float32(20)
ONE = np.float32(1)


def recurrence(call: UnitCall) -> None:
    """Keeps what the rows bring in their slots, and runs each row over its text."""
    if call.row_count == 0:
        return
    layer = _Layer(call)
    for i, row in enumerate(call.rows()):
        for head in range(call.list.kv_heads):
            layer.keep(i, int(row.slot), head)
    c = call.command
    y = call.rows_view(BANK_ONCHIP, c.y_offset, c.y_stride, c.y_columns, np.float16)
    gates = layer.x[:, -c.y_columns :] if c.y_columns else layer.x[:, :0]
    found = np.zeros(y.shape, np.float32)
    own = slice(c.y_first, c.y_first + c.y_columns)
    for i, row in enumerate(call.rows()):
        heads = [layer.kept(row, head) for head in range(call.list.kv_heads)]
        whole = np.concatenate([layer.values(head, kept) for head, kept in enumerate(heads)])
        gate = gates[i].astype(np.float32)
        if layer.scans:
            gate = gate * layer.factors[4]
        found[i] = gate * whole[own] if layer.short else whole[own] * _silu(gate)
    call.store_fp16(y, found)


@dataclass(frozen=True)
class _Columns:
    """Of a KV head: columns of keys, of values, and value heads."""

    keys: int
    values: int
    heads: int


class _Layer:
    """One layer's command: its inputs, its table and what the cache keeps."""

    def __init__(self, call: UnitCall) -> None:
        c, kv_heads = call.command, call.list.kv_heads
        self.call, self.short = call, c.form == abi.RECURRENCE_SHORT_CONV
        self.scans = c.form == abi.RECURRENCE_SELECTIVE_SCAN
        self.each = _Columns(c.key_heads * c.key_columns, c.value_heads * c.value_columns,
                             0 if self.short else c.value_heads)  # fmt: skip
        keys, values, heads = self.each.keys, self.each.values, self.each.heads
        gates = (heads,) * (1 if self.scans else 2)
        self.parts = (values, values) if self.short else (keys, keys, values, *gates)
        all_keys = keys * kv_heads
        if c.sharing:
            all_keys = ((c.sharing_first + kv_heads - 1) // c.sharing + 1) * c.key_columns
        self.widths = tuple(all_keys if i < 2 and not self.short else part * kv_heads
                            for i, part in enumerate(self.parts))  # fmt: skip
        columns = sum(self.widths) + c.y_columns
        self.x = call.rows_view(BANK_ONCHIP, c.x_offset, c.x_stride, columns, np.float16)
        self.convolved = 2 * keys + values
        self._read_table()

    def _read_table(self) -> None:
        call, c, kv_heads = self.call, self.call.command, self.call.list.kv_heads
        at, size = c.table_line * LINE_BYTES, sum(self.widths[: len(self._convolved_parts)])
        row = padded(2 * size)
        rows = call.view(c.table_bank, at, (c.kernel, row // 2), np.float16)[:, :size]
        self.taps = rows.astype(np.float32)
        if self.short:
            return
        at, heads = at + c.kernel * row, self.each.heads * kv_heads
        if self.scans:
            biases = call.view(c.table_bank, at, (size,), np.float16)
            self.biases, at = biases.astype(np.float32), at + row
        self.decay = call.view(c.table_bank, at, (heads,), np.float32)
        at += padded(4 * heads)
        self.bias = call.view(c.table_bank, at, (heads,), np.float32)
        at += padded(4 * heads)
        if self.scans:
            self.skip = call.view(c.table_bank, at, (heads,), np.float32)
            constants = call.view(c.table_bank, at + padded(4 * heads), (7,), np.float32)
            self.limits, self.factors = constants[:2], constants[2:]
            return
        gamma = call.view(c.table_bank, at, (c.value_columns,), np.float16)
        self.gamma = gamma.astype(np.float32)

    def _of_head(self, rows: NDArray[Any], head: int, parts: tuple[int, ...]) -> NDArray[Any]:
        """The columns of one KV head; each part is that of all of them, one after another, and
        keys may be shared by several."""
        found: list[NDArray[Any]] = []
        start, c = 0, self.call.command
        for part, width in zip(parts, self.widths, strict=False):
            own = head
            if c.sharing and len(found) < 2:
                own = (c.sharing_first + head) // c.sharing
            found.append(rows[..., start + part * own : start + part * (own + 1)])
            start += width
        return np.concatenate(found, axis=-1)

    def keep(self, i: int, slot: int, head: int) -> None:
        """What row i brings, into its slot."""
        own = self._of_head(self.x[i], head, self.parts)
        if self.short:
            b, x = own.reshape(2, -1).astype(np.float32)
            target = np.empty((1, len(b)), np.float16)
            self.call.store_fp16(target, (b * x)[None])
            own = target[0]
        page, lane = divmod(slot, TILE)
        for value, (block, column) in zip(own, self._places(len(own)), strict=True):
            self._block(page, head, block)[self._index(block, lane, column)] = value

    def kept(self, row: Any, head: int) -> F32:
        """[positions, columns] of the row's text, the row itself last."""
        call = self.call
        committed, pages = int(call.state.lengths[row.sequence]), page_table(call, row.sequence)
        places = [(int(pages[p // TILE]), p % TILE) for p in range(committed)]
        places += [divmod(slot, TILE) for slot in slots_of_path(call, row.slot)]
        pages_of = np.array([page for page, _ in places])
        lanes = np.array([lane for _, lane in places])
        found = np.empty((len(places), self._kept_columns), np.float32)
        for page in np.unique(pages_of):
            which = pages_of == page
            for column, (block, inside) in enumerate(self._places(self._kept_columns)):
                values = self._block(int(page), head, block)
                index = (lanes[which], inside) if block % 2 else (inside, lanes[which])
                found[which, column] = values[index]
        return found

    @property
    def _kept_columns(self) -> int:
        return self.each.values if self.short else sum(self.parts)

    def _places(self, count: int) -> Iterator[tuple[int, int]]:
        """(block, column in it) of each column that a position keeps."""
        return (divmod(column, self.call.list.head_dim) for column in range(count))

    @staticmethod
    def _index(block: int, lane: int, column: int) -> tuple[int, int]:
        return (lane, column) if block % 2 else (column, lane)

    def _block(self, page: int, head: int, block: int) -> NDArray[np.float16]:
        """A block of K (even) or V (odd) of the layer's planes."""
        return kv_block(self.call, page, head, bool(block % 2), block // 2)

    def values(self, head: int, kept: F32) -> F32:
        """The last position's values of a KV head, without the gate."""
        taps = self._of_head(self.taps, head, self._convolved_parts)
        if self.short:
            mixed: F32 = self._convolve(kept[-len(taps) :], taps)[-1]
            return mixed
        return (self._scan if self.scans else self._delta)(head, kept, taps)

    @property
    def _convolved_parts(self) -> tuple[int, ...]:
        keys, values = self.each.keys, self.each.values
        return (values,) if self.short else (keys, keys, values)

    @staticmethod
    def _convolve(x: F32, taps: F32) -> F32:
        """[positions, columns]: each position and those before it."""
        total = np.zeros_like(x)
        for tap, weights in enumerate(taps):
            back = len(taps) - 1 - tap
            if back < len(x):
                total[back:] = total[back:] + weights * x[: len(x) - back]
        return total

    def _scan(self, head: int, kept: F32, taps: F32) -> F32:
        """o + D*x; C, B and x are where the delta rule has q, k and v."""
        command, keys, values = self.call.command, self.each.keys, self.each.values
        sums = self._convolve(kept[:, : self.convolved], taps)
        factors = np.repeat(self.factors[:3], (keys, keys, values))
        biases = self._of_head(self.biases, head, self._convolved_parts)
        mixed = _silu(sums * factors + biases)
        c, b = (mixed[:, at : at + keys].reshape(len(kept), command.key_heads, -1)
                for at in (0, keys))  # fmt: skip
        x = mixed[:, 2 * keys :].reshape(len(kept), command.value_heads, -1)
        first = head * command.value_heads
        own = slice(first, first + command.value_heads)
        time = _softplus(kept[:, self.convolved :] * self.factors[3] + self.bias[own])
        low, high = self.limits
        time = np.where(time < low, low, time).astype(np.float32)
        time = np.where(time > high, high, time).astype(np.float32)
        decay = exp32(self.decay[own] * time)
        group = command.value_heads // command.key_heads
        c, b = (np.repeat(one, group, axis=1) for one in (c, b))
        out = _selective(c, b, x * time[:, :, None], decay)
        found: F32 = out + self.skip[own][:, None] * x[-1]
        return found.reshape(-1)

    def _delta(self, head: int, kept: F32, taps: F32) -> F32:
        c, keys = self.call.command, self.each.keys
        mixed = _silu(self._convolve(kept[:, : self.convolved], taps))
        q, k = (mixed[:, at : at + keys].reshape(len(kept), c.key_heads, -1) for at in (0, keys))
        scale = np.float32(1 / np.sqrt(np.float64(c.key_columns)))
        q, k = (q * _inverse_length(q)) * scale, k * _inverse_length(k)
        v = mixed[:, 2 * keys :].reshape(len(kept), c.value_heads, -1)
        a, b = kept[:, self.convolved :].reshape(len(kept), 2, -1).transpose(1, 0, 2)
        first = head * c.value_heads
        own = slice(first, first + c.value_heads)
        beta = ONE / (ONE + exp32(-b))
        decay = exp32(self.decay[own] * _softplus(a + self.bias[own]))
        group = c.value_heads // c.key_heads
        q, k = (np.repeat(one, group, axis=1) for one in (q, k))
        out = _scan(q, k, v, beta, decay)
        total = np.zeros(len(out), np.float32)
        for column in out.T:
            total = total + column * column
        r = ONE / np.sqrt(total / np.float32(c.value_columns) + self.call.fp32(c.eps))
        normed: F32 = (out * r[:, None]) * self.gamma
        return normed.reshape(-1)


def _selective(c: F32, b: F32, v: F32, decay: F32) -> F32:
    """o [heads, columns] of the last position; C, B, v [positions, heads, columns]."""
    state: F32 = np.zeros((*b.shape[1:], v.shape[2]), np.float32)
    out: F32 = np.zeros(v.shape[1:], np.float32)
    for at in range(len(b)):
        out = np.zeros(v.shape[1:], np.float32)
        for i in range(b.shape[2]):
            state[:, i] = state[:, i] * decay[at][:, None] + b[at, :, i, None] * v[at]
            out = out + state[:, i] * c[at, :, i, None]
    return out


def _scan(q: F32, k: F32, v: F32, beta: F32, decay: F32) -> F32:
    """o [heads, columns] of the last position; q, k, v [positions, heads, columns]."""
    state = np.zeros((*k.shape[1:], v.shape[2]), np.float32)
    out = np.zeros(v.shape[1:], np.float32)
    for at in range(len(k)):
        state = state * decay[at][:, None, None]
        recalled = np.zeros(v.shape[1:], np.float32)
        for i in range(k.shape[2]):
            recalled = recalled + state[:, i] * k[at, :, i, None]
        change = (v[at] - recalled) * beta[at][:, None]
        out = np.zeros(v.shape[1:], np.float32)
        for i in range(k.shape[2]):
            state[:, i] = state[:, i] + k[at, :, i, None] * change
            out = out + state[:, i] * q[at, :, i, None]
    return out


def _silu(x: F32) -> F32:
    found: F32 = x / (ONE + exp32(-x))
    return found


def _inverse_length(x: F32) -> F32:
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(x.shape[-1]):
        total = total + x[..., i] * x[..., i]
    found: F32 = ONE / np.sqrt(total + NORM_EPS)
    return found[..., None]


def _softplus(t: F32) -> F32:
    grown = exp32(np.minimum(t, SOFTPLUS_LINEAR))
    found: F32 = ln_64(1.0 + grown.astype(np.float64)).astype(np.float32)
    return np.where(t > SOFTPLUS_LINEAR, t, found)
