"""From options to room for KV pages on the host."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lora_host.errors import RequestError
from lora_sdk.kv.host_pages import HostPages
from lora_sdk.kv.host_slots import FileSlots, MemorySlots, Slots
from lora_sdk.kv.kv_offload import KvOffload
from lora_sdk.kv.kv_transfer import KvTransfer
from lora_sdk.kv.page_form import PageForm
from lora_sdk.model.quantization import kv_of

if TYPE_CHECKING:
    from lora_sdk.opening.opening import OpenedModel
    from lora_sdk.opening.options import EngineOptions

GIB = 1 << 30
CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def check_offload(options: EngineOptions) -> None:
    """RequestError if the options for the host's pages contradict others. Needs no board."""
    folder = options.kv_offload_dir
    if options.kv_offload is None:
        if folder is not None:
            raise RequestError("kv_offload_dir is given, but no kv_offload says how many GiB")
        return
    if not options.prefix_cache:
        raise RequestError("kv_offload keeps cached pages, but prefix_cache is off")
    if options.prefill_is_fast:
        raise RequestError("kv_offload keeps the boards' own K and V; prefill_mode is 'fast'")
    if folder is not None and not Path(folder).is_dir():
        raise RequestError(
            f"kv_offload_dir {folder} is no folder; expected one for a file of pages"
        )
    room, where = _room(folder)
    if options.kv_offload * GIB > room:
        raise RequestError(
            f"kv_offload is {options.kv_offload:g} GiB; {where} {room / GIB:.1f} GiB"
        )


def _room(folder: str | Path | None) -> tuple[int, str]:
    """Bytes that the host may have for pages, and words for a message."""
    if folder is not None:
        return shutil.disk_usage(folder).free, f"{folder} has"
    return host_memory(), "this computer has"


def host_memory() -> int:
    """Bytes of this computer's memory, or of a container's limit where it is less."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or "max"
            found = min(found, int(limit.read_text()))
    return found


def open_offload(options: EngineOptions, opened: OpenedModel) -> KvOffload | None:
    """None without kv_offload. RequestError if not one page fits, or the folder takes no file."""
    if options.kv_offload is None:
        return None
    config = opened.config
    form = PageForm(kv_of(config).name, config.all_planes, config.kv_heads, config.head_dim)
    count = int(options.kv_offload * GIB) // form.page_bytes
    if not count:
        raise RequestError(
            f"kv_offload is {options.kv_offload:g} GiB; a page of this model has "
            f"{form.page_bytes} B: expected at least one"
        )
    slots = _slots(options, count, form)
    opened.stack.callback(slots.close)
    return KvOffload(HostPages(slots, form), KvTransfer(opened))


def _slots(options: EngineOptions, count: int, form: PageForm) -> Slots:
    if options.kv_offload_dir is None:
        return MemorySlots(count)
    folder = Path(options.kv_offload_dir)
    try:
        return FileSlots(count, folder, form.page_bytes)
    except OSError as error:
        raise RequestError(f"kv_offload_dir {folder} takes no file: {error.strerror}") from error
