"""Prompts computed by torch in the boards' arithmetic: the bytes of the boards and of the oracle,
and the same texts. `--prefill cuda:0` runs them on a GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host.emu.attention import attend as reference
from lora_host.errors import ModelError, RequestError
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, Result, SamplingParams
from lora_sdk.adapters.weights import content_digest, load_adapter_weights
from lora_sdk.kv.key_columns import board_columns
from lora_sdk.kv.kv_arrays import KvArrays
from lora_sdk.model import operations as ops
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.prefill.job import Job, JobAdapter, Part, joined_parts
from lora_sdk.quant.recipe import Recipe
from tests import prefill_option
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.emu.test_every_family import variant_of
from tests.hybrid_configs import HYBRID_KINDS
from tests.moe_configs import MOE_KINDS
from tests.oracle.adapted import Adapted
from tests.oracle.forward import Oracle, load_weights
from tests.oracle.integer import AdaptedQuantized
from tests.quantized import SCHEMES, QuantizedModel, oracle_of
from tests.unit.test_synth import TINY
from tests.variants import VARIANTS, Variant, variant, write_checkpoint

if TYPE_CHECKING:
    from lora_prefill.exact.computer import ExactComputer

pytestmark = [pytest.mark.parity, pytest.mark.usefixtures("parity_modules", "one_thread")]

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(900)]
KINDS = ("gpt2", "opt", "llama")
RECIPES = {
    "fp16": None,
    "w8a8": Recipe("w8a8", kv="int8"),
    "w4a8": Recipe("w4a8", group=32, kv="int8-heads"),
}
LENGTHS = (1, 2, 127, 129)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """On a busy machine torch's threads wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def written(kind: str, scheme: str, folder: Path, heads: int = 4) -> Path:
    """A small model of 1024 positions."""
    config, recipe = folder / "config.json", RECIPES[scheme]
    fields = {"n_positions": 1024, "n_head": heads, "n_embd": 16 * heads}
    if kind != "gpt2":
        sizes = {"num_attention_heads": heads, "hidden_size": 16 * heads}
        fields = {"max_position_embeddings": 1024, **sizes}
    config.write_text(json.dumps({"model_type": kind, **TINY[kind], **fields}))
    synthesize(config, folder / "model", **({} if recipe is None else {"recipe": recipe}))
    return folder / "model"


def computer(config: Any, source: Any, context: int = 1024) -> ExactComputer:
    from lora_prefill.exact.computer import ExactComputer

    return ExactComputer(config, source, context, *prefill_option.opened())


@dataclass
class Computed:
    """What a worker hands over."""

    kv: KvArrays
    logits: bytes


def compute(
    worker: ExactComputer, tokens: list[int], adapter: JobAdapter | None = None
) -> Computed:
    job, parts = Job(tokens, adapter, lambda: True), list[Part]()
    worker.compute(job, parts.append)
    assert job.logits is not None
    return Computed(joined_parts(parts), job.logits.tobytes())


def same(found: KvArrays, want: KvArrays) -> bool:
    """Of as many positions as `found` has; compared outside an assertion, whose text is slow."""
    n = found.positions
    pairs = [(found.k, want.k[:, :, :n]), (found.v, want.v[:, :, :n])]
    if found.kind == "int8-heads":
        assert want.k_scales is not None and want.v_scales is not None
        assert found.k_scales is not None and found.v_scales is not None
        pairs.append((found.k_scales, want.k_scales[:, :, :n]))
        pairs.append((found.v_scales, want.v_scales[:, :, :n]))
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in pairs)


def adapter_of(model: Path) -> tuple[Variant, Path]:
    """An adapter in blocks, and whose it is."""
    config = json.loads((model / "config.json").read_text())
    which = replace(variant("gpt2"), config=config)
    return which, write_adapter(
        which, Folder("a", rank=12, blocks=2, config={"lora_alpha": 20}), model.parent / "a"
    )


def by_boards(
    engine: Engine, lengths: tuple[int, ...], adapter: str | None = None
) -> tuple[KvArrays, list[bytes]]:
    """K and V of the longest prompt, in the boards' columns, and the logits of each."""
    sequence, done, logits = engine.open_sequence(adapter), 0, []
    for length in lengths:
        logits.append(engine.prefill(sequence, TOKENS[done:length]).tobytes())
        done = length
    kv = engine.export_kv(sequence)
    return kv.with_columns(board_columns(engine.config)), logits


@pytest.mark.parametrize(
    ("kind", "scheme", "boards", "lengths"),
    [
        *((kind, scheme, 8, (*LENGTHS, 900)) for kind in KINDS for scheme in RECIPES),
        ("gpt2", "w4a8", 1, LENGTHS),
        ("opt", "fp16", 2, LENGTHS),
        ("llama", "w8a8", 4, LENGTHS),
    ],
)
def test_k_v_and_logits_are_the_boards(
    kind: str, scheme: str, boards: int, lengths: tuple[int, ...], tmp_path: Path
) -> None:
    folder = written(kind, scheme, tmp_path, max(4, boards))
    with Engine(folder, boards=boards, threads=1, max_sequences=1) as engine:
        kv, logits = by_boards(engine, lengths)
        worker = computer(engine.config, engine._loaded.checkpoint)
        for length, want in zip(lengths, logits, strict=True):
            found = compute(worker, TOKENS[:length])
            assert found.kv.positions == length
            assert same(found.kv, kv), length
            assert found.logits == want, length


@pytest.mark.parametrize(("kind", "scheme"), [("gpt2", "w8a8"), ("opt", "w4a8"), ("llama", "fp16")])
def test_900_tokens_with_an_adapter(kind: str, scheme: str, tmp_path: Path) -> None:
    folder = written(kind, scheme, tmp_path, 8)
    _, path = adapter_of(folder)
    with Engine(folder, boards=8, max_adapters=1, threads=1, max_sequences=1) as engine:
        engine.load_adapter("a", path)
        kv, logits = by_boards(engine, (900,), "a")
        weights = engine._adapters.weights("a")
        worker = computer(engine.config, engine._loaded.checkpoint)
        found = compute(worker, TOKENS, JobAdapter(content_digest(weights), weights))
        assert same(found.kv, kv) and found.logits == logits[0]


@pytest.mark.parametrize("scheme", ["fp16", "w8a8", "w4a8"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_the_oracles_also_with_an_adapter(
    kind: str, scheme: str, tmp_path: Path
) -> None:
    """Adapters of blocks, of which most are absent."""
    model = written(kind, scheme, tmp_path)
    checkpoint, tokens = Checkpoint.open(model), TOKENS[:45]
    which, folder = adapter_of(model)
    factors = read_factors(which, folder)
    weights = load_adapter_weights(folder, checkpoint.config)
    worker = computer(checkpoint.config, checkpoint)
    plain: Oracle = Oracle(checkpoint.config, {})
    if scheme == "fp16":
        plain = Oracle(checkpoint.config, load_weights(checkpoint))
        adapted: Oracle = Adapted(checkpoint.config, load_weights(checkpoint), factors)
    else:
        plain = oracle_of(checkpoint)
        adapted = AdaptedQuantized(oracle_of(checkpoint), factors)
    job = JobAdapter(content_digest(weights), weights)
    for adapter, oracle in ((None, plain), (job, adapted), (None, plain)):
        assert compute(worker, tokens, adapter).logits == oracle.logits(tokens)[-1].tobytes()


class Source(QuantizedModel):
    """The unquantized tensors, too."""

    def __getattr__(self, name: str) -> Any:
        if name in ("matrix", "table", "shape"):
            return getattr(self._base, name)
        raise AttributeError(name)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_has_the_oracles_bytes(scheme: str, tmp_path: Path) -> None:
    """4-bit weights with FP16 inputs, inputs in an order of their own, scales by row, all KV
    caches. K is no multiple of a group in some matrices."""
    model = Source(write_checkpoint(variant("llama_linear"), tmp_path), SCHEMES[scheme])
    assert model.matrices or scheme.startswith("kv")
    found = compute(computer(model.config, model), TOKENS[:40])
    assert found.logits == model.oracle().logits(TOKENS[:40])[-1].tobytes()


KINDS = {one.config["model_type"] for one in VARIANTS} - MOE_KINDS - HYBRID_KINDS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_family_has_the_oracles_bytes(kind: str, tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(write_checkpoint(variant_of(kind), tmp_path))
    oracle = Oracle(checkpoint.config, load_weights(checkpoint))
    found = compute(computer(checkpoint.config, checkpoint), TOKENS[:36])
    assert found.logits == oracle.logits(TOKENS[:36])[-1].tobytes()


@pytest.mark.parametrize("window", [0, 4120])
def test_attention_sums_chunks_of_positions(window: int) -> None:
    """Beyond 4096 positions: a window that begins within the first chunk, and the reference."""
    import torch

    from lora_prefill.exact.attention import CHUNK, Scores

    rows, heads, positions, size = 40, 4, CHUNK + 96, 32
    draw = np.random.default_rng(7)
    q = draw.standard_normal((rows, heads, size)).astype(np.float16)
    k, v = (draw.standard_normal((2, positions, size)).astype(np.float16) for _ in range(2))
    how = Scores(0.25, positions - rows, window=window)
    device, kernels = prefill_option.opened()
    given = (torch.from_numpy(array).to(device) for array in (q, k, v))
    found = kernels.attend(*given, how).cpu().numpy()
    entries = np.tile(np.arange(positions), (rows, 1))
    own = np.arange(positions - rows, positions)[:, None]
    entries[(entries > own) | (entries <= own - (window or positions))] = -1
    keys, values = (
        np.repeat(np.pad(array, ((0, 0), (0, 1), (0, 0))), 2, axis=0).astype(np.float32)
        for array in (k, v)
    )
    turned = np.ascontiguousarray(keys.transpose(0, 2, 1))
    want = reference(q.astype(np.float32), turned, values, entries, np.float32(0.25))
    assert found.tobytes() == want.astype(np.float16).tobytes()


def test_every_kind_of_operation_is_computed() -> None:
    from lora_prefill.exact.operations import STEPS

    refused = {
        ops.Route,
        ops.ExpertMatmul,
        ops.AddGated,
        ops.Recur,
        ops.GateHeads,
        ops.NormGroups,
        ops.JoinHeads,
        ops.Elementwise,  # but for those that have a row of their own
    }  # when the engine opens
    own = {one for one in ops.Elementwise.__subclasses__() if one.__module__ == ops.__name__}
    assert set(STEPS) == set(ops.KINDS) - refused | own


def test_an_engine_gives_the_same_texts(tmp_path: Path) -> None:
    """Greedy and sampled, with an adapter, two at once, on two boards."""
    which = variant("llama_narrow")
    model = write_checkpoint(which, tmp_path / "model", "x3")
    adapter = write_adapter(which, Folder("a", rank=8), tmp_path / "a")
    found = []
    for worker in (None, prefill_option.chosen):
        with Engine(
            model, boards=2, prefill=worker, threads=1, max_sequences=3, max_adapters=1,
            max_adapter_rank=8,
        ) as engine:  # fmt: skip
            engine.load_adapter("a", adapter)
            params = [
                SamplingParams(max_tokens=6, logprobs=2, ignore_eos=True),
                SamplingParams(max_tokens=6, temperature=0.9, seed=3, adapter="a"),
            ]
            results = engine.generate([TOKENS[:70], TOKENS[5:40]], params)
            assert isinstance(results, list)
            found.append([result.outputs for result in results])
            if worker is not None:
                use = engine.prefill_use
                assert use is not None and (use.prompts, use.tokens) == (2, 105)
                assert use.worker == worker and not use.fast
    assert found[0] == found[1]


def test_a_value_that_overflows_is_the_boards_error(tmp_path: Path) -> None:
    """The boards compute the prompt as well, and name it; the worker goes on."""
    folder = write_checkpoint(variant("gpt2"), tmp_path / "model")
    tensors = {
        name: tensor.copy() for name, tensor in load_file(folder / "model.safetensors").items()
    }
    for name, tensor in tensors.items():
        if name.endswith("wte.weight"):
            tensor[:, 0] = 40
        elif name.endswith("wpe.weight"):
            tensor[12, 0] = 65504
    save_file(tensors, folder / "model.safetensors")
    with Engine(folder, prefill=prefill_option.chosen, threads=1, max_sequences=2) as engine:
        worker = computer(engine.config, engine._loaded.checkpoint)
        with pytest.raises(
            ModelError, match="embed wrote NaN or infinity, position 12 of a prompt"
        ):
            compute(worker, TOKENS[:40])
        with pytest.raises(ModelError, match=r"the prompt: embed wrote NaN or .* position 12\)"):
            engine.generate(TOKENS[:40], max_tokens=2)
        result = engine.generate(TOKENS[:9], max_tokens=2)
        assert isinstance(result, Result)
        assert engine.prefill_use is not None and engine.prefill_use.prompts == 1


def test_what_is_not_computed_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lora_prefill.exact import functions, operations, weights

    model = write_checkpoint(variant("gpt2"), tmp_path / "model")
    with pytest.raises(RequestError, match=r"expected .*'torch:DEVICE'"):
        Engine(model, prefill="torch:cpu:x")
    with pytest.raises(RequestError, match="torch has no device 'meta' here"):
        Engine(model, prefill="torch:meta", overlay="nowhere")  # before the overlay is read
    with monkeypatch.context() as patch:
        patch.delitem(operations.STEPS, ops.AddPosition)
        patch.delitem(operations.ACTIVATIONS, (False, "gelu_tanh"))
        with pytest.raises(RequestError, match="in torch has no activation gelu_tanh"):
            Engine(model, prefill="torch:cpu", overlay="nowhere")
    with monkeypatch.context() as patch:
        patch.delitem(weights.MATRICES, "WEIGHT_FP16")
        with pytest.raises(RequestError, match=r"layer.0.qkv: .* has no fp16 weights"):
            Engine(model, prefill="torch:cpu", overlay="nowhere")
    import torch

    with monkeypatch.context() as patch:
        patch.setattr(functions, "root", torch.sqrt)  # misrounded on CPU
        with pytest.raises(RequestError, match="'cpu' rounds square roots otherwise"):
            Engine(model, prefill="torch:cpu", overlay="nowhere")


def test_a_prompt_that_nobody_waits_for_ends_after_a_layer(tmp_path: Path) -> None:
    checkpoint = Checkpoint.open(written("llama", "fp16", tmp_path))
    worker = computer(checkpoint.config, checkpoint)
    asked: list[int] = []
    job = Job(TOKENS[:600], None, lambda: bool(asked.append(1)) or len(asked) < 3)
    parts: list[Part] = []
    worker.compute(job, parts.append)
    assert len(asked) == 3 and job.logits is None
    on_gpu = prefill_option.opened()[0].type == "cuda"  # gives a part with the work of the next
    assert [np.asarray(part.kv.k).shape[2] for part in parts] == ([] if on_gpu else [256])


@pytest.mark.parametrize("scheme", RECIPES)
def test_groups_that_wait_for_the_next_are_all_given(
    scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a GPU's worker does, on any device."""
    from lora_prefill.exact import handover

    class Waiting(handover.Handover):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._behind = 1

    checkpoint = Checkpoint.open(written("opt", scheme, tmp_path))
    worker = computer(checkpoint.config, checkpoint)
    plain = compute(worker, TOKENS[:600])
    monkeypatch.setattr("lora_prefill.exact.computer.Handover", Waiting)
    found = compute(worker, TOKENS[:600])
    assert found.kv.positions == 600 and same(found.kv, plain.kv) and found.logits == plain.logits
