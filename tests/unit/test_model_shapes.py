"""Model shapes by name: what the papers' table III says, and the same through a folder."""

import json
from dataclasses import replace

import pytest

from lora_host.errors import ModelError
from lora_sdk.model.shapes import SHAPES, find_config, shape_config, shape_json


@pytest.mark.parametrize(
    ("name", "hidden", "head_dim", "ffn", "layers"),
    [
        ("gpt2-345m", 1024, 64, 4096, 24),
        ("gpt2-774m", 1280, 64, 5120, 36),
        ("gpt2-1.5b", 1536, 64, 6144, 48),
        ("gpt2-xl", 1600, 64, 6400, 48),
        ("opt-6.7b", 4096, 128, 16384, 32),
        ("llama2-7b", 4096, 128, 11008, 32),
        ("llama3.1-8b", 4096, 128, 14336, 32),
        ("qwen3-8b", 4096, 128, 12288, 36),
        ("qwen3-30b-a3b", 2048, 128, 6144, 48),
        ("mistral-7b", 4096, 128, 14336, 32),
        ("deepseek-v2-lite", 2048, 192, 10944, 27),
        ("glm-4.7-flash", 2048, 256, 10240, 47),
        ("phi-4-mini", 3072, 128, 8192, 32),
        ("gpt-j-6b", 4096, 256, 16384, 28),
        ("gpt-neox-20b", 6144, 96, 24576, 44),
        ("bloom-176b", 14336, 128, 57344, 70),
        ("gemma-3-4b", 2560, 256, 10240, 34),
    ],
)
def test_table_iii(name: str, hidden: int, head_dim: int, ffn: int, layers: int) -> None:
    config = shape_config(name)
    assert (config.hidden, config.head_dim, config.ffn, config.layers) == (
        hidden,
        head_dim,
        ffn,
        layers,
    )


@pytest.mark.parametrize("name", SHAPES)
def test_a_folder_with_the_shape_gives_the_same_configuration(name: str, tmp_path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(shape_json(name)))
    by_folder = find_config(tmp_path)
    assert find_config(tmp_path / "config.json") == by_folder
    assert replace(by_folder, bos=None, eos=(), pad=None) == shape_config(name)


def test_windows_and_rotary_positions_of_the_releases() -> None:
    mistral, phi = shape_config("mistral-7b"), shape_config("phi-4-mini")
    assert mistral.windows == (4096,) * 32 and mistral.positions == 32768
    assert phi.windows == () and phi.positions == 131072 and phi.kv_heads == 8 and phi.tied
    assert phi.rope is not None and (phi.rope.kind, phi.rope.width) == ("longrope", 96)
    assert phi.rope.attention_factor == pytest.approx((1 + 5 / 12) ** 0.5, rel=1e-15)


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(ModelError, match=r"did you mean 'llama2-7b'"):
        find_config("lama2-7b")
    with pytest.raises(ModelError, match="no model shape"):
        shape_config("nothing")


def test_the_json_is_a_copy() -> None:
    shape_json("llama3.1-8b")["rope_scaling"]["factor"] = 1.0
    assert shape_json("llama3.1-8b")["rope_scaling"]["factor"] == 8.0
