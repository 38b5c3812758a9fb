"""Modelled latency of beam search over prompt lengths (Figures 7 and 8 of the segment KV paper): a
prompt is computed once for all beams, and attention reads it once for all of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lora_host import abi
from lora_host.errors import RequestError
from lora_lab.timing import step as steps
from lora_lab.timing.model import MAX_CONTEXT
from lora_lab.timing.target import ArrayTarget, OverlayTarget, notes_of

if TYPE_CHECKING:
    from lora_lab.timing.machine import Machine
    from lora_lab.timing.target import Target
    from lora_sdk.model.spec import ModelConfig

PROMPTS = tuple(1 << power for power in range(5, 13))  # 32 to 4096, as in Figure 7
RESPONSE = 32  # as in Figure 7
COPIES = 0.2
"""Of last pages, for a step and each beam but the first: the demo model's searches make 0.18 to
0.22."""


def beam_latency(
    target: Target, config: ModelConfig, width: int, prompts: Sequence[int], response: int
) -> dict[str, Any]:
    """Milliseconds of the first token and of the next ones, by prompt length.

    `first_each`: where the prompt is computed for each beam. `one_beam`: of a search of width 1.
    `next`: of all beams; `next_unshared`: where attention reads the prompt for each beam. `next`s
    are means over the response, with the mean number of copies of last pages. The lengths may
    exceed the model's positions, as the paper's do. RequestError: a width or length that does not
    fit, or a design without beams."""
    if not isinstance(target, ArrayTarget | OverlayTarget):
        raise RequestError(
            f"design {target.name}: beam search is not modelled; use an array design"
        )
    limit = target.row_limit if isinstance(target, OverlayTarget) else abi.MAX_ROWS
    if not 1 <= width <= limit:
        raise RequestError(f"--beams {width}: expected 1 to {limit}, the rows of a step")
    if response < 2:
        raise RequestError(f"--out {response}: expected at least 2 tokens of a beam search")
    for name, count in (*(("--in", prompt) for prompt in prompts), ("--out", response)):
        if not 1 <= count <= MAX_CONTEXT:
            raise RequestError(f"{name} {count}: expected 1 to {MAX_CONTEXT}")
    machine = target.machine if isinstance(target, ArrayTarget) else target.timing.machine
    copy = _page_copy(machine, config, target.boards)
    copies = COPIES * (width - 1)
    ends = sorted({min(n + response, config.positions) for n in (min(prompts), max(prompts))})
    return {
        "label": "modelled",
        "design": target.name,
        "board": target.board,
        "boards": target.boards,
        "beams": width,
        "response": response,
        "page_copy_ms": copy,
        "page_copies": copies,
        "prompts": [
            _of_prompt(target, width, prompt, response, copies * copy) for prompt in prompts
        ],
        "notes": list(notes_of([(target, end) for end in ends])),
    }


def _of_prompt(
    target: ArrayTarget | OverlayTarget, width: int, prompt: int, response: int, copies_ms: float
) -> dict[str, float]:
    def following(beams: int, common: int) -> float:
        """Time is linear in the context but for whole tiles."""
        ends = (prompt + 1, prompt + response - 1)
        shapes = [steps.beams(1, beams, context, common) for context in ends]
        return sum(target.run(shape).seconds for shape in shapes) / 2 * 1e3

    first = target.prefill(prompt).seconds * 1e3
    return {
        "prompt": prompt,
        "first_ms": first,
        "first_each_ms": width * first,
        "one_beam_ms": following(1, 0),
        "next_ms": following(width, prompt) + copies_ms,
        "next_unshared_ms": following(width, 0) + copies_ms,
    }


def _page_copy(machine: Machine, config: ModelConfig, boards: int) -> float:
    """Milliseconds of a copy of one page: each line of 64 bytes is read and written."""
    heads = math.ceil(config.kv_heads / boards)
    size = 2 * config.layers * heads * abi.TILE_POSITIONS * config.head_dim * machine.kv_bytes
    return machine.seconds(2 * size / abi.LINE_BYTES) * 1e3


def beam_latency_lines(found: dict[str, Any], model: str) -> list[str]:
    """The same as text."""
    width = found["beams"]
    head = ("prompt", "first", "each beam", "next, 1", f"next, {width}", "unshared", "ratio")
    lines = [
        f"modelled: {found['design']} on {found['boards']} x {found['board']}, {model}, {width} "
        f"beams, {found['response']} new tokens; ms",
        "".join(f"{name:>11}" for name in head),
    ]
    for one in found["prompts"]:
        times = ("first_ms", "first_each_ms", "one_beam_ms", "next_ms", "next_unshared_ms")
        lines.append(
            f"{one['prompt']:>11}"
            + "".join(f"{one[name]:>11.2f}" for name in times)
            + f"{one['next_ms'] / one['one_beam_ms']:>11.2f}"
        )
    lines += [
        "  each beam: the prompt computed for every beam; unshared: read for every beam",
        f"  with {found['page_copies']:.1f} copies of last pages a step, "
        f"{found['page_copy_ms']:.2f} ms each (at most {width - 1}); left out: "
        "the host's choice of beams",
    ]
    return lines + [f"  note: {note}" for note in found["notes"] if note != "modelled"]
