"""Options of an Engine: described and checked here, before a board is opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from lora_host.boards import board_names
from lora_host.errors import ModelError, RequestError
from lora_host.naming import counted
from lora_sdk.arguments.option import (
    ArgumentError,
    check_options,
    documented,
    named_arguments,
    option,
)
from lora_sdk.gguf.file import is_gguf
from lora_sdk.model.hub import find_snapshot, is_hub_name
from lora_sdk.model.kv_formats import KV_KINDS, KvKind
from lora_sdk.opening.worker_name import parse_worker
from lora_sdk.plan.adapters import DEFAULT_RANK, MODES, AdapterOptions
from lora_sdk.plan.partition import check_board_count, check_stages

if TYPE_CHECKING:
    from lora_sdk.model.spec import ModelConfig
    from lora_sdk.opening.speculation_options import SpeculationOptions
    from lora_sdk.opening.weight_notices import OnNotice

BOARD_KINDS = board_names()
KERNELS = ("native", "numpy", "rtl")
RECOVERY = ("auto", "off")
SWITCH = ("on", "off")
PREFILL_MODES = ("exact", "fast")
CHOOSERS = ("boards", "host")
KV_AUTO = "auto"  # as the checkpoint defines
NOT_IN_SOURCE: tuple[tuple[str, Callable[[ModelConfig], bool]], ...] = (
    ("mixture of experts", lambda c: c.experts is not None),
    ("layers without attention", lambda c: c.recurrent is not None or bool(c.without_mixer)),
    ("latent attention", lambda c: c.latent is not None),
    ("squared ReLU", lambda c: c.activation == "relu2"),
)
"""What the hardware source has no units for, in words, and whether a model needs it."""

Progress = Callable[[int, int], None]
"""Called while weights load with (bytes placed so far, total bytes)."""


@documented
@named_arguments
@dataclass(frozen=True)
class EngineOptions:
    """Arguments of Engine. Its flags and the table in docs/python.md are generated from the fields.

    The constructor checks them: RequestError names the argument, ModelError the folder. Errors of
    the cluster file pass through."""

    model: str | Path | None = option(
        None,
        help="Hugging Face model folder, GGUF file, or ORG/NAME of a model in the local Hugging "
        "Face cache",
        unset="the demo model",
        flags=("-m", "--model"),
        metavar="DIR",
    )
    boards: int | None = option(
        None,
        help="1, 2, 4, 8, 16, 32 or 64 boards",
        unset="the number of devices or of boards in the cluster file, else 1",
        flags=("--boards",),
        metavar="N",
    )
    devices: Sequence[str] = option(
        (),
        help="URIs of the boards to use: emu:u280, sim:u280 (simulated cards), xrt:0, slash:BDF",
        unset="emulated boards",
        flags=("--device",),
        metavar="URI",
    )
    cluster_file: str | Path | None = option(
        None, help="cluster file: boards and cabling", flags=("--cluster",), metavar="FILE"
    )
    overlay: str | None = option(
        None,
        help="name or folder of the overlay",
        unset="one that supports the model",
        flags=("--overlay",),
        metavar="NAME",
    )
    kernels: str = option(
        "native",
        help="kernels of emulated boards: C, the NumPy reference, or simulated units (docs/rtl.md)",
        flags=("--kernels",),
        choices=KERNELS,
    )
    context: int | None = option(
        None,
        help="max positions per sequence; scalings of rotary positions by length follow it",
        unset="all that fit",
        flags=("-c", "--ctx-size", "--context"),
        metavar="N",
        low=1,
    )
    max_sequences: int | None = option(
        None,
        help="max open sequences",
        unset="all that fit, at most 16",
        flags=("--max-sequences", "--sequences"),
        metavar="N",
        low=1,
    )
    progress: Progress | None = option(
        None, help="callback while weights load: bytes placed so far, total bytes"
    )
    hidden_layers: Sequence[int] = option(
        (), help="layers whose input hidden states a row may request"
    )
    embeddings: bool = option(
        False,
        help="return final hidden states, of which embeddings are made",
    )
    trace: bool = option(False, help="keep the boards' command traces")
    max_adapters: int = option(
        0,
        help="max adapters on the boards at once; 0 reserves no memory for them",
        flags=("--max-adapters",),
        metavar="N",
        low=0,
        high="MAX_ADAPTER_SLOTS",
    )
    max_adapter_rank: int = option(
        DEFAULT_RANK, help="max rank of an adapter", low=1, high="MAX_ADAPTER_RANK"
    )
    adapter_mode: str = option(
        "auto",
        help="how adapters are sharded over the boards",
        flags=("--adapter-mode",),
        choices=MODES,
    )
    threads: int | None = option(
        None,
        help="threads of native kernels",
        unset="one per CPU",
        flags=("--threads",),
        metavar="T",
        low=1,
    )
    speculation: SpeculationOptions | None = option(
        None, help="proposer and draft tree; tokens are the same", unset="plain decoding"
    )
    prefix_cache: bool = option(
        True,
        help="keep K and V of finished requests for later ones with the same prefix",
        flags=("--prefix-cache", "--no-prefix-cache"),
    )
    kv_offload: float | None = option(
        None,
        help="GiB of this computer's memory for K and V that the boards have no room for",
        unset="none: they are computed again",
        flags=("--kv-offload",),
        metavar="GIB",
        low=0,
        high=1 << 20,
        above=True,
    )
    kv_offload_dir: str | Path | None = option(
        None,
        help="folder for a file to hold that in place of memory; it is not kept",
        flags=("--kv-offload-dir",),
        metavar="DIR",
    )
    gguf_weights: str = option(
        "blocks",
        help="weights of GGUF files: the file's blocks, where boards are emulated or the overlay "
        "named knows them, or FP16 of the same values",
        flags=("--gguf-weights",),
        choices=("blocks", "fp16"),
    )
    kv: str = option(
        KV_AUTO,
        help="type of the KV cache; auto: as the checkpoint defines",
        flags=("--kv",),
        choices=(KV_AUTO, *KV_KINDS),
    )

    recovery: str = option(
        "auto",
        help="after failures that outlast a step: recover the boards and go on, or end requests",
        flags=("--recovery",),
        choices=RECOVERY,
    )
    check_weights: str = option(
        "on",
        help="sum weights on the boards between steps; requests that got tokens from damaged ones "
        "fail, and the weights are loaded again",
        flags=("--check-weights",),
        choices=SWITCH,
    )
    on_notice: OnNotice | None = option(
        None, help="callback for each notice of damaged weights that were found and loaded again"
    )
    greedy: str = option(
        "boards",
        help="what chooses the tokens of a lone greedy request; they are the same",
        flags=("--greedy",),
        choices=CHOOSERS,
    )
    spares: Sequence[str] = option(
        (),
        help="URIs of boards that may replace lost ones; in a cluster file, those it cables",
        flags=("--spare",),
        metavar="URI",
    )

    daemon_wait: float = option(
        0.0,
        help="seconds that a recovery waits for board daemons that are started again",
        flags=("--daemon-wait",),
        metavar="SECONDS",
        low=0,
        high=3600,
    )

    prefill: str | None = option(
        None,
        help="who computes prompts: cpu, boards:N (emulated on this computer), boards:URI,URI, "
        "cuda:N or torch:DEVICE (extra prefill), in the fast mode also vllm:SOCKET",
        unset="the boards",
        flags=("--prefill",),
        metavar="WORKER",
    )

    prefill_mode: str = option(
        "exact",
        help="exact: the boards' bytes; fast: torch's arithmetic, near them (extra prefill)",
        flags=("--prefill-mode",),
        choices=PREFILL_MODES,
    )
    prefill_model: str | Path | None = option(
        None,
        help="folder of the same model for --prefill-mode fast, e.g. not quantized",
        unset="the model's own, dequantized",
        flags=("--prefill-model",),
        metavar="DIR",
    )

    stages: int = option(
        1,
        help="groups of boards, each of which runs some of the layers and passes its rows on",
        flags=("--stages",),
        metavar="S",
        low=1,
    )

    def __post_init__(self) -> None:
        check_options(self)
        self._check_prefill()
        if self.progress is not None and not callable(self.progress):
            expected = "a function of the bytes placed and the total bytes"
            raise ArgumentError("progress", self.progress, expected, optional=True)
        if self.on_notice is not None and not callable(self.on_notice):
            raise ArgumentError(
                "on_notice", self.on_notice, "a function of a WeightNotice", optional=True
            )
        for name in ("devices", "hidden_layers", "spares"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        self._check_boards()

    @cached_property
    def folder(self) -> Path:
        """The model's folder or GGUF file. ModelError if it does not exist."""
        if self.model is None:
            from lora_sdk.model.demo import demo_model_path

            return demo_model_path()
        folder = Path(self.model)
        try:
            exists = folder.exists()
        except OSError as error:  # such as a name that is too long
            found = f"{folder!s:.100}: {error.strerror}"
            raise ModelError(f"model folder {found}; expected a path", usage=True) from None
        if not exists and is_hub_name(str(self.model)):
            return find_snapshot(str(self.model))
        if not folder.is_dir() and not is_gguf(folder):
            found = "is another file" if exists else "does not exist"
            raise ModelError(
                f"model folder {folder} {found}; expected a Hugging Face model folder or a GGUF "
                "file",
                usage=True,
            )
        return folder

    @cached_property
    def board_count(self) -> int:
        """`boards`, or the number of boards that the other options name."""
        count = self.boards
        if count is None and self.devices:
            count = len(self.devices)
        if count is None and self.cluster_file is not None:
            from lora_host.cluster_file import load_cluster

            count = len(load_cluster(self.cluster_file).boards)
        return 1 if count is None else count

    @cached_property
    def board_kind(self) -> str:
        """Kind of the first board, "u280" if none is named."""
        from lora_host.selection import board_kind

        return board_kind(self.devices, self.cluster_file)

    @cached_property
    def uris(self) -> tuple[str, ...]:
        """URIs of the boards that are named."""
        from lora_host.cluster_file import load_cluster

        if self.cluster_file is None:
            return tuple(self.devices)
        return tuple(entry.uri for entry in load_cluster(self.cluster_file).boards)

    def held(self, config: ModelConfig) -> ModelConfig:
        """A model as these boards may hold it. No hardware source multiplies the blocks of GGUF
        files, so an overlay that lists them is chosen for emulated units alone. RequestError: on
        other boards, what no hardware source has units for, NOT_IN_SOURCE."""
        from lora_host.device_uri import board_type
        from lora_sdk.model.spec import without_blocks

        emulated = all(board_type(uri) == "emulated" for uri in self.uris)
        modelled = emulated and self.kernels != "rtl"
        missing = [what for what, needs in NOT_IN_SOURCE if needs(config)]
        if missing and not modelled:
            found = "kernels 'rtl'" if emulated else ", ".join(self.uris)
            raise RequestError(
                f"{config.architecture}: the hardware source has no {missing[0]}, which {found} "
                "would need; use emulated boards with kernels 'native' or 'numpy'"
            )
        known = self.overlay is not None or modelled
        return config if known and self.gguf_weights == "blocks" else without_blocks(config)

    @property
    def kv_kind(self) -> KvKind | None:
        """The requested type of the KV cache, None for the checkpoint's."""
        return None if self.kv == KV_AUTO else cast("KvKind", self.kv)

    @property
    def adapters(self) -> AdapterOptions:
        """Memory for adapters."""
        return AdapterOptions(self.max_adapters, self.max_adapter_rank, self.adapter_mode)

    def _check_boards(self) -> None:
        """Check the model's folder and the number and URIs of the boards."""
        from lora_host.device_uri import check_cards
        from lora_host.selection import check_one_source, stands_for_many

        check_one_source(self.devices, self.cluster_file)
        self.folder, self.board_kind  # noqa: B018 - cached properties; they raise what is wrong
        count = self.board_count
        check_board_count(count)
        check_stages(count, self.stages)
        if self.devices and len(self.devices) != count and not stands_for_many(self.devices):
            asked, named = counted(count, "board"), counted(len(self.devices), "device")
            raise RequestError(f"{asked} requested, {named} named")
        check_cards(self.devices, self.kernels, self.trace)
        self._check_spares()

    @property
    def prefill_is_fast(self) -> bool:
        """Whether prompts are computed in another arithmetic than the boards'."""
        return self.prefill is not None and self.prefill_mode == "fast"

    def _check_prefill(self) -> None:
        if self.prefill is not None:
            parse_worker(self.prefill, self.prefill_is_fast)
        elif self.prefill_mode == "fast":
            expected = "'exact' while no worker computes prompts; name one, e.g. cpu"
            raise ArgumentError("prefill_mode", self.prefill_mode, expected)
        if self.prefill_model is None:
            return
        if not self.prefill_is_fast:
            expected = "none in the exact mode of prefill, which uses the model itself"
            raise ArgumentError("prefill_model", str(self.prefill_model), expected)
        if not Path(self.prefill_model).is_dir():
            expected = "the folder of a Hugging Face model"
            raise ArgumentError("prefill_model", str(self.prefill_model), expected)

    def _check_spares(self) -> None:
        from lora_host.selection import check_spares

        check_spares(self.spares, self.devices, self.cluster_file, self.board_kind)
