"""The gated delta rule by each instruction set of the machine, with heads wider than the columns
that go together and with a rest."""

from __future__ import annotations

from pathlib import Path

from lora_host import native
from lora_sdk.model.checkpoint import Checkpoint
from tests.drive import Driver, open_runner
from tests.hybrid_configs import HYBRID_CONFIGS
from tests.oracle import Oracle, load_weights
from tests.parity.score import prompts
from tests.unit.test_kernels_native import machine_variants
from tests.variants import Variant, write_checkpoint

WIDE = Variant("qwen3_5_wide", HYBRID_CONFIGS["qwen3_5_last"] | {"linear_value_head_dim": 72})


def test_every_instruction_set_gives_the_oracles_bytes(tmp_path: Path) -> None:
    folder, tokens = write_checkpoint(WIDE, tmp_path, "x3"), prompts(WIDE)[0][:40].tolist()
    checkpoint = Checkpoint.open(folder)
    want = Oracle(checkpoint.config, load_weights(checkpoint)).logits(tokens)
    library = native.lib()
    for name in machine_variants():
        assert library.lora_native_force(name.encode()) == 0
        try:
            with open_runner(folder, 1) as runner:
                got = Driver(runner).feed(0, tokens, (33, 1))
        finally:
            library.lora_native_force(native.ffi().NULL)
        assert got.tobytes() == want.tobytes(), name
