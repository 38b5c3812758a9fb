"""Write the licence of the training text beside the weights."""

from __future__ import annotations

import platform
import sysconfig
from pathlib import Path

NOTICE = """# Where these models come from

The weights, tokenizers and results in this folder were made by `tools/train_demo` from text that
is part of Python {version}: the source files of its standard library and the topic texts of
`pydoc`. No other text was used. That text is Copyright (c) 2001-2023 Python Software Foundation,
all rights reserved, with parts copyright of the contributors named in the files themselves, and is
distributed under the PSF License Agreement. `LICENSE-PYTHON.txt` is its text as it comes with that
Python. The excerpts in `calibration.txt` and in `tests/data/heldout.txt` are covered by the same
licence. `calibration.txt` also has Lewis Carroll's "Alice's Adventures in Wonderland" (1865), which
is in the public domain; no model here was trained on it.

The models are demonstration and test material: they complete text in the manner of the standard
library and know nothing else.
"""


def write_notice(folder: Path) -> None:
    """Write NOTICE.md and Python's own licence into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "NOTICE.md").write_text(NOTICE.format(version=platform.python_version()))
    licence = Path(sysconfig.get_path("stdlib")) / "LICENSE.txt"
    if licence.is_file():
        (folder / "LICENSE-PYTHON.txt").write_text(licence.read_text(encoding="utf-8"))
