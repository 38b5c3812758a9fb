"""Tokenizers of GGUF files beside the models' own: vocabularies and texts of llama.cpp's tests,
whose ids transformers made from the models' tokenizer.json."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lora_sdk.text.tokenizer import Tokenizer

pytestmark = pytest.mark.real
SOURCES = "llama_cpp_python-0.3.36.tar.gz"
NAMES = (
    "bert-bge", "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gemma-4", "gpt-2",
    "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "refact", "starcoder",
)  # fmt: skip
TEXTS = 46
BETWEEN = "\n__ggml_vocab_test__\n"


@pytest.fixture(scope="module")
def vocabularies(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """A folder of the files, from the package's sources."""
    given = pytestconfig.getoption("--vocabularies")
    if given is None or not (Path(given) / SOURCES).exists():
        if pytestconfig.getoption("--require-real"):
            pytest.fail(f"--require-real, but --vocabularies names no folder with {SOURCES}")
        pytest.skip(f"--vocabularies names no folder with {SOURCES}")
    folder = tmp_path_factory.mktemp("vocabularies")
    with tarfile.open(Path(given) / SOURCES) as sources:
        for member in sources:
            name = Path(member.name).name
            if member.isfile() and name.startswith("ggml-vocab-"):
                content = sources.extractfile(member)
                assert content is not None
                (folder / name).write_bytes(content.read())
    yield folder


@pytest.mark.parametrize("name", NAMES)
def test_tokens_are_the_models_own(name: str, vocabularies: Path) -> None:
    path = vocabularies / f"ggml-vocab-{name}.gguf"
    texts = path.with_name(f"{path.name}.inp").read_bytes().decode().split(BETWEEN)
    lines = path.with_name(f"{path.name}.out").read_text().splitlines()
    tokenizer = Tokenizer(path, 1 << 19)
    assert len(lines) == TEXTS <= len(texts)
    for text, line in zip(texts, lines, strict=False):
        assert tokenizer.encode(text, special=False) == [int(one) for one in line.split()], text
