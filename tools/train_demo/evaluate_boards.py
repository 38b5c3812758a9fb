"""Bits per byte of the included models on emulated boards, with the scoring of `lora eval` on every
held-out file. Needs no torch.

`python -m tools.train_demo.evaluate_boards --models models --boards 2`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lora_sdk.engine.engine import Engine
from lora_sdk.engine.evaluation import evaluate_text

from .corpus import Document, byte_count, gather_code, split_code, xz_bits_per_byte

MODELS = ("demo", "demo_draft")


def bits_per_byte(engine: Engine, documents: list[Document]) -> float:
    """Bits per byte of the engine's model over the documents, each scored separately."""
    bits = sum(evaluate_text(engine, one.text.encode()).bits for one in documents)
    return bits / byte_count(documents)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--boards", type=int, default=1)
    options = parser.parse_args()
    documents = split_code(gather_code()).held_out
    print(f"held-out code: {len(documents)} files, {byte_count(documents)} bytes")
    reference = xz_bits_per_byte(documents)
    print(f"xz -9e {reference:.4f} bits per byte")
    for name in MODELS:
        with Engine(options.models / name, boards=options.boards) as engine:
            found = bits_per_byte(engine, documents)
        print(f"{name} {found:.4f} bits per byte, {found / reference - 1:+.1%}", flush=True)


if __name__ == "__main__":
    main()
