"""A result for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lora_sdk.step.results import Result

_TEXT = "white-space:pre-wrap;margin:.2em 0"


def result_html(result: Result) -> str:
    """Each output's text after the prompt, and a line of counts. All text is escaped."""
    shown = "" if result.prompt is None else escape(result.prompt)
    prompt = f"<span style='opacity:.6'>{shown}</span>" if shown else ""
    parts = []
    for output in result.outputs:
        if len(result.outputs) > 1:
            score = "" if output.score is None else f", score {output.score:.3f}"
            parts.append(f"<small>output {output.index}{score}</small>")
        parts.append(f"<pre style='{_TEXT}'>{prompt}{escape(output.text)}</pre>")
    stopped = result.outputs[0].stop_reason
    by = "" if stopped is None else f" ({escape(str(stopped))})"
    parts.append(
        f"<small>{result.prompt_tokens} prompt and {result.completion_tokens} new tokens in "
        f"{result.timing.total:.3f} s, ended by {result.finish_reason}{by}, seed {result.seed}"
        "</small>"
    )
    return f"<div>{''.join(parts)}</div>"
