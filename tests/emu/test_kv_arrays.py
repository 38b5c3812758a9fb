"""K and V out of the boards and in again, as plain arrays: the same bytes on other boards, checked
shapes, types and values, and nothing left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from lora_host import abi
from lora_host.errors import LoraError, RequestError, TransportError
from lora_lab.synth.folder import synthesize
from lora_sdk import Engine, KvArrays, Result
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.quant.recipe import Recipe
from tests.adapter_folders import Folder, write_adapter
from tests.recovery_rig import inject
from tests.unit.test_synth import TINY
from tests.variants import variant, write_checkpoint

TOKENS = [(i * i * 7 + 3 * i) % 280 for i in range(150)]
TAIL = [5, 9, 200]
KINDS = ("fp16", "int8", "int8-heads")
COUNTS = ((1, 0), (31, 1), (32, 4), (77, 3))  # of positions, and rows after those exported


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder by type of KV cache or by variant."""

    @cache
    def write(name: str) -> Path:
        target = tmp_path_factory.mktemp(name) / "model"
        if name != "int8":
            return write_checkpoint(variant("llama_narrow" if name in KINDS else name), target)
        config = target.parent / "config.json"
        fields = {"model_type": "llama", **TINY["llama"], "max_position_embeddings": 384}
        config.write_text(json.dumps(fields))
        synthesize(config, target, recipe=Recipe("w8a8", kv="int8"))
        return target

    return write


def opened(folder: Path, boards: int, **options: Any) -> Engine:
    return Engine(folder, boards=boards, max_sequences=3, threads=1, **options)


def kv_option(kind: str) -> str:
    return "auto" if kind == "int8" else kind


def held(engine: Engine) -> int:
    """Pages in use, without those that leave with the next header."""
    engine._stepper.flush()
    return engine.kv_use.held


def exported(engine: Engine, tokens: list[int]) -> KvArrays:
    sequence = engine.open_sequence()
    engine.prefill(sequence, tokens)
    kv = engine.export_kv(sequence)
    engine.release(sequence)
    return kv


@pytest.mark.parametrize("kind", KINDS)
def test_other_boards_go_on_with_the_same_bytes(
    kind: str, folder_of: Callable[[str], Path]
) -> None:
    """Also a fork, whose last page is copied, and the arrays that the importer exports again."""
    folder, found = folder_of(kind), []
    with opened(folder, 1, kv=kv_option(kind)) as engine:
        for count, _ in COUNTS:
            tokens = TOKENS[:count]
            sequence = engine.open_sequence()
            engine.prefill(sequence, tokens)
            kv = engine.export_kv(sequence)
            assert kv.kind == kind and kv.positions == count and np.abs(kv.k).max() > 0
            found.append((tokens, kv, engine.prefill(sequence, TAIL)))
            engine.release(sequence)
    for boards in (4, 2, 1):
        with opened(folder, boards, kv=kv_option(kind)) as engine:
            for tokens, kv, logits in found:
                sequence = engine.import_kv(tokens, kv)
                again = engine.export_kv(sequence)
                for name in ("k", "v", "k_scales", "v_scales"):
                    one, other = getattr(again, name), getattr(kv, name)
                    assert (one is None and other is None) or one.tobytes() == other.tobytes()
                child = engine.fork(sequence)
                for number in (sequence, child):
                    assert engine.prefill(number, TAIL).tobytes() == logits.tobytes()
                    engine.release(number)
            assert held(engine) == 0


@pytest.mark.parametrize("name", ["gptj", "gpt_neox", "llama_narrow"])
def test_keys_have_the_files_columns(name: str, folder_of: Callable[[str], Path]) -> None:
    """The first position is not rotated: its K is a plain product with the file's tensor."""
    folder = folder_of(name)
    with opened(folder, 2) as engine:
        kv, config = exported(engine, [11]), engine.config
    tensors: dict[str, NDArray[np.float64]] = {}
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "numpy") as file:
            tensors |= {key: file.get_tensor(key).astype(float) for key in file.keys()}  # noqa: SIM118

    def tensor(end: str) -> NDArray[np.float64]:
        return next(value for key, value in tensors.items() if key.endswith(end))

    heads, size = config.kv_heads, config.head_dim
    if name == "gptj":
        x, gamma, beta = tensor("wte.weight")[11], tensor("h.0.ln_1.weight"), tensor("ln_1.bias")
        weights, bias = tensor("h.0.attn.k_proj.weight"), 0.0
    elif name == "gpt_neox":
        at = "layers.0.attention.query_key_value."
        x, gamma = tensor("embed_in.weight")[11], tensor("layers.0.input_layernorm.weight")
        beta = tensor("layers.0.input_layernorm.bias")
        fused = tensor(at + "weight").reshape(heads, 3, size, -1)
        weights = fused[:, 1].reshape(heads * size, -1)
        bias = tensor(at + "bias").reshape(heads, 3, size)[:, 1].reshape(-1)
    else:
        x, gamma = tensor("embed_tokens.weight")[11], tensor("layers.0.input_layernorm.weight")
        beta, weights, bias = 0.0, tensor("layers.0.self_attn.k_proj.weight"), 0.0
    if name != "llama_narrow":
        x = x - x.mean()
    normed = x / np.sqrt(np.square(x).mean() + config.norm_eps) * gamma + beta
    want = (weights @ normed + bias).reshape(heads, size)
    assert np.abs(kv.k[0, :, 0].astype(float) - want).max() < 0.01 * want.std()


@pytest.mark.parametrize("name", ["gptj", "gpt_neox"])
def test_reordered_columns_return_to_their_places(
    name: str, folder_of: Callable[[str], Path]
) -> None:
    with opened(folder_of(name), 1) as engine:
        sequence = engine.open_sequence()
        engine.prefill(sequence, TOKENS[:40])
        kv = engine.export_kv(sequence)
        assert kv.k.shape[1:] == (engine.config.kv_heads, 40, engine.config.head_dim)
        other = engine.import_kv(TOKENS[:40], kv)
        assert engine.prefill(other, TAIL).tobytes() == engine.prefill(sequence, TAIL).tobytes()


def test_an_adapter_goes_on(folder_of: Callable[[str], Path], tmp_path: Path) -> None:
    adapter = write_adapter(variant("llama_narrow"), Folder("a", rank=8), tmp_path / "a")
    found = []
    for boards in (1, 2):
        with opened(folder_of("fp16"), boards, max_adapters=1, max_adapter_rank=8) as engine:
            engine.load_adapter("a", adapter)
            sequence = engine.open_sequence("a")
            if boards == 1:
                engine.prefill(sequence, TOKENS[:50])
                kv = engine.export_kv(sequence)
            else:
                sequence = engine.import_kv(TOKENS[:50], kv, "a")
            found.append(engine.prefill(sequence, TAIL).tobytes())
    assert found[0] == found[1]


@pytest.fixture(scope="module")
def pair(folder_of: Callable[[str], Path]) -> Any:
    """Two boards, and K and V of 40 tokens that no model computed: a step would give others."""
    with opened(folder_of("fp16"), 2) as engine:
        kv = exported(engine, TOKENS[:40])
        yield engine, replace(kv, v=(kv.v * np.float16(0.5)).astype(np.float16))


def damage(kv: KvArrays, name: str, value: object) -> KvArrays:
    array = getattr(kv, name).copy()
    array[1, 0, 7] = value
    return replace(kv, **{name: array})


WRONG: dict[str, tuple[Callable[[KvArrays], object], str]] = {
    "no arrays": (lambda kv: (kv.k, kv.v), "expected KvArrays"),
    "type": (lambda kv: replace(kv, kind="int8"), "KV cache has type 'fp16'"),
    "list": (lambda kv: replace(kv, k=[1]), "expected a NumPy array"),
    "dtype": (lambda kv: replace(kv, k=kv.k.astype(np.float32)), "float32; expected float16"),
    "shape": (lambda kv: replace(kv, v=kv.v[:, :1]), r"kv.v has shape \(3, 1, 40, 16\)"),
    "positions": (lambda kv: replace(kv, v=kv.v[:, :, 1:]), r"expected \(3, 2, 40, 16\)"),
    "NaN": (lambda kv: damage(kv, "k", np.nan), r"kv.k\[1, 0, 7, 0\] is nan"),
    "infinity": (lambda kv: damage(kv, "v", np.inf), "expected finite"),
    "scales": (lambda kv: replace(kv, k_scales=kv.k), "expected None"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit_are_refused(pair: tuple[Engine, KvArrays], wrong: str) -> None:
    engine, kv = pair
    spoil, message = WRONG[wrong]
    with pytest.raises(RequestError, match=message):
        engine.import_kv(TOKENS[:40], spoil(kv))  # type: ignore[arg-type]
    for tokens in ([], [*TOKENS[:39], 290], TOKENS[:39]):
        with pytest.raises(RequestError):
            engine.import_kv(tokens, kv)
    assert held(engine) == 0


def test_scales_are_checked(folder_of: Callable[[str], Path]) -> None:
    with opened(folder_of("int8"), 1) as engine:
        kv = exported(engine, TOKENS[:9])
        assert kv.k_scales is not None
        with pytest.raises(RequestError, match=r"k_scales of layer 0 is .* the model has"):
            engine.import_kv(TOKENS[:9], replace(kv, k_scales=kv.k_scales * np.float32(2)))
        with pytest.raises(RequestError, match="holds -128; expected -127 to 127"):
            engine.import_kv(TOKENS[:9], damage(kv, "v", -128))
    with opened(folder_of("int8-heads"), 1, kv="int8-heads") as engine:
        kv = exported(engine, TOKENS[:9])
        with pytest.raises(RequestError, match="expected scales from 0 on"):
            engine.import_kv(TOKENS[:9], damage(kv, "k_scales", -1))


@pytest.mark.parametrize("released", [False, True])
def test_imported_pages_serve_nobody_else(pair: tuple[Engine, KvArrays], released: bool) -> None:
    engine, kv = pair
    tokens = TOKENS[released : 60 + released]
    before = engine.generate(tokens, max_tokens=5, logprobs=3, cache_salt="another")
    sequence = engine.import_kv(tokens[:40], kv)
    engine.prefill(sequence, tokens[40:])
    child = engine.fork(sequence)
    engine.prefill(child, tokens[:20])  # a page is full of rows that saw the others
    if released:
        engine.release(sequence)
        engine.release(child)
    after = engine.generate(tokens, max_tokens=5, logprobs=3)
    assert isinstance(before, Result) and isinstance(after, Result)
    assert after.outputs == before.outputs and after.cached_tokens == 0
    if not released:
        engine.release(sequence)
        engine.release(child)


def test_heads_that_boards_share_are_read_once(folder_of: Callable[[str], Path]) -> None:
    found = []
    for boards in (1, 4):
        with opened(folder_of("llama_llama3"), boards) as engine:
            found.append(exported(engine, TOKENS[:35]))
            heads = [board.share.kv_heads for board in engine.plan.boards]
    assert any(a.start < b.start < a.stop for a, b in pairwise(heads))
    assert found[0].k.tobytes() == found[1].k.tobytes()
    assert found[0].v.tobytes() == found[1].v.tobytes()


@pytest.mark.parametrize("when", ["import", "later"])
def test_a_lost_board_brings_back_what_was_imported(
    folder_of: Callable[[str], Path], pair: tuple[Engine, KvArrays], when: str
) -> None:
    whole, kv = pair
    sequence = whole.import_kv(TOKENS[:40], kv)
    child = whole.fork(sequence)
    want = [whole.prefill(number, TOKENS[40:45]).tobytes() for number in (sequence, child)]
    whole.release(sequence)
    whole.release(child)
    with opened(folder_of("fp16"), 4) as engine:
        if when == "import":
            inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        sequence = engine.import_kv(TOKENS[:40], kv)
        child = engine.fork(sequence)
        if when == "later":
            inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        found = [engine.prefill(number, TOKENS[40:45]).tobytes() for number in (sequence, child)]
        assert found == want and len(engine.recoveries) == 1


def test_without_recovery_a_failed_import_leaves_nothing(
    folder_of: Callable[[str], Path], pair: tuple[Engine, KvArrays]
) -> None:
    with opened(folder_of("fp16"), 2, recovery="off") as engine:
        inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        with pytest.raises(LoraError):
            engine.import_kv(TOKENS[:40], pair[1])
        assert engine._cache.free_sequences == 3 and engine._cache.held_pages == 0


def test_damage_on_the_way_is_seen(pair: tuple[Engine, KvArrays]) -> None:
    engine, kv = pair
    transfer = KvTransfer(engine._loaded)
    pages = [20, 21]
    written = transfer.write(pages, kv)
    transfer.check(written)
    one = written[-1]
    byte = engine.cluster.read(one.board, one.bank, one.offset + 5, 1)
    engine.cluster.write(one.board, one.bank, one.offset + 5, bytes([byte[0] ^ 1]))
    with pytest.raises(TransportError, match=r"checksum of .* of K and V"):
        transfer.check(written)


def test_groups_of_layers_are_the_same_bytes(pair: tuple[Engine, KvArrays]) -> None:
    """Layer by layer, into pages that are not consecutive."""
    engine, kv = pair
    transfer, pages = KvTransfer(engine._loaded), [22, 19]
    for layer in range(engine.config.layers):
        part = replace(kv, k=kv.k[layer : layer + 1], v=kv.v[layer : layer + 1])
        transfer.check(transfer.write(pages, part, layer))
    found = transfer.read(pages, 40)
    assert found.k.tobytes() == kv.k.tobytes() and found.v.tobytes() == kv.v.tobytes()
