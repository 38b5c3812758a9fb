"""The CUDA kernels of exact prefill: NVRTC takes their source, which needs no card, and on a card
they give the bytes of plain torch operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_sdk import Engine, Result
from lora_sdk.prefill.exact import nvrtc
from lora_sdk.prefill.exact.cuda_source import KERNELS, SOURCE
from lora_sdk.prefill.job import Job
from tests.host_kernels import HostKernels
from tests.parity.test_exact_prefill import Source
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
    bodies = {body.split("(")[0]: body for body in text.split(".entry ")[1:]}
    assert "fma.rn.f32" in bodies["half_products"]
    assert "fma." not in bodies["group_products"] and "fma." not in bodies["byte_products"]


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


def test_kernels_with_other_bytes_are_refused() -> None:
    """The comparison at opening, of the reference with itself and with a mistake."""
    import torch

    from lora_sdk.prefill.exact.cuda_products import compare
    from lora_sdk.prefill.exact.matrices import TorchProducts

    class Unordered(TorchProducts):
        def groups(self, x: Any, w: Any, scales: Any, group: int) -> Any:
            whole = scales.float().repeat_interleave(group, dim=0) * w.float()
            return x.float() @ whole

    compare(TorchProducts(), torch.device("cpu"))
    with pytest.raises(RequestError, match="kernel group_products gives other bytes"):
        compare(Unordered(), torch.device("cpu"))


@pytest.mark.parametrize(
    ("scheme", "kernel"),
    [("w8a8", "byte"), ("w8a8_dynamic", "byte"), ("w4a8_order", "group"), ("w4a16_order", "half")],
)
def test_the_kernels_on_the_host_within_a_model(scheme: str, kernel: str, tmp_path: Path) -> None:
    """The same source and the same launches, with the host in the driver's place."""
    import torch

    from lora_sdk.prefill.exact.computer import ExactComputer
    from lora_sdk.prefill.exact.cuda_products import CudaProducts, compare

    kernels, launched = HostKernels(tmp_path), set[str]()

    class OnHost(CudaProducts):
        def __init__(self) -> None:
            compare(self, torch.device("cpu"))

        def _launch(self, name: str, grid: Any, threads: int, tensors: Any, sizes: Any) -> None:
            launched.add(name)
            kernels.launch(name, grid, threads, [one.data_ptr() for one in tensors], sizes)

    model = Source(write_checkpoint(variant("llama_linear"), tmp_path / "model"), SCHEMES[scheme])
    worker = ExactComputer(model.config, model, 384, torch.device("cpu"), OnHost())
    tokens = [(i * i * 7 + 3 * i) % 280 for i in range(40)]
    launched.clear()
    job = Job(tokens, None, lambda: True)
    worker.compute(job, lambda part: None)
    assert job.logits is not None
    assert job.logits.tobytes() == model.oracle().logits(tokens)[-1].tobytes()
    assert f"{kernel}_products" in launched


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
