"""Random tokens and decoders: every kind, every script, bytes that are no text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from lora_sdk.text.tokenizer import Tokenizer

SPECIAL = ("<s>", "</s>", "<|end|>")
ADDED = ("<tool>", "▁▁▁", "Ġ<x>")  # not special
WORDS = (
    "<unk>", "▁hi", "▁you", "▁", "▁▁", "o", "a", "ab", "aab", "b", " ", "  ", " b", "b</w>", "</w>",
    "##ing", "##", " .", ".", " ?", "'m", " 'm", "n't", " n't", " do not", "|", "<pad>", "a<pad>",
    "日", "本", "é", "Ġthe", "ĊĊ", "\ufffd", "<0x+A>", "<0xa>", "<0x-1>", "<0x4G>", "<0xé>",
    "👩‍👩‍👧", "नमस्ते", "שלום", "x▁y", "\n", "aĠ日",
)  # fmt: skip
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
SEQUENCES = (
    "日本", "日本語のテキスト",
    "👨‍👩‍👧‍👦", "👩🏿‍❤️‍💋‍👨🏿", "🏴󠁧󠁢󠁥󠁮󠁧󠁿", "🇯🇵🇩🇪", "1️⃣", "a\u0301\u0323", "e\u0337\u0328", "नमस्ते दुनिया",
    "שלום עולם", "مرحبا", "ไทย", "བོད་ཡིག་", "አማርኛ ", "ខ្មែរ", "ქართული", "한국어",
    "𒀀𒁀", "\U0001d518\U0001d52b", "\ufffd", "\ufeff",
    "\ud7ff\ue000", "\U0010ffff", "\x00\x7f\x80",
    "\n", "\n\n", " ", "。\n\nユーザー", "é", "€", "ﷺ",
)  # fmt: skip
SINGLES: dict[str, Any] = {
    "byte_level": decoders.ByteLevel,
    "byte_fallback": decoders.ByteFallback,
    "fuse": decoders.Fuse,
    "space": lambda: decoders.Replace("▁", " "),
    "string": lambda: decoders.Replace("ab", "xyz"),
    "nothing": lambda: decoders.Replace("aab", ""),
    "suffix": lambda: decoders.Replace("</w>", " "),
    "expression": lambda: decoders.Replace(Regex("a+b?|本"), "c"),
    "strip": lambda: decoders.Strip(" ", 1, 0),
    "strip_two": lambda: decoders.Strip(" ", 2, 0),
    "word_piece": lambda: decoders.WordPiece("##", True),
    "word_piece_plain": lambda: decoders.WordPiece("##", False),
    "metaspace": lambda: decoders.Metaspace("▁", "always"),
    "metaspace_never": lambda: decoders.Metaspace("▁", "never"),
    "ctc": lambda: decoders.CTC("<pad>", "|", True),
    "ctc_plain": lambda: decoders.CTC("<pad>", "|", False),
    "bpe": lambda: decoders.BPEDecoder("</w>"),
}
NAMED: dict[str, tuple[Any, ...]] = {
    "none": (),
    "byte_level": ("byte_level",),
    "llama": ("space", "byte_fallback", "fuse", "strip"),
    "gemma": ("space", "byte_fallback", "fuse"),
    "bytes": ("byte_fallback", "fuse"),
    "bytes_alone": ("byte_fallback",),
    "replaced_late": ("byte_fallback", "fuse", "space", "strip"),
    "never_fused": ("space", "byte_fallback", "strip"),
    "nested": (("space", "byte_fallback"), ("fuse", ("strip",))),
    "word_piece": ("word_piece",),
    "word_piece_plain": ("word_piece_plain",),
    "metaspace": ("metaspace",),
    "metaspace_never": ("metaspace_never",),
    "ctc": ("ctc",),
    "bpe": ("bpe",),
    "byte_level_suffix": ("byte_level", "suffix", "strip"),
    "bytes_metaspace": ("byte_fallback", "metaspace"),
    "bytes_word_piece": ("byte_fallback", "word_piece"),
    "expression_late": ("byte_fallback", "fuse", "expression"),
}


@cache
def vocabulary() -> dict[str, int]:
    """Pieces by id: bytes in both writings, words, special and added tokens."""
    pieces = (*(f"<0x{byte:02X}>" for byte in range(256)), *LETTERS, *WORDS)
    return {piece: index for index, piece in enumerate(dict.fromkeys(pieces))}


@cache
def byte_letters() -> dict[int, int]:
    """The byte-level token of each byte."""
    return {_byte_of(letter): vocabulary()[letter] for letter in LETTERS}


def _byte_of(letter: str) -> int:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    code = ord(letter)
    return code if code < 0x100 else others[code - 0x100]


def decoder_of(parts: tuple[Any, ...]) -> Any:
    """The package's decoder, None for no parts."""
    if not parts:
        return None
    made = [decoder_of(one) if isinstance(one, tuple) else SINGLES[one]() for one in parts]
    return made[0] if len(made) == 1 else decoders.Sequence(made)


def random_decoder(random: Random) -> tuple[Any, ...]:
    """Any decoders in any order, one in three within others."""
    names = [random.choice(list(SINGLES)) for _ in range(random.randint(1, 5))]
    if random.random() < 0.3:
        cut = random.randint(1, len(names))
        return (tuple(names[:cut]), *names[cut:])
    return tuple(names)


def tokenizer_with(decoder: Any, folder: Path) -> Tokenizer:
    """A tokenizer of `vocabulary` with a decoder."""
    words = vocabulary()
    backend = Backend(models.BPE(words, [], unk_token="<unk>", byte_fallback=True))
    backend.add_special_tokens([AddedToken(one, special=True) for one in SPECIAL])
    backend.add_tokens([AddedToken(one, special=False) for one in ADDED])
    if decoder is not None:
        backend.decoder = decoder
    backend.save(str(folder / "tokenizer.json"))
    return Tokenizer(folder, backend.get_vocab_size())


def random_text(random: Random) -> str:
    """A few characters: of a script, or any that UTF-8 has."""
    if random.random() < 0.5:
        return random.choice(SEQUENCES)
    found = ""
    for _ in range(random.randint(1, 4)):
        code = random.randrange(random.choice((0x80, 0x800, 0x10000, 0x110000)))
        found += chr(code) if not 0xD800 <= code < 0xE000 else "日"
    return found


def as_bytes(data: bytes, random: Random, level: float) -> list[int]:
    """Byte tokens, of byte-level tokenizers at the rate `level`."""
    if random.random() < level:
        return [byte_letters()[byte] for byte in data]
    return list(data)


def random_tokens(random: Random, level: float = 0.2, valid: bool = False) -> list[int]:
    """Byte and word tokens mixed, special ones between them; bytes that are no text unless
    `valid`."""
    base = len(vocabulary())
    specials, added = range(base, base + len(SPECIAL)), range(len(SPECIAL) + base, base + 6)
    found: list[int] = []
    for _ in range(random.randint(0, 12)):
        choice = random.random()
        if choice < 0.45:
            found += as_bytes(random_text(random).encode(), random, level)
        elif choice < 0.7:
            found += [vocabulary()[random.choice(WORDS)] for _ in range(random.randint(1, 3))]
        elif choice < 0.8:
            found.append(random.choice(specials))
        elif choice < 0.85:
            found.append(random.choice(added))
        elif valid:
            continue
        elif choice < 0.95:
            data = random_text(random).encode()
            found += as_bytes(data[random.randint(0, 1) : -1], random, level)
        else:
            found += as_bytes(random.randbytes(random.randint(1, 5)), random, level)
        if random.random() < 0.1 and found:
            found.insert(random.randrange(len(found)), random.choice(specials))
    return found
