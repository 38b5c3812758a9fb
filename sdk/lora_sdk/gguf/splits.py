"""How byte-level tokenizers split a text before they merge: a row for each name of
`tokenizer.ggml.pre`, as the models' own tokenizer.json has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*" + _SPACES
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+"
_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_LEAD = r"[^\r\n\p{L}\p{N}]?"
_CASED = (f"{_LEAD}{_UPPER}*{_LOWER}+", f"{_LEAD}{_UPPER}+{_LOWER}*")  # words by their capitals
_SYMBOLS = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _SPACES
_SENTENCE = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_DEEPSEEK_LETTERS = (
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-"
    "\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1"
    "\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd"
    "\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d"
    "\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-"
    "\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d"
    "\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e"
    "\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f"
    "\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_DEEPSEEK_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_PUNCTUATED = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+"
)
_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_HANGUL_KANA_HAN = (
    "[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c"
    f"\u3001-\u303f\ufe30-\ufe4f]+|[\u3105-\u312f]+|{_KANA}"
)
_CASCADE = "".join(rf"|\s{{{2**power}}}(?!\S)" for power in range(9, 1, -1))
_NOT_HAN = r"&&[^\p{Han}]]"
_KIMI = (
    r"[\p{Han}]+",
    *(
        part.replace(_UPPER, _UPPER[:-1] + _NOT_HAN).replace(_LOWER, _LOWER[:-1] + _NOT_HAN)
        + f"{_CONTRACTIONS}?"
        for part in _CASED
    ),
    r"\p{N}{1,3}" + _REST,
)


def byte_level(use_regex: bool) -> dict[str, Any]:
    """Bytes as letters; with `use_regex` a text is split as GPT-2's is."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
            "use_regex": use_regex}  # fmt: skip


def _regex(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated",
            "invert": False}  # fmt: skip


def _steps(*steps: dict[str, Any] | str, use_regex: bool = False) -> dict[str, Any]:
    """Expressions and other steps, then bytes."""
    parts = [_regex(step) if isinstance(step, str) else step for step in steps]
    return {"type": "Sequence", "pretokenizers": [*parts, byte_level(use_regex)]}


def _digits(alone: bool) -> dict[str, Any]:
    return {"type": "Digits", "individual_digits": alone}


@dataclass(frozen=True)
class Split:
    """`pre_tokenizer` of tokenizer.json. `nfc`: texts are normalized. `whole_words`: a piece that
    is a token needs no merges. `bos`: what a file that does not say so adds."""

    pre_tokenizer: Mapping[str, Any]
    nfc: bool = False
    whole_words: bool = False
    bos: bool = False


_PUNCTUATION = {"type": "Punctuation", "behavior": "Contiguous"}
_FALCON = {
    "type": "Sequence",
    "pretokenizers": [_PUNCTUATION, byte_level(True), _digits(False), _regex("[0-9][0-9][0-9]")],
}
_GPT2 = Split(byte_level(use_regex=True))
_NEOX = Split(byte_level(use_regex=True), nfc=True)
_DIGITS = Split(_steps(_digits(True), use_regex=True))
_LLAMA3 = Split(_steps(_WORDS + r"|\p{N}{1,3}" + _REST), whole_words=True, bos=True)
_PLAIN_LLAMA3 = Split(_LLAMA3.pre_tokenizer)
_QWEN2 = Split(_steps(_WORDS + r"|\p{N}" + _REST), nfc=True)
_PLAIN_QWEN2 = Split(_QWEN2.pre_tokenizer)
_CASED_TAILED = "|".join(f"{part}{_CONTRACTIONS}?" for part in _CASED)
_GPT4O = Split(_steps(_CASED_TAILED + r"|\p{N}{1,3}" + _SYMBOLS))
_V3 = Split(_steps(r"\p{N}{1,3}", _KANA, _PUNCTUATED + r"[\r\n]*" + _SPACES))
_LAGUNA = r"[^\n]+|[\n]+"
_BAILING = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_EXAONE = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_MARKED = (
    _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _SPACES
)
_BLOOM = Split(_steps(_SENTENCE))

# Split -> its names.
_NAMES: tuple[tuple[Split, tuple[str, ...]], ...] = (
    (_GPT2, ("gpt-2", "phi-2", "mellum", "modern-bert", "exaone4", "gigachat", "a.x-4.0", "jais",
             "trillion", "granite-docling", "jina-v2-es", "jina-v2-de", "jina-es", "jina-de")),
    (_NEOX, ("mpt", "olmo")),
    (_DIGITS, ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2")),
    (Split(_DIGITS.pre_tokenizer, nfc=True), ("command-r",)),
    (_LLAMA3, ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0",
               "lfm2", "jina-v5-nano")),
    (_PLAIN_LLAMA3, ("dbrx", "smaug-bpe", "chatglm-bpe")),
    (Split(_LLAMA3.pre_tokenizer, whole_words=True), ("glm4", "glm5")),
    (_QWEN2, ("qwen2", "megrez", "stablelm2")),
    (_PLAIN_QWEN2, ("deepseek-r1-qwen", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2")),
    (Split(_steps("|".join(_CASED) + r"|\p{N}" + _SYMBOLS), whole_words=True, bos=True),
     ("tekken",)),
    (_GPT4O, ("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie")),
    (Split(_GPT4O.pre_tokenizer, whole_words=True), ("granite-embed-multi-97m",)),
    (_V3, ("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4")),
    (Split(_steps(r"[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_MARKS, r"\s+$", _CJK, _digits(True))),
     ("deepseek-llm",)),
    (Split(_steps(r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, _digits(True))),
     ("deepseek-coder",)),
    (Split(_FALCON), ("falcon",)),
    (_BLOOM, ("bloom", "poro-chat", "gpt3-finnish")),
    (Split(_steps(_SENTENCE, _digits(True))), ("viking",)),
    (Split(_steps(_WORDS + r"|\p{N}| ?[^\s\p{L}\p{N}\r\n]+" + _SPACES)), ("seed-coder",)),
    (Split(_steps(_MARKED), nfc=True), ("qwen35",)),
    (Split(_steps(_BAILING)), ("bailingmoe", "bailingmoe2", "llada-moe")),
    (Split(_steps(_EXAONE)), ("exaone-moe",)),
    (Split(_steps("|".join(_KIMI))), ("kimi-k2",)),
    (Split(_steps(r"\d{1,3}(?=(?:\d{3})*\b)", _CASED_TAILED + r"|\p{N}{1,3}" + _SYMBOLS)),
     ("tiny_aya", "cohere2moe")),
    (Split(_steps(r"\p{N}+", r"(?=(\d{3})+(?!\d))")), ("superbpe",)),
    (Split(_steps(f"{_LEAD}\\p{{L}}+|\\p{{N}}" + _REST)), ("ufakzeka",)),
    (Split(_steps(_LAGUNA, _WORDS + r"|\p{N}" + _REST)), ("laguna",)),
    (Split(_steps(r"\p{N}{1,3}", _WORDS + r"|\p{N}+" + _REST), whole_words=True), ("minicpm5",)),
    (Split(_steps(_HANGUL_KANA_HAN, _CASED_TAILED + r"|\p{N}" + _SYMBOLS), whole_words=True),
     ("youtu",)),
    (Split(_steps(r"\p{N}{1,3}", _KANA,
                  _PUNCTUATED + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}")),
     ("spark2_5",)),
    (Split(_steps(_WORDS + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+" + _CASCADE
                  + r"|\s{1,2}(?!\S)|\s{1}")), ("jais-2",)),
)  # fmt: skip
SPLITS: Mapping[str, Split] = {name: split for split, names in _NAMES for name in names}
