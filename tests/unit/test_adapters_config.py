"""PEFT folders: what is read, and what is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host.errors import AdapterError
from lora_sdk.adapters.config import load_peft_config, parse
from lora_sdk.adapters.weights import AdapterWeights, load_adapter_weights
from lora_sdk.model.config import load_config
from tests.adapter_folders import Folder, dense_factors, read_factors, write_adapter
from tests.variants import variant, write_checkpoint

BASE = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}

Load = Callable[..., AdapterWeights]


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Load:
    root = tmp_path_factory.mktemp("folders")
    count = iter(range(1000))

    def of(name: str, folder: Folder, other: str | None = None, factor: float = 1.0) -> Any:
        model = write_checkpoint(variant(name), root / name)
        path = write_adapter(variant(other or name), folder, root / f"adapter{next(count)}")
        return load_adapter_weights(path, load_config(model), factor)

    return of


@pytest.mark.parametrize("name", ["gpt2", "opt_post_norm", "llama_gqa_bias"])
@pytest.mark.parametrize("blocks", [0, 4])
def test_canonical_factors_are_the_folder_s(name: str, blocks: int, load: Load) -> None:
    """Fused QKV, Conv1D, GQA; blocks written out; alpha, rsLoRA and patterns in the scale."""
    pattern = {"o_proj": 16, "c_fc": 16}
    folder = Folder("x", rank=8, blocks=blocks, config={
        "rank_pattern": pattern, "alpha_pattern": {"q_proj": 40}, "use_rslora": True})  # fmt: skip
    found = load(name, folder)
    expected = read_factors(variant(name), found.path)
    assert set(found.targets) == set(expected) and found.blocks == (blocks or 1)
    for canonical, (a, b, scale) in expected.items():
        got_a, got_b = dense_factors(found.targets[canonical])
        assert np.array_equal(got_a, a) and np.array_equal(got_b, b)
        assert found.targets[canonical].module.scale == np.float32(scale)
    assert found.rank == (8 if name == "opt_post_norm" else 16)


def test_a_factor_multiplies_the_scale(load: Load) -> None:
    found = load("gpt2", Folder("x", rank=8), factor=0.25)
    assert {float(t.module.scale) for t in found.targets.values()} == {0.5}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "IA3"), ("use_dora", True), ("lora_bias", True), ("bias", "all"),
        ("modules_to_save", ["lm_head"]), ("target_parameters", ["w"]),
        ("layer_replication", [[0]]),
        ("use_qalora", True), ("a_new_field", 3), ("r", 0), ("r", True), ("lora_alpha", "x"),
        ("target_modules", "("), ("use_rslora", 2), ("rank_pattern", {"q": 0}),
        ("layers_to_transform", "x"), ("use_bdlora", {"blocks": 2}), ("use_bdlora", True),
        ("trainable_token_indices", [1]), ("lora_alpha", float("nan")),
    ],
)  # fmt: skip
def test_what_is_not_supported_is_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(AdapterError, match=field):
        parse({**BASE, field: value})


def test_neutral_and_training_fields_are_taken() -> None:
    config = parse({**BASE, "use_dora": False, "bias": "none", "lora_dropout": 0.1,
                    "revision": None, "a_new_field": None, "modules_to_save": None})  # fmt: skip
    assert config.scale_of("x.q_proj") == 2.0


@pytest.mark.parametrize("value", [True, False, None, "gaussian", "eva", "orthogonal", "mica"])
def test_initializations_that_keep_the_base_weights_are_taken(value: object) -> None:
    assert parse({**BASE, "init_lora_weights": value}) == parse(BASE)


@pytest.mark.parametrize(
    ("value", "way_out"),
    [
        ("pissa", "path_initial_model_for_weight_conversion"),
        ("pissa_niter_16", "path_initial_model_for_weight_conversion"),
        ("olora", "path_initial_model_for_weight_conversion"),
        ("OLoRA", "path_initial_model_for_weight_conversion"),
        ("corda", "path_initial_model_for_weight_conversion"),
        ("lora_ga", "path_initial_model_for_weight_conversion"),
        ("loftq", r"unload\(\).save_pretrained"),
        ("a_new_one", "expected true, false, 'gaussian'"),
        (1, "expected true, false, 'gaussian'"),
        (["pissa"], "expected true, false, 'gaussian'"),
    ],
)
def test_initializations_that_change_the_base_weights_are_refused(
    value: object, way_out: str
) -> None:
    """PEFT makes the residual weights again when it loads such a folder; the logits of the adapter
    on the plain weights are wrong."""
    with pytest.raises(AdapterError, match=f"init_lora_weights is .*{way_out}") as caught:
        parse({**BASE, "init_lora_weights": value})
    assert len(str(caught.value)) <= 500 and "\n" not in str(caught.value)


def test_a_pissa_folder_is_refused_before_its_weights_are_read(load: Load) -> None:
    with pytest.raises(AdapterError, match="init_lora_weights is 'pissa_niter_4'"):
        load("gpt2", Folder("x", config={"init_lora_weights": "pissa_niter_4"}))


def test_every_field_of_peft_is_known() -> None:
    """LoraConfig of PEFT 0.21 with its defaults, as save_pretrained writes them."""
    nothing = (
        "alora_invocation_tokens arrow_config auto_mapping base_model_name_or_path corda_config "
        "eva_config exclude_modules kasa_config layer_replication layers_pattern "
        "layers_to_transform lora_ga_config megatron_config modules_to_save monteclora_config "
        "revision target_parameters task_type trainable_token_indices use_bdlora velora_config"
    )
    flags = "ensure_weight_tying fan_in_fan_out inference_mode lora_bias use_dora use_qalora"
    saved: dict[str, Any] = {
        **dict.fromkeys(nothing.split()), **dict.fromkeys(flags.split(), False), **BASE,
        "peft_version": "0.21.2", "lora_dropout": 0.0, "use_rslora": False, "bias": "none",
        "init_lora_weights": True, "rank_pattern": {}, "alpha_pattern": {}, "loftq_config": {},
        "megatron_core": "megatron.core", "qalora_group_size": 16,
    }  # fmt: skip
    assert parse(saved) == parse(BASE)
    for name in ("arrow_config", "kasa_config", "megatron_config", "monteclora_config"):
        with pytest.raises(AdapterError, match=f"{name} is .*it is not supported"):
            parse({**saved, name: {"rank": 4}})


@pytest.mark.parametrize(
    ("fields", "module", "expected"),
    [
        ({}, "layers.0.q_proj", True),
        ({}, "layers.0.my_q_proj", False),
        ({"exclude_modules": ["layers.0.q_proj"]}, "model.layers.0.q_proj", False),
        ({"layers_to_transform": [1]}, "layers.0.q_proj", False),
        ({"layers_to_transform": 1}, "model.layers.1.q_proj", True),
        ({"layers_to_transform": [1], "layers_pattern": "h"}, "layers.1.q_proj", False),
        ({"target_modules": r".*\.[qv]_proj"}, "layers.0.v_proj", True),
        ({"target_modules": "all-linear"}, "layers.0.fc1", True),
        ({"target_modules": "all-linear"}, "model.lm_head", False),
    ],
)
def test_which_modules_are_adapted(fields: dict[str, Any], module: str, expected: bool) -> None:
    assert parse({**BASE, **fields}).has(module) is expected


def test_a_module_in_both_lists_or_strictly_in_neither() -> None:
    both = {"target_modules_bd_a": ["proj"], "target_modules_bd_b": ["q_proj"]}
    blocks = parse({**BASE, "use_bdlora": both}).blocks
    assert blocks is not None and blocks.side("o_proj") == "a"
    with pytest.raises(AdapterError, match="in both lists"):
        blocks.side("q_proj")
    with pytest.raises(AdapterError, match="in neither list"):
        blocks.side("fc1")


@pytest.mark.parametrize(
    ("folder", "other", "part"),
    [
        (Folder("x", drop=("layers.1.self_attn.v_proj.lora_A",)), None, "lora_A.weight: missing"),
        (Folder("x", drop=("layers.1.self_attn.v_proj",)), None, "v_proj.lora_A.weight: missing"),
        (Folder("x", config={"r": 16}), None, r"shape \[8, 144\], expected \[16, 144\]"),
        (Folder("x"), "llama", r"expected \[8, 144\] by|shape"),
        (Folder("x"), "gpt2", "another model's"),
        (Folder("x", rank=6, config={"use_bdlora": {"nblocks": 4, "match_strict": False,
         "target_modules_bd_b": ["proj"]}}), None, "not a multiple of nblocks 4"),
        (Folder("x", config={"target_modules": ["q_proj"]}), None, "not of target_modules"),
    ],
)  # fmt: skip
def test_wrong_tensors_are_named(folder: Folder, other: str | None, part: str, load: Load) -> None:
    with pytest.raises(AdapterError, match=part):
        load("llama_gqa_bias", folder, other)


def test_a_broken_folder_gets_one_line(tmp_path: Path, load: Load) -> None:
    config = load_config(write_checkpoint(variant("gpt2"), tmp_path / "model"))
    with pytest.raises(AdapterError, match=r"adapter_config\.json: No such file"):
        load_adapter_weights(tmp_path, config)
    (tmp_path / "adapter_config.json").write_text("[1]")
    with pytest.raises(AdapterError, match="expected an object"):
        load_adapter_weights(tmp_path, config)
    (tmp_path / "adapter_config.json").write_text("{")
    with pytest.raises(AdapterError, match="no JSON"):
        load_adapter_weights(tmp_path, config)
    path = write_adapter(variant("gpt2"), Folder("x"), tmp_path / "cut")
    file = path / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    with pytest.raises(AdapterError, match="truncated or corrupt"):
        load_adapter_weights(path, config)
    values = json.loads((path / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps({**values, "use_dora": True}))
    with pytest.raises(AdapterError, match="use_dora"):
        load_adapter_weights(path, config)


@pytest.mark.parametrize(("rank", "shown"), [(0, "0"), ("8", "'8'")])
def test_a_refused_field_names_its_file_and_shows_its_type(
    rank: object, shown: str, tmp_path: Path
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": rank}))
    with pytest.raises(AdapterError) as refused:
        load_peft_config(tmp_path)
    assert f"{tmp_path}/adapter_config.json: r is {shown}, expected" in str(refused.value)
