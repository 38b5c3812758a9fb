"""Quantized models, with the overlays that they need, over every transport: committed digests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.drive import Driver, open_runner
from tests.emu.test_identity import digest, tokens_of
from tests.emu.test_quantized_identity import DIGESTS, LENGTH
from tests.quantized import SCHEMES, QuantizedModel
from tests.transports import Transport
from tests.variants import variant, write_checkpoint


@pytest.mark.parametrize("scheme", ["w8a8", "w4a8"])
def test_quantized_logits_are_the_committed_digests(
    scheme: str, tmp_path: Path, transport: Transport
) -> None:
    folder = write_checkpoint(variant("gpt2"), tmp_path / "gpt2")
    model = QuantizedModel(folder, SCHEMES[scheme])
    with open_runner(folder, 2, model=model, sequences=1, transport=transport) as runner:
        assert not runner.cluster.overlay.name.startswith("lora_f")
        found = Driver(runner).feed(0, tokens_of("gpt2", LENGTH), (37, 1, 5, 1))
    assert digest(found) == json.loads(DIGESTS.read_text())[scheme]
