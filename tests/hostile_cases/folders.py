"""Model folders: configuration, weights, index, quantization, tokenizer, adapters."""

# ruff: noqa: E501 - rows of a table

from __future__ import annotations

import json
from functools import partial

import numpy as np

from tests.hostile_cases.case import Case, Place, Words, changed, header, put, tensors, values
from tests.hostile_cases.files import CHAT, PLAN, RUN
from tests.variants import write_container

DEEP = "[" * 100_000
HUGE = "9" * 5000
INDEX = "model.safetensors.index.json"


def config(place: Place, **fields: object) -> Words:
    """A field of config.json changed."""
    found = changed(values(place.stock.model() / "config.json"), **fields)
    return (*PLAN, place.copy(place.stock.model(), {"config.json": found}))


def file(place: Place, *, name: str, content: object, command: Words = PLAN) -> Words:
    return (*command, place.copy(place.stock.model(), {name: content}))


def index(place: Place, **weights: object) -> Words:
    """Entries of the index changed."""
    found = values(place.stock.sharded() / INDEX)
    found["weight_map"] = changed(found["weight_map"], **weights)
    return (*PLAN, place.copy(place.stock.sharded(), {INDEX: found}))


def index_file(place: Place, *, content: object) -> Words:
    return (*PLAN, place.copy(place.stock.sharded(), {INDEX: content}))


def quantized(place: Place, **fields: object) -> Words:
    """Fields of quantization_config changed."""
    found = values(place.stock.quantized() / "config.json")
    found["quantization_config"] = changed(found["quantization_config"], **fields)
    return (*PLAN, place.copy(place.stock.quantized(), {"config.json": found}))


def group(place: Place, **fields: object) -> Words:
    """Fields of the first group's weights changed."""
    groups = values(place.stock.quantized() / "config.json")["quantization_config"]["config_groups"]
    first = next(iter(groups))
    groups[first]["weights"] = changed(groups[first]["weights"], **fields)
    return quantized(place, config_groups=groups)


def tokenizer(place: Place, **fields: object) -> Words:
    found = changed(values(place.stock.model() / "tokenizer.json"), **fields)
    return (*RUN, place.copy(place.stock.model(), {"tokenizer.json": found}))


def adapter(place: Place, **fields: object) -> Words:
    """Fields of adapter_config.json changed."""
    found = changed(values(place.stock.adapter() / "adapter_config.json"), **fields)
    folder = place.copy(place.stock.adapter(), {"adapter_config.json": found})
    return (*RUN, place.stock.model(), "--adapter", f"a={folder}")


def adapter_file(place: Place, *, name: str, content: object) -> Words:
    folder = place.copy(place.stock.adapter(), {name: content})
    return (*RUN, place.stock.model(), "--adapter", f"a={folder}")


def speculation(place: Place, *, content: object) -> Words:
    return ("lab", "spec", "show", put(place.path / "speculation.json", content))


WEIGHTS = partial(file, name="model.safetensors")
NORM = "model.norm.weight"
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
CASES = (
    Case("config: no JSON", partial(file, name="config.json", content="{"), "not valid JSON"),
    Case("config: empty", partial(file, name="config.json", content=""), "not valid JSON"),
    Case("config: a list", partial(file, name="config.json", content=[1]), "found a list"),
    Case("config: not UTF-8", partial(file, name="config.json", content=b"\xff{}"), "not valid JSON"),
    Case("config: UTF-16", partial(file, name="config.json", content="{}".encode("utf-16")), "JSON"),
    Case("config: deep", partial(file, name="config.json", content=DEEP), "not valid JSON"),
    Case("config: 5000 digits", partial(file, name="config.json", content='{"a": ' + HUGE + "}"), "not valid JSON"),
    Case("config: a NUL", partial(file, name="config.json", content=b"{}\0"), "not valid JSON"),
    Case("config: no model_type", partial(config, model_type=...), "model_type"),
    Case("config: model_type a list", partial(config, model_type=["llama"]), "model_type"),
    Case("config: model_type long", partial(config, model_type="x" * 70_000), "model_type"),
    Case("config: model_type a control", partial(config, model_type="a\x1b[2J\n"), "\\x1b"),
    Case("config: no layers", partial(config, num_hidden_layers=0), "num_hidden_layers"),
    Case("config: -1 layers", partial(config, num_hidden_layers=-1), "num_hidden_layers"),
    Case("config: 10^400 layers", partial(config, num_hidden_layers=10**400), "num_hidden_layers"),
    Case("config: 2^31 layers", partial(config, num_hidden_layers=2**31), "num_hidden_layers"),
    Case("config: layers true", partial(config, num_hidden_layers=True), "num_hidden_layers"),
    Case("config: layers 2.0", partial(config, num_hidden_layers=2.5), "num_hidden_layers"),
    Case("config: layers a text", partial(config, num_hidden_layers="2"), "num_hidden_layers"),
    Case("config: hidden 0", partial(config, hidden_size=0), "hidden_size"),
    Case("config: hidden 2^40", partial(config, hidden_size=2**40), "hidden_size"),
    Case("config: heads 0", partial(config, num_attention_heads=0), "num_attention_heads"),
    Case("config: heads that do not divide", partial(config, num_attention_heads=7), "num_key_value_heads"),
    Case("config: vocabulary 0", partial(config, vocab_size=0), "vocab_size"),
    Case("config: vocabulary 2^62", partial(config, vocab_size=2**62), "vocab_size"),
    Case("config: positions -5", partial(config, max_position_embeddings=-5), "max_position"),
    Case("config: epsilon NaN", partial(config, rms_norm_eps=float("nan")), "rms_norm_eps"),
    Case("config: epsilon 1e999", partial(config, rms_norm_eps=float("inf")), "rms_norm_eps"),
    Case("config: epsilon -1", partial(config, rms_norm_eps=-1.0), "rms_norm_eps"),
    Case("config: activation unknown", partial(config, hidden_act="evil"), "hidden_act"),
    Case("config: activation an object", partial(config, hidden_act={"a": 1}), "hidden_act"),
    Case("config: rope_scaling a text", partial(config, rope_scaling="yarn"), "rope_scaling"),
    Case("config: rope factor 0", partial(
        config, rope_scaling={"rope_type": "linear", "factor": 0}), "factor"),
    Case("config: rope type unknown", partial(
        config, rope_scaling={"rope_type": "x" * 999, "factor": 2.0}), "rope"),
    Case("config: two rope types", partial(config, rope_scaling={
        "rope_type": "linear", "type": "default", "factor": 2.0}), "type is 'default', expected 'linear' as in rope_type"),
    Case("config: mrope", partial(config, rope_scaling={
        "type": "mrope", "mrope_section": [2, 1, 1]}), "mrope, rotary positions of images and video: not supported"),
    Case("config: mrope of a newer file", partial(config, rope_scaling={
        "rope_type": "default", "mrope_section": [2, 1, 1]}), "mrope, rotary positions of images"),
    Case("config: norms of q and k", partial(
        config, qk_layernorm=True), "qk_layernorm is True: norms of q and k: not supported"),
    Case("config: theta 0", partial(config, rope_theta=0), "rope_theta"),
    Case("config: eos a text", partial(config, eos_token_id="</s>"), "eos_token_id"),
    Case("config: quantization a list", partial(config, quantization_config=[1]), "quantization"),
    Case("config: quantization unknown", partial(
        config, quantization_config={"quant_method": "evil"}), "evil"),
    Case("generation_config: eos a list of texts", partial(
        file, name="generation_config.json", content={"eos_token_id": ["a"]}), "eos_token_id"),
    Case("generation_config: deep", partial(
        file, name="generation_config.json", content=DEEP), "not valid JSON"),
    Case("weights: empty", partial(WEIGHTS, content=b""), "corrupt safetensors"),
    Case("weights: 7 bytes", partial(WEIGHTS, content=b"1234567"), "corrupt safetensors"),
    Case("weights: a header of 2^63 bytes", partial(WEIGHTS, content=header({}, size=2**63)), "corrupt"),
    Case("weights: a header of 100 MB", partial(WEIGHTS, content=header({}, size=10**8)), "corrupt"),
    Case("weights: a header that is no JSON", partial(WEIGHTS, content=header(b"{{")), "corrupt"),
    Case("weights: a deep header", partial(WEIGHTS, content=header(DEEP.encode())), "corrupt"),
    Case("weights: a header not UTF-8", partial(WEIGHTS, content=header(b"\xff\xff")), "corrupt"),
    Case("weights: offsets backwards", partial(
        WEIGHTS, content=header({"a": {**ENTRY, "data_offsets": [8, 0]}}, bytes(8))), "corrupt"),
    Case("weights: offsets beyond", partial(
        WEIGHTS, content=header({"a": {**ENTRY, "data_offsets": [0, 80]}}, bytes(8))), "corrupt"),
    Case("weights: a hole", partial(WEIGHTS, content=header(
        {"a": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12))), "corrupt"),
    Case("weights: an overlap", partial(WEIGHTS, content=header(
        {"a": ENTRY, "b": ENTRY}, bytes(8))), "corrupt"),
    Case("weights: a shape of 2^64", partial(WEIGHTS, content=header(
        {"a": {**ENTRY, "shape": [2**32, 2**32]}}, bytes(8))), "corrupt"),
    Case("weights: a negative shape", partial(WEIGHTS, content=header(
        {"a": {**ENTRY, "shape": [-2]}}, bytes(8))), "corrupt"),
    Case("weights: an unknown dtype", partial(WEIGHTS, content=header(
        {"a": {**ENTRY, "dtype": "F1"}}, bytes(8))), "corrupt"),
    Case("weights: bytes behind", partial(WEIGHTS, content=header({"a": ENTRY}, bytes(99))), "corrupt"),
    Case("weights: a name with a control", partial(
        WEIGHTS, content=header({"a\x1b[2J": ENTRY}, bytes(8))), "not printable"),
    Case("weights: a long name", partial(
        WEIGHTS, content=header({"a" * 600: ENTRY}, bytes(8))), "longer than 512"),
    Case("weights: another model's", partial(WEIGHTS, content=tensors(a=(2, 3))), "missing"),
    Case("weights: one tensor of another shape", partial(WEIGHTS, content=tensors(
        **{NORM: (3,), "model.embed_tokens.weight": (2, 2)})), "expected"),
    Case("weights: a pickle", partial(WEIGHTS, content=b"\x80\x02c"), "corrupt"),
    Case("weights: only a pickle", lambda place: (*RUN, place.copy(place.stock.model(), {
        "model.safetensors": None, "pytorch_model.bin": b"\x80\x02c"})), "convert with"),
    Case("weights: none", partial(WEIGHTS, content=None, command=RUN), "no weights"),
    Case("index: no JSON", partial(index_file, content="{"), "not valid JSON"),
    Case("index: no weight_map", partial(index_file, content={}), "weight_map is missing"),
    Case("index: an empty weight_map", partial(index_file, content={"weight_map": {}}), "weight_map"),
    Case("index: weight_map a list", partial(index_file, content={"weight_map": [1]}), "weight_map"),
    Case("index: a list as name", partial(index, **{NORM: ["a.safetensors"]}), "names the file"),
    Case("index: a number as name", partial(index, **{NORM: 3}), "names the file"),
    Case("index: a path", partial(index, **{NORM: "../model.safetensors"}), "names the file"),
    Case("index: an absolute path", partial(index, **{NORM: "/etc/passwd"}), "names the file"),
    Case("index: a NUL", partial(index, **{NORM: "a\0.safetensors"}), "names the file"),
    Case("index: a pickle", partial(index, **{NORM: "a.bin"}), "expected *.safetensors"),
    Case("index: a shard that is missing", partial(index, **{NORM: "b.safetensors"}), "missing"),
    Case("index: a name of 300 letters", partial(
        index, **{NORM: "a" * 300 + ".safetensors"}), "cannot be read"),
    Case("index: another shard", partial(
        index, **{NORM: "model-00001-of-00003.safetensors"}), "missing from"),
    Case("index: a tensor that is nowhere", partial(
        index, evil="model-00001-of-00003.safetensors"), "evil: missing from"),
    Case("quantized: no method", partial(quantized, quant_method=...), "quant_method"),
    Case("quantized: no groups", partial(quantized, config_groups={}), "config_groups"),
    Case("quantized: groups a text", partial(quantized, config_groups="a"), "config_groups"),
    Case("quantized: ignore a number", partial(quantized, ignore=3), "ignore"),
    Case("quantized: bits 3", partial(group, num_bits=3), "num_bits"),
    Case("quantized: bits a text", partial(group, num_bits="8"), "num_bits"),
    Case("quantized: a strategy unknown", partial(group, strategy="evil"), "strategy"),
    Case("quantized: a group of 0", partial(group, strategy="group", group_size=0), "group_size"),
    Case("quantized: weights are floats", partial(group, type="float"), "type"),
    Case("quantized: no scales in the files", lambda place: (*PLAN, place.copy(
        place.stock.quantized(), {"model.safetensors": tensors(a=(2,))})), "missing"),
    Case("tokenizer: no JSON", partial(
        file, name="tokenizer.json", content="{", command=RUN), "tokenizer.json cannot be read"),
    Case("tokenizer: an empty object", partial(
        file, name="tokenizer.json", content={}, command=RUN), "tokenizer.json cannot be read"),
    Case("tokenizer: deep", partial(
        file, name="tokenizer.json", content=DEEP, command=RUN), "tokenizer.json cannot be read"),
    Case("tokenizer: no model", partial(tokenizer, model=...), "tokenizer.json cannot be read"),
    Case("tokenizer: an unknown model", partial(
        tokenizer, model={"type": "Evil"}), "tokenizer.json cannot be read"),
    Case("tokenizer: none", partial(
        file, name="tokenizer.json", content=None, command=RUN), "has no tokenizer.json"),
    Case("tokenizer_config: no JSON", partial(
        file, name="tokenizer_config.json", content="{", command=CHAT), "is not JSON"),
    Case("tokenizer_config: deep", partial(
        file, name="tokenizer_config.json", content=DEEP, command=CHAT), "is not JSON"),
    Case("tokenizer_config: a list", partial(
        file, name="tokenizer_config.json", content=[1], command=CHAT), "holds a list"),
    Case("tokenizer_config: a template of a number", partial(file, name="tokenizer_config.json",
        content={"chat_template": 3}, command=CHAT), "no chat template"),
    Case("tokenizer_config: templates without default", partial(file, name="tokenizer_config.json",
        content={"chat_template": [{"name": ["a"]}, 3]}, command=CHAT), "no chat template"),
    Case("adapter: no JSON", partial(
        adapter_file, name="adapter_config.json", content="{"), "adapter_config.json: no JSON"),
    Case("adapter: deep", partial(
        adapter_file, name="adapter_config.json", content=DEEP), "adapter_config.json: no JSON"),
    Case("adapter: a list", partial(
        adapter_file, name="adapter_config.json", content=[1]), "expected an object"),
    Case("adapter: another method", partial(adapter, peft_type="IA3"), "peft_type"),
    Case("adapter: rank 0", partial(adapter, r=0), "r is 0"),
    Case("adapter: rank a text", partial(adapter, r="8"), "r is '8'"),
    Case("adapter: rank 10^9", partial(adapter, r=10**9), "r is 1000000000"),
    Case("adapter: alpha 10^400", partial(adapter, lora_alpha=10**400), "lora_alpha"),
    Case("adapter: alpha NaN", partial(adapter, lora_alpha=float("nan")), "lora_alpha"),
    Case("adapter: an expression that explodes", partial(
        adapter, target_modules="(([a-z._0-9]+)+)+!"), "not of target_modules"),
    Case("adapter: an expression with a backreference", partial(
        adapter, target_modules=r"(a)\1"), "target_modules"),
    Case("adapter: an expression that is none", partial(adapter, target_modules="("), "target_mod"),
    Case("adapter: targets a number", partial(adapter, target_modules=3), "target_modules"),
    Case("adapter: a rank pattern of texts", partial(adapter, rank_pattern={"a": "b"}), "rank_pattern"),
    Case("adapter: a pattern that is none", partial(adapter, alpha_pattern={"(": 2}), "alpha_pattern"),
    Case("adapter: layers a text", partial(adapter, layers_to_transform="a"), "layers_to_transform"),
    Case("adapter: DoRA", partial(adapter, use_dora=True), "use_dora"),
    Case("adapter: an unknown field", partial(adapter, evil=1), "evil"),
    Case("adapter: PiSSA", partial(adapter, init_lora_weights="pissa"), "init_lora_weights"),
    Case("adapter: blocks a list", partial(adapter, use_bdlora=[1]), "use_bdlora"),
    Case("adapter: empty weights", partial(
        adapter_file, name="adapter_model.safetensors", content=b""), "corrupt safetensors"),
    Case("adapter: other tensors", partial(
        adapter_file, name="adapter_model.safetensors", content=tensors(a=(2, 3))), "adapts no such tensor"),
    Case("adapter: NaN", partial(adapter_file, name="adapter_model.safetensors", content=write_container(
        {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight":
         np.full((8, 2), np.nan, np.float32)}, "F32")), "lora_B.weight: missing"),
    Case("table: no JSON", partial(speculation, content="{"), "not JSON"),
    Case("table: deep", partial(speculation, content=DEEP), "not JSON"),
    Case("table: NaN", partial(speculation, content="[NaN]"), "NaN is not a number"),
    Case("table: a list", partial(speculation, content=[]), "is not of type"),
    Case("table: another version", partial(speculation, content={
        "version": 2, "model": "a", "measurements": []}), "version: 1 was expected"),
    Case("table: measurements a text", partial(speculation, content={
        "version": 1, "model": "a", "measurements": "b"}), "is not of type"),
    Case("table: long", partial(
        speculation, content=json.dumps({"a": "b" * (9 << 20)})), "larger than the limit"),
)  # fmt: skip
