"""Options of `lora quantize`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from lora_host.errors import RequestError
from lora_sdk.model.block import describe
from lora_sdk.model.kv_formats import KV_KINDS, KvFormat, KvKind, kv_format
from lora_sdk.model.operations import matmuls
from lora_sdk.model.spec import ModelConfig
from lora_sdk.model.weight_formats import GROUPS, WeightFormat, of_scheme, schemes

HeadKind = Literal["fp16", "w8"]
Method = Literal["gptq", "nearest"]
Activations = Literal["static", "dynamic"]
SCHEMES = schemes()
HEADS: tuple[HeadKind, ...] = get_args(HeadKind)
METHODS: tuple[Method, ...] = get_args(Method)
JUDGED = ("head", "kv")
ACTIVATIONS: tuple[Activations, ...] = get_args(Activations)


@dataclass(frozen=True)
class Recipe:
    """`group`: size along K of a group of 4-bit weights. `symmetric`: without zero points. `head`:
    format of lm_head's weights. `kv`: format of the KV cache. `method`: rounding with error
    compensation or to nearest. `smooth`: whether inputs are smoothed first. `activations`: INT8
    inputs have a static scale each, or one per row that boards compute. `judged`: of "head" and
    "kv", those that become FP16 where they cost too much of the held-out text. `rotate`: whether
    stream and heads are turned first. RequestError: a value out of range."""

    scheme: str
    group: int = 128
    symmetric: bool = True
    head: HeadKind = "w8"
    kv: KvKind = "int8"
    method: Method = "gptq"
    smooth: bool = True
    activations: Activations = "static"
    judged: tuple[str, ...] = ()
    rotate: bool = False

    def __post_init__(self) -> None:
        for name, value, allowed in (
            ("scheme", self.scheme, SCHEMES),
            ("group", self.group, GROUPS),
            ("lm_head", self.head, HEADS),
            ("KV cache", self.kv, KV_KINDS),
            ("method", self.method, METHODS),
            ("activations", self.activations, ACTIVATIONS),
        ):
            if value not in allowed:
                expected = ", ".join(map(str, allowed))
                raise RequestError(f"{name} {value!r}; expected one of {expected}")
        if self.dynamic and not self.integer:
            raise RequestError(
                f"activations dynamic: those of {self.scheme} are FP16; use w8a8 or w4a8"
            )

    @property
    def weights(self) -> WeightFormat:
        """The format of the layers' weights."""
        return of_scheme(self.scheme)

    @property
    def kv_format(self) -> KvFormat:
        """The format of the KV cache."""
        return kv_format(self.kv)

    @property
    def four_bit(self) -> bool:
        """Whether the layers' weights have 4 bits."""
        return self.weights.bits == 4

    @property
    def dynamic(self) -> bool:
        """Whether INT8 inputs have a scale per row."""
        return self.activations == "dynamic"

    @property
    def static(self) -> bool:
        """Whether INT8 inputs have a scale in the file."""
        return self.integer and not self.dynamic

    @property
    def integer(self) -> bool:
        """Whether the layers' inputs are INT8."""
        return self.weights.integer

    def check(self, config: ModelConfig) -> None:
        """RequestError names a matrix whose K is not a multiple of the group."""
        if not self.four_bit:
            return
        for name, k in _inputs(config).items():
            if k % self.group:
                fitting = fitting_group(config, self.group)
                hint = f"use --group {fitting}"
                if fitting is None:
                    hint = "no group divides every K; use --scheme w8a8, which has none"
                raise RequestError(
                    f"{name}: K is {k}, not a multiple of the group of {self.group}; {hint}"
                )


def fitting_group(config: ModelConfig, group: int) -> int | None:
    """The largest group of at most `group` weights that divides K of every matrix; None if none
    does."""
    sizes = _inputs(config).values()
    fitting = [size for size in GROUPS if size <= group and all(k % size == 0 for k in sizes)]
    return max(fitting, default=None)


def recommended(scheme: str, config: ModelConfig, group: int | None = None, **given: Any) -> Recipe:
    """What `lora quantize` does where nothing else is asked for: `given` are fields of Recipe, None
    for the default. INT8 inputs have a scale per row, 4-bit groups zero points, K and V a scale per
    head, lm_head and the cache being judged by what they cost; with FP16 inputs both stay FP16.
    `group`: at most so many weights, fewer where that does not divide K."""
    form = of_scheme(scheme)
    defaults: dict[str, Any] = {
        "symmetric": False,
        "head": "w8" if form.integer else "fp16",
        "kv": "int8-heads" if form.integer else "fp16",
        "activations": "dynamic" if form.integer else "static",
    }
    asked = max(GROUPS) if group is None else group
    fitting = fitting_group(config, asked) if form.bits == 4 and asked in GROUPS else None
    chosen = {name: value for name, value in given.items() if value is not None}
    fields = defaults | chosen
    judged = tuple(name for name in JUDGED if name not in chosen and fields[name] != "fp16")
    return Recipe(scheme, group=fitting or asked, judged=judged, **fields)


def _inputs(config: ModelConfig) -> dict[str, int]:
    """K of what is rounded, by one of its matrices."""
    found: dict[str, int] = {}
    for layer in describe(config).layers:
        kinds = {matmul.short: matmul for matmul in matmuls(layer) if matmul.short != "router"}
        found |= {one.tensors[0]: one.k for one in kinds.values()}
    return found
