"""Write models/calibration.txt: the text that `lora quantize` calibrates on where none is named.

Pieces of the training half's source files and topics, never of what is held out; every fourth is
prose. `python -m tools.train_demo.calibration --models models`
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator
from pathlib import Path

from .corpus import Document, gather_code, gather_topics, split_code, split_topics

PIECE, PIECES = 2600, 40  # characters of a piece, pieces
PROSE_EVERY = 4


def in_hash_order(documents: list[Document]) -> Iterator[Document]:
    """Documents long enough for a piece, in an order that their names alone decide."""
    long = [one for one in documents if len(one.text) >= PIECE]
    return iter(sorted(long, key=lambda one: hashlib.sha256(one.name.encode()).digest()))


def piece_of(document: Document) -> str:
    """Whole lines from the document's middle, PIECE characters or a little less."""
    text = document.text[max(0, (len(document.text) - PIECE) // 2) :]
    start = text.find("\n") + 1 if len(document.text) > PIECE else 0
    return text[start : start + PIECE].rpartition("\n")[0] + "\n"


def calibration_text() -> str:
    """The pieces joined, code and prose."""
    code = in_hash_order(split_code(gather_code()).train)
    prose = in_hash_order(split_topics(gather_topics()).train)
    turns = (prose if turn % PROSE_EVERY == PROSE_EVERY - 1 else code for turn in range(PIECES))
    return "\n".join(piece_of(next(turn)) for turn in turns)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--models", type=Path, default=Path("models"))
    path = parser.parse_args().models / "calibration.txt"
    path.write_text(calibration_text(), encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
