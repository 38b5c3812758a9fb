"""Programs that measure models through the protocol: lm-evaluation-harness and guidellm."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lora_sdk import Engine, demo_model_path
from tests.served import Served, chat_model, served

pytestmark = pytest.mark.clients
TEXT = (Path(__file__).resolve().parents[1] / "data" / "heldout.txt").read_text()
TASK = """task: pages
dataset_path: json
dataset_kwargs:
  data_files:
    test: {pages}
test_split: test
output_type: loglikelihood_rolling
doc_to_text: ""
doc_to_target: "{{{{page}}}}"
metric_list:
  - metric: bits_per_byte
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Two boards, the demo model with a chat template."""
    model = chat_model(tmp_path_factory.mktemp("model"))
    with served(lambda progress: Engine(model, boards=2, progress=progress)) as running:
        yield running


def run(module: str, *words: object, cwd: Path) -> None:
    """A client's program, as a process without a network but the server's."""
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(cwd / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=cwd, env={**os.environ, **offline}, capture_output=True, text=True, timeout=570,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def available(request: pytest.FixtureRequest, package: str) -> None:
    if importlib.util.find_spec(package) is None:
        if request.config.getoption("--require-clients"):
            pytest.fail(f"--require-clients, but {package} is not installed")
        pytest.skip(f"{package} is not installed")


def bits_per_byte(folder: Path) -> float:
    (file,) = folder.rglob("results_*.json")
    return float(json.loads(file.read_text())["results"]["pages"]["bits_per_byte,none"])


def test_lm_eval_scores_as_transformers_does(
    server: Served, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Log likelihoods of a text through the server and through transformers in float32."""
    available(request, "lm_eval")
    pages = tmp_path / "pages.jsonl"
    lines = (json.dumps({"page": TEXT[start : start + 500]}) for start in range(0, 2000, 500))
    pages.write_text("\n".join(lines))
    (tmp_path / "pages.yaml").write_text(TASK.format(pages=pages))
    task = ("--tasks", "pages", "--include_path", tmp_path)
    model = demo_model_path()
    through = (
        f"model=demo,base_url={server.url}/v1/completions,tokenizer={model},num_concurrent=4,"
        "max_length=1024,tokenized_requests=True"
    )
    # Otherwise it puts two: the tokenizer's own and its prefix.
    local = f"pretrained={model},dtype=float32,max_length=1024,add_bos_token=False"
    for kind, arguments in (("local-completions", through), ("hf", local)):
        run(
            "lm_eval", "run", "--model", kind, "--model_args", arguments, "--device", "cpu", *task,
            "--output_path", tmp_path / kind, cwd=tmp_path,
        )  # fmt: skip
    found, want = bits_per_byte(tmp_path / "local-completions"), bits_per_byte(tmp_path / "hf")
    assert 1 < want < 4 and abs(found / want - 1) < 5e-4, (found, want)


def test_guidellm_completes_its_requests(
    server: Served, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    available(request, "guidellm")
    report = tmp_path / "report.json"
    run(
        "guidellm", "run", "--disable-console", "--constraint", "kind=max_requests,count=12",
        "--backend", f"kind=openai_http,target={server.url},model=demo",
        "--profile", "kind=concurrent,streams=4",
        "--tokenizer", f"kind=huggingface_auto,model={demo_model_path()}",
        "--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=16",
        "--output", f"kind=json,path={report}", cwd=tmp_path,
    )  # fmt: skip
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals: dict[str, Any] = benchmark["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (12, 0), totals
    tokens = benchmark["metrics"]["output_token_count"]["successful"]
    assert tokens["mean"] == 16, tokens
    assert server.settled()
