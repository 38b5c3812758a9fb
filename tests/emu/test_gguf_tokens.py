"""Token tables in the file's blocks: the same logits, no second copy beside a tied lm_head."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from lora_sdk import Engine
from tests.gguf_files import matrices_as, write_gguf
from tests.variants import Variant, variant


def model(path: Path, kind: str, tied: bool, hidden: int) -> Path:
    """A small model whose matrices and token table are of this type."""
    config = dict(
        variant("llama_narrow").config, hidden_size=hidden, intermediate_size=256,
        num_hidden_layers=1, tie_word_embeddings=tied,
    )  # fmt: skip
    return write_gguf(Variant("llama_narrow", config), path, matrices_as(kind), 3.0)


def logits(path: Path, boards: int, kernels: str, weights: str) -> tuple[bytes, set[str]]:
    """Those of some rows, and the names of the first board's matrices and embedding tables."""
    with Engine(model=path, boards=boards, kernels=kernels, gguf_weights=weights) as engine:
        sequence = engine.open_sequence()
        found = np.asarray(engine.prefill(sequence, [5, 77, 200, 5])).tobytes()
        board = engine.plan.boards[0]
        names = set(board.matrices) | {
            name for name, table in board.tables.items() if table.spec.kind == "embedding"
        }
    return found, names


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q5_1"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_are_those_of_the_dequantized_table(kind: str, tied: bool, tmp_path: Path) -> None:
    path = model(tmp_path / "a.gguf", kind, tied, 256)
    assert gguf.GGUFReader(path).tensors[0].tensor_type.name == kind
    wanted, _ = logits(path, 1, "native", "fp16")
    for boards, kernels in ((1, "native"), (1, "numpy"), (2, "native"), (2, "numpy")):
        found, _ = logits(path, boards, kernels, "blocks")
        assert found == wanted, (boards, kernels)


def test_a_tied_pair_is_one_matrix_on_one_board(tmp_path: Path) -> None:
    path = model(tmp_path / "a.gguf", "Q8_0", True, 256)
    assert "embed.token" not in logits(path, 1, "native", "blocks")[1]
    assert "embed.token" in logits(path, 2, "native", "blocks")[1]
    assert "embed.token" in logits(path, 1, "native", "fp16")[1]
