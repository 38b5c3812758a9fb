"""RESULTS.md: the measured values as tables, with how they were obtained."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import TYPE_CHECKING

from .acceptance import TREE
from .corpus import Document

if TYPE_CHECKING:
    from .evaluate import Results
    from .pipeline import Texts

ON_BOARDS = "\n## On emulated boards\n"
METHOD = """Text: the standard library and `pydoc` topics of Python {python}; the split is by a
fixed hash of each top-level name. Held-out code: {code}
({code_bytes} bytes). Held-out prose: {topics} topics that share no long line with those trained on
({prose_bytes} bytes). Models run in float32
from their FP16 values, in transformers {transformers} and PEFT {peft} with torch {torch}.

Bits per byte: each file is cut into windows of 1024 tokens that share no context; every window is
read behind one end-of-text token, so every byte counts, the first token's too. `xz -9e` packs the
same files joined into one, which lets it use all earlier files as context.

AAT: mean tokens emitted a verification, the bonus token included, on the target's own greedy text:
{prompts} held-out prompts, at most {new_tokens} new tokens each. A chain of 4 drafts 4 tokens
(5 rows with the root), a chain of 3 makes 4 rows, the tree has {widths} children a node by depth
({rows} rows). A model of this size falls into repetition when it is greedy, which is easy to
draft: "first 32 tokens" is the chain of 4 over the beginning of each text alone.

Repeat: `python -m tools.train_demo.evaluate --models models`.
"""


def names_of(documents: list[Document]) -> str:
    """The top-level names of documents, in order."""
    return ", ".join(f"`{name}`" for name in sorted({document.group for document in documents}))


def versions() -> dict[str, str]:
    """Versions of what measured."""
    import peft
    import torch
    import transformers

    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "peft": peft.__version__,
    }


def bits_table(title: str, rows: dict[str, float], base: str, sizes: dict[str, int]) -> list[str]:
    """Bits per byte with the change against the row `base`."""
    lines = [
        f"| {title} | parameters | bits per byte | against {base} |",
        "|---|---:|---:|---:|",
    ]
    for name, value in rows.items():
        count = f"{sizes[name]:,}" if name in sizes else ""
        change = 100 * (value / rows[base] - 1)
        lines.append(f"| {name} | {count} | {value:.4f} | {change:+.1f} % |")
    return lines


def emitted_table(results: Results) -> list[str]:
    """AAT of each draft."""
    settings = list(next(iter(results.emitted.values())))
    lines = [
        f"| draft | parameters | AAT, {' | '.join(settings)} |",
        "|---|---:|" + "---:|" * len(settings),
    ]
    for name, values in results.emitted.items():
        cells = " | ".join(f"{value:.2f}" for value in values.values())
        lines.append(f"| {name} | {results.parameters[name]:,} | {cells} |")
    return lines


def tree_rows(widths: tuple[int, ...]) -> int:
    """Rows of a full tree, its root included."""
    rows, level = 1, 1
    for width in widths:
        level *= width
        rows += level
    return rows


def write_report(path: Path, results: Results, texts: Texts) -> str:
    """Write the tables to `path` and return them."""
    method = METHOD.format(
        code=names_of(texts.code.held_out),
        topics=len(texts.prose.held_out),
        code_bytes=results.code_bytes,
        prose_bytes=results.prose_bytes,
        prompts=results.prompts,
        new_tokens=results.new_tokens,
        widths=", ".join(str(width) for width in TREE),
        rows=tree_rows(TREE),
        **versions(),
    )
    tables = [
        *bits_table("held-out code", results.code, "xz -9e", results.parameters),
        "",
        *bits_table("held-out prose", results.prose, "demo", results.parameters),
        "",
        *emitted_table(results),
        "",
        f"All files together: {results.total_bytes / 1e6:.1f} MB.",
    ]
    text = "\n".join(tables) + "\n"
    path.write_text(f"# Results of the demo models\n\n{text}\n{method}{_on_boards(path)}")
    return text


def _on_boards(path: Path) -> str:
    """The section that other tools measure, as an earlier report has it."""
    if not path.exists():
        return ""
    _, heading, section = path.read_text().partition(ON_BOARDS)
    return heading + section
