"""The stages of a run: target, its own text, small draft, EAGLE-3 head, adapters.

Every stage reads what earlier ones wrote to the output folder, so each can be repeated alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer

from .batches import Windows, token_stream
from .corpus import Split, gather_code, gather_topics, split_code, split_topics
from .draft import train_draft
from .export import export_llama, load_llama, load_tokenizer
from .model import Llama
from .optim import Budget
from .own_text import mixed_stream, write_own_text
from .plans import Plans
from .score import bits_per_byte
from .target import train_target
from .tokenizer import train_tokenizer
from .train_eagle3 import export_eagle3, load_eagle3, new_head, train_eagle3

TARGET = "demo"
DRAFT = "demo_draft"
EAGLE3 = "demo_eagle3"
ADAPTERS = {"lora": "demo_adapter_lora", "bdlora": "demo_adapter_bdlora"}


@dataclass(frozen=True)
class Texts:
    """The split texts of a run."""

    code: Split
    prose: Split


def gather_texts(plans: Plans) -> Texts:
    """Gather and split; a smoke run keeps only the smallest documents of each half."""
    code, prose = split_code(gather_code()), split_topics(gather_topics())
    return Texts(plans.trim(code), plans.trim(prose))


def make_tokenizer(texts: Texts, plans: Plans) -> Tokenizer:
    """Tokenizer of the training half of the code."""
    return train_tokenizer((doc.text for doc in texts.code.train), plans.entries)


def _timed(stage: str, budget: Budget, action: Callable[[], None]) -> None:
    started = time.monotonic()
    action()
    minutes = (time.monotonic() - started) / 60.0
    print(f"{stage}: {budget.done} steps, {minutes:.1f} minutes", flush=True)


def run_target(texts: Texts, plans: Plans, budget: Budget, out: Path) -> None:
    """Train the tokenizer and the target; the folder is rewritten every few minutes."""
    tokenizer = make_tokenizer(texts, plans)

    def save(model: Llama, progress: str) -> None:
        export_llama(model, tokenizer, out / TARGET)
        value = bits_per_byte(model, tokenizer, texts.code.held_out, model.shape.positions)
        print(f"{progress}: {value:.4f} bits per byte held out", flush=True)

    def action() -> None:
        stream = token_stream(tokenizer, texts.code.train)
        save(train_target(stream, plans.target, budget, save), "end")

    _timed("target", budget, action)


def own_text_path(out: Path) -> Path:
    """Where the target's own text lies: beside the models' folder, it is not shipped."""
    return out.parent / "build" / f"{out.name}_own_text.safetensors"


def run_own_text(texts: Texts, plans: Plans, budget: Budget, out: Path) -> None:
    """Let the target in `out` continue prompts from the training half of the code."""
    tokenizer = load_tokenizer(out / TARGET)

    def action() -> None:
        train, path = texts.code.train, own_text_path(out)
        count = write_own_text(out / TARGET, tokenizer, train, plans, path)
        print(f"own text: {count} tokens", flush=True)

    _timed("own_text", budget, action)


def draft_stream(tokenizer: Tokenizer, texts: Texts, plans: Plans, out: Path) -> torch.Tensor:
    """What both drafts are trained on."""
    corpus_stream = token_stream(tokenizer, texts.code.train)
    return mixed_stream(corpus_stream, own_text_path(out), plans.own_share)


def run_draft(texts: Texts, plans: Plans, budget: Budget, out: Path) -> None:
    """Distil the small draft from the target in `out`."""
    target, tokenizer = load_llama(out / TARGET), load_tokenizer(out / TARGET)
    windows = Windows(draft_stream(tokenizer, texts, plans, out), plans.draft.seed)

    def action() -> None:
        draft = train_draft(target, windows, plans.draft, budget)
        export_llama(draft, tokenizer, out / DRAFT)

    _timed("draft", budget, action)


def run_eagle3(texts: Texts, plans: Plans, budget: Budget, out: Path) -> None:
    """Train the EAGLE-3 head for the target in `out`."""
    target, tokenizer = load_llama(out / TARGET), load_tokenizer(out / TARGET)
    seed = plans.eagle3.seed + (1000 if plans.resume else 0)  # fresh windows
    windows = Windows(draft_stream(tokenizer, texts, plans, out), seed)

    def action() -> None:
        if plans.resume:
            head = load_eagle3(out / EAGLE3, target.shape)
        else:
            head = new_head(target, plans.eagle3.seed)
        train_eagle3(target, head, windows, plans.eagle3, budget)
        export_eagle3(head, target.shape.layers, out / EAGLE3)

    _timed("eagle3", budget, action)


def run_adapter(name: str, texts: Texts, plans: Plans, budget: Budget, out: Path) -> None:
    """Train one adapter through PEFT, which only this stage needs."""
    from .adapters import export_adapter, train_adapter

    tokenizer, plan = load_tokenizer(out / TARGET), plans.adapters[name]
    windows = Windows(token_stream(tokenizer, texts.prose.train), plan.seed)

    def action() -> None:
        export_adapter(train_adapter(out / TARGET, windows, plan, budget), out / ADAPTERS[name])

    _timed(name, budget, action)


STAGES: dict[str, Callable[[Texts, Plans, Budget, Path], None]] = {
    "target": run_target,
    "own_text": run_own_text,
    "draft": run_draft,
    "eagle3": run_eagle3,
    "lora": lambda *rest: run_adapter("lora", *rest),
    "bdlora": lambda *rest: run_adapter("bdlora", *rest),
}


def run_stages(
    names: list[str], plans: Plans, budgets: dict[str, Budget], out: Path, threads: int
) -> Texts:
    """Run the named stages in order and return the texts they used."""
    torch.set_num_threads(threads)
    texts = gather_texts(plans)
    print(f"split {texts.code.digest()[:16]}, prose {texts.prose.digest()[:16]}", flush=True)
    for name in names:
        budget = budgets[name]
        budget.started = time.monotonic()
        STAGES[name](texts, plans, budget, out)
    return texts
