"""Several prompts in one batch on four boards, one of them sampled three times.

python examples/generate.py
"""

from __future__ import annotations

from lora_sdk import Engine, SamplingParams

PROMPTS = ["import json\n\ndef load(path):\n", "class Queue:\n    def __init__(self):\n"]


def main() -> None:
    greedy = SamplingParams(max_tokens=40)
    sampled = SamplingParams(max_tokens=40, temperature=0.7, top_p=0.9, seed=1, n=3)
    with Engine(boards=4) as engine:
        results = engine.generate(PROMPTS, [greedy, sampled])
        for prompt, result in zip(PROMPTS, results, strict=True):
            for output in result.outputs:
                print(f"--- sample {output.index}, ended by {output.finish_reason}")
                print(prompt + output.text)


if __name__ == "__main__":
    main()
