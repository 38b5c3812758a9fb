"""What the pages of the KV cache hold, and what its prefixes save."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class PrefixCounts:
    """Tokens of sequences so far: `looked_up`, of which `cached` were not computed."""

    looked_up: int = 0
    cached: int = 0


@dataclass(frozen=True)
class HostUse:
    """Pages that boards had to give up and the host keeps: at most `total`, now `held` in `bytes`.
    So far `kept` were stored, `found` written back to the boards, and `damaged` were not, because
    their checksum was wrong."""

    total: int
    held: int
    bytes: int
    kept: int
    found: int
    damaged: int


@dataclass(frozen=True)
class KvUse:
    """The KV cache of an engine. Its pages have 32 positions each.

    `total` = `held` (by sequences, or reserved for them) + `cached` (of finished sequences, may be
    found again or taken) + `free`. `evicted`: cached pages that were taken so far. `looked_up`,
    `cached_tokens`: tokens of all sequences so far, and those that were not computed. `preempted`:
    times that a sequence gave its pages back before its end. `host`: with `kv_offload`."""

    total: int
    held: int
    cached: int
    free: int
    evicted: int
    looked_up: int
    cached_tokens: int
    preempted: int
    host: HostUse | None = None
