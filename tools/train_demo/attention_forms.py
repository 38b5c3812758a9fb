"""INT8 attention in two forms at several contexts: weights rint(127*exp(s - m)) divided by their
sum, as here, and probabilities rounded to 1/127, as SmoothQuant has them. NumPy, no boards.

`python -m tools.train_demo.attention_forms QUANTIZED`
"""

from __future__ import annotations

import argparse
from pathlib import Path

from lora_sdk.engine.evaluation import Window, windows_of
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.quant.arithmetic import F32, attention, softmax_times
from lora_sdk.quant.dense import DenseOperations, integer_attention
from lora_sdk.quant.reference import float_bits
from lora_sdk.text.tokenizer import Tokenizer

from .corpus import gather_code, split_code

CONTEXTS = (64, 128, 256, 512, 1024)
TEXT = 16000  # characters of held-out text


class Form(DenseOperations):
    """A quantized checkpoint whose attention has one of three forms."""

    def __init__(self, checkpoint: Checkpoint, form: str) -> None:
        super().__init__(checkpoint, rounded=True)
        self._form = form

    def attend(self, q: F32, k: F32, v: F32, layer: int) -> F32:
        """Attention as `form` says."""
        scale = self.config.attention_scale(layer)
        if self._form == "FP16":
            return attention(q, k, v, scale, softmax_times)
        scales = self.checkpoint.attention_scales(layer)
        return integer_attention(q, k, v, scale, scales, self._form == "SmoothQuant's")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path)
    checkpoint = Checkpoint.open(parser.parse_args().folder)
    tokenizer = Tokenizer(checkpoint.folder, checkpoint.config.vocabulary)
    text = "".join(one.text for one in split_code(gather_code()).held_out)[:TEXT]
    tokens = [*tokenizer.begins_with, *tokenizer.encode(text, special=False)]
    for context in CONTEXTS:
        # The first half of each window counts no token: what counts has a long context behind it.
        windows: list[Window] = windows_of(len(tokens), 1, context, max(1, context // 2))
        found = {
            form: float_bits(Form(checkpoint, form), tokens, windows) / len(text.encode())
            for form in ("FP16", "ours", "SmoothQuant's")
        }
        base = found["FP16"]
        shown = ", ".join(
            f"{form} {bits:.4f} ({bits / base - 1:+.2%})" for form, bits in found.items()
        )
        print(f"context {context}: {shown}", flush=True)


if __name__ == "__main__":
    main()
