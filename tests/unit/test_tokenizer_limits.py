"""What a tokenizer.json may make of a text: growth, tokens, time."""

from __future__ import annotations

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import ModelError
from lora_sdk.text.tokenizer import Tokenizer
from lora_sdk.text.tokenizer_limits import check_limits
from tests.random_tokens import SPECIAL, tokenizer_with, vocabulary

DOUBLE = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
ANYWHERE = {"type": "Replace", "pattern": {"Regex": "(?=a)"}, "content": "a"}
EXPRESSIONS = {  # of models that exist
    "gpt2": r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    "llama3": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "gpt4o": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+",
    "llama4": r"[^\r\n\p{L}\p{N}]?((?=[\p{L}])([^a-z]))*((?=[\p{L}])([^A-Z]))+(?i:'s|'t)?|\p{N}+",
    "bloom": r" ?[^(\s|[.,!?…。，、।۔،])]+",  # noqa: RUF001
    "right to left": r"\d{1,3}(?=(?:\d{3})*\b)",
}


def sequence(kind: str, parts: list[Any]) -> dict[str, Any]:
    return {"type": "Sequence", kind: parts}


def template(pieces: list[str], ids: int) -> dict[str, Any]:
    special = {"SpecialToken": {"id": "<s>", "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "type": "TemplateProcessing",
        "single": [text if one == "A" else special for one in pieces],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [0] * ids, "tokens": ["<s>"] * ids}},
    }


def charsmap(longest: int) -> str:
    """SentencePiece's form, with an empty trie."""
    return base64.b64encode(bytes(4) + b"b\0" + b"a" * longest + b"\0").decode()


REFUSED: dict[str, tuple[str, Any, str]] = {
    "rules": ("normalizer", sequence("normalizers", [DOUBLE] * 12), r"4\.1e\+03 times"),
    "a few rules": (
        "normalizer", sequence("normalizers", [DOUBLE] * 7), "128 times",
    ),
    "rules within": (
        "normalizer",
        sequence("normalizers", [sequence("normalizers", [DOUBLE] * 4)] * 3), "times as long",
    ),
    "expressions": ("normalizer", sequence("normalizers", [ANYWHERE] * 12), "times as long"),
    "prepended": ("normalizer", {"type": "Prepend", "prepend": "x" * 100}, "101 times as long"),
    "character map": (
        "normalizer", {"type": "Precompiled", "precompiled_charsmap": charsmap(65)}, "65 times",
    ),
    "decoders": ("decoder", sequence("decoders", [DOUBLE] * 12), "decoder may make a text"),
    "empty suffix": (
        "decoder", sequence("decoders", [{"type": "BPEDecoder", "suffix": ""}] * 12), "times",
    ),
    "steps": ("decoder", sequence("decoders", [{"type": "Fuse"}] * 65), "has 65 steps"),
    "special tokens": ("post_processor", template(["A", *["s"] * 100], 100), "add 10003 tokens"),
    "copies": ("post_processor", template(["A"] * 65, 1), "65 times as long"),
    "processors": (
        "post_processor",
        sequence("processors", [template(["A", "A"], 1)] * 12), "times as long",
    ),
    "nested": (
        "normalizer", {"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": "b"},
        r"'\(a\+\)\+\$' takes too long",
    ),
    "pairs": (
        "pre_tokenizer",
        {"type": "Split", "pattern": {"Regex": "(ab|ab)*$"}, "behavior": "Isolated",
         "invert": False},
        "takes too long",
    ),
    "cubic": (
        "decoder", {"type": "Replace", "pattern": {"Regex": "a*a*a*a*[bc]"}, "content": ""},
        "takes too long",
    ),
    "no expression": (
        "decoder", {"type": "Replace", "pattern": {"Regex": "(((a"}, "content": ""}, "unmatched",
    ),
}  # fmt: skip


def written(tmp_path: Path, **fields: Any) -> Path:
    tokenizer_with(None, tmp_path)
    path = tmp_path / "tokenizer.json"
    value = json.loads(path.read_text())
    value["added_tokens"].append(value["added_tokens"][0] | {
        "id": len(vocabulary()) + 99, "content": "a" * 40, "normalized": True, "special": False,
    })  # fmt: skip
    path.write_text(json.dumps({**value, **fields}))
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_what_grows_or_takes_long_is_refused_in_a_line(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    section, value, message = REFUSED[name]
    written(tmp_path, **{section: value})
    began = time.thread_time()
    with pytest.raises(ModelError, match=rf"tokenizer\.json cannot be read: .*{message}") as found:
        Tokenizer(tmp_path, 1000)
    assert time.thread_time() - began < 10 and "\n" not in str(found.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("order", ["last", "twice", "escaped", "first"])
def test_a_section_is_found_wherever_it_is(order: str, tmp_path: Path) -> None:
    value = json.loads(written(tmp_path).read_text())
    bad = json.dumps(sequence("normalizers", [DOUBLE] * 12))
    rest = json.dumps({key: one for key, one in value.items() if key != "normalizer"})[1:-1]
    text = {
        "last": f'{{{rest}, "normalizer": {bad}}}',
        "twice": f'{{"normalizer": null, {rest}, "normalizer" : {bad}}}',
        "escaped": f'{{{rest}, "normali\\u007aer": {bad}}}',
        "first": f'{{ "normalizer":\n{bad}, {rest}}}',
    }[order]
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(ModelError, match="times as long"):
        Tokenizer(tmp_path, 1000)


def test_words_of_a_vocabulary_are_no_sections(tmp_path: Path) -> None:
    value = json.loads(written(tmp_path).read_text())
    words = ("decoder", '"decoder": {', "\\", '\\"', "}", '{"normalizer": "', "\x7f\u0020")
    for word in words:
        value["model"]["vocab"][word] = len(value["model"]["vocab"])
    for ascii in (True, False):
        (tmp_path / "tokenizer.json").write_text(json.dumps(value, ensure_ascii=ascii))
        assert Tokenizer(tmp_path, 1000).encode("a")


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_the_expressions_of_models_are_read(name: str) -> None:
    split = {"type": "Split", "pattern": {"Regex": EXPRESSIONS[name]}}
    check_limits(json.dumps({"pre_tokenizer": split}).encode())


def test_the_rules_of_models_are_read() -> None:
    spaces = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "▁"}
    quotes = {"type": "Replace", "pattern": {"String": "``"}, "content": '"'}
    mark = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prefix = {"type": "Prepend", "prepend": "▁"}
    map_ = {"type": "Precompiled", "precompiled_charsmap": charsmap(18)}  # of nmt_nfkc
    rules = sequence("normalizers", [quotes, {"type": "NFKD"}, map_, spaces, prefix, mark])
    check_limits(json.dumps({"normalizer": rules, "model": {}}).encode())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"a" 1}', '{"a": 1 "b": 2}', '{"a": [}', '{"a": "', '{1: 2}', "\ufeff{}"]
)  # fmt: skip
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        check_limits(text.encode())


def test_a_text_shorter_than_what_may_be_cut(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from tokenizers import decoders

    cut = decoders.Sequence([decoders.Fuse(), decoders.Strip(" ", 1, 2)])
    found = tokenizer_with(cut, tmp_path)
    space, word = vocabulary()[" "], vocabulary()["a"]
    for ids, text in (([], ""), ([space], ""), ([space] * 2, ""), ([word, space], "a")):
        assert found.decode(ids) == text
    assert found.decode([space, space, word, *[space] * 3]) == " a "
    assert found.decode([len(vocabulary())], skip_special=False) == SPECIAL[0]
    assert capfd.readouterr() == ("", "")
