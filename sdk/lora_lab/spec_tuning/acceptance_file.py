"""Measured acceptance in a file. Collecting takes minutes and does not depend on the board."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import Acceptance, TextRanks, of_single_ranks
from lora_lab.spec_tuning.npz_file import read_npz
from lora_sdk.step.tree_shape import MAX_NODES, TreeShape

VERSION = 1
MAX_TEXTS = 1 << 20
MAX_VALUES = 1 << 30  # ranks or proposals, of all roots

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """Acceptance on the prompts for the tree search and on held-out prompts, and its origin.

    `model` and `draft` are the names of the folders (draft None for look-up), `text` that of the
    text. Prompts were continued at `temperature`."""

    model: str
    proposer: str
    draft: str | None
    temperature: float
    text: str
    search: Acceptance
    held_out: Acceptance


def save_measured(path: Path, measured: Measured) -> None:
    """Write an npz file. RequestError: it cannot be written."""
    names = ("model", "proposer", "draft", "temperature", "text")
    facts = {name: getattr(measured, name) for name in names}
    arrays: Arrays = {"facts": np.array(json.dumps({"version": VERSION, **facts}))}
    for half in ("search", "held_out"):
        for name, array in _arrays(getattr(measured, half)).items():
            arrays[f"{half}_{name}"] = array
    try:
        with path.open("wb") as file:
            np.savez_compressed(file, **arrays)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}; name another file") from None


def _arrays(found: Acceptance) -> Arrays:
    maximal = found.maximal
    arrays: Arrays = {
        "tree": np.array([maximal.parents, maximal.ranks], np.int16),
        "contexts": np.array([text.context for text in found.texts], np.int32),
        "roots": np.array([len(text.ranks) for text in found.texts], np.int32),
        "depth": np.array(found.ranks.shape[1], np.int32),
    }
    single = [_single(text) for text in found.texts]
    if found.proposed is None and all(ranks is not None for ranks in single):
        arrays["single"] = np.concatenate([ranks for ranks in single if ranks is not None])
    else:
        arrays["ranks"] = found.ranks
    if found.proposed is not None:
        arrays["proposed"] = np.packbits(found.proposed, axis=1)
    return arrays


def _single(text: TextRanks) -> NDArray[np.uint8] | None:
    """One rank per token if ranks do not depend on the root, else None."""
    ranks = np.concatenate([text.ranks[:, 0], text.ranks[-1, 1:]])
    again = of_single_ranks(text.context, ranks.tolist(), text.ranks.shape[1])
    return ranks if np.array_equal(again.ranks, text.ranks) else None


def load_measured(path: Path) -> Measured:
    """Read a file of `save_measured`. RequestError: another kind of file, or a damaged one."""
    try:
        arrays = read_npz(path)
        facts = json.loads(str(_known(arrays, "facts")))
        halves = [_acceptance(arrays, half) for half in ("search", "held_out")]
        if facts.pop("version") != VERSION:
            raise ValueError("another version")
        return Measured(**_checked(facts), search=halves[0], held_out=halves[1])
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}") from None
    except RequestError as error:
        raise RequestError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RequestError(
            f"{path}: not a file of measured acceptance: {error}; run lora lab spec collect again"
        ) from None


def _known(arrays: Arrays, name: str) -> NDArray[Any]:
    found: NDArray[Any] | None = arrays.get(name)
    if found is None:
        raise ValueError(f"no array {name}")
    return found


def _checked(facts: dict[str, Any]) -> dict[str, Any]:
    """The fields of Measured, each of its type."""
    kinds = {
        "model": str,
        "proposer": str,
        "draft": str | None,
        "temperature": int | float,
        "text": str,
    }
    if facts.keys() != kinds.keys():
        raise ValueError(f"fields {', '.join(map(repr, sorted(facts)))}")
    for name, kind in kinds.items():
        if not isinstance(facts[name], kind) or isinstance(facts[name], bool):
            raise ValueError(f"{name} is {facts[name]!r}")
    return facts


def _integers(found: NDArray[Any], axes: int, most: int) -> Any:
    """An array of integers as a list; ValueError where it is another or longer than `most`."""
    if found.dtype.kind not in "iu" or found.ndim != axes or found.size > axes * most:
        raise ValueError(f"{found.dtype} {list(found.shape)}, expected integers")
    return found.tolist()


def _acceptance(arrays: Arrays, half: str) -> Acceptance:
    def array(name: str) -> NDArray[Any]:
        return _known(arrays, f"{half}_{name}")

    parents, ranks = _integers(array("tree"), 2, MAX_NODES)
    maximal = TreeShape(tuple(parents), tuple(ranks))
    counts, contexts = (_integers(array(name), 1, MAX_TEXTS) for name in ("roots", "contexts"))
    (depth,) = _integers(array("depth").reshape(-1), 1, 1)
    if len(counts) != len(contexts) or min(counts, default=0) < 1 or not 1 <= depth <= 255:
        raise ValueError(f"{len(counts)} texts of {counts[:9]} roots, depth {depth}")
    names = {name.removeprefix(f"{half}_") for name in arrays}
    flat = array("single" if "single" in names else "ranks")
    values = sum(counts) * max(depth, maximal.size)
    axes = 1 if "single" in names else 2
    if flat.dtype != np.uint8 or flat.ndim != axes or values > MAX_VALUES:
        raise ValueError(f"ranks are {flat.dtype} {list(flat.shape)}, {values} of all roots")
    proposed = None
    if "proposed" in names:
        packed = array("proposed")
        if packed.shape != (sum(counts), -(-maximal.size // 8)):
            raise ValueError(f"proposals are {list(packed.shape)} for {maximal.size} nodes")
        proposed = np.unpackbits(packed, axis=1, count=maximal.size).astype(bool)
    texts, start, root = [], 0, 0
    for count, context in zip(counts, contexts, strict=True):
        if "single" in names:
            chunk = flat[start : start + count + depth - 1]
            text = of_single_ranks(context, chunk.tolist(), depth)
            start += count + depth - 1
        else:
            rows = slice(root, root + count)
            text = TextRanks(context, flat[rows], None if proposed is None else proposed[rows])
        if text.ranks.shape != (count, depth):
            raise ValueError(f"{list(text.ranks.shape)} ranks, expected {[count, depth]}")
        texts.append(text)
        root += count
    return Acceptance(maximal, tuple(texts))
