"""Speculative decoding by hand: drafts are looked up in the prompt, the model checks them at once.

The text is that of plain greedy decoding, whatever was drafted; good drafts save steps.

    python examples/verify.py
"""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk import Engine, SamplingParams, Tree

PROMPT = "def first(a):\n    return a[0]\n\ndef second(a):\n    return a[1]\n\ndef third(a):\n"
COUNT = 60


def look_up(tokens: Sequence[int], length: int = 4) -> list[int]:
    """What followed the last two tokens when they stood there before."""
    pair = list(tokens[-2:])
    for start in range(len(tokens) - 3, -1, -1):
        if list(tokens[start : start + 2]) == pair:
            return list(tokens[start + 2 : start + 2 + length])
    return []


def main() -> None:
    with Engine(boards=4) as engine:
        tokens = engine.tokenizer.encode(PROMPT)
        prompt = len(tokens)
        sequence = engine.open_sequence()
        tokens.append(int(engine.prefill(sequence, tokens).argmax()))
        steps = 0
        while len(tokens) - prompt < COUNT:
            tree = Tree.chain(tokens[-1], look_up(tokens))
            tokens.extend(engine.verify(sequence, tree).tokens)
            steps += 1
        engine.release(sequence)
        made = tokens[prompt : prompt + COUNT]
        plain = engine.generate(
            tokens[:prompt], SamplingParams(max_tokens=COUNT, ignore_eos=True)
        ).token_ids
        assert tuple(made) == plain, "verification must not change the text"
        print(PROMPT + engine.tokenizer.decode(made))
        print(f"--- {COUNT} tokens in {steps} verification steps")


if __name__ == "__main__":
    main()
