"""Adapters chosen by `model`, loaded and unloaded by clients below one folder only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from openai import NotFoundError

from lora_sdk import Engine, SamplingParams, demo_model_path
from tests.commands import LORA, command, one_line_error
from tests.served import Served, eventually, process, served

MODELS = demo_model_path().parent
PROMPT = "def f(x):\n"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two adapters below it, one beside it, and links that lead out."""
    base = tmp_path_factory.mktemp("adapters")
    inside = base / "root"
    for name in ("lora", "bdlora"):
        shutil.copytree(MODELS / f"demo_adapter_{name}", inside / "deep" / name)
    shutil.copytree(MODELS / "demo_adapter_lora", base / "outside")
    (inside / "link").symlink_to(base / "outside")
    (inside / "circle").symlink_to(inside / "circle")
    (inside / "empty").mkdir()
    return inside


@pytest.fixture
def server(root: Path) -> Iterator[Served]:
    with served(
        lambda progress: Engine(progress=progress, max_adapters=1), adapter_root=str(root)
    ) as running:
        yield running


def load(server: Served, name: str, path: object) -> Any:
    return server.post("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(path)})


def unload(server: Served, name: str) -> Any:
    return server.post("/v1/unload_lora_adapter", {"lora_name": name})


def text(server: Served, model: str) -> str:
    create = server.client().completions.create
    return create(model=model, prompt=PROMPT, max_tokens=12, temperature=0).choices[0].text


def test_model_chooses_the_adapter(server: Served, root: Path) -> None:
    assert load(server, "plain", "deep/lora").status == 200
    assert load(server, "blocks", root / "deep" / "bdlora").status == 200
    listed = server.client().models.list().data
    assert [one.id for one in listed] == ["demo", "blocks", "plain"]
    assert server.client().models.retrieve("plain").parent == "demo"  # type: ignore[attr-defined]
    want = {
        name: server.engine.generate(PROMPT, SamplingParams(max_tokens=12, adapter=adapter)).text  # type: ignore[union-attr]
        for name, adapter in (("demo", None), ("plain", "plain"), ("blocks", "blocks"))
    }
    assert len(set(want.values())) == 3
    names = [*want] * 6
    with ThreadPoolExecutor(6) as pool:  # one slot on the boards for two adapters
        got = list(pool.map(lambda name: text(server, name), names))
    assert got == [want[name] for name in names]
    assert unload(server, "plain").status == 200
    with pytest.raises(NotFoundError):
        text(server, "plain")
    assert text(server, "blocks") == want["blocks"]


def test_an_adapter_in_use_stays(server: Served) -> None:
    assert load(server, "plain", "deep/lora").status == 200
    stream = server.client().completions.create(
        model="plain", prompt=PROMPT, max_tokens=900, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    got = unload(server, "plain")
    assert got.status == 409 and got.body["error"]["code"] == "adapter_in_use"
    stream.close()
    assert eventually(server.settled)
    assert unload(server, "plain").status == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("../outside", 403),
        ("/etc", 403),
        ("link", 403),
        ("deep/../../outside", 403),
        ("", 400),
        ("x" * 5000, 400),
        ("x" * 4000, 404),
        ("a\0b", 400),
        ("circle", 404),
        ("nowhere", 404),
        ("deep/lora/adapter_config.json", 404),
        ("empty", 400),
    ],
)
def test_other_folders_are_refused(server: Served, root: Path, path: str, status: int) -> None:
    got = load(server, "a", path)
    assert got.status == status and got.body["error"]["param"] == "lora_path", got.body
    assert str(root.parent) not in got.body["error"]["message"]
    assert len(server.client().models.list().data) == 1


def test_names_are_taken_once(server: Served) -> None:
    assert load(server, "demo", "deep/lora").body["error"]["param"] == "lora_name"
    assert load(server, "a", "deep/lora").status == 200
    assert load(server, "a", "deep/bdlora").status == 400
    assert unload(server, "b").status == 404
    assert load(server, "\n", "deep/lora").status == 400


def test_without_a_root_adapters_are_fixed() -> None:
    with served(lambda progress: Engine(progress=progress, max_adapters=1)) as fixed:
        fixed.engine.load_adapter("a", MODELS / "demo_adapter_lora")
        assert load(fixed, "b", MODELS / "demo_adapter_lora").status == 403
        assert unload(fixed, "a").status == 403


def test_named_at_the_start_and_loaded_later(root: Path) -> None:
    named = f"fix={MODELS / 'demo_adapter_lora'}"
    with process("--adapter", named, "--adapter-root", str(root)) as (_, client):
        client.post("/load_lora_adapter", body={"lora_name": "b", "lora_path": "deep/bdlora"},
                    cast_to=object)  # fmt: skip
        assert [one.id for one in client.models.list().data] == ["demo", "b", "fix"]
        for model in ("demo", "b", "fix"):
            assert client.completions.create(model=model, prompt="a", max_tokens=1).choices


def test_flags(tmp_path: Path) -> None:
    one_line_error(command(LORA, "serve", "--adapter-root", tmp_path / "none"), "adapter_root")
    one_line_error(command(LORA, "serve", "--max-adapter-rank", 8), "--adapter-root")
    one_line_error(command(LORA, "serve", "--adapter", "a=/nowhere"), "nowhere")
