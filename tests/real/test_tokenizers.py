"""Tokenizers and chat templates of the trained models' files."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from pathlib import Path

import gguf
import pytest
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from lora_sdk.text.chat import find_template, render
from lora_sdk.text.tokenizer import Tokenizer

pytestmark = pytest.mark.real
TEXTS = (
    "Hello, y'all! How are you \U0001f601 ?\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\uff5e",
    "\U0001f680 (normal) \U0001f636\u200d\U0001f32b\ufe0f\U0001f468\u200d\U0001f469",
    "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "   ", "", "\t\t \n \t",
    "def f(x):\n\tif x:\n        return  {'a': [1, 2]}\r\n\r\n\n\n# 3.14e-10\n",
    "Donaudampfschifffahrtselektrizit\u00e4tenhauptbetriebswerkbauunterbeamtengesellschaft" * 3,
    "a<|im_end|>b<|im_start|>", "x<end_of_turn>\n<start_of_turn>user",
    "<bos><eos><pad>[multimodal]", "e\u0301 \u00e9 \u1e9b\u0323 \ufb01",
    "\x00\x01\x7f\u0085\u2028", "0 00 000 0000 1,234.5", "\U0010ffff\ue000\U000e0041",
    "a" * 300, " " * 70 + "x", "\n" * 40,
)  # fmt: skip


def merged(text: str, scores: Mapping[str, float], ids: Mapping[str, int]) -> list[int]:
    """SentencePiece's algorithm: the pair with the best score, the leftmost of equals, again and
    again; bytes for what is no token."""
    parts: list[str | None] = list(text.replace(" ", "\u2581"))
    after = list(range(1, len(parts) + 1))
    before = list(range(-1, len(parts) - 1))
    heap: list[tuple[float, int, str, str]] = []

    def consider(left: int, right: int) -> None:
        if left >= 0 and right < len(parts):
            one, two = parts[left], parts[right]
            if one is not None and two is not None and one + two in scores:
                heapq.heappush(heap, (-scores[one + two], left, one, two))

    for place in range(len(parts) - 1):
        consider(place, place + 1)
    while heap:
        _, left, one, two = heapq.heappop(heap)
        right = after[left]
        if right >= len(parts) or (parts[left], parts[right]) != (one, two):
            continue
        parts[left], parts[right] = one + two, None
        after[left] = after[right]
        if after[left] < len(parts):
            before[after[left]] = left
        consider(before[left], left)
        consider(left, after[left])
    found = []
    for part in (part for part in parts if part is not None):
        found += [ids[part]] if part in ids else [ids[f"<0x{b:02X}>"] for b in part.encode()]
    return found


def test_gemmas_tokens_are_sentence_pieces(files: dict[str, Path]) -> None:
    fields = gguf.GGUFReader(files["gemma"]).fields
    tokens, scores, types = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "scores", "token_type")
    )
    ids = {token: index for index, token in enumerate(tokens)}
    special = {token for token, kind in zip(tokens, types, strict=True) if kind in (3, 4)}
    pieces = {
        token: score
        for token, score, kind in zip(tokens, scores, types, strict=True)
        if kind not in (2, 3, 6)
    }
    tokenizer = Tokenizer(files["gemma"], len(tokens))
    longest = max(map(len, special))
    for text in TEXTS:
        wanted, plain, place = [], "", 0
        while place < len(text):  # the longest added token, else a character of plain text
            ends = range(min(len(text), place + longest), place, -1)
            end = next((end for end in ends if text[place:end] in special), None)
            if end is None:
                plain, place = plain + text[place], place + 1
                continue
            wanted += [*merged(plain, pieces, ids), ids[text[place:end]]]
            plain, place = "", end
        wanted += merged(plain, pieces, ids)
        assert tokenizer.encode(text, special=False) == wanted, text
        assert tokenizer.encode(text) == [ids["<bos>"], *wanted]
        assert tokenizer.decode(wanted, skip_special=False) == text


def own_smollm2(path: Path) -> tuple[Backend, list[str]]:
    """As its authors define it, with the package's own classes."""
    fields = gguf.GGUFReader(path).fields
    tokens, types, merges = (
        fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges")
    )
    pairs = [tuple(merge.split(" ")) for merge in merges]
    backend = Backend(models.BPE({token: i for i, token in enumerate(tokens)}, pairs))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(False)]
    )
    backend.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, types, strict=True) if kind == 3]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    return backend, tokens


def test_smollm2s_tokens_are_its_own(files: dict[str, Path]) -> None:
    wanted, tokens = own_smollm2(files["smollm2"])
    found = Tokenizer(files["smollm2"], len(tokens))
    for text in TEXTS:
        ids = wanted.encode(text).ids
        assert found.encode(text) == ids, text
        assert found.decode(ids, skip_special=False) == text


def test_chats_are_those_of_transformers(parity_modules: object, files: dict[str, Path]) -> None:
    from transformers import PreTrainedTokenizerFast

    backend, tokens = own_smollm2(files["smollm2"])
    found = Tokenizer(files["smollm2"], len(tokens))
    template = find_template(files["smollm2"], found)
    theirs = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|im_end|>")
    user = {"role": "user", "content": "  What is <b>2 + 2</b>?\n"}
    chats = (
        [user],
        [{"role": "system", "content": "Be brief."}, user],
        [user, {"role": "assistant", "content": "4"}, {"role": "user", "content": "\U0001f600"}],
    )
    for chat in chats:
        for prompt in (True, False):
            wanted = theirs.apply_chat_template(
                chat, chat_template=template, tokenize=False, add_generation_prompt=prompt
            )
            assert render(template, chat, found, prompt) == wanted
