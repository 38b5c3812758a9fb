"""Models by ORG/NAME from the local Hugging Face cache, in its documented layout."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import huggingface_hub.constants
import pytest

from lora_host.errors import LoraError, ModelError
from lora_sdk import Engine
from lora_sdk.opening.options import EngineOptions
from tests.variants import variant, write_checkpoint

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("used the network"))
    monkeypatch.chdir(tmp_path)
    return tmp_path / "hub"


def put(cache: Path, name: str) -> Path:
    """A snapshot: refs/main names the commit, whose files are links to blobs."""
    root = cache / f"models--{name.replace('/', '--')}"
    snapshot = root / "snapshots" / COMMIT
    for folder in (root / "refs", root / "blobs", snapshot):
        folder.mkdir(parents=True)
    (root / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(write_checkpoint(variant("llama_narrow"), cache / "x").iterdir()):
        file.rename(root / "blobs" / f"{number:040x}")
        os.symlink(f"../../blobs/{number:040x}", snapshot / file.name)
    return snapshot


def test_a_cached_snapshot_is_found_and_loads(cache: Path) -> None:
    snapshot = put(cache, "some-org/Some.Model-1B")
    assert EngineOptions(model="some-org/Some.Model-1B").folder == snapshot
    with Engine("some-org/Some.Model-1B") as engine:
        assert engine.generate("x", max_tokens=1)


def test_a_folder_of_that_name_wins(cache: Path, tmp_path: Path) -> None:
    put(cache, "org/name")
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert EngineOptions(model="org/name").folder == Path("org/name")


@pytest.mark.parametrize("name", ["org/name", "org/na--me", "org/name.", "models/demmo"])
def test_an_absent_one_names_the_command(cache: Path, name: str) -> None:
    with pytest.raises(ModelError, match=f"no snapshot .*download it with: hf download {name}$"):
        EngineOptions(model=name)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("device", "is a device; expected a regular file"),
        ("fifo", "is a FIFO; expected a regular file"),
        ("folder", "is a folder; expected a regular file"),
        ("huge", "is larger than the limit of 128 B"),
        ("path", "holds '../../../x'; expected the name of a commit"),
        ("bytes", "expected the name of a commit"),
    ],
)
def test_what_the_branch_names_is_checked(cache: Path, kind: str, message: str) -> None:
    main = put(cache, "org/name").parent.parent / "refs" / "main"
    main.unlink()
    if kind == "device":
        main.symlink_to("/dev/zero")
    elif kind == "fifo":
        os.mkfifo(main)
    elif kind == "folder":
        main.mkdir()
    else:
        texts = {"huge": b"a" * 129, "path": b"../../../x", "bytes": b"\xff\x00"}
        main.write_bytes(texts[kind])
    with pytest.raises(ModelError, match=f"refs/main: .*{message}"):
        EngineOptions(model="org/name")


def test_a_branch_without_its_snapshot_is_none(cache: Path) -> None:
    (put(cache, "org/name").parent.parent / "refs" / "main").write_text("f" * 40 + "\n")
    with pytest.raises(ModelError, match="no snapshot "):
        EngineOptions(model="org/name")


@pytest.mark.parametrize("name", ["a/b/c", "../x", "org/..", "./x", "-x/y", "org/x y", "/a/b"])
def test_what_is_no_name_is_a_missing_folder(cache: Path, name: str) -> None:
    with pytest.raises(LoraError, match="does not exist"):
        EngineOptions(model=name)
