"""Gather the training text from the running Python's own library, and split it by name.

Code is the standard library's source files; prose is pydoc's topic texts.  Whole top-level
modules are held out by a fixed hash of their name, so that no near copy of a held-out file is
trained on and the split never depends on order, platform or a random generator.
"""

from __future__ import annotations

import hashlib
import lzma
import sysconfig
import tokenize
from dataclasses import dataclass
from pathlib import Path

ALWAYS_HELD_OUT = frozenset({"ast", "heapq", "textwrap"})
HELD_OUT_PER_256 = 10
"""Names whose first hash byte is below this are held out: about 4 % of the modules."""

HELD_OUT_TOPICS_PER_256 = 64
"""About a quarter of the topics are held out."""

SKIPPED_FOLDERS = frozenset(
    {
        "test",
        "tests",
        "idle_test",
        "__pycache__",
        "site-packages",
        "dist-packages",  # no library
        "encodings",
        "pydoc_data",
        "_bundled",  # generated tables, packed wheels
        "idlelib",
        "lib2to3",
        "turtledemo",  # not in every installation
    }
)
SKIPPED_FILES = frozenset({"html/entities.py", "msilib/schema.py", "msilib/sequence.py"})
SKIPPED_PREFIXES = ("_sysconfigdata", "config-")


@dataclass(frozen=True)
class Document:
    """One text: `name` is its path below the library, or its topic."""

    name: str
    text: str

    @property
    def group(self) -> str:
        """Top-level module or package: the unit of the split."""
        return self.name.split("/")[0].removesuffix(".py")


@dataclass(frozen=True)
class Split:
    """Documents to train on and documents held out, both in order of their names."""

    train: list[Document]
    held_out: list[Document]

    def digest(self) -> str:
        """SHA-256 over names and texts of both halves: two runs can be compared by it."""
        state = hashlib.sha256()
        for half, documents in (("train", self.train), ("held_out", self.held_out)):
            for document in documents:
                state.update(f"{half}\0{document.name}\0{document.text}\0".encode())
        return state.hexdigest()


def _first_hash_byte(name: str) -> int:
    return hashlib.sha256(name.encode()).digest()[0]


def is_held_out_module(name: str) -> bool:
    """Whether the top-level module or package `name` is held out."""
    return name in ALWAYS_HELD_OUT or _first_hash_byte(name) < HELD_OUT_PER_256


def is_held_out_topic(name: str) -> bool:
    """Whether the pydoc topic `name` is held out."""
    return _first_hash_byte(f"topic:{name}") < HELD_OUT_TOPICS_PER_256


def _is_source(relative: Path) -> bool:
    if SKIPPED_FOLDERS.intersection(relative.parts[:-1]):
        return False
    if relative.as_posix() in SKIPPED_FILES:
        return False
    return not any(part.startswith(SKIPPED_PREFIXES) for part in relative.parts)


def _read_source(path: Path) -> str | None:
    """Text of a source file by its own declared encoding; None where it cannot be decoded."""
    try:
        with tokenize.open(path) as stream:
            return stream.read()
    except (SyntaxError, UnicodeDecodeError, OSError):
        return None


def gather_code(library: Path | None = None) -> list[Document]:
    """Return the library's source files in order of their paths."""
    root = library or Path(sysconfig.get_path("stdlib"))
    documents = []
    for path in sorted(root.rglob("*.py"), key=lambda item: item.relative_to(root).as_posix()):
        relative = path.relative_to(root)
        text = _read_source(path) if _is_source(relative) else None
        if text:
            documents.append(Document(relative.as_posix(), text))
    return documents


def gather_topics() -> list[Document]:
    """Return pydoc's topic texts in order of their names."""
    from pydoc_data.topics import topics

    return [Document(name, text.strip("\n") + "\n") for name, text in sorted(topics.items())]


def split_code(documents: list[Document]) -> Split:
    """Split source files by their top-level module."""
    held = [document for document in documents if is_held_out_module(document.group)]
    return Split([doc for doc in documents if not is_held_out_module(doc.group)], held)


def split_topics(documents: list[Document]) -> Split:
    """Split topics by their names, and drop held-out ones that repeat a topic trained on.

    Several topics are sections of a longer one: a held-out copy would flatter an adapter.
    """
    train = [document for document in documents if not is_held_out_topic(document.name)]
    known = {line for document in train for line in long_lines(document)}
    held = [document for document in documents if is_held_out_topic(document.name)]
    return Split(train, [doc for doc in held if not known.intersection(long_lines(doc))])


def long_lines(document: Document) -> set[str]:
    """Stripped lines of more than 30 characters: shorter ones may agree by chance."""
    return {line.strip() for line in document.text.splitlines() if len(line.strip()) > 30}


def byte_count(documents: list[Document]) -> int:
    """Bytes of all texts in UTF-8."""
    return sum(len(document.text.encode()) for document in documents)


def xz_bits_per_byte(documents: list[Document]) -> float:
    """Bits per byte of `xz -9e` over the texts joined into one file."""
    joined = "".join(document.text for document in documents).encode()
    packed = lzma.compress(joined, preset=9 | lzma.PRESET_EXTREME, check=lzma.CHECK_CRC64)
    return 8.0 * len(packed) / len(joined)
