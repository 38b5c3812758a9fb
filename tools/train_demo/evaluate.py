"""Measure the models of a folder in torch, transformers and PEFT, and write its RESULTS.md.

`python -m tools.train_demo.evaluate --models models` repeats the measurement.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .acceptance import CHAIN, TREE, Hits, beginnings, draft_hits, eagle3_hits, mean_emitted
from .corpus import Document, byte_count, xz_bits_per_byte
from .export import load_llama, load_tokenizer
from .generate import continue_greedily, cut_prompts
from .pipeline import ADAPTERS, DRAFT, EAGLE3, TARGET, Texts, gather_texts
from .plans import Plans
from .report import write_report
from .score import Scorer, bits_per_byte
from .train_eagle3 import load_eagle3


@dataclass
class Results:
    """What was measured: bits per byte by row, and AAT by draft and setting."""

    code_bytes: int
    prose_bytes: int
    code: dict[str, float] = field(default_factory=dict)
    prose: dict[str, float] = field(default_factory=dict)
    emitted: dict[str, dict[str, float]] = field(default_factory=dict)
    parameters: dict[str, int] = field(default_factory=dict)
    prompts: int = 0
    new_tokens: int = 0
    total_bytes: int = 0


def scorer_of(model: Any) -> Scorer:
    """Logits of a transformers or PEFT model."""

    def score(ids: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=ids).logits
        return logits

    return score


def measure_code(folder: Path, documents: Sequence[Document], results: Results) -> None:
    """Bits per byte of xz, the target and the small draft on held-out code."""
    from .adapters import load_reference

    results.code["xz -9e"] = xz_bits_per_byte(list(documents))
    for name in (TARGET, DRAFT):
        model, tokenizer = load_reference(folder / name), load_tokenizer(folder / name)
        window = model.config.max_position_embeddings
        results.parameters[name] = sum(p.numel() for p in model.parameters())
        results.code[name] = bits_per_byte(scorer_of(model), tokenizer, documents, window)


def measure_prose(folder: Path, documents: Sequence[Document], results: Results) -> None:
    """Bits per byte of xz, the bare target and the adapters on held-out prose."""
    from .adapters import load_adapted, load_reference

    tokenizer = load_tokenizer(folder / TARGET)
    results.prose["xz -9e"] = xz_bits_per_byte(list(documents))
    models = {TARGET: load_reference(folder / TARGET)}
    for name in ADAPTERS.values():
        models[name] = load_adapted(folder / TARGET, folder / name)
        results.parameters[name] = sum(
            p.numel() for n, p in models[name].named_parameters() if "lora_" in n
        )
    for name, model in models.items():
        window = model.config.max_position_embeddings
        results.prose[name] = bits_per_byte(scorer_of(model), tokenizer, documents, window)


def measure_drafts(
    folder: Path, documents: Sequence[Document], plans: Plans, results: Results
) -> None:
    """AAT of both drafts on greedy continuations of held-out prompts."""
    from .adapters import load_reference

    target, tokenizer = load_llama(folder / TARGET), load_tokenizer(folder / TARGET)
    prompts = cut_prompts(tokenizer, documents, plans.prompts, plans.prompt_length)
    texts = continue_greedily(load_reference(folder / TARGET), prompts, plans.new_tokens)
    results.prompts, results.new_tokens = len(prompts), plans.new_tokens
    head = load_eagle3(folder / EAGLE3, target.shape)
    results.parameters[EAGLE3] = sum(p.numel() for p in head.parameters())
    drafts: dict[str, Hits] = {
        DRAFT: draft_hits(load_llama(folder / DRAFT)),
        EAGLE3: eagle3_hits(target, head),
    }
    for name, hits in drafts.items():
        results.emitted[name] = {
            "chain of 4": mean_emitted(hits, texts, CHAIN),
            "first 32 tokens": mean_emitted(hits, beginnings(texts, 32), CHAIN),
            "chain of 3": mean_emitted(hits, texts, CHAIN[:3]),
            "tree": mean_emitted(hits, texts, TREE),
        }


def folder_bytes(folder: Path) -> int:
    """Bytes of all files below `folder`."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def evaluate(folder: Path, plans: Plans, texts: Texts) -> Results:
    """Measure everything in `folder` on the held-out halves of `texts`."""
    code, prose = texts.code.held_out, texts.prose.held_out
    results = Results(byte_count(code), byte_count(prose))
    measure_code(folder, code, results)
    measure_prose(folder, prose, results)
    measure_drafts(folder, code, plans, results)
    results.total_bytes = folder_bytes(folder)
    return results


def evaluate_and_write(folder: Path, plans: Plans) -> Results:
    """Measure, print the tables and write them to RESULTS.md."""
    texts = gather_texts(plans)
    results = evaluate(folder, plans, texts)
    print(write_report(folder / "RESULTS.md", results, texts), flush=True)
    return results


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="train_demo.evaluate", description=__doc__)
    parser.add_argument("--models", type=Path, default=Path("models"))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    evaluate_and_write(options.models, Plans())


if __name__ == "__main__":
    main()
