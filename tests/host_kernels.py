"""The CUDA kernels of exact prefill as C++ on the host: the same source, thread after thread. Where
a block waits, its next thread goes on."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from lora_sdk.prefill.exact.cuda_source import KERNELS, SOURCE

SHIM = r"""
#include <stddef.h>
#include <string.h>
#include <ucontext.h>
#define __global__
#define __device__
#define __shared__ static
struct Index { int x, y; };
static Index threadIdx, blockIdx;
static ucontext_t launcher, fibers[256];
static char stacks[256][1 << 15];
static bool ended[256];
static void (*kernel)();

static void SYNC() {
  const int own = threadIdx.x;
  swapcontext(&fibers[own], &launcher);
  threadIdx.x = own;
}
static float from_half(unsigned short bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float value = exponent ? 1024 + fraction : fraction;
  for (int i = exponent ? exponent : 1; i < 25; i++) value /= 2;
  for (int i = 25; i < exponent; i++) value *= 2;
  return bits >> 15 ? -value : value;
}
static float mul(float a, float b) { return a * b; }
static float add(float a, float b) { return a + b; }
static float mul_add(float a, float b, float c) { return a * b + c; }
static float to_float(int value) { return (float)value; }
static int __dp4a(int a, int b, int c) {
  signed char x[4], y[4];
  memcpy(x, &a, 4);
  memcpy(y, &b, 4);
  for (int i = 0; i < 4; i++) c += x[i] * y[i];
  return c;
}
static void entry() {
  kernel();
  ended[threadIdx.x] = true;
}
static void launch(int columns, int rows, int threads) {
  for (blockIdx.y = 0; blockIdx.y < rows; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < columns; blockIdx.x++) {
      for (int i = 0; i < threads; i++) {
        ended[i] = false;
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
}
"""
RUN = r"""
static const void *X, *W, *S;
static float *Y;
static int R, K, N, G;
static void half_body() {
  half_products((const unsigned short *)X, (const unsigned short *)W, Y, R, K, N);
}
static void byte_body() { byte_products((const int *)X, (const int *)W, Y, R, K, N); }
static void group_body() {
  group_products((const int *)X, (const int *)W, (const unsigned short *)S, Y, R, K, N, G);
}
extern "C" void run(int which, const void *x, const void *w, const void *s, float *y, int rows,
                    int k, int n, int group, int columns_of_blocks, int rows_of_blocks,
                    int threads) {
  X = x, W = w, S = s, Y = y, R = rows, K = k, N = n, G = group;
  void (*bodies[])() = {half_body, byte_body, group_body};
  kernel = bodies[which];
  launch(columns_of_blocks, rows_of_blocks, threads);
}
"""


class HostKernels:
    """The kernels, built in `folder`; without a compiler the test is skipped."""

    def __init__(self, folder: Path) -> None:
        if shutil.which("g++") is None:
            pytest.skip("needs g++")
        source, built = folder / "kernels.cpp", folder / "kernels.so"
        source.write_text(SHIM + SOURCE + RUN)
        flags = ("-O1", "-ffp-contract=off", "-shared", "-fPIC", "-Wall", "-Wno-unused-function")
        subprocess.run(["g++", *flags, "-o", built, source], check=True)
        self._library = ctypes.CDLL(str(built))

    def launch(
        self,
        name: str,
        grid: tuple[int, int],
        threads: int,
        addresses: Sequence[int],
        sizes: Sequence[int],
    ) -> None:
        """A kernel's operands, the output last, and its sizes: rows, K, columns and the group."""
        x, w, *scales, y = (ctypes.c_void_p(address) for address in addresses)
        rows, k, columns, *group = sizes
        self._library.run(
            KERNELS.index(name), x, w, scales[0] if scales else None, y, rows, k, columns,
            group[0] if group else 0, *grid, threads,
        )  # fmt: skip
