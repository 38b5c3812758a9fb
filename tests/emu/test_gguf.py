"""GGUF files through the engine and the commands: as the folders that they were converted from."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from lora_host.errors import ModelError, PlacementError
from lora_host.overlay import load_overlay
from lora_sdk import Engine
from lora_sdk.cli.inspect_gguf import gguf_table, inspect_gguf
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.opening.opening import plan_model
from lora_sdk.opening.options import EngineOptions
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.plan.overlay_choice import check_overlay
from lora_sdk.plan.report import report
from lora_sdk.quant.dense import dequantized
from lora_sdk.quant.quantize import quantize
from lora_sdk.quant.recipe import Recipe
from lora_sdk.spec.resolve import kind_of
from lora_sdk.step.tree_shape import TreeShape
from tests.adapter_folders import Folder, write_adapter
from tests.commands import lora_run
from tests.gguf_files import matrices_as, write_gguf
from tests.variants import Variant, variant, write_checkpoint

WHICH = variant("llama_narrow")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(WHICH, tmp_path_factory.mktemp("folder"), "x3")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_gguf(WHICH, tmp_path_factory.mktemp("file") / "model.gguf", factor=3.0)


def test_text_logits_and_adapters_are_the_folders(folder: Path, file: Path, tmp_path: Path) -> None:
    adapter = write_adapter(WHICH, Folder("plain"), tmp_path / "adapter")
    found = []
    for model in (folder, file):
        with Engine(model=model, boards=2, max_adapters=1) as engine:
            engine.load_adapter("a", adapter)
            prompt = "hello <s>world"
            plain = engine.generate(prompt, max_tokens=8, logprobs=2)
            adapted = engine.generate(prompt, max_tokens=8, logprobs=2, adapter="a")
            sequence = engine.open_sequence()
            logits = engine.prefill(sequence, [5, 77, 200])
            outputs = [one.outputs[0] for one in (plain, adapted)]
            results = [(one.token_ids, str(one.logprobs)) for one in outputs]
            found.append((results, logits.tobytes()))
    assert found[0] == found[1]
    assert found[0][0][0] != found[0][0][1], "the adapter changes nothing"


@pytest.mark.slow
def test_the_command_reads_a_file(folder: Path, file: Path) -> None:
    texts = []
    for model in (folder, file):
        done = lora_run("--model", model, "-p", "hello", "-n", 3, "--json")
        assert done.returncode == 0, done.stderr
        texts.append(json.loads(done.stdout)["outputs"][0]["text"])
    assert texts[0] == texts[1]


def test_a_file_may_draft(file: Path, tmp_path: Path) -> None:
    small = Variant("llama_narrow", {**WHICH.config, "num_hidden_layers": 1})
    draft = write_gguf(small, tmp_path / "draft.gguf", factor=3.0)
    assert kind_of(draft) == "draft"
    drafts = SpeculationOptions("draft", draft, TreeShape.chain(3))
    found = []
    for speculation in (None, drafts):
        with Engine(model=file, speculation=speculation) as engine:
            found.append(engine.generate("hello", max_tokens=6).outputs[0].token_ids)
            counted = engine.speculation
    assert found[0] == found[1]
    assert counted is not None and counted.mean_emitted >= 1


def test_quantizing_a_file_gives_the_folders_weights(
    folder: Path, file: Path, tmp_path: Path
) -> None:
    windows = [list(range(3, 40))]
    for name, model in (("a", folder), ("b", file)):
        quantize(model, tmp_path / name, Recipe("w8a8", kv="fp16"), windows)
    one, two = (tmp_path / name / "model.safetensors" for name in "ab")
    assert one.read_bytes() == two.read_bytes()
    assert Checkpoint.open(tmp_path / "a").config == Checkpoint.open(tmp_path / "b").config
    with Engine(model=tmp_path / "b") as engine:
        assert engine.generate("hello", max_tokens=2).outputs[0].token_ids


@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0"])
def test_a_file_in_blocks_is_quantized_from_its_dequantized_values(
    kind: str, tmp_path: Path
) -> None:
    path = write_gguf(WHICH, tmp_path / "a.gguf", matrices_as(kind), 3.0)
    windows = [list(range(3, 40))]
    quantize(path, tmp_path / "out", Recipe("w8a8", kv="fp16", smooth=False), windows)
    found = dequantized(Checkpoint.open(tmp_path / "out"), "layer.1.up")
    wanted = dequantized(Checkpoint.open(path), "layer.1.up")
    off = np.linalg.norm(found - wanted) / np.linalg.norm(wanted)
    assert 0 < off < 0.02


def test_inspect_says_what_boards_make_of_it(tmp_path: Path) -> None:
    config = dict(WHICH.config, hidden_size=96, intermediate_size=160)
    which = Variant("llama_narrow", config)
    path = write_gguf(which, tmp_path / "a.gguf", matrices_as("Q4_0"))
    facts = inspect_gguf(path, None)
    layers = config["num_hidden_layers"]
    assert facts["matrices"] == {"q4_0": 7 * layers + 1}
    assert facts["types"]["Q4_0"] == 7 * layers + 2
    assert facts["keys"]["llama.block_count"] == layers
    assert facts["tensors"]["blk.0.ffn_up.weight"] == {"type": "Q4_0", "shape": [160, 96]}
    assert "22 matrices q4_0, the others FP16" in gguf_table(facts)


def test_any_file_is_listed(tmp_path: Path) -> None:
    """Families and types that no board runs, too: what refuses them is in the list."""
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "mamba")
    kind = gguf.GGMLQuantizationType.IQ2_XXS
    writer.add_tensor("blk.0.x.weight", np.zeros((3, 66), np.uint8), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    facts = inspect_gguf(tmp_path / "a.gguf", None)
    assert facts["tensors"] == {"blk.0.x.weight": {"type": "IQ2_XXS", "shape": [3, 256]}}
    assert "general.architecture is 'mamba'" in facts["refused"]
    assert "on the boards   no: " in gguf_table(facts)


def test_parts_are_one_model(file: Path, tmp_path: Path) -> None:
    """As llama.cpp's own writer splits: keys in the first, tensors in all."""
    reader = gguf.GGUFReader(file)
    write_gguf(WHICH, tmp_path / "m.gguf", factor=3.0, split=5)
    parts = sorted(tmp_path.glob("m-*-of-*.gguf"))
    assert len(parts) > 2 and parts[0].name.startswith("m-00001-of-")
    whole, split = Checkpoint.open(file), Checkpoint.open(parts[0])
    assert whole.config == split.config and whole.names == split.names
    for name in whole.names:
        if len(whole.shape(name)) == 1:
            assert whole.vector(name).tobytes() == split.vector(name).tobytes()
        elif name.startswith("embed."):
            assert whole.table(name).tobytes() == split.table(name).tobytes()
        else:
            assert whole.matrix(name).tobytes() == split.matrix(name).tobytes()
    split.forget()
    assert inspect_gguf(parts[0], None)["types"] == inspect_gguf(file, None)["types"]
    assert len(inspect_gguf(parts[0], None)["tensors"]) == len(reader.tensors)
    parts[1].unlink()
    with pytest.raises(ModelError, match=r"00002-of-.*cannot be read"):
        Checkpoint.open(parts[0])


def in_blocks(kind: str, path: Path, model: str = "llama_narrow", **more: int) -> Path:
    size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0]
    widths = {"hidden_size": 96, "intermediate_size": 160}
    if size == 256:
        widths = {"hidden_size": 256, "intermediate_size": 512}
    config = {**variant(model).config, **widths, "num_hidden_layers": 2, **more}
    return write_gguf(Variant(model, config), path / "a.gguf", matrices_as(kind), 3.0)


KINDS = ("Q8_0", "Q4_K", "Q6_K", "Q5_0", "Q5_1", "Q4_1", "Q2_K", "Q3_K", "Q5_K", "IQ4_NL")


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_give_the_logits_of_fp16(kind: str, tmp_path: Path) -> None:
    """One row, several, 1, 2 and 4 boards; native kernels and NumPy's."""
    path, found = in_blocks(kind, tmp_path), {}
    forms = [("fp16", 1, "native"), *(("blocks", n, "native") for n in (1, 2, 4))]
    for form, boards, kernels in (*forms, ("blocks", 2, "numpy")):
        options = {"gguf_weights": form, "boards": boards, "kernels": kernels}
        with Engine(model=path, **options) as engine:  # type: ignore[arg-type]
            sequence = engine.open_sequence()
            logits = [engine.prefill(sequence, tokens) for tokens in ([5, 77, 200], [31], [8, 9])]
            assert all(np.isfinite(one).all() for one in logits)
            found[form, boards, kernels] = b"".join(one.tobytes() for one in logits)
            engine.check_weights()
    assert len(set(found.values())) == 1, [key for key in found if found[key] != found[forms[0]]]


def test_boards_hold_as_much_as_the_file(tmp_path: Path) -> None:
    path = in_blocks("Q8_0", tmp_path)
    blocks, plain = (EngineOptions(model=path, gguf_weights=form) for form in ("blocks", "fp16"))
    sizes = [report(plan_model(one).plan)["weight_bytes"] for one in (blocks, plain)]
    assert sizes[0] < 0.7 * sizes[1]
    assert plan_model(blocks).plan.overlay.name == "lora_gguf_u280"
    assert plan_model(plain).plan.overlay.name == "lora_f_u280"
    chosen = EngineOptions(model=path, overlay="lora_f_u280")  # which has no such blocks
    assert plan_model(chosen).config.quantization is None
    for other in ({"kernels": "rtl"}, {"devices": ["sim:u280"]}, {"devices": ["xrt:0"]}):
        held = plan_model(EngineOptions(model=path, **other))  # no source multiplies blocks
        assert held.plan.overlay.name == "lora_f_u280" and held.config.quantization is None
    named = EngineOptions(model=path, devices=["xrt:0"], overlay="lora_gguf_u280")
    assert plan_model(named).config.quantization is not None
    with pytest.raises(PlacementError, match="is q8_0, which overlay lora_f_u280 does not compute"):
        check_overlay(plan_model(blocks).config, load_overlay("lora_f_u280"))


def test_blocks_with_adapters_and_trees(tmp_path: Path) -> None:
    path = in_blocks("Q8_0", tmp_path)
    adapted = Variant("llama_narrow", {**WHICH.config, "hidden_size": 96, "intermediate_size": 160,
                                       "num_hidden_layers": 2})  # fmt: skip
    adapter = write_adapter(adapted, Folder("plain"), tmp_path / "adapter")
    drafts = SpeculationOptions("lookup", None, TreeShape.chain(4))
    found = []
    for form in ("fp16", "blocks"):
        with Engine(model=path, gguf_weights=form, max_adapters=1, speculation=drafts) as engine:
            engine.load_adapter("a", adapter)
            out = [engine.generate("hello hello hello", max_tokens=12, adapter=name, logprobs=1)
                   for name in (None, "a")]  # fmt: skip
            found.append([(o.outputs[0].token_ids, str(o.outputs[0].logprobs)) for o in out])
    assert found[0] == found[1] and found[0][0] != found[0][1]


def test_blocks_are_read_in_steps(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few columns and rows at a time give the same boards as all at once."""
    from lora_sdk.loading import weights

    config = dict(WHICH.config, hidden_size=96, intermediate_size=160)
    path = write_gguf(Variant("llama_narrow", config), tmp_path / "a.gguf", matrices_as("Q8_0"), 3)
    logits = []
    for size in (weights.BATCH_BYTES, 96 * 32 * 4):
        monkeypatch.setattr(weights, "BATCH_BYTES", size)
        monkeypatch.setattr(weights, "MAX_BATCH_BYTES", size)
        with Engine(model=path) as engine:
            logits.append(engine.prefill(engine.open_sequence(), [5, 77, 200]))
            engine.check_weights()
    assert np.isfinite(logits[0]).all() and logits[0].tobytes() == logits[1].tobytes()
