"""`lora load`: what a server answers under load."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median

import click

from lora_host.errors import RequestError
from lora_host.naming import counted
from lora_sdk.cli.folding import for_people
from lora_sdk.cli.progress import ProgressBar
from lora_sdk.serve.load import Endpoint, Measured, Workload, load

EXAMPLES = """\b
Examples:
  lora load --clients 1 --clients 8 --clients 64
  lora load --url http://127.0.0.1:8000 --url http://127.0.0.1:8080
  lora load --prompt 900 --tokens 32 --json

With two URLs the servers are asked in turn, and the ratio of the first to the second is printed:
keep both loaded with the same model. Exit code: 0 done, 1 a server did not answer, 2 refused."""
FIGURES = {
    "tokens_per_second": "tokens/s",
    "first_ms": "first, ms",
    "first_p99_ms": "p99",
    "gap_ms": "gap, ms",
    "gap_p99_ms": "p99",
}


@click.command("load", epilog=EXAMPLES)
@click.option(
    "--url", "urls", multiple=True, metavar="URL",
    help="an OpenAI-compatible server; twice to compare  [http://127.0.0.1:8000]",
)  # fmt: skip
@click.option("--served-model-name", default="", metavar="NAME", help="`model` of the requests")
@click.option("--api-key-file", metavar="FILE", help="its first line that is no comment is the key")
@click.option(
    "--clients", type=click.IntRange(1, 1024), multiple=True, default=(1, 8), show_default=True,
    help="how many ask at once; several numbers are measured one after the other",
)  # fmt: skip
@click.option(
    "--each", type=click.IntRange(1), default=2, show_default=True, help="requests a client"
)
@click.option("--prompt", type=click.IntRange(1), default=32, show_default=True, help="tokens")
@click.option("--tokens", type=click.IntRange(2), default=64, show_default=True, help="new tokens")
@click.option(
    "--vocabulary", type=click.IntRange(2), default=500, show_default=True,
    help="prompts are random token ids below it",
)  # fmt: skip
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def load_command(
    urls: tuple[str, ...],
    served_model_name: str,
    api_key_file: str | None,
    clients: tuple[int, ...],
    each: int,
    prompt: int,
    tokens: int,
    vocabulary: int,
    rounds: int,
    as_json: bool,
) -> int:
    """Measure tokens a second and times to the first token of a running server.

    Clients send greedy streamed completions of random prompts, each the next one once the last is
    answered. Figures are medians of the rounds, measured by the clients on this machine."""
    if len(urls) > 2:
        raise RequestError(f"{len(urls)} --url given; expected one, or two to compare")
    key = None
    if api_key_file is not None:
        from lora_sdk.serve.settings import key_lines

        key = key_lines(Path(api_key_file))[0]
    endpoints = [
        Endpoint(url, served_model_name, key) for url in urls or ("http://127.0.0.1:8000",)
    ]
    workloads = [Workload(count, count * each, prompt, tokens, vocabulary) for count in clients]
    total = sum(one.requests for one in workloads) * len(endpoints) * rounds
    found: dict[tuple[int, int], list[Measured]] = {}
    with ProgressBar("requests", unit="request") as progress:
        done = 0

        def ended() -> None:
            nonlocal done
            done += 1
            progress(done, total)

        for workload in workloads:
            for turn in range(rounds):
                order = range(len(endpoints)) if turn % 2 == 0 else range(len(endpoints))[::-1]
                for index in order:  # in turn, so that a slow moment meets both
                    one = load(endpoints[index], workload, ended)
                    found.setdefault((workload.clients, index), []).append(one)
    report = [_row(endpoints, found, count) for count in clients]
    click.echo(
        json.dumps(report, indent=2)
        if as_json
        else for_people(_table(report, prompt, tokens, rounds))
    )
    return 0


def _row(
    endpoints: list[Endpoint], found: dict[tuple[int, int], list[Measured]], clients: int
) -> dict[str, object]:
    servers = []
    for index, endpoint in enumerate(endpoints):
        each = [one.as_dict() for one in found[clients, index]]
        medians = {name: median(one[name] for one in each) for name in FIGURES}
        servers.append({"url": endpoint.url, **medians})
    row: dict[str, object] = {"clients": clients, "label": "measured", "servers": servers}
    if len(endpoints) == 2:
        pairs = zip(found[clients, 0], found[clients, 1], strict=True)
        row["ratios"] = sorted(a.tokens_per_second / b.tokens_per_second for a, b in pairs)
    return row


def _table(report: list[dict[str, object]], prompt: int, tokens: int, rounds: int) -> str:
    lines = [
        f"measured: median of {counted(rounds, 'round')}, prompts of {prompt} + {tokens} tokens",
        "first: time to the first token; gap: time between tokens",
        f"{'clients':>7}" + "".join(f"{label:>10}" for label in FIGURES.values()) + "  server",
    ]
    for row in report:
        servers = row["servers"]
        assert isinstance(servers, list)
        for server in servers:
            figures = "".join(f"{server[name]:10.1f}" for name in FIGURES)
            lines.append(f"{row['clients']:>7}{figures}  {server['url'].partition('://')[2]}")
        ratios = row.get("ratios")
        if isinstance(ratios, list):
            low, high = ratios[0], ratios[-1]
            lines.append(
                f"{'':7}{median(ratios):10.2f} times the tokens/s ({low:.2f} .. {high:.2f})"
            )
    return "\n".join(lines)
