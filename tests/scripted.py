"""A runner without boards, for tests of the layers above it. Pages and slots hold token ids. A
row's logits are a fixed function of the tokens it attends to. It refuses the same rows as the
firmware."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from lora_host import abi
from lora_host.errors import ModelError
from lora_sdk.engine.generator import Generator
from lora_sdk.engine.greedy import GreedyLoop
from lora_sdk.engine.requests import Request, Sample
from lora_sdk.kv.header_queue import KvOp
from lora_sdk.kv.kvcache import KvCache
from lora_sdk.sampling import Sampler, SamplingParams
from lora_sdk.step.step import Row, StepResult, selected_rows
from lora_sdk.step.stepper import Stepper

VOCABULARY = 61
UNWRITTEN = -1


def logits_of(tokens: Sequence[int]) -> np.ndarray:
    """FP32 [VOCABULARY] that depend on every token and its position."""
    seed = zlib.crc32(np.asarray(tokens, "<i8").tobytes())
    return np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32) * 3


def greedy_tokens(prompt: Sequence[int], count: int, window: int = 0) -> list[int]:
    """The tokens of plain greedy decoding, where rows see `window` tokens, 0 for all."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(np.argmax(logits_of(tokens[-window:]))))
    return tokens[len(prompt) :]


class ScriptedRunner:
    """Boards' state as the ABI describes it, with a log of the steps. A row sees the last `window`
    positions, itself included; 0 for all."""

    def __init__(self, pages: int, sequences: int = 4, scratch: int = 128, window: int = 0) -> None:
        self.window = window
        self.pages = np.full((pages, abi.TILE_POSITIONS), UNWRITTEN, dtype=np.int64)
        self.first_page = -(-scratch // abi.TILE_POSITIONS)
        self.scratch = scratch
        self.tables: list[dict[int, int]] = [{} for _ in range(sequences)]
        self.lengths = [0] * sequences
        self.slots: dict[int, tuple[int, int, int]] = {}  # slot -> sequence, parent, token
        self.steps: list[list[Row]] = []
        self.headers: list[list[KvOp]] = []
        self.before_step: Callable[[], None] = lambda: None
        self.rows = 0  # of the last loop

    def step(
        self, rows: Sequence[Row], kv_ops: Sequence[KvOp] = (), path: Sequence[int] = ()
    ) -> StepResult:
        self.before_step()
        assert len(kv_ops) <= abi.MAX_KV_OPS
        taken = {slot for op in kv_ops for slot in self._apply(op, path)}
        for row in rows:
            assert row.slot not in taken, "a slot that this header commits"
            self._add(row)
        self.steps.append(list(rows))
        self.headers.append(list(kv_ops))
        selected = selected_rows(rows)
        logits = np.stack([logits_of(self._seen(rows[i])) for i in selected]) if selected else None
        argmax = None
        if logits is not None:
            ids = logits.argmax(axis=1)
            argmax = (logits[np.arange(len(ids)), ids], ids.astype(np.uint32))
        return StepResult(
            len(self.steps), selected, logits, argmax, None, (), np.zeros(1, np.void(0).dtype)
        )

    def greedy(
        self,
        sequence: int,
        position: int,
        run: list[int],
        slots: tuple[int, int, int],
        max_tokens: int,
        on_token: Callable[[int], bool],
        adapter: int = -1,
        stop_tokens: Sequence[int] = (),
    ) -> None:
        """The boards' own loop, step by step."""
        emitted = self.rows = 0
        while emitted < max_tokens:
            slot = slots[emitted % 3]
            header, path = [], []
            if emitted:
                header, path = (
                    [KvOp.commit(sequence, position - 1, 0, 1)],
                    [slots[(emitted - 1) % 3]],
                )
            row = Row(sequence, position, run[-1], slot, -1, want_argmax=True)
            result = self.step([row], header, path)
            assert result.argmax is not None
            self.rows += 1
            token = int(result.argmax[1][0])
            if np.isnan(result.argmax[0][0]):
                raise ModelError("logits hold NaN")
            emitted, position = emitted + 1, position + 1
            run.append(token)
            if on_token(token) or token in stop_tokens:
                break

    def _apply(self, op: KvOp, path: Sequence[int]) -> list[int]:
        if op.kind == abi.KV_TABLE:
            assert self.first_page <= op.b < len(self.pages)
            self.tables[op.sequence][op.a] = op.b
        elif op.kind == abi.KV_LENGTH:
            self.lengths[op.sequence] = op.a
            return self._drop(op.sequence)
        elif op.kind == abi.KV_COPY:
            self.pages[op.b] = UNWRITTEN
            self.pages[op.b, : op.c] = self.pages[op.a, : op.c]
        else:
            assert op.kind == abi.KV_COMMIT and op.a == self.lengths[op.sequence]
            places = range(op.a, op.a + op.c)
            tables = self.tables[op.sequence]
            written = {(tables[p // abi.TILE_POSITIONS], p % abi.TILE_POSITIONS) for p in places}
            assert len(written) == op.c, "positions of one commit in the same place"
            for slot in path[op.b : op.b + op.c]:
                assert self.slots[slot][0] == op.sequence
                self._place(op.sequence, self.lengths[op.sequence], self.slots[slot][2])
                self.lengths[op.sequence] += 1
            return self._drop(op.sequence)
        return []

    def _place(self, sequence: int, position: int, token: int) -> None:
        tile, lane = divmod(position, abi.TILE_POSITIONS)
        self.pages[self.tables[sequence][tile], lane] = token

    def _drop(self, sequence: int) -> list[int]:
        gone = [slot for slot, row in self.slots.items() if row[0] == sequence]
        for slot in gone:
            del self.slots[slot]
        return gone

    def _add(self, row: Row) -> None:
        assert 0 <= row.slot < self.scratch and row.slot not in self.slots
        assert row.parent == -1 or self.slots[row.parent][0] == row.sequence
        self.slots[row.slot] = (row.sequence, row.parent, row.token)
        depth, slot = 0, row.slot
        while slot != -1:
            depth, slot = depth + 1, self.slots[slot][1]
        assert row.position == self.lengths[row.sequence] + depth - 1
        tiles = -(-self.lengths[row.sequence] // abi.TILE_POSITIONS)
        assert all(tile in self.tables[row.sequence] for tile in range(tiles))

    def _seen(self, row: Row) -> list[int]:
        """Committed prefix, ancestors, the row itself; what the window has of these."""
        chain, slot = [], row.slot
        while slot != -1:
            _, parent, token = self.slots[slot]
            chain.append(token)
            slot = parent
        prefix, length = [], self.lengths[row.sequence]
        first = max(0, length + len(chain) - self.window) if self.window else 0
        for position in range(first, length):
            tile, lane = divmod(position, abi.TILE_POSITIONS)
            token = int(self.pages[self.tables[row.sequence][tile], lane])
            assert token != UNWRITTEN
            prefix.append(token)
        return (prefix + chain[::-1])[-self.window :]


class Bench:
    """A scripted runner with KV cache, stepper and greedy loop, for a generator of a subclass."""

    generator: Generator
    max_tokens = 20  # of requests that do not say

    def __init__(
        self,
        pages: int = 40,
        sequences: int = 4,
        scratch: int = 128,
        context: int = 300,
        window: int = 0,
    ) -> None:
        self.runner = ScriptedRunner(pages, sequences, scratch, window)
        self.cache = KvCache(pages, sequences, scratch, context, abi.MAX_KV_OPS, window=window)
        self.stepper = Stepper(self.runner, self.cache)
        self.loop = GreedyLoop(self.runner, self.stepper, self.cache)

    def request(self, tokens: Sequence[int], **fields: object) -> Request:
        """A request that is not queued; `fields` are those of SamplingParams."""
        defaults = {"max_tokens": self.max_tokens, "seed": 7}
        params = SamplingParams(**{**defaults, **fields})  # type: ignore[arg-type]
        room = self.cache.context - len(tokens) + 1
        count, ends = min(params.max_tokens or room, room), frozenset(params.stop_token_ids)
        samples = [
            Sample(Sampler(params, VOCABULARY, 7, i, ends), None, count) for i in range(params.n)
        ]
        return Request(None, list(tokens), params, 7, samples)

    def submit(self, tokens: Sequence[int], **fields: object) -> Request:
        """Queue a request."""
        request = self.request(tokens, **fields)
        self.generator.submit(request)
        return request

    def finish(self, one_step: bool = True) -> None:
        """Run until every request has ended."""
        while self.generator.advance(one_step):
            pass
