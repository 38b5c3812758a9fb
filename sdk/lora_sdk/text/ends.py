"""Tokens after which a text ends."""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk.text.tokenizer import Tokenizer

TURNS = (
    "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|eot|>", "<|eom|>", "<|end|>", "<|return|>",
    "<|call|>", "<end_of_turn>", "<turn|>", "<|END_OF_TURN_TOKEN|>", "<|end_of_turn|>",
    "<|endofturn|>", "<end_of_utterance>", "<EOT>", "[EOT]",
    "<|endoftext|>", "<|end_of_text|>", "<\uff5cend\u2581of\u2581sentence\uff5c>",
)  # fmt: skip
"""What models call the end of a turn or of a text, as llama.cpp knows them."""


def end_tokens(ids: Sequence[int], tokenizer: Tokenizer, vocabulary: int) -> tuple[int, ...]:
    """In this order: `ids`, which are the model's (generation_config.json's `eos_token_id`, without
    it config.json's; a GGUF file's eos, eot and eom), the `eos_token` of the tokenizer, and its
    added tokens that are named as the end of a turn. Those of `vocabulary` tokens."""
    eos = tokenizer.config.get("eos_token")
    eos = eos.get("content") if isinstance(eos, dict) else eos
    own = tokenizer.token_id(eos) if isinstance(eos, str) else None
    added = tokenizer.added
    several = {"<|return|>", "<|call|>"} <= added.keys()  # of harmony's messages <|end|> ends one
    named = [added[name] for name in TURNS if name in added and not (several and name == "<|end|>")]
    found = dict.fromkeys((*ids, *(() if own is None else (own,)), *named))
    return tuple(token for token in found if token < vocabulary)
