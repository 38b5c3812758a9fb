"""Types of GGUF's blocks: the `gguf` package's numbers, W4A16's weights, and boards' logits."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from lora_host.errors import ModelError
from lora_sdk.gguf.blocks import BlockArray, TensorType, check_readable, tensor_type
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.columns import Int4Columns
from lora_sdk.model.spec import without_blocks
from tests.drive import Driver, open_runner
from tests.gguf_files import Types, matrices_as, write_gguf
from tests.oracle import Oracle, load_weights
from tests.variant_tensors import make_tensors
from tests.variants import Variant, variant, write_checkpoint, write_weights

KINDS = gguf.GGMLQuantizationType
IN_BLOCKS = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL",
    "IQ4_XS", "MXFP4",
)  # fmt: skip
ONE_SCALE = ("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS")
BYTES_OF_A_SCALE = {"Q2_K": (80, 84), "Q3_K": (108, 110), "Q6_K": (208, 210)}


def random_blocks(kind: str, count: int) -> np.ndarray:
    """Any bytes, with FP16 scales of about 2^-7."""
    blocks = np.random.default_rng(3).integers(0, 256, (count, of(kind).bytes)).astype(np.uint8)
    start, stop = BYTES_OF_A_SCALE.get(kind, (0, 2 if kind in ONE_SCALE else 4))
    if kind == "MXFP4":  # a power of two, any
        blocks[:, 0] = np.arange(count) * 250 // (count - 1)
        return blocks
    for high in range(start + 1, stop, 2):
        blocks[:, high] = blocks[:, high] & 0x83 | 0x20
    return blocks


def of(kind: str) -> TensorType:
    return tensor_type(KINDS[kind].value, "here")


@pytest.mark.parametrize("kind", IN_BLOCKS)
def test_blocks_are_the_packages_numbers(kind: str) -> None:
    ours, raw = of(kind), random_blocks(kind, 64)
    assert (ours.elements, ours.bytes) == gguf.GGML_QUANT_SIZES[KINDS[kind]]
    matrix = BlockArray(raw.reshape(16, -1), ours, (16, 4 * ours.elements))
    wanted = gguf.quants.dequantize(raw.reshape(16, -1), KINDS[kind])
    assert np.isfinite(wanted).all() and wanted.std() > 0
    assert matrix[:].dtype == np.float32 and matrix[:].tobytes() == wanted.tobytes()
    assert matrix[3:7].tobytes() == wanted[3:7].tobytes()
    assert np.array_equal(matrix[[5, 1], 2:9], wanted[[5, 1], 2:9])


@pytest.mark.parametrize("name", ["IQ2_XXS", "IQ3_S", "IQ1_M", "TQ1_0", "NVFP4", "I32", "Q8_K"])
def test_other_types_are_refused_by_name(name: str) -> None:
    with pytest.raises(ModelError, match=f"tensor a has the type {name}, which is not supported"):
        check_readable(of(name), "tensor a")


def test_all_types_of_the_package_have_its_sizes() -> None:
    """So that any file can be listed."""
    for kind, sizes in gguf.GGML_QUANT_SIZES.items():
        assert (of(kind.name).elements, of(kind.name).bytes) == sizes, kind.name


def whole_blocks(name: str) -> Variant:
    """A model whose rows hold whole blocks of 32."""
    config = dict(
        variant("llama_narrow").config, hidden_size=96, intermediate_size=160, num_hidden_layers=2
    )
    return Variant(name, config)


def dense(folder: Path, which: Variant, kind: Types) -> Path:
    """The same model as a folder of FP16 weights, dequantized by the `gguf` package."""
    write_checkpoint(which, folder)
    tensors = make_tensors(which.name, which.config, which.prefix, 3.0)
    for name, array in tensors.items():
        chosen = kind(name, array)
        if gguf.GGML_QUANT_SIZES[chosen][0] > 1:
            packed = gguf.quants.quantize(array, chosen)
            tensors[name] = gguf.quants.dequantize(packed, chosen)
    write_weights(folder, tensors, "F32", 1)
    return folder


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "MXFP4"])
def test_logits_are_those_of_the_dequantized_folder(kind: str, tmp_path: Path) -> None:
    which, types = whole_blocks(kind), matrices_as(kind)
    file = Checkpoint.open(write_gguf(which, tmp_path / "a.gguf", types, factor=3.0))
    folder = dense(tmp_path / "folder", which, types)
    assert file.config.quantization is not None
    tokens = [5, 77, 200, 31, 8, 99]
    wanted = Oracle(file.config, load_weights(Checkpoint.open(folder))).logits(tokens)
    for path in (folder, tmp_path / "a.gguf"):
        for boards in (1, 2):
            with open_runner(path, boards) as runner:
                found = Driver(runner).feed(0, tokens, (4, 2))
            assert found.tobytes() == wanted.tobytes(), (path, boards)


def test_q4_0_is_w4a16_to_the_bit(tmp_path: Path) -> None:
    which = whole_blocks("Q4_0")
    path = write_gguf(which, tmp_path / "a.gguf", matrices_as("Q4_0"), factor=3.0)
    checkpoint = Checkpoint.open(path, without_blocks(Checkpoint.open(path).config))
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    found = checkpoint.columns("layer.1.down", 7, 60)
    tensor = stored["blk.1.ffn_down.weight"]
    wanted = gguf.quants.dequantize(tensor.data, tensor.tensor_type)[7:60]
    assert isinstance(found, Int4Columns)
    assert np.array_equal(found.dense(), wanted)
    assert (found.scales >= 0).all() and set(np.unique(found.zeros)) == {7, 8}
    whole = checkpoint.columns("layer.1.k", 0, checkpoint.shape("layer.1.k")[1])
    assert np.array_equal(checkpoint.columns("layer.1.k", 3, 20).dense(), whole.dense()[3:20])


def test_parts_of_a_matmul_in_other_types_take_the_larger_block(tmp_path: Path) -> None:
    which = whole_blocks("Q4_0")

    def types(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
        return matrices_as("Q8_0" if "0.attn_v" in name else "Q4_0")(name, array)

    checkpoint = Checkpoint.open(write_gguf(which, tmp_path / "a.gguf", types))
    found = checkpoint.config.quantization
    assert found is not None
    assert {found.formats[f"layer.0.{part}"].kind for part in "qkv"} == {"q8_0"}
    assert {found.formats[f"layer.1.{part}"].kind for part in "qkv"} == {"q4_0"}
    stored = next(
        t for t in gguf.GGUFReader(checkpoint.folder).tensors if t.name == "blk.0.attn_v.weight"
    )
    wanted = gguf.quants.dequantize(stored.data, stored.tensor_type).astype(np.float16)
    dense = checkpoint.columns("layer.0.v").dense()
    assert np.array_equal(dense, wanted.astype(np.float32))


def test_types_without_a_common_block_are_dequantized_together(tmp_path: Path) -> None:
    which = whole_blocks("Q4_0")

    def types(name: str, array: np.ndarray) -> gguf.GGMLQuantizationType:
        return matrices_as("MXFP4" if "0.attn_v" in name else "Q8_0")(name, array)

    checkpoint = Checkpoint.open(write_gguf(which, tmp_path / "a.gguf", types))
    found = checkpoint.config.quantization
    assert found is not None
    assert not {"layer.0.q", "layer.0.k", "layer.0.v"} & set(found.formats)
    stored = next(
        t for t in gguf.GGUFReader(checkpoint.folder).tensors if t.name == "blk.0.attn_v.weight"
    )
    wanted = gguf.quants.dequantize(stored.data, stored.tensor_type).T.astype(np.float16)
    assert checkpoint.matrix("layer.0.v").tobytes() == np.ascontiguousarray(wanted).tobytes()


@pytest.mark.parametrize("scale", [np.inf, np.nan, 8192.0])
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_scales_that_fp16_does_not_hold_name_the_tensor(
    kind: str, scale: float, tmp_path: Path
) -> None:
    path = write_gguf(whole_blocks(kind), tmp_path / "a.gguf", matrices_as(kind))
    tensor = next(t for t in gguf.GGUFReader(path).tensors if t.name == "blk.1.ffn_up.weight")
    data = bytearray(path.read_bytes())
    at = int(tensor.data_offset)
    data[at : at + 2] = np.float16(scale).tobytes()
    data[at + 2 : at + 4] = b"\x77\x77" if kind == "Q8_0" else b"\x00\x00"
    path.write_bytes(data)
    checkpoint = Checkpoint.open(path)
    with pytest.raises(ModelError, match=r"blk\.1\.ffn_up\.weight"):
        checkpoint.columns("layer.1.up", 0, 8).dense()
    checkpoint.columns("layer.1.up", 8, 16).dense()
