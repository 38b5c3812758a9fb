"""What an Engine is opened with, checked before anything is touched."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from lora_host.errors import ModelError, RequestError
from lora_sdk.model.kv_formats import KV_KINDS, KvKind
from lora_sdk.plan.adapters import AdapterOptions

KERNELS = ("native", "numpy")
KV_AUTO = "auto"  # as the checkpoint says

Progress = Callable[[int, int], None]
"""Called while weights load with (bytes placed so far, bytes in all)."""


@dataclass(frozen=True)
class EngineOptions:
    """Arguments of Engine, see there. `boards` is settled here: asked for, or one a device; `board`
    is the kind of the first; `overlay` None leaves the choice to the model."""

    model: Path
    boards: int
    devices: tuple[str, ...]
    cluster_file: Path | None
    overlay: str | None
    kernels: str
    context: int | None
    max_sequences: int | None
    hidden_layers: tuple[int, ...]
    trace: bool
    adapters: AdapterOptions = field(default_factory=AdapterOptions)
    threads: int | None = None
    kv: str = KV_AUTO
    board: str = "u280"

    @property
    def kv_kind(self) -> KvKind | None:
        """The KV cache that was asked for, None for what the checkpoint says."""
        return None if self.kv == KV_AUTO else cast("KvKind", self.kv)


def make_options(
    model: str | Path | None,
    boards: int | None,
    devices: Sequence[str],
    cluster_file: str | Path | None,
    overlay: str | None,
    kernels: str,
    context: int | None,
    max_sequences: int | None,
    hidden_layers: Sequence[int],
    trace: bool,
    adapters: AdapterOptions | None = None,
    threads: int | None = None,
    kv: str = KV_AUTO,
) -> EngineOptions:
    """Checked options; RequestError names the argument."""
    if kernels not in KERNELS:
        raise RequestError(f"kernels {kernels!r}; expected {' or '.join(map(repr, KERNELS))}")
    if kv not in (KV_AUTO, *KV_KINDS):
        raise RequestError(f"kv {kv!r}; expected one of {', '.join((KV_AUTO, *KV_KINDS))}")
    if isinstance(devices, str):
        raise RequestError(f"devices is the string {devices!r}; expected a list of URIs")
    _check_count("context", context)
    _check_count("max_sequences", max_sequences)
    _check_count("threads", threads)
    return EngineOptions(
        model=_model_folder(model),
        boards=_board_count(boards, tuple(devices), cluster_file),
        devices=tuple(devices),
        cluster_file=Path(cluster_file) if cluster_file else None,
        overlay=overlay,
        kernels=kernels,
        context=context,
        max_sequences=max_sequences,
        hidden_layers=tuple(hidden_layers),
        trace=trace,
        adapters=adapters or AdapterOptions(),
        threads=threads,
        kv=kv,
        board=_board_kind(devices, cluster_file),
    )


def _board_kind(devices: Sequence[str], cluster_file: str | Path | None) -> str:
    from lora_host.selection import board_kind

    return board_kind(devices, cluster_file)


def _model_folder(model: str | Path | None) -> Path:
    if model is None:
        from lora_sdk.model.demo import demo_model_path

        return demo_model_path()
    folder = Path(model)
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "is not there"
        raise ModelError(f"model folder {folder} {found}; expected a Hugging Face model folder")
    return folder


def _board_count(
    boards: int | None, devices: tuple[str, ...], cluster_file: str | Path | None
) -> int:
    from lora_sdk.plan.partition import BOARD_COUNTS

    count = boards
    if count is None and devices:
        count = len(devices)
    if count is None and cluster_file is not None:
        from lora_host.cluster_file import load_cluster

        count = len(load_cluster(Path(cluster_file)).boards)
    count = 1 if count is None else count
    if isinstance(count, bool) or count not in BOARD_COUNTS:
        expected = ", ".join(map(str, BOARD_COUNTS[:-1])) + f" or {BOARD_COUNTS[-1]}"
        raise RequestError(f"{count} boards were asked for; expected {expected}")
    if devices and len(devices) != count:
        raise RequestError(f"{count} boards were asked for, {len(devices)} devices named")
    return count


def _check_count(name: str, value: int | None) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise RequestError(f"{name} is {value!r}; expected an integer of at least 1")
