"""Steps of a model, on simulated cards in the process that tests/rtl/card_steps_run.py is."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lora_lab.timing.card_step import CardRow, CardStep
from lora_sdk.compile.isa import Command, Fence
from lora_sdk.compile.lower import lower
from lora_sdk.loading.weights import Loader
from lora_sdk.step import runner as runner_of_core

if TYPE_CHECKING:
    from lora_sdk.step.runner import Runner
    from lora_sdk.step.step import StepResult

MAX_CONTEXT = 384
VOCABULARY = 290
COMMITS_FROM = 64  # slots of a step whose rows the next one commits


@dataclass(frozen=True)
class Step:
    """Rows behind `context` positions. `parents`: of each row another row, -1: the context.
    `adapted`: the first rows have the adapter. `sampled`: the last rows go through lm_head.
    `commits`: a step before has had so many rows in a chain, which this one's header commits."""

    context: int
    parents: tuple[int, ...] = (-1,)
    adapted: int = 0
    sampled: int = 1
    commits: int = 0


@dataclass(frozen=True)
class Request:
    """A model, as `config` of a variant and a scheme of tests/quantized.py, on `boards`, with one
    adapter of `rank`, or none. `alone`: a unit gets its next command when all are idle. `overlay`:
    its folder, else one that ships."""

    config: Mapping[str, Any]
    steps: tuple[Step, ...]
    scheme: str = ""
    boards: int = 1
    rank: int = 0
    alone: bool = False
    overlay: str = ""


def llama(
    hidden: int, heads: int, kv_heads: int, head_dim: int, ffn: int, layers: int = 1
) -> dict[str, Any]:
    """config.json of a model."""
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": layers,
        "max_position_embeddings": MAX_CONTEXT, "rms_norm_eps": 1e-5, "hidden_act": "silu",
        "tie_word_embeddings": False, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": ffn,
        "vocab_size": VOCABULARY,
    }  # fmt: skip


def gpt2(hidden: int, heads: int, layers: int = 1) -> dict[str, Any]:
    """The same with LayerNorm and GELU."""
    return {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": MAX_CONTEXT,
        "n_layer": layers, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new",
        "n_embd": hidden, "n_head": heads, "vocab_size": VOCABULARY,
    }  # fmt: skip


def chain(rows: int) -> tuple[int, ...]:
    """Parents of rows that follow each other."""
    return tuple(range(-1, rows - 1))


@contextmanager
def opened(request: Request, folder: Path, devices: Sequence[str] = ()) -> Iterator[Runner]:
    """The model on emulated boards, or on `devices`, with its adapter in slot 0."""
    from lora_host.overlay import load_overlay
    from lora_sdk.adapters.slots import AdapterSlots
    from lora_sdk.plan.adapters import AdapterOptions
    from tests.adapter_folders import Folder, write_adapter
    from tests.drive import open_runner
    from tests.quantized import SCHEMES, QuantizedModel
    from tests.variants import Variant, write_checkpoint

    which = Variant("timed", dict(request.config))
    model = write_checkpoint(which, folder / "model")
    quantized = QuantizedModel(model, SCHEMES[request.scheme]) if request.scheme else None
    options = AdapterOptions(1, request.rank, "auto") if request.rank else None
    with open_runner(
        model, request.boards, sequences=2, adapters=options, model=quantized, devices=devices,
        timeouts={"watchdog_ms": 4000, "step_us": 60_000_000},
        overlay=load_overlay(request.overlay) if request.overlay else None,
    ) as runner:  # fmt: skip
        if request.rank:
            own = Folder("one", rank=request.rank)
            held = AdapterSlots(runner.cluster, runner.plan)
            held.load("one", write_adapter(which, own, folder / "adapter"))
            held.attach(0, "one")
        yield runner


def card_step(step: Step) -> CardStep:
    """The same for the timing model."""
    rows = []
    for number, parent in enumerate(step.parents):
        path = [number]
        while parent >= 0:
            path.insert(0, parent)
            parent = step.parents[parent]
        rows.append(CardRow(step.context, tuple(path), 0 if number < step.adapted else -1))
    commits = tuple(range(COMMITS_FROM, COMMITS_FROM + step.commits))
    selected = tuple(range(len(rows) - step.sampled, len(rows)))
    return CardStep(tuple(rows), selected, (commits,) if commits else ())


def one_by_one(commands: Sequence[Command]) -> list[Command]:
    """The list with a fence behind each command: each runs alone, and none is told early."""
    fence = Fence(what="fence")
    return [one for command in commands for one in (command, fence)][:-1]


def run_step(
    runner: Runner, step: Step, prepared: Callable[[], None] = lambda: None, logits: bool = False
) -> StepResult:
    """The step, behind one of the rows that it commits; `prepared` is called between them.
    `logits`: those of the sampled rows too."""
    from lora_host import abi
    from lora_sdk.step.runner import KvOp, Row

    def rows(
        first: int, context: int, parents: tuple[int, ...], adapted: int, sampled: int
    ) -> list[Row]:
        depths: list[int] = []
        for parent in parents:
            depths.append(0 if parent < 0 else depths[parent] + 1)
        return [
            Row(
                0, context + depth, 3 + 7 * i % 200, first + i,
                -1 if parent < 0 else first + parent, 0 if i < adapted else -1,
                want_argmax=i >= len(parents) - sampled,
                want_logits=logits and i >= len(parents) - sampled,
            )
            for i, (parent, depth) in enumerate(zip(parents, depths, strict=True))
        ]  # fmt: skip

    page = -(-abi.MAX_SCRATCH // abi.TILE_POSITIONS)
    begins = step.context - step.commits
    tiles = -(-(step.context + len(step.parents)) // abi.TILE_POSITIONS)
    runner.step(
        rows(COMMITS_FROM, begins, chain(step.commits), 0, 0) if step.commits else [],
        [KvOp.length(0, begins), *(KvOp.table(0, tile, page + tile) for tile in range(tiles))],
    )
    prepared()
    path = list(range(COMMITS_FROM, COMMITS_FROM + step.commits))
    ops = [KvOp.commit(0, begins, 0, step.commits)] if step.commits else []
    return runner.step(rows(0, step.context, step.parents, step.adapted, step.sampled), ops, path)


def from_text(text: str) -> Request:
    """What to_text has made."""
    found = json.loads(text)
    steps = tuple(Step(**{**s, "parents": tuple(s["parents"])}) for s in found.pop("steps"))
    return Request(**found, steps=steps)


def to_text(request: Request) -> str:
    """For another process."""
    return json.dumps(asdict(request))


class Unsummed(Loader):
    """Boards do not sum what they were loaded with: nine tenths of a run's cycles."""

    def check(self) -> None:
        pass


def run(request: Request) -> None:
    """All steps."""
    runner_of_core.Loader = Unsummed  # type: ignore[misc]
    if request.alone:
        runner_of_core.lower = lambda *given: one_by_one(lower(*given))
    with tempfile.TemporaryDirectory() as folder, opened(request, Path(folder)) as runner:
        for step in request.steps:
            run_step(runner, step)
