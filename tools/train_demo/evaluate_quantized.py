"""Bits per byte of the demo model quantized in every scheme, on emulated boards, scored as by
`lora eval` on the held-out files. Needs no torch.

`python -m tools.train_demo.evaluate_quantized --models models`
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lora_sdk.engine.engine import Engine
from lora_sdk.model.config import load_config
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import recommended
from lora_sdk.quant.text import calibration_path, read_text, windows_of
from lora_sdk.text.tokenizer import Tokenizer

from .corpus import Document, byte_count, gather_code, split_code
from .evaluate_boards import bits_per_byte

WINDOWS = 16
STATIC = {"activations": "static", "kv": "int8"}
RECIPES: dict[str, dict[str, Any]] = {
    "W8A8": {"scheme": "w8a8"},
    "W8A8, lm_head FP16": {"scheme": "w8a8", "head": "fp16"},
    "W8A8, static": {"scheme": "w8a8", **STATIC},
    "W4A8, groups of 64": {"scheme": "w4a8", "group": 64},
    "W4A8, groups of 128": {"scheme": "w4a8", "group": 128},
    "W4A8 of 64, static": {"scheme": "w4a8", "group": 64, **STATIC},
    "W4A16, groups of 64": {"scheme": "w4a16", "group": 64},
}
"""Title -> what is asked of `recommended`."""


def evaluations(models: Path, work: Path) -> Iterator[tuple[str, str, Path]]:
    """(title, KV cache, folder) of each evaluation. Folders are created on demand."""
    demo = models / "demo"
    yield "FP16", "fp16", demo
    config = load_config(demo)
    tokenizer = Tokenizer(demo, config.vocabulary)
    windows, _ = windows_of(read_text(calibration_path()), tokenizer, config, WINDOWS)
    for number, (title, asked) in enumerate(RECIPES.items()):
        folder = work / str(number)
        recipe = recommended(config=config, **asked)
        quantize(demo, folder, recipe, windows)
        yield title, recipe.kv, folder


def beginnings(documents: list[Document], limit: int) -> list[Document]:
    """Whole lines of each document's first `limit` characters."""
    return [
        one
        if len(one.text) <= limit
        else Document(one.name, one.text[:limit].rpartition("\n")[0] + "\n")
        for one in documents
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--boards", type=int, default=1)
    parser.add_argument("--each", type=int, default=1 << 30, help="characters of each file")
    options = parser.parse_args()
    documents = beginnings(split_code(gather_code()).held_out, options.each)
    print(f"held-out code: {len(documents)} files, {byte_count(documents)} bytes", flush=True)
    base: float | None = None
    with tempfile.TemporaryDirectory() as work:
        for title, cache, folder in evaluations(options.models, Path(work)):
            began = time.monotonic()
            arguments: Any = {"boards": options.boards, "kv": cache, "max_sequences": 1}
            with Engine(folder, **arguments) as engine:
                found = bits_per_byte(engine, documents)
            base = base or found
            took = time.monotonic() - began
            print(f"{title:22s} KV {cache:10s} {found:.4f} {found / base - 1:+.2%} {took:.0f} s",
                  flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
