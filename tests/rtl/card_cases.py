"""Steps whose simulated cycles are held against the timing model: models, lists, rows and contexts
that no unit of tests/rtl/card_units.py was measured with."""

from __future__ import annotations

from tests.rtl.card_steps import Request, Step, chain, gpt2, llama

TREE = (-1, 0, 0, 1, 2)
WIDE_TREE = (-1, 0, 0, 1, 1, 2, 2, 3)
LATENCY = 31  # cycles of 122.2 ns at 250 MHz

CASES = {
    "three narrow layers": Request(llama(48, 8, 2, 16, 80, 3), (Step(17),)),
    "tree of 8 rows": Request(llama(80, 2, 1, 32, 128), (Step(33, WIDE_TREE, sampled=8),)),
    "grouped heads": Request(llama(192, 6, 2, 32, 256), (Step(129),)),
    "4 rows": Request(llama(128, 4, 4, 32, 352, 2), (Step(64, chain(4)),)),
    "heads of 64, context 300": Request(llama(128, 2, 1, 64, 192), (Step(300),)),
    "W8A8": Request(llama(128, 4, 4, 32, 288, 2), (Step(40),), "w8a8"),
    "W8A8, tree": Request(llama(192, 6, 3, 32, 320), (Step(90, TREE, sampled=5),), "w8a8"),
    "W8A8, K and V by heads": Request(
        llama(160, 4, 2, 48, 240), (Step(12), Step(75, chain(2))), "w8a8_heads"
    ),
    "W4A8, K and V by heads": Request(llama(256, 4, 2, 64, 512), (Step(100),), "w4a8"),
    "W4A8, 6 rows": Request(llama(192, 4, 4, 32, 256), (Step(31, chain(6)),), "w4a8"),
    "W4A8, groups of 128": Request(llama(256, 8, 2, 32, 384), (Step(200),), "w4a8_wide"),
    "W8A8, scales of rows": Request(llama(160, 4, 4, 32, 192, 2), (Step(50),), "w8a8_dynamic"),
    "W4A16": Request(llama(128, 4, 2, 32, 192, 2), (Step(9),), "w4a16"),
    "W4A8, permuted": Request(llama(192, 6, 2, 32, 320), (Step(60, (-1, 0)),), "w4a8_order"),
    "LayerNorm, GELU": Request(gpt2(128, 4, 2), (Step(20),)),
    "LayerNorm, GELU, 3 rows": Request(gpt2(192, 6), (Step(47, chain(3)),)),
    "adapter of rank 8, 2 rows": Request(
        llama(128, 4, 2, 32, 160), (Step(25, (-1, 0), adapted=2),), rank=8
    ),
    "adapter of rank 40": Request(llama(96, 2, 2, 32, 128, 2), (Step(25, adapted=1),), rank=40),
    "W8A8, adapter, 1 row of 3": Request(
        llama(128, 4, 4, 32, 192), (Step(40, (-1, 0, 0), adapted=1),), "w8a8", rank=16
    ),
    "5 committed rows": Request(llama(96, 4, 2, 32, 144), (Step(40, chain(2), commits=5),)),
    "prompt of 8": Request(llama(112, 4, 1, 16, 176), (Step(0, chain(8)),)),
    "context 380": Request(llama(64, 4, 2, 16, 128), (Step(380),)),
    "four layers": Request(llama(64, 2, 2, 32, 96, 4), (Step(5),)),
    "three layers of W4A8": Request(llama(128, 2, 2, 64, 256, 3), (Step(70),), "w4a8"),
}

# On cards with as many FP16 lanes as card.sv and the vendor build have: a layer of LLaMA2-7B, whose
# cycles README and docs/timing.md quote.
WIDE_LANES = 32
WIDE = {
    "a layer of LLaMA2-7B": Request(
        llama(4096, 32, 32, 128, 11008), (Step(127, commits=1),), "w4a8_wide"
    ),
    "a layer of LLaMA2-7B, static INT8 K and V": Request(
        llama(4096, 32, 32, 128, 11008), (Step(127, commits=1),), "w4a8_static"
    ),
}
