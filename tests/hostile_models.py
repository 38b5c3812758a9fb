"""Model, adapter and acceptance files to mutate, including packed and checksummed contents."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from lora_lab.spec_tuning.acceptance import Acceptance, TextRanks
from lora_lab.spec_tuning.acceptance_file import Measured, load_measured, save_measured
from lora_sdk.adapters.weights import load_adapter_weights
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.model.config import load_config
from lora_sdk.model.container import RAW_TYPES, Container
from lora_sdk.step.tree_shape import TreeShape
from lora_sdk.text.streaming import Detokenizer
from lora_sdk.text.tokenizer import Tokenizer
from tests.adapter_folders import Folder, write_adapter
from tests.mutations import Subject, as_json, damaged, rewritten
from tests.variants import VARIANTS, Variant, variant, write_checkpoint, write_container

TENSORS = {"a": np.ones((2, 3), np.float32), "b": np.ones(5, np.float32)}


def mutated_header(random: Random, content: bytes) -> bytes:
    """A safetensors file whose header is mutated, and its length with it."""
    if random.random() < 0.3:
        return damaged(random, content)
    end = 8 + int.from_bytes(content[:8], "little")
    header = as_json(random, json.loads(content[8:end]))
    return len(header).to_bytes(8, "little") + header + content[end:]


def container(folder: Path) -> Subject:
    """A small safetensors file."""
    path = folder / "model.safetensors"
    content = write_container(TENSORS, "F32")

    def read() -> None:
        found = Container(path)
        for entry in found.entries.values():
            if entry.kind in RAW_TYPES:
                found.array(entry).sum()

    return Subject(path, lambda random: mutated_header(random, content), read)


def index(folder: Path) -> Subject:
    """The index of a sharded model."""
    model = _model(folder, Variant("llama", variant("llama_narrow").config, shards=3))
    path = model / "model.safetensors.index.json"
    value = json.loads(path.read_text())
    config = load_config(model)
    return Subject(
        path, lambda random: as_json(random, value), lambda: Checkpoint.open(model, config)
    )


def config(folder: Path) -> Subject:
    """config.json of each family, with its scaling and quantization fields."""
    values = [
        {
            **variant(name).config,
            "bos_token_id": 0,
            "eos_token_id": [1, 2],
            "torch_dtype": "float16",
        }
        for name in ("llama_narrow", "gpt2", *(which.name for which in VARIANTS))
    ]
    values[0]["rope_scaling"] = {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    values[1]["quantization_config"] = {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": True,
    }  # fmt: skip
    path = folder / "config.json"
    return Subject(
        path,
        lambda random: as_json(random, random.choice(values)),
        lambda: load_config(folder),
    )


def generation_config(folder: Path) -> Subject:
    """generation_config.json beside a valid config.json."""
    path = _model(folder, variant("llama_narrow")) / "generation_config.json"
    value = {"bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": 0, "max_length": 20,
             "temperature": 0.7, "do_sample": True}  # fmt: skip
    return Subject(path, lambda random: as_json(random, value), lambda: load_config(path.parent))


def tokenizer(folder: Path) -> Subject:
    """tokenizer.json, which must also encode and decode."""
    which = variant("llama_narrow")
    model = _model(folder, which)
    path, size = model / "tokenizer.json", which.config["vocab_size"]
    value = json.loads(path.read_text())
    value["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "<s>", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}},
    }
    value["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "y"},
            {"type": "Prepend", "prepend": "a"},
        ],
    }  # fmt: skip

    value["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"Regex": "x+"}, "content": "y"},
            {"type": "ByteFallback"}, value["decoder"],
            {"type": "Replace", "pattern": {"String": "lo"}, "content": "l"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 1},
            {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always"},
        ],
    }  # fmt: skip

    def read() -> None:
        found = Tokenizer(model, size)
        ids = found.encode("Hello, \u00e9 world\n  xx <s>", special=True)
        one_by_one = Detokenizer(found)
        assert found.decode(ids) == "".join(map(one_by_one.push, ids)) + one_by_one.finish()
        assert found.begins_with is not None and found.spellings("stop") is not None
        for token in ids:
            found.alone(token, False)

    return Subject(path, lambda random: as_json(random, value), read)


def ranks(folder: Path) -> Subject:
    """ranks.npz: the archive, the headers of its arrays, their dtypes and shapes, the facts."""
    path = folder / "ranks.npz"
    save_measured(path, _measured())
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as packed:
        members = {name: packed.read(name) for name in packed.namelist()}
    path.unlink()

    def mutate(random: Random) -> bytes:
        if random.random() < 0.3:
            return damaged(random, whole)
        chosen = dict(members)
        name = random.choice(sorted(chosen))
        chosen[name] = _array(random, name, chosen[name])
        buffer = io.BytesIO()
        method = random.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
        with zipfile.ZipFile(buffer, "w", method) as packed:
            for member, content in chosen.items():
                if random.random() > 0.03:
                    packed.writestr(member, content)
        data = buffer.getvalue()
        return damaged(random, data) if random.random() < 0.2 else data

    return Subject(path, mutate, lambda: load_measured(path))


def _array(random: Random, name: str, content: bytes) -> bytes:
    match random.randrange(4):
        case 0:
            return damaged(random, content)
        case 1:
            size = int.from_bytes(content[8:10], "little")
            header = rewritten(random, content[10 : 10 + size].decode("latin-1")).encode()
            return (
                content[:8]
                + (len(header) & 0xFFFF).to_bytes(2, "little")
                + header
                + content[10 + size :]
            )
        case 2 if name == "facts.npy":
            facts = json.loads(str(np.load(io.BytesIO(content))))
            text = as_json(random, facts).decode("utf-8", "replace")
            return _npy(np.array(text))
    array: Any = np.load(io.BytesIO(content))
    match random.randrange(5):
        case 0 if name != "facts.npy":
            array = array.astype(random.choice(("f4", "i8", "u1", "S3", "U2", "?", "M8[s]", "c8")))
        case 1:
            array = array[..., None]
        case 2:
            array = np.zeros(random.choice(((), (0,), (1,), (2, 2), (1, 1, 1))), array.dtype)
        case 3 if array.dtype.kind in "iu" and array.size:
            array = array.copy()
            edge = random.choice((0, -1, 1, 255, 1 << 14, 1 << 31))
            array.flat[random.randrange(array.size)] = np.array(edge).astype(array.dtype)
        case _:
            array = array.reshape(-1)[: random.randrange(4)]
    return _npy(array)


def _npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def _measured() -> Measured:
    generator = np.random.default_rng(5)
    tree = TreeShape((-1, 0, 0, 1), (0, 0, 1, 0))
    halves = []
    for proposed in (None, np.ones((9, tree.size), bool)):
        found = generator.integers(0, 3, (9, 4)).astype(np.uint8)
        halves.append(
            Acceptance(tree, (TextRanks(3, found, proposed), TextRanks(7, found, proposed)))
        )
    return Measured("demo", "draft", "d", 0.5, "a.txt", halves[0], halves[1])


def adapter(folder: Path) -> Subject:
    """adapter_config.json of a plain and of a blocked adapter."""
    which = variant("llama_narrow")
    model = _model(folder, which)
    config = load_config(model)
    path = write_adapter(which, Folder("plain"), folder / "adapter") / "adapter_config.json"
    value = json.loads(path.read_text())
    blocked = {
        **value, "rank_pattern": {"q_proj": 4}, "alpha_pattern": {".*k_proj": 2.0},
        "layers_to_transform": [0], "layers_pattern": ["layers"],
        "use_bdlora": {"target_modules_bd_a": ["o_proj"], "target_modules_bd_b": ["q_proj"],
                       "nblocks": 2, "match_strict": False},
    }  # fmt: skip
    return Subject(
        path,
        lambda random: as_json(random, random.choice((value, blocked))),
        lambda: load_adapter_weights(path.parent, config),
    )


def adapter_weights(folder: Path) -> Subject:
    """adapter_model.safetensors."""
    which = variant("llama_narrow")
    config = load_config(_model(folder, which))
    path = write_adapter(which, Folder("plain"), folder / "adapter") / "adapter_model.safetensors"
    content = path.read_bytes()
    return Subject(
        path,
        lambda random: mutated_header(random, content),
        lambda: load_adapter_weights(path.parent, config),
    )


def _model(folder: Path, which: Variant) -> Path:
    return write_checkpoint(which, folder / "model")
