"""A small GGUF file to mutate, and GGUF files made by hand, byte by byte."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from random import Random

import gguf
import numpy as np

from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.text.tokenizer import Tokenizer
from tests.gguf_files import as_f16, write_gguf
from tests.mutations import Subject, damaged
from tests.variants import Variant, variant

TEXT, ARRAY, U32, F32, BOOL = 8, 9, 4, 6, 7
SIZES = {"hidden_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1,
         "intermediate_size": 32, "vocab_size": 262, "num_hidden_layers": 1}  # fmt: skip
KINDS = {"blk.0.attn_q.weight": "Q4_0", "blk.0.attn_k.weight": "Q4_0", "output.weight": "Q8_0",
         "blk.0.attn_v.weight": "Q4_0", "blk.0.attn_output.weight": "BF16",
         "token_embd.weight": "Q5_1", "blk.0.ffn_down.weight": "Q4_0"}  # fmt: skip


def small(path: Path) -> Path:
    """A model of one layer with tensors of many types."""

    def types(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
        return gguf.GGMLQuantizationType[KINDS[name]] if name in KINDS else as_f16(name, array)

    which = Variant("llama_narrow", {**variant("llama_narrow").config, **SIZES})
    return write_gguf(which, path, types, more=lambda writer: writer.add_chat_template("{{ a }}"))


def data_start(path: Path) -> int:
    """Where the numbers begin."""
    return min(int(tensor.data_offset) for tensor in gguf.GGUFReader(path).tensors)


def mutated(folder: Path) -> Subject:
    """The small file; the header is changed more often than the numbers."""
    path = small(folder / "model.gguf")
    content = path.read_bytes()
    start = data_start(path)

    def mutate(random: Random) -> bytes:
        if random.random() < 0.1:
            return damaged(random, content)
        return damaged(random, content[:start]) + content[start:]

    def read() -> None:
        checkpoint = Checkpoint.open(path)
        for name in checkpoint.names:
            if name.startswith("embed."):
                checkpoint.table(name)
            elif len(checkpoint.shape(name)) == 1:
                checkpoint.vector(name)
            elif checkpoint.config.quantization and name in checkpoint.config.quantization.formats:
                checkpoint.part(name, 0, 8)
            else:
                checkpoint.matrix(name, 0, 8)
        tokenizer = Tokenizer(path, checkpoint.config.vocabulary)
        tokenizer.decode(tokenizer.encode("Hello, \u00e9 <s>"))
        assert isinstance(tokenizer.config, dict)

    return Subject(path, mutate, read)


def text(value: str | bytes, size: int | None = None) -> bytes:
    """A text, or one that says another length."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw) if size is None else size) + raw


def key(name: str | bytes, kind: int, value: bytes) -> bytes:
    """A key and its value."""
    return text(name) + struct.pack("<I", kind) + value


def numbers(name: str, kind: int, count: int, value: bytes = b"") -> bytes:
    """An array that says `count`."""
    return key(name, ARRAY, struct.pack("<IQ", kind, count) + value)


def tensor(name: str, sides: Sequence[int], kind: int = 0, offset: int = 0) -> bytes:
    """The description of a tensor."""
    return text(name) + struct.pack(
        f"<I{len(sides)}QIQ", len(sides), *(side % 2**64 for side in sides), kind, offset
    )


def file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    version: int = 3,
    counts: tuple[int, int] | None = None,
) -> bytes:
    """A file, which may say other counts than it has."""
    said = (len(tensors), len(keys)) if counts is None else counts
    head = b"GGUF" + struct.pack("<IQQ", version, *said) + b"".join((*keys, *tensors))
    return head + bytes(-len(head) % 32) + data
