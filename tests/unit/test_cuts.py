"""Long texts that are encoded in parts: the tokens are those of the whole."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from lora_sdk import demo_model_path
from lora_sdk.text.cuts import PART
from lora_sdk.text.tokenizer import LongText, Tokenizer
from tests.random_tokens import SEQUENCES

BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
EXPRESSIONS = {
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "qwen": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}
DEEPSEEK = (
    r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
)  # fmt: skip
MARK = "\u2581"


def split(*expressions: str) -> Any:
    parts = [pre_tokenizers.Split(Regex(one), "isolated") for one in expressions]
    return pre_tokenizers.Sequence([*parts, BYTES])


def sequence(*parts: Any) -> Any:
    return normalizers.Sequence(list(parts))


SPLITS: dict[str, tuple[Any, Any]] = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False)),
    **{name: (None, split(one)) for name, one in EXPRESSIONS.items()},
    "nfc": (normalizers.NFC(), split(EXPRESSIONS["qwen"])),
    "deepseek": (None, split(*DEEPSEEK)),
    "digits": (None, pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False)])),
    "llama2": (sequence(normalizers.Prepend(MARK), normalizers.Replace(" ", MARK)), None),
    "gemma": (normalizers.Replace(" ", MARK), None),
    "metaspace": (None, pre_tokenizers.Metaspace(MARK, "always")),
    "first": (None, pre_tokenizers.Metaspace(MARK, "first")),
}  # fmt: skip
UNCUT: dict[str, tuple[Any, Any]] = {
    "reaches far": (None, split(r"(?m)a.*b|.+")),
    "looks behind": (None, split(r"(?m)(?<=e )\w+|.")),
    "looks on": (None, split(r"(?m)\w+(?= \w)|.")),
    "across": (None, BYTES),  # with pieces of several words
    "the whole": (None, None),
}


CHINESE = "\u6211\u4eec\uff0c\u7684\u4e00\u662f\uff0c\u4e0d\u4e86\u3002" * 40
PAGES = [one.read_text() for one in sorted((Path(__file__).parents[2] / "docs").glob("*.md"))[:5]]
TEXTS = [*PAGES, CHINESE, "caf\u00e9 \u0436\u0436 " * 40]


def trained(normalizer: Any, splits: Any, added: tuple[Any, ...] = ()) -> Backend:
    """A vocabulary of 1,000 pieces that these steps make of the project's own pages."""
    made = Backend(models.BPE(unk_token="<unk>", byte_fallback=False))
    if normalizer is not None:
        made.normalizer = normalizer
    whole = splits is None and normalizer is not None  # is words while a vocabulary is made
    made.pre_tokenizer = pre_tokenizers.Metaspace(MARK, "never") if whole else splits
    trainer = trainers.BpeTrainer(
        vocab_size=1000, special_tokens=["<unk>", "<s>", "</s>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), max_token_length=12,
    )  # fmt: skip
    made.train_from_iterator(TEXTS, trainer)
    made.pre_tokenizer = splits
    made.add_tokens(list(added))
    return made


def saved(backend: Backend, folder: Path) -> Tokenizer:
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder, 1 << 20)


def texts(seed: str) -> list[str]:
    random = Random(seed)
    parts = [*SEQUENCES, *re.findall(r"\w+|\W", PAGES[0])[:400], " ", " the", "\u4e00\uff0c", "<s>"]
    return ["".join(random.choices(parts, k=400)) for _ in range(60)] + [PAGES[1], *TEXTS[-2:]]


@pytest.mark.parametrize("name", SPLITS)
def test_the_parts_tokens_are_the_wholes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = trained(*SPLITS[name])
    backend.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )
    tokenizer = saved(backend, tmp_path)
    for module in ("cuts", "tokenizer"):
        monkeypatch.setattr(f"lora_sdk.text.{module}.PART", 40)
    assert tokenizer._cuts is not None
    count = 0
    for text in texts(name):
        for special in (True, False):
            whole = backend.encode(text, add_special_tokens=special).ids
            assert tokenizer.encode(text, special) == whole, ascii(text)
        count += sum(1 for _ in tokenizer._cuts.parts(text))
    assert count > 500


@pytest.mark.parametrize("name", UNCUT)
def test_what_joins_words_is_not_cut(name: str, tmp_path: Path) -> None:
    backend = trained(*UNCUT[name])
    tokenizer = saved(backend, tmp_path)
    assert tokenizer._cuts is None
    text = "a word and " * 10_000
    assert tokenizer.encode(text) == backend.encode(text).ids
    with pytest.raises(LongText, match=r"^110000 bytes without a place .* at most 100000$"):
        tokenizer.encode(text, part=100_000)


@pytest.mark.parametrize(
    "added",
    [AddedToken("a b"), AddedToken("<x>", lstrip=True), AddedToken("<x>", rstrip=True),
     AddedToken("x", single_word=True)],
)  # fmt: skip
def test_added_tokens_that_reach_across(added: AddedToken, tmp_path: Path) -> None:
    assert saved(trained(*SPLITS["cl100k"]), tmp_path)._cuts is not None
    assert saved(trained(*SPLITS["cl100k"], added=(added,)), tmp_path)._cuts is None


def test_enough_tokens_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(demo_model_path(), 4096)
    made: list[int] = []
    encode = tokenizer._encode_many

    def noted(few: list[str], **more: Any) -> Any:
        made.append(len(few[0]))
        return encode(few, **more)

    monkeypatch.setattr(tokenizer, "_encode_many", noted)
    text = "some words and " * 100_000
    with pytest.raises(LongText, match=r"^over 50000 tokens$"):
        tokenizer.encode(text, most=50_000)
    assert sum(made) < len(text) // 4 and max(made) < 2 * PART
    count = len(tokenizer.encode(text))
    assert len(tokenizer.encode(text, most=count)) == count
    with pytest.raises(LongText, match="without a place"):
        tokenizer.encode("=" * 200_000, part=100_000)
    assert tokenizer.encode("=" * 90_000, part=100_000) == tokenizer.encode("=" * 90_000)


def test_the_demo_models_own() -> None:
    tokenizer = Tokenizer(demo_model_path(), 4096)
    backend = Backend.from_str(tokenizer.definition().decode())
    text = "".join(TEXTS) * 4
    assert len(text) > 3 * PART
    assert tokenizer.encode(text) == backend.encode(text).ids
