"""Two prompts streamed at the same time by an asyncio program; one is left early.

python examples/stream.py
"""

from __future__ import annotations

import asyncio

from lora_sdk import Engine, SamplingParams


async def show(engine: Engine, name: str, prompt: str, characters: int) -> None:
    """Print deltas as they arrive. Leaving after `characters` characters cancels the request."""
    shown = 0
    async for delta in engine.astream(prompt, SamplingParams(max_tokens=60)):
        print(f"{name}: {delta.text!r}")
        shown += len(delta.text)
        if shown >= characters:
            print(f"{name}: enough")
            return
    print(f"{name}: the end")


async def both(engine: Engine) -> None:
    await asyncio.gather(
        show(engine, "a", "def read(path):\n", 1000),
        show(engine, "b", "import os\n", 40),
    )


def main() -> None:
    with Engine(boards=2) as engine:
        asyncio.run(both(engine))


if __name__ == "__main__":
    main()
