"""Whether a torch device rounds as the contract says: each operation that the package relies on,
against NumPy's on the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from lora_host import numerics
from lora_host.errors import RequestError
from lora_prefill.exact import functions
from lora_prefill.exact.sums import products

F32 = NDArray[np.float32]
VALUES = 4096
ROWS, K, COLUMNS = 3, 70, 9


def open_device(name: str) -> torch.device:
    """torch's device of this name. RequestError: torch has none, or it rounds otherwise than
    docs/numbers.md, 1.1, which the message says of which operation."""
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:  # the same card for all threads
            device = torch.device("cuda", torch.cuda.current_device())
        with torch.inference_mode():
            check_device(device)
    except (AssertionError, NotImplementedError, RuntimeError) as error:
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise RequestError(f"prefill: torch has no device {name!r} here: {line:.120}") from None
    return device


def check_device(device: torch.device) -> None:
    """RequestError names an operation that rounds otherwise."""
    random = np.random.default_rng(11)
    x = (random.standard_normal(VALUES) * 2.0 ** random.integers(-26, 17, VALUES)).astype("f4")
    y = (random.standard_normal(VALUES) * 2.0 ** random.integers(-9, 9, VALUES)).astype("f4")
    x[:4] = 0, -0.0, 65504, 2.0**-140  # FP32 keeps subnormals, too
    cases = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
    for name, (found, want) in CHECKS.items():
        with numerics.quiet():
            wanted = want(x, y)
        got = found(*cases).cpu().numpy()
        if got.tobytes() != wanted.tobytes():
            wrong = int((got != wanted).sum())
            raise RequestError(
                f"prefill: device {str(device)!r} rounds {name} otherwise than the boards in "
                f"{wrong} of {got.size} values; exact prefill needs IEEE 754; use 'cpu'"
            )


def _sums(y: F32) -> F32:
    """2.1 and 2.2 of K = 70: segments 2, 5 and 7 have 32, 32 and 6 columns."""
    a, w = y[: ROWS * K].reshape(ROWS, K), y[-K * COLUMNS :].reshape(K, COLUMNS)
    a, w = a.astype(np.float16).astype("f4"), w.astype(np.float16).astype("f4")
    parts = []
    for start, stop in ((0, 32), (32, 64), (64, 70)):
        total = np.zeros((ROWS, COLUMNS), np.float32)
        for k in range(start, stop):
            total = total + a[:, k, None] * w[k]
        parts.append(total)
    found: F32 = parts[0] + (parts[1] + parts[2])
    return found


def _torch_sums(y: torch.Tensor) -> torch.Tensor:
    half = functions.half(y)
    a, w = half[: ROWS * K].reshape(ROWS, K), half[-K * COLUMNS :].reshape(K, COLUMNS)
    return products(a, w)


def _rows(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Rows of 64, of which some have NaN or an infinity."""
    return torch.where(y.abs() > 400, torch.full_like(x, float("nan")), x).reshape(-1, 64)


def _largest(x: NDArray[np.float16], y: F32) -> NDArray[np.float16]:
    rows = np.where(np.abs(y) > 400, np.float16("nan"), np.abs(x)).reshape(-1, 64)
    found: NDArray[np.float16] = rows.max(axis=1)
    return found


Found = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Want = Callable[[F32, F32], NDArray[Any]]
CHECKS: dict[str, tuple[Found, Want]] = {
    "to FP16": (lambda x, y: functions.half(x), lambda x, y: x.astype(np.float16)),
    "to BF16": (lambda x, y: functions.bf16(x), lambda x, y: numerics.bf16(x)),
    "products": (lambda x, y: x * y, lambda x, y: x * y),
    "sums": (lambda x, y: x + y, lambda x, y: x + y),
    "sums of FP16": (
        lambda x, y: functions.half(x) + functions.half(y),
        lambda x, y: (x.astype(np.float16).astype("f4") + y.astype(np.float16)).astype(np.float16),
    ),
    "the largest of rows": (
        lambda x, y: torch.isfinite(functions.largest(_rows(functions.half(x), y))),
        lambda x, y: np.isfinite(_largest(x.astype(np.float16), y)),
    ),
    "products that are added": (lambda x, y: x * y + x, lambda x, y: x * y + x),
    "divisions": (functions.divided, lambda x, y: x / y),
    "divisions by a number": (
        lambda x, y: functions.divided(x, 127.0),
        lambda x, y: x / np.float32(127),
    ),
    "square roots": (lambda x, y: functions.root(x.abs()), lambda x, y: np.sqrt(np.abs(x))),
    "rint": (lambda x, y: torch.round(y * 4), lambda x, y: np.rint(y * np.float32(4))),
    "exp": (lambda x, y: functions.exp(y), lambda x, y: numerics.exp32(y)),
    "tanh": (lambda x, y: functions.tanh(y), lambda x, y: numerics.tanh32(y)),
    "gelu": (
        lambda x, y: functions.gelu(y, "tanh"),
        lambda x, y: numerics.gelu(y, "tanh"),
    ),
    "sums of products of FP16": (lambda x, y: _torch_sums(y), lambda x, y: _sums(y)),
}
"""By operation: torch's result of x and y, and the host's."""
