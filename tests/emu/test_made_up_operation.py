"""A family of two kinds of layers with an elementwise operation that the package does not know, all
of it in this file: the same bytes over boards and kernels, near float64, calibrated and timed,
without a row of a table."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from lora_host import abi
from lora_lab.timing import step as steps
from lora_lab.timing.designs import ArrayDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.machine import machine_of
from lora_lab.timing.schedule import schedule
from lora_lab.timing.shape_ops import step_ops
from lora_sdk.model import block
from lora_sdk.model.config import load_config
from lora_sdk.model.families import registry
from lora_sdk.model.fields import Fields
from lora_sdk.model.operations import Activate, Buffer, Elementwise, Operation
from lora_sdk.model.spec import ModelConfig
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from tests import made_up_family
from tests.calibrated import random_windows
from tests.emu.test_made_up_family import (
    BASE,
    BOUND,
    Reference,
    off_by,
    on_boards,
    tokens_of,
    write,
)

NAME = "made_up_stretched"
STRETCH = 0.75


@dataclass(frozen=True, kw_only=True)
class Stretch(Elementwise):
    """target = FP16(target + target*STRETCH)."""

    what = "stretch"
    command = abi.VEC_RESIDUAL_SCALED
    scalar = STRETCH

    @property
    def operands(self) -> Mapping[str, Buffer]:
        return {"x": self.target, "z": self.target}

    def floats(self, *rows: NDArray[np.float32]) -> NDArray[np.float32]:
        return rows[0] + rows[1] * np.float32(STRETCH)


class Description(block.Description):
    """The activation of every second layer is stretched."""

    def layer(self, layer: int) -> Iterator[Operation]:
        for operation in super().layer(layer):
            yield operation
            if isinstance(operation, Activate) and layer % 2:
                yield Stretch(layer=layer, target=operation.target)


class Family:
    """That of tests/made_up_family.py with another name and these operations."""

    PREFIXES, PROBE = made_up_family.PREFIXES, made_up_family.PROBE
    IGNORED, Description = made_up_family.IGNORED, Description
    sources = staticmethod(made_up_family.sources)

    @staticmethod
    def normalize(fields: Fields) -> ModelConfig:
        return replace(made_up_family.normalize(fields), architecture=NAME)


class Stretched(Reference):
    def linear(self, x: NDArray[np.float64], name: str) -> NDArray[np.float64]:
        stretched = name.endswith("fc_out") and int(name.split(".")[2]) % 2
        return super().linear(x * (1 + STRETCH) if stretched else x, name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(registry.FAMILIES, NAME, Family())
    made = write(tmp_path / "model", "one_norm")
    (made / "config.json").write_text(json.dumps({**BASE, "model_type": NAME}))
    return made


def test_boards_and_kernels_agree_and_are_near_float64(folder: Path) -> None:
    tokens = tokens_of(BASE)
    one = on_boards(folder, 1, tokens)
    assert off_by(one, Stretched(BASE).logits(tokens)) < BOUND
    assert off_by(one, Reference(BASE).logits(tokens)) > 10 * BOUND  # it does something
    for boards in (2, 4):
        assert on_boards(folder, boards, tokens).tobytes() == one.tobytes()
    numpy = on_boards(folder, 2, tokens[:20], "numpy")
    assert numpy.tobytes() == on_boards(folder, 2, tokens[:20]).tobytes()


def test_it_is_calibrated(folder: Path, tmp_path: Path) -> None:
    windows = random_windows(BASE["vocab_size"])
    quantize(folder, tmp_path / "quantized", Recipe("w8a8"), windows)
    wanted = Stretched(BASE).logits(windows[0])
    found = on_boards(tmp_path / "quantized", 2, windows[0])
    assert np.sqrt(np.square(found - wanted).mean()) < 0.15 * wanted.std()
    assert found.tobytes() == on_boards(tmp_path / "quantized", 4, windows[0]).tobytes()


def test_it_is_timed(folder: Path) -> None:
    config, design = load_config(folder), load_design("own-u280")
    assert isinstance(design, ArrayDesign)
    machine = machine_of(design, board_facts("u280"))
    found = step_ops(machine, config, 1, steps.decode(300))
    plain = step_ops(machine, replace(config, architecture="made_up"), 1, steps.decode(300))
    more = Counter(op.what for op in found) - Counter(op.what for op in plain)
    assert more == {"stretch": config.layers // 2}
    assert schedule(found).cycles > schedule(plain).cycles
