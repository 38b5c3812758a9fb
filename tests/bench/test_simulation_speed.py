"""Products a second of the simulated arrays (`make rtl-build`) on one core, beside those of a plain
loop in C in the same run: the ratio says less of this computer and of what else it does."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_host import abi, rtl
from lora_host.errors import RequestError
from tests.rtl import test_int8_matmul as int8
from tests.rtl_rig import Matmul, units_runner
from tests.unit.kernel_rig import Runner

pytestmark = pytest.mark.bench

ROUNDS, RUNS, K, N = 10, 5, 1024, 1024  # the first run of a round finds caches of the loop
# Against the loop: what g++'s builds did on a core of a Zen 4 (docs/rtl.md), less a tenth.
LEAST = {"W8A8": 0.12, "W4A8": 0.12, "FP16": 0.007}
GOALS = {"W8A8": 300, "W4A8": 300, "FP16": 10}  # M products a second
LOOP = """
int products(const signed char *a, const signed char *b, int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}
"""


@pytest.fixture(scope="module")
def units() -> Any:
    try:
        return rtl.library()
    except RequestError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], None]:
    """A million products, one after the other."""
    folder: Path = tmp_path_factory.mktemp("loop")
    (folder / "loop.c").write_text(LOOP)
    library = folder / "loop.so"
    options = ["-O2", "-fno-tree-vectorize", "-shared", "-fPIC", "-o", library]
    subprocess.run(["gcc", *options, folder / "loop.c"], check=True)
    run = ctypes.CDLL(str(library)).products
    values = np.random.default_rng(1).integers(-128, 128, (2, K * N)).astype(np.int8)
    pointers = [row.ctypes.data_as(ctypes.c_void_p) for row in values]
    return lambda: run(*pointers, K * N)


def seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


@pytest.mark.parametrize("name", GOALS)
def test_products_a_second(name: str, units: Any, loop: Callable[[], None]) -> None:
    inner = units_runner(units)
    least = {"array": float("inf"), "loop": float("inf")}
    before = rtl.simulated_work(units)

    def repeated(kernel: str, call: Any) -> int:
        for _ in range(ROUNDS):  # in turns, so that both meet the same computer
            least["loop"] = min(least["loop"], seconds(loop))
            for _ in range(RUNS):
                least["array"] = min(least["array"], seconds(lambda: inner(kernel, call)))
        return abi.OK

    one_row(name, repeated)
    done = rtl.simulated_work(units)
    assert done.products - before.products == ROUNDS * RUNS * K * N
    cycles = (done.cycles - before.cycles) / (ROUNDS * RUNS)
    ratio = least["loop"] / least["array"]
    rate = K * N / least["array"] / 1e6
    print(
        f"\nmeasured  {name}, a row of {K} by {N}: {rate:.1f} M products/s  goal {GOALS[name]}, "
        f"{least['array'] / cycles * 1e9:.0f} ns a cycle; {ratio:.3f} of a loop in C  "
        f"floor {LEAST[name]}",
        end="",
    )
    assert ratio >= LEAST[name]


def one_row(name: str, runner: Runner) -> None:
    """One matmul of one row."""
    if name != "FP16":
        int8.Matmul(K, N, 1, 0 if name == "W8A8" else 128).run(runner)
        return
    generator = np.random.default_rng(1)
    x, w = (generator.standard_normal(shape).astype(np.float16) for shape in ((1, K), (K, N)))
    Matmul(x, w).run(runner)
