"""Write models/calibration.txt, the default calibration text of `lora quantize`.

It consists of excerpts of the training half's source files and topics, never of held-out ones.
Every fourth excerpt is prose. `python -m tools.train_demo.calibration --models models`
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

from .corpus import Document, gather_code, gather_topics, split_code, split_topics

LENGTH, COUNT = 2600, 40  # characters per excerpt, number of excerpts
PROSE_EVERY = 4


def in_hash_order(documents: list[Document]) -> Iterator[Document]:
    """Documents long enough for an excerpt, in an order that depends only on their names."""
    long = [one for one in documents if len(one.text) >= LENGTH]
    return iter(sorted(long, key=lambda one: hashlib.sha256(one.name.encode()).digest()))


def excerpt_of(document: Document) -> str:
    """Whole lines from the document's middle, LENGTH characters or a little less."""
    text = document.text[max(0, (len(document.text) - LENGTH) // 2) :]
    start = text.find("\n") + 1 if len(document.text) > LENGTH else 0
    return text[start : start + LENGTH].rpartition("\n")[0] + "\n"


def calibration_text() -> str:
    """The excerpts joined, code and prose."""
    code = in_hash_order(split_code(gather_code()).train)
    prose = in_hash_order(split_topics(gather_topics()).train)
    turns = (prose if turn % PROSE_EVERY == PROSE_EVERY - 1 else code for turn in range(COUNT))
    return "\n".join(excerpt_of(next(turn)) for turn in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", type=Path, default=Path("models"))
    path = parser.parse_args().models / "calibration.txt"
    path.write_text(calibration_text(), encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
