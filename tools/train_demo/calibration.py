"""Write models/calibration.txt, the default calibration text of `lora quantize`.

Three kinds of text by turns, in pieces of 5000 characters: Lewis Carroll's "Alice's Adventures in
Wonderland" (1865, in the public domain; alice29.txt of the Canterbury corpus), pydoc's topics, and
excerpts of source files, the last two of the training half, never of the held-out one. The file
ends with two pieces of the novel and one of the topics: `lora quantize` holds the end out.
`python -m tools.train_demo.calibration --novel alice29.txt --models models`
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from .corpus import Document, gather_code, gather_topics, split_code, split_topics

LENGTH, COUNT = 2600, 40  # characters per excerpt, number of excerpts
PROSE_EVERY = 4
PIECE, TOPICS = 5000, 100_000  # characters


def in_hash_order(documents: list[Document]) -> Iterator[Document]:
    """Documents long enough for an excerpt, in an order that depends only on their names."""
    long = [one for one in documents if len(one.text) >= LENGTH]
    return iter(sorted(long, key=lambda one: hashlib.sha256(one.name.encode()).digest()))


def excerpt_of(document: Document) -> str:
    """Whole lines from the document's middle, LENGTH characters or a little less."""
    text = document.text[max(0, (len(document.text) - LENGTH) // 2) :]
    start = text.find("\n") + 1 if len(document.text) > LENGTH else 0
    return text[start : start + LENGTH].rpartition("\n")[0] + "\n"


def excerpts() -> str:
    """Excerpts of code, every fourth of prose, joined."""
    code = in_hash_order(split_code(gather_code()).train)
    prose = in_hash_order(split_topics(gather_topics()).train)
    turns = (prose if turn % PROSE_EVERY == PROSE_EVERY - 1 else code for turn in range(COUNT))
    return "\n".join(excerpt_of(next(turn)) for turn in turns)


def novel_of(text: str) -> str:
    """The novel without its head and end, a line for each paragraph."""
    body = text[text.index("Alice was beginning") : text.rindex("THE END")]
    paragraphs = (re.sub(r"\s*\n\s*", " ", one).strip() for one in re.split(r"\n\s*\n", body))
    return "\n\n".join(one for one in paragraphs if not re.fullmatch(r"[\s*]*", one))


def pieces(text: str) -> list[str]:
    """Whole lines, PIECE characters at most together."""
    found = []
    while len(text) > PIECE:
        end = text.rfind("\n", 0, PIECE) + 1
        found.append(text[:end].strip("\n") + "\n")
        text = text[end:]
    return [*found, text] if text else found


def calibration_text(novel: str) -> str:
    """The three kinds by turns."""
    topics = "\n".join(one.text for one in split_topics(gather_topics()).train)[:TOPICS]
    kinds = [pieces(novel_of(novel)), pieces(topics), pieces(excerpts())]
    last = [kinds[0].pop(), kinds[1].pop(), kinds[0].pop()]
    turns = (piece for turn in zip_longest(*kinds) for piece in turn if piece is not None)
    return "\n".join([*turns, *last])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--novel", type=Path, required=True)
    parser.add_argument("--models", type=Path, default=Path("models"))
    options = parser.parse_args()
    path = options.models / "calibration.txt"
    novel = options.novel.read_text(encoding="latin-1")
    path.write_text(calibration_text(novel), encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
