"""The CUDA kernels of exact prefill as C++ on the host: the same source, thread after thread. Where
a block waits, its next thread goes on. Tensor cores and copies beside them do what PTX describes: a
copy has not come before it is waited for."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from lora_prefill.exact.cuda.arguments import Argument, packed
from lora_prefill.exact.cuda.source import KERNELS, SOURCE

SHIM = r"""
#include <math.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define UNROLL
#define UNROLL_NOT
struct Index { int x, y, z; };
static Index threadIdx, blockIdx, gridDim;
static ucontext_t launcher, fibers[256];
static char stacks[256][1 << 15];
static bool ended[256];
static void (*kernel)();

static void SYNC() {
  const int own = threadIdx.x;
  swapcontext(&fibers[own], &launcher);
  threadIdx.x = own;
}
static int min(int a, int b) { return a < b ? a : b; }
static int max(int a, int b) { return a > b ? a : b; }
static float from_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent ? 1024 + fraction : fraction;
  if (exponent == 31) return fraction ? NAN : bits >> 15 ? -INFINITY : INFINITY;
  return ldexpf(bits >> 15 ? -value : value, (exponent ? exponent : 1) - 25);
}
static unsigned short to_half(float value) {
  const int sign = signbit(value) ? 0x8000 : 0;
  const float size = fabsf(value);
  int exponent;
  if (!(size == size)) return 0x7fff;
  if (!(size > 0)) return sign;
  if (size >= 65520) return sign | 0x7c00;
  frexpf(size, &exponent);
  if (exponent < -13) return sign | (int)rintf(ldexpf(size, 24)); /* may round up to a normal one */
  return sign | (((exponent + 13) << 10) + (int)rintf(ldexpf(size, 11 - exponent)));
}
static float mul(float a, float b) { return a * b; }
static float add(float a, float b) { return a + b; }
static float root(float a) { return sqrtf(a); }
static float quotient(float a, float b) { return a / b; }
static float mul_add(float a, float b, float c) { return a * b + c; }
static float to_float(int value) { return (float)value; }
static int to_int(float value) { return value == value ? (int)rintf(value) : 0; }
static float of_bits(int bits) {
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
static int __dp4a(int a, int b, int c) {
  signed char x[4], y[4];
  memcpy(x, &a, 4);
  memcpy(y, &b, 4);
  for (int i = 0; i < 4; i++) c += x[i] * y[i];
  return c;
}
#ifdef TENSOR_CORES
/* copies of a thread that are on their way */
struct Copy { void *to; const void *from; bool there; int group; };
static Copy copies[256][64];
static int count[256], groups[256];
static void copy_16(void *to, const void *from, bool there) {
  const Copy copy = {to, from, there, groups[threadIdx.x]};
  copies[threadIdx.x][count[threadIdx.x]++] = copy;
}
static void COPIES_END() { groups[threadIdx.x]++; }
static void COPIES_WAIT() {
  const int own = threadIdx.x;
  int left = 0;
  for (int i = 0; i < count[own]; i++) {
    const Copy copy = copies[own][i];
    if (copy.group >= groups[own] - 1) copies[own][left++] = copy;
    else if (copy.there) memcpy(copy.to, copy.from, 16);
    else memset(copy.to, 0, 16);
  }
  count[own] = left;
}
/* mma.m16n8k32: what each lane of a warp brings, of two calls after each other */
static int brought[2][256][6], calls[256];
static int element(int turn, int lane, int at, int byte) {
  signed char bytes[4];
  memcpy(bytes, &brought[turn][threadIdx.x / 32 * 32 + lane][at], 4);
  return bytes[byte];
}
static void tensor_sums(const int *a, const int *b, int *sums) {
  const int turn = calls[threadIdx.x]++ & 1, lane = threadIdx.x % 32;
  memcpy(brought[turn][threadIdx.x], a, 16);
  memcpy(brought[turn][threadIdx.x] + 4, b, 8);
  SYNC();
  for (int i = 0; i < 4; i++) {
    const int row = lane / 4 + i / 2 * 8, column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 32; k++)
      sums[i] += element(turn, row % 8 * 4 + k % 16 / 4, row / 8 + k / 16 * 2, k % 4) *
                 element(turn, column * 4 + k % 16 / 4, 4 + k / 16, k % 4);
  }
}
static void begin_thread(int own) { count[own] = groups[own] = calls[own] = 0; }
#else
static void begin_thread(int) {}
struct Bytes { char at[16]; };
static void copy_16(void *to, const void *from, bool there) {
  const Bytes none = {};
  *(Bytes *)to = there ? *(const Bytes *)from : none;
}
#define COPIES_END()
#define COPIES_WAIT()
#endif
static void entry() {
  kernel();
  ended[threadIdx.x] = true;
}
static void run_block(int threads) {
  for (int i = 0; i < threads; i++) {
    ended[i] = false;
    begin_thread(i);
    getcontext(&fibers[i]);
    fibers[i].uc_stack.ss_sp = stacks[i];
    fibers[i].uc_stack.ss_size = sizeof stacks[i];
    fibers[i].uc_link = &launcher;
    makecontext(&fibers[i], entry, 0);
  }
  for (bool more = true; more;) {
    more = false;
    for (int i = 0; i < threads; i++)
      if (!ended[i]) {
        threadIdx.x = i;
        swapcontext(&launcher, &fibers[i]);
        more |= !ended[i];
      }
  }
}
static void launch(Index blocks, int threads) {
  gridDim = blocks;
  for (blockIdx.z = 0; blockIdx.z < blocks.z; blockIdx.z++)
    for (blockIdx.y = 0; blockIdx.y < blocks.y; blockIdx.y++)
      for (blockIdx.x = 0; blockIdx.x < blocks.x; blockIdx.x++) run_block(threads);
}
"""
FLAGS = ("-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Wno-unused-function")
KERNEL = re.compile(
    r'extern "C" __global__ void\s+(?:__launch_bounds__\([^)]*\)\s+)?(\w+)\(([^)]*)\)'
)


def entries() -> str:
    """`run`, which calls a kernel with arguments at given addresses, as the driver does."""
    found = {}
    for name, parameters in KERNEL.findall(SOURCE):
        types = [one.rsplit(maxsplit=1) for one in parameters.replace("*", "* ").split(",")]
        found[name] = [kind for kind, _ in types]
    bodies = [
        f"static void body_{name}() {{ {name}("
        + ", ".join(f"*({kind} *)given[{i}]" for i, kind in enumerate(found[name]))
        + "); }\n"
        for name in KERNELS
    ]
    listed = ", ".join(f"body_{name}" for name in KERNELS)
    return (
        "static void **given;\n"
        + "".join(bodies)
        + f"""static void (*const bodies[])() = {{{listed}}};
extern "C" void run(int which, void **values, int x, int y, int z, int threads) {{
  const Index blocks = {{x, y, z}};
  given = values, kernel = bodies[which];
  launch(blocks, threads);
}}
"""
    )


class HostLauncher:
    """A Launcher (see cuda/launcher.py) whose kernels are built in `folder`; without a compiler the
    test is skipped. `tensor_cores`: as for cards that have them."""

    def __init__(
        self,
        folder: Path,
        tensor_cores: bool = True,
        multiprocessors: int = 1,
        source: str = SOURCE,
    ) -> None:
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        self.multiprocessors = multiprocessors
        self.launched: list[str] = []
        folder.mkdir(exist_ok=True)
        text, built = folder / "kernels.cpp", folder / "kernels.so"
        defined = "#define TENSOR_CORES\n" if tensor_cores else ""
        text.write_text(defined + SHIM + source + entries())
        subprocess.run(["g++", *FLAGS, "-o", built, text], check=True)
        self._library = ctypes.CDLL(str(built))

    def launch(self, name: str, grid: tuple[int, int, int], threads: int, *given: Argument) -> None:
        """See Launcher."""
        self.launched.append(name)
        self._library.run(KERNELS.index(name), packed(given), *grid, threads)
