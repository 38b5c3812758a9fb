"""The arithmetic of an EAGLE-3 head in FP32. It need not be bit-exact: only the target's
verification decides which tokens are emitted."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from lora_sdk.model.rope import rope_table
from lora_sdk.spec.eagle3_config import HeadConfig
from lora_sdk.spec.eagle3_weights import HeadWeights

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

_FIRST_CAPACITY = 128
_ONE_THREAD = 64 << 20  # bytes of weights


class KeyValues:
    """Keys and values of one sequence, FP32 [kv_heads, capacity, head_dim], growing by doubling.

    Entries may be written at any index. Entries of rejected drafts are overwritten later."""

    def __init__(self, kv_heads: int, head_dim: int) -> None:
        shape = (kv_heads, _FIRST_CAPACITY, head_dim)
        self.keys = np.empty(shape, np.float32)
        self.values = np.empty(shape, np.float32)

    def write(self, first: int, keys: Floats, values: Floats) -> None:
        """Write n entries from `first` on; keys and values are [kv_heads, n, head_dim]."""
        end = first + keys.shape[1]
        while end > self.keys.shape[1]:
            self.keys = np.concatenate([self.keys, np.empty_like(self.keys)], axis=1)
            self.values = np.concatenate([self.values, np.empty_like(self.values)], axis=1)
        self.keys[:, first:end] = keys
        self.values[:, first:end] = values

    def copy(self) -> KeyValues:
        """A deep copy."""
        other = KeyValues.__new__(KeyValues)
        other.keys, other.values = self.keys.copy(), self.values.copy()
        return other


class HeadLayer:
    """The head's decoder layer, its fusion of hidden states and its output matrix."""

    def __init__(self, config: HeadConfig, weights: HeadWeights, positions: int) -> None:
        """`positions`: rows of the RoPE table, max entries of a sequence."""
        self.config = config
        self.weights = weights
        self._rope = rope_table(config.layer, positions)
        matrices = (weights.fuse, weights.head, weights.qkv, weights.gate_up, weights.down)
        self._small = sum(matrix.nbytes for matrix in matrices) < _ONE_THREAD
        self._pools = ThreadpoolController()

    def threads(self) -> AbstractContextManager[object]:
        """A context in which matmuls of a small head use one thread. Waking other threads takes
        longer than they save, and much longer if the CPUs are busy."""
        return self._pools.limit(limits=1, user_api="blas") if self._small else nullcontext()

    @property
    def positions(self) -> int:
        """Max entries of a sequence."""
        return len(self._rope)

    def key_values(self) -> KeyValues:
        """An empty cache for a sequence's keys and values."""
        return KeyValues(self.config.layer.kv_heads, self.config.layer.head_dim)

    def fuse(self, auxiliary: NDArray[np.float16]) -> Floats:
        """States FP32 [n, hidden] from the target's hidden states FP16 [taps, n, target_hidden]."""
        taps, count, columns = auxiliary.shape
        joined = auxiliary.transpose(1, 0, 2).reshape(count, taps * columns)
        fused: Floats = joined.astype(np.float32) @ self.weights.fuse
        return fused

    def run(
        self,
        tokens: NDArray[np.int64],
        states: Floats,
        positions: NDArray[np.int64],
        first: int,
        visible: Mask | None,
        cache: KeyValues,
    ) -> Floats:
        """Run entries of `tokens` [n] with `states` [n, hidden]; returns outputs before the norm.

        Their keys and values are written to the cache from entry `first` on. `visible`, bool
        [n, first + n]: attention mask; None: causal."""
        layer, weights = self.config.layer, self.weights
        eps = layer.norm_eps
        embedded = weights.embedding.rows(tokens)
        normed = _rms(states, weights.hidden_norm, eps)
        joined = np.concatenate([_rms(embedded, weights.input_norm, eps), normed], axis=1)
        residual = normed if self.config.norm_before_residual else states
        attended = self._attend(joined @ weights.qkv, positions, first, visible, cache)
        hidden = residual + attended @ weights.out
        gate, up = np.split(_rms(hidden, weights.mlp_norm, eps) @ weights.gate_up, 2, axis=1)
        with np.errstate(over="ignore"):  # exp(-gate) may be infinite: the result is then 0
            output: Floats = hidden + (gate / (1 + np.exp(-gate)) * up) @ weights.down
        return output

    def logits(self, states: Floats) -> Floats:
        """FP32 [n, draft vocabulary] of outputs [n, hidden]."""
        normed = _rms(states, self.weights.norm, self.config.layer.norm_eps)
        logits: Floats = normed @ self.weights.head
        return logits

    def _attend(
        self,
        qkv: Floats,
        positions: NDArray[np.int64],
        first: int,
        visible: Mask | None,
        cache: KeyValues,
    ) -> Floats:
        layer, count = self.config.layer, len(qkv)
        groups, dim = layer.kv_heads, layer.head_dim
        share = layer.heads // groups
        heads = qkv.reshape(count, -1, dim).transpose(1, 0, 2)
        cosine, sine = self._rope[positions, 0], self._rope[positions, 1]
        rotated = _rotate(heads[: layer.heads + groups], cosine, sine)
        cache.write(first, rotated[layer.heads :], heads[layer.heads + groups :])
        total = first + count
        queries = rotated[: layer.heads].reshape(groups, share * count, dim)
        scores = queries @ cache.keys[:, :total].transpose(0, 2, 1)
        scores *= layer.attention_scale(0)
        if visible is None and count > 1:
            visible = np.tri(count, total, first, dtype=np.bool_)
        if visible is not None:
            scores.reshape(groups, share, count, total)[..., ~visible] = -np.inf
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        attended = (weights @ cache.values[:, :total]).reshape(layer.heads, count, dim)
        joined: Floats = attended.transpose(1, 0, 2).reshape(count, layer.heads * dim)
        return joined


def _rms(x: Floats, weight: Floats, eps: float) -> Floats:
    """RMSNorm of each row."""
    square = np.einsum("nd,nd->n", x, x)[:, None]
    normed: Floats = x * (1 / np.sqrt(square / np.float32(x.shape[1]) + np.float32(eps))) * weight
    return normed


def _rotate(heads: Floats, cosine: Floats, sine: Floats) -> Floats:
    """Heads [h, n, dim] rotated by tables [n, dim/2]: pairs are columns i and i + dim/2."""
    left, right = np.split(heads, 2, axis=2)
    return np.concatenate([left * cosine - right * sine, right * cosine + left * sine], axis=2)
