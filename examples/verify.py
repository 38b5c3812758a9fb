"""Speculative decoding by hand: look up drafts in the text, verify them in one step.

The text is always that of plain greedy decoding. Good drafts save steps.

    python examples/verify.py
"""

from __future__ import annotations

from collections.abc import Sequence

from lora_sdk import Engine, SamplingParams, Tree

PROMPT = "def first(a):\n    return a[0]\n\ndef second(a):\n    return a[1]\n\ndef third(a):\n"
COUNT = 60


def look_up(tokens: Sequence[int], length: int = 4) -> list[int]:
    """The tokens that followed an earlier occurrence of the last two tokens."""
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
        generated = tokens[prompt : prompt + COUNT]
        plain = engine.generate(
            tokens[:prompt], SamplingParams(max_tokens=COUNT, ignore_eos=True)
        ).token_ids
        assert tuple(generated) == plain, "verification must not change the text"
        print(PROMPT + engine.tokenizer.decode(generated))
        print(f"--- {COUNT} tokens in {steps} verification steps")


if __name__ == "__main__":
    main()
