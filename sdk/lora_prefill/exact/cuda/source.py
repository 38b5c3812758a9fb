"""The whole CUDA source, which is compiled at run time. Without `__CUDACC_RTC__` it is C++ for the
host, which the tests run beside a shim of threads."""

from __future__ import annotations

from lora_prefill.exact.cuda import attention, common, elements, groups, halves, integers, rows

PARTS = (halves, integers, groups, rows, attention, elements)
KERNELS = tuple(name for part in PARTS for name in part.KERNELS)
SOURCE = common.constants() + common.DEVICE + "".join(part.SOURCE for part in PARTS)
