"""Every variant through placement, command lists, firmware, units and links: its logits on boards
are the oracle's bytes, and as near to transformers as the criterion asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lora_host.errors import RequestError
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from tests.drive import Driver, Logits, open_runner
from tests.oracle import Oracle, load_weights
from tests.parity.score import SCALES, load_fixture, prompts, score
from tests.parity.selection import every_variant
from tests.position_configs import ROPE_CONFIGS  # on boards: tests/emu/test_positions.py
from tests.variants import Scale, Variant, write_checkpoint


def on_boards(
    folder: Path, boards: int, tokens: list[list[int]], devices: tuple[str, ...], kernels: str
) -> list[Logits]:
    """Logits of each prompt as a sequence of its own, cut into uneven steps."""
    with open_runner(folder, boards, devices=devices, kernels=kernels) as runner:
        driver = Driver(runner)
        return [driver.feed(i, prompt, (64, 33, 5)) for i, prompt in enumerate(tokens)]


def by_rules(folder: Path, tokens: list[list[int]]) -> list[Logits]:
    checkpoint = Checkpoint.open(folder)
    oracle = Oracle(checkpoint.config, load_weights(checkpoint))
    return [oracle.logits(prompt) for prompt in tokens]


def same_bytes(ours: list[Logits], theirs: list[Logits]) -> bool:
    return all(
        np.array_equal(a.view(np.uint32), b.view(np.uint32))
        for a, b in zip(ours, theirs, strict=True)
    )


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("which", every_variant(without=ROPE_CONFIGS))
def test_four_boards_agree_with_transformers(
    which: Variant, scale: Scale, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    folder = write_checkpoint(which, tmp_path, scale)
    tokens = [prompt.tolist() for prompt in prompts(which)]
    ours = on_boards(folder, 4, tokens, devices, "native")
    found = score(ours, load_fixture(which.name), scale)
    assert found.positions >= 512 and found.passes(scale), found
    assert same_bytes(ours, by_rules(folder, tokens))


@pytest.mark.parametrize("boards", [1, 2, 8])
@pytest.mark.parametrize("which", every_variant(without=ROPE_CONFIGS))
def test_every_board_count_gives_the_oracles_bytes(
    which: Variant, boards: int, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    folder = write_checkpoint(which, tmp_path, "x3")
    tokens = [prompts(which)[2].tolist()]
    if load_config(folder).heads < boards:
        with pytest.raises(RequestError, match="each board needs one"):
            on_boards(folder, boards, tokens, devices, "native")
        return
    ours = on_boards(folder, boards, tokens, devices, "native")
    assert same_bytes(ours, by_rules(folder, tokens))


@pytest.mark.parametrize("which", every_variant(without=ROPE_CONFIGS))
def test_the_numpy_kernels_give_the_oracles_bytes(
    which: Variant, tmp_path: Path, devices: tuple[str, ...]
) -> None:
    folder = write_checkpoint(which, tmp_path, "x3")
    tokens = [prompts(which)[2][:40].tolist()]
    ours = on_boards(folder, 2, tokens, devices, "numpy")
    assert same_bytes(ours, by_rules(folder, tokens))
