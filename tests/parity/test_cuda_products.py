"""The CUDA kernels of exact prefill: NVRTC takes their source, which needs no card, and on a card
they give the bytes of plain torch operations."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_prefill.exact import nvrtc
from lora_prefill.exact.cuda.source import KERNELS, SOURCE
from lora_sdk import Engine, Result
from tests.host_kernels import HostLauncher
from tests.parity.test_exact_prefill import Source, compute, same
from tests.quantized import SCHEMES
from tests.variants import variant, write_checkpoint

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules")]


@pytest.fixture
def compiler() -> None:
    if nvrtc.load() is None:
        pytest.skip("NVRTC is not installed: nvidia-cuda-nvrtc-cu12")


@pytest.fixture
def card() -> Any:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU")
    return torch.device("cuda:0")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("architecture", [75, 80, 90])
def test_every_kernel_compiles(architecture: int) -> None:
    """Integer tensor cores from 80 on, dot products before; nothing fused but products of FP16."""
    text = nvrtc.compile_ptx(SOURCE, architecture).decode()
    assert nvrtc.newest_architecture(architecture) == architecture
    for name in KERNELS:
        assert f".entry {name}(" in text
    tensor = architecture >= 80
    assert ("mma.sync.aligned.m16n8k32" in text, "dp4a" in text) == (tensor, not tensor)
    assert ("cp.async" in text) == tensor
    bodies = {body.split("(")[0]: body for body in text.split(".entry ")[1:]}
    fused = {name for name in KERNELS if "fma.rn.f32" in bodies[name]}
    assert fused == FUSED


FUSED = {
    "half_products", "half_products_32", "half_scores", "weighted_values", "row_squares",
    "row_rms_norm",
}  # fmt: skip
"""Kernels that multiply FP16 values, whose products are exact."""


@pytest.mark.usefixtures("compiler")
def test_a_source_that_does_not_compile_is_an_error() -> None:
    with pytest.raises(RequestError, match=r"NVRTC refuses the CUDA kernels: .*not_a_type"):
        nvrtc.compile_ptx("not_a_type x;", 80)


def test_without_the_compiler_or_a_card_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import torch

    monkeypatch.setattr(nvrtc, "load", lambda: None)
    with pytest.raises(RequestError, match=r"NVRTC, which is not installed.* 'torch:cuda:0'"):
        nvrtc.compile_ptx(SOURCE, 80)
    if not torch.cuda.is_available():
        model = write_checkpoint(variant("gpt2"), tmp_path)
        with pytest.raises(RequestError, match="torch has no device 'cuda:0' here"):
            Engine(model, prefill="cuda:0", overlay="nowhere")


MISTAKES = {
    "FP16 products": ("for (int k = 0; k < STEP; k++)", "for (int k = STEP - 1; k >= 0; k--)"),
    "FP16 products, 5": ("tree_step<EACH * 8>(level, segment, sum);", ""),
    "INT8 products": ("then(unit + 1);", "then(unit), sums[0]++;"),
    "INT8 products, 1": ("parts == 1 ? to_float(sums[i])", "parts == 1 ? to_float(sums[i] + 1)"),
    "INT8 products, 37": (
        "tile = tile + 1 == TILES ? 0 : tile + 1", "tile = tile + 1 == TILES ? 1 : tile + 1"
    ),
    "products in groups": ("if (next < end && left)", "if (left)"),
    "products in groups, 37": (
        "end = segment_unit(first_segment + segment + 1, scales.units);\n      UNROLL\n"
        "      for (int i = 0; i < SUMS; i++) sum[i] = 0.0f;",
        "end = segment_unit(first_segment + segment + 1, scales.units);",
    ),
    "squares": (
        "add(add(add(s[0], s[1]), add(s[2], s[3]))", "add(add(add(add(s[0], s[1]), s[2]), s[3])"
    ),
    "moments": (
        "merged(own[0], own[1]), merged(own[2], own[3])",
        "merged(own[0], own[2]), merged(own[1], own[3])",
    ),
    "RMSNorm": (
        "mul(scaled, gamma[at])", "mul(from_half(row.x[at]), mul(r, gamma[at]))"
    ),
    "rotation": (
        "add(mul(b, cosine), mul(a, sine))",
        "mul(add(b, mul(a, quotient(sine, cosine))), cosine)",
    ),
    "quantizing": ("fmaxf(t, -127.0f)", "fmaxf(t, -128.0f)"),
    "INT8 heads": ("quotient(1.0f, scale)", "quotient(127.0f, most)"),
    "rounded products": ("v = mul(v, columns[column])", "v = mul(v, mul(columns[column], by))"),
    "gated silu": ("mul(silu, up)", "mul(quotient(gate, 1.0f), mul(quotient(silu, gate), up))"),
    "attention": ("found.end_tile();", ""),
    "attention over two": ("if ((unit + 1) % CHUNK_TILES == 0) found.end_chunk();", ""),
    "INT8 attention": ("to_int(mul(weight, 127.0f))", "to_int(mul(weight, 127.1f))"),
}  # fmt: skip
"""By what is compared: a piece of the source, and another order or factor."""


@pytest.mark.parametrize("tensor_cores", [True, False])
def test_the_source_on_the_host_passes_the_comparison_of_opening(
    tensor_cores: bool, tmp_path: Path
) -> None:
    launcher = HostLauncher(tmp_path, tensor_cores)
    compare_on_host(launcher)
    assert set(launcher.launched) == set(KERNELS)


def compare_on_host(launcher: HostLauncher) -> None:
    import torch

    from lora_prefill.exact.cuda.comparison import compare
    from lora_prefill.exact.cuda.kernels import CudaKernels

    with torch.inference_mode():
        compare(partial(CudaKernels, launcher), torch.device("cpu"))


@pytest.mark.parametrize("what", MISTAKES)
def test_the_comparison_of_opening_finds_mistakes(what: str, tmp_path: Path) -> None:
    right, wrong = MISTAKES[what]
    assert right in SOURCE
    launcher = HostLauncher(tmp_path, source=SOURCE.replace(right, wrong), multiprocessors=132)
    with pytest.raises(RequestError, match=f"CUDA kernel of {what}.* gives other bytes"):
        compare_on_host(launcher)


@pytest.mark.parametrize(
    ("scheme", "kernel"),
    [
        ("w8a8", "byte_products"),
        ("w8a8", "attention_weights_int8"),
        ("w8a8_dynamic", "byte_products"),
        ("w4a8_order", "group_products"),
        ("w4a16_order", "half_products"),
        ("w4a16_order", "weighted_values"),
    ],
)
def test_the_kernels_on_the_host_within_a_model(scheme: str, kernel: str, tmp_path: Path) -> None:
    """The same source and the same launches, with the host in the driver's place."""
    import torch

    from lora_prefill.exact.computer import ExactComputer
    from lora_prefill.exact.cuda.kernels import CudaKernels
    from lora_prefill.exact.kernels import TorchKernels

    launcher = HostLauncher(tmp_path)
    model = Source(write_checkpoint(variant("llama_linear"), tmp_path / "model"), SCHEMES[scheme])
    tokens, found = [(i * i * 7 + 3 * i) % 280 for i in range(40)], []
    for kernels in (CudaKernels(launcher), TorchKernels()):
        worker = ExactComputer(model.config, model, 384, torch.device("cpu"), kernels)
        found.append(compute(worker, tokens))
    assert found[0].logits == model.oracle().logits(tokens)[-1].tobytes()
    assert same(found[0].kv, found[1].kv)
    assert {kernel, f"{kernel}_32"} & set(launcher.launched)


@pytest.mark.usefixtures("compiler")
def test_on_a_card_the_text_is_the_boards(card: Any, tmp_path: Path) -> None:
    model, found = write_checkpoint(variant("llama_narrow"), tmp_path, "x3"), []
    tokens = [(i * i * 7 + 3 * i) % 280 for i in range(150)]
    for worker in (None, "torch:cuda:0", "cuda:0"):
        with Engine(model, boards=2, prefill=worker, threads=1, max_sequences=1) as engine:
            result = engine.generate(tokens, max_tokens=6, logprobs=3, ignore_eos=True)
            assert isinstance(result, Result)
            found.append(result.outputs)
    assert found[1] == found[0] and found[2] == found[0]
