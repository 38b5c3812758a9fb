"""The operations of a model in order, as data. The list is made once from the configuration.
Placement, lowering, timing and quantization read it. It contains no boards and no addresses.

Each operation waits for the one before it. So the order is that of the data, of the command
list and of the gathers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

from lora_host.errors import ModelError
from lora_sdk.model import latent
from lora_sdk.model.block_checks import check_experts, check_recurrent
from lora_sdk.model.families.registry import FAMILIES, family
from lora_sdk.model.operations import (
    Activate,
    AddGated,
    AddPosition,
    AddResidual,
    Argmax,
    Attend,
    Axis,
    Buffer,
    CapLogits,
    Embed,
    ExpertMatmul,
    GateHeads,
    JoinHeads,
    Matmul,
    Norm,
    NormGroups,
    NormHeads,
    Operation,
    Output,
    PackSelected,
    Recur,
    Rope,
    Route,
    ScaleLogits,
    StoreKv,
    matmuls,
    width,
)
from lora_sdk.model.recurrent import MIX, MIX_PARTS, MIXED
from lora_sdk.model.spec import ExpertConfig, ModelConfig, RecurrentConfig


@dataclass(frozen=True)
class Block:
    """A model's operations: `before` the layers, of each layer, and `after` them. `stream` is the
    buffer of the residual stream, which runs from layer to layer. `buffers` are all on-chip buffers
    of activations, in the order of their offsets."""

    stream: Buffer
    buffers: tuple[Buffer, ...]
    before: tuple[Operation, ...]
    layers: tuple[tuple[Operation, ...], ...]
    after: tuple[Operation, ...]

    @property
    def operations(self) -> Iterator[Operation]:
        """All of them in order."""
        yield from self.before
        for layer in self.layers:
            yield from layer
        yield from self.after

    @cached_property
    def matmuls(self) -> tuple[Matmul, ...]:
        """All matmuls in order."""
        return matmuls(self.operations)

    @cached_property
    def head_input(self) -> Buffer:
        """What lm_head reads; of a stage that has it."""
        return next(matmul.source for matmul in self.matmuls if matmul.target.results)

    @cached_property
    def adapted(self) -> tuple[Matmul, ...]:
        """Matmuls that adapters may change. They number them in this order."""
        return tuple(matmul for matmul in self.matmuls if matmul.adapts)

    @cached_property
    def inputs(self) -> Mapping[str, tuple[Matmul, ...]]:
        """The matmuls that read each gathered row, by the name of the first of them."""
        found: dict[str, tuple[Matmul, ...]] = {}
        for matmul in self.matmuls:
            first = matmul.input_of or matmul.name
            found[first] = (*found.get(first, ()), matmul)
        return found

    def input_tensors(self, matmul: Matmul) -> tuple[str, ...]:
        """Checkpoint names of all matrices that read the same row as `matmul`."""
        readers = self.inputs[matmul.input_of or matmul.name]
        return tuple(tensor for reader in readers for tensor in reader.tensors)

    def gathered_by(self, matmul: Matmul) -> Matmul:
        """The matmul for which the row that `matmul` reads was gathered."""
        return self.inputs[matmul.input_of or matmul.name][0]


@lru_cache(maxsize=64)
def describe(config: ModelConfig) -> Block:
    """The operations of a model. ModelError: norms after the sums with a parallel residual or with
    norms of branches."""
    known = config.architecture in FAMILIES
    made = (
        getattr(family(config.architecture), "Description", Description) if known else Description
    )
    found: Block = made(config).block()
    return found


RESIDUAL = Buffer("residual", ("hidden",))
INPUT = Buffer("input", ("hidden",), gathered=True)
QKV = Buffer("qkv", ("heads", "kv_heads", "kv_heads"))
ATTENTION = Buffer("attention", ("heads",), gathered=True)
BRANCH = Buffer("branch", ("hidden",))  # output of o or down, to be added to the stream
FFN = Buffer("ffn", ("ffn",), gathered=True)
PACKED = Buffer("packed", ("hidden",))
HEAD = Buffer("head", ("hidden",), gathered=True)
EMBED = Buffer("embed", ("embed",), gathered=True)
LOGITS = Buffer("logits", ("vocabulary",), results=True, element_bytes=4)
ROUTER = Buffer("router", ("experts",), element_bytes=4)
CHOSEN = Buffer("chosen", ("chosen",), element_bytes=8)
EXPERT_UP = Buffer("expert_up", ("chosen_ffn", "chosen_ffn"))
EXPERT_FFN = Buffer("expert_ffn", ("chosen_ffn",), gathered=True)
SHARED_UP = Buffer("shared_up", ("shared_ffn", "shared_ffn"))
SHARED_FFN = Buffer("shared_ffn", ("shared_ffn",), gathered=True)
SHARED = Buffer("shared", ("hidden",))  # the shared expert's output, to be added to the others'


def _of_experts(lead: str, count: int, parts: tuple[str, ...], axis: Axis) -> tuple[Output, ...]:
    """The outputs of all experts' matrices."""
    return tuple(
        Output(f"{lead}.expert.{number}.{part}", axis) for number in range(count) for part in parts
    )


@dataclass(frozen=True)
class Description:
    """Makes the operations of a configuration. The file of a family whose layers have more may have
    a subclass of this name."""

    config: ModelConfig

    @property
    def up(self) -> Buffer:
        """What the activation reads: gate and up side by side, or up alone."""
        return Buffer("up", ("ffn", "ffn") if self.config.gated else ("ffn",))

    @property
    def qkv(self) -> Buffer:
        """q, k and v side by side and, where attention's output has one, its gate."""
        return replace(QKV, axes=(*QKV.axes, "heads")) if self.config.output_gate else QKV

    @property
    def attention(self) -> Buffer:
        """What the matmul behind attention reads."""
        return replace(ATTENTION, axes=("values",)) if self.config.latent else ATTENTION

    @property
    def router(self) -> Buffer:
        """The router's logits and, where there is one, the shared expert's gate."""
        experts = self.config.experts
        gated = experts is not None and experts.shared_gate
        return replace(ROUTER, axes=("experts", "shared_gate")) if gated else ROUTER

    @property
    def _projected(self) -> bool:
        return self.config.embed_dim != self.config.hidden

    @property
    def _stream(self) -> Buffer:
        """Without norms between the sums and the next matmul, it reads the stream itself."""
        between = self.config.norm_first and self.config.branch_norms != "alone"
        return RESIDUAL if between else INPUT

    def block(self) -> Block:
        if self.config.residual != "sequential" and not self.config.norm_first:
            raise ModelError(f"{self.config.residual} residual with norms after the sums; expected"
                             " norms before attention and MLP")  # fmt: skip
        if self.config.branch_norms != "none" and (
            self.config.residual != "sequential" or not self.config.norm_first
        ):
            raise ModelError("norms of branches' outputs; expected a sequential residual without"
                             " norms after the sums")  # fmt: skip
        scaled = self.config.stream_scale != 1
        if scaled and (self.config.embed_norm or self._projected or self.config.position_rows):
            raise ModelError("a scaled residual stream with learned positions, project_in or a norm"
                             " of embeddings; expected none of them")  # fmt: skip
        if scaled and not (self.config.norm_first and self.config.norm == "rmsnorm"):
            raise ModelError("a scaled residual stream without RMSNorms before its branches;"
                             " expected these")  # fmt: skip
        if self.config.embed_norm and (self._projected or self._stream is not RESIDUAL):
            raise ModelError("a norm of embeddings with project_in or with norms after the sums;"
                             " expected neither")  # fmt: skip
        check_experts(self.config)
        attention = self.attention
        buffers = [RESIDUAL, INPUT, self.qkv, attention, BRANCH, self.up, FFN, PACKED, HEAD]
        if self.config.experts is not None:
            dense = not self.config.experts.layers.issuperset(range(self.config.layers))
            mlp = [self.up, FFN] if dense else []
            shared = [SHARED_UP, SHARED_FFN, SHARED] if self.config.experts.shared else []
            buffers = [RESIDUAL, INPUT, self.qkv, attention, BRANCH, *mlp, self.router, CHOSEN,
                       EXPERT_UP, EXPERT_FFN, *shared, PACKED, HEAD]  # fmt: skip
        if self.config.recurrent is not None:
            check_recurrent(self.config, self.config.recurrent)
            buffers += [MIX[self.config.recurrent.kind], MIXED]
        buffers += latent.buffers(self.config)
        return Block(
            self._stream,
            (*buffers, EMBED) if self._projected else tuple(buffers),
            tuple(self._before()),
            tuple(tuple(self.layer(layer)) for layer in range(self.config.layers)),
            tuple(self._after()),
        )

    def _before(self) -> Iterator[Operation]:
        """The first residual: token and position embeddings, through project_in if there is one."""
        positions = self.config.position_rows > 0
        if self.config.embed_norm:  # of whole rows, so before the stream
            scale = self.config.embed_scale
            yield Embed(target=INPUT, positions=positions, scale=scale)
            yield self._norm("embed_norm", INPUT, self._stream, None)
            return
        if not self._projected:
            scale = self.config.embed_scale * self.config.stream_scale
            yield Embed(target=self._stream, positions=positions, scale=scale)
            return
        yield Embed(target=EMBED, positions=False, scale=self.config.embed_scale)
        yield self._plain("project_in", EMBED, self._stream)
        if positions:
            yield AddPosition(target=self._stream)

    def layer(self, layer: int) -> Iterator[Operation]:
        """The operations of a layer."""
        attention, mlp = tuple(self._attention(layer)), tuple(self._mlp(layer))
        add = self._add(layer, self.config.mixer_scales[1 if self.config.recurs(layer) else 0])
        before = {
            name: self._norm(f"layer.{layer}.{name}", self._stream, INPUT, layer)
            for name in ("attn_norm", "mlp_norm")
        }
        if self.config.residual == "parallel":  # x + attention(n(x)) + mlp(n(x))
            yield from (before["attn_norm"], *attention, add, *mlp, add)
        elif self.config.residual == "parallel_two_norms":  # mlp_norm reads x: before the sum
            yield from (before["attn_norm"], *attention, before["mlp_norm"], add, *mlp, add)
        elif self.config.branch_norms != "none":  # x + n(branch(x)), or x + n(branch(n(x)))
            both = self.config.branch_norms == "both"
            for name, branch in (("attn", attention), ("mlp", mlp)):
                behind = self._norm(f"layer.{layer}.{name}_post_norm", BRANCH, BRANCH, layer)
                behind = replace(behind, numerator=self.config.stream_scale)
                first = (before[f"{name}_norm"],) if both else ()
                yield from (*first, *branch, behind, add)
        elif self.config.norm_first:  # x + branch(n(x))
            if layer not in self.config.without_mixer:
                yield from (before["attn_norm"], *attention, add)
            if layer not in self.config.without_mlp:
                last = self._add(layer, self.config.mixer_scales[2])
                yield from (before["mlp_norm"], *mlp, last)
        else:  # n(x + branch(x))
            for name, branch in (("attn_norm", attention), ("mlp_norm", mlp)):
                yield from (*branch, add)
                yield self._norm(f"layer.{layer}.{name}", RESIDUAL, self._stream, layer)

    def _add(self, layer: int, own: float = 1.0) -> AddResidual:
        """With a factor of its `own`. Norms after the sums read the sum in another buffer than they
        write. Norms of branches have scaled these for the stream."""
        scale = self.config.branch_scale * own
        if self.config.branch_norms == "none":
            scale *= self.config.stream_scale
        return AddResidual(
            layer=layer,
            stream=self._stream,
            branch=BRANCH,
            target=self._stream if self.config.norm_first else RESIDUAL,
            scale=scale,
        )

    def _recurrence(self, layer: int, recurrent: RecurrentConfig) -> Iterator[Operation]:
        lead, kind = f"layer.{layer}", recurrent.kind
        mix = MIX[kind]
        outputs = tuple(
            Output(f"{lead}.mix.{part}", axis)
            for part, axis in zip(MIX_PARTS[kind], mix.axes, strict=True)
        )
        shared = f"{lead}.qkv" if recurrent.beside else None
        yield self._matmul(f"{lead}.mix", INPUT, mix, outputs, False, layer, shared)
        yield Recur(layer=layer, name=f"{lead}.mix", source=mix, target=MIXED, kind=kind,
                    eps=self.config.norm_eps)  # fmt: skip
        if recurrent.normed:
            yield NormGroups(
                layer=layer, name=f"{lead}.mix.norm", target=MIXED, groups=recurrent.key_heads,
                eps=self.config.norm_eps,
            )  # fmt: skip
        yield self._plain(f"{lead}.mix.o", MIXED, BRANCH, False, layer)

    def _attention(self, layer: int) -> Iterator[Operation]:
        config = self.config
        recurrent = config.recurrent if config.recurs(layer) else None
        if config.attends(layer):
            yield from self._attend(layer)
        if recurrent is not None and recurrent.beside:
            yield self._add(layer, config.mixer_scales[0])
        if recurrent is not None:
            yield from self._recurrence(layer, recurrent)

    def _attend(self, layer: int) -> Iterator[Operation]:
        config, lead = self.config, f"layer.{layer}"
        qkv, attention = self.qkv, self.attention
        if config.latent is not None:
            yield from latent.operations(config, layer, INPUT, qkv)
        else:
            outputs = tuple(
                Output(f"{lead}.{name}", axis)
                for name, axis in zip(("q", "k", "v", "q_gate"), qkv.axes, strict=False)
            )
            yield self._matmul(f"{lead}.qkv", INPUT, qkv, outputs, config.qkv_bias, layer)
        yield from self._norm_heads(layer)
        if config.rope is not None and layer not in config.unrotated:
            table = "rope_local" if layer in config.local_layers else "rope"
            yield Rope(layer=layer, target=qkv, table=table)
        yield StoreKv(layer=layer, source=qkv)
        yield Attend(
            layer=layer,
            source=qkv,
            target=latent.attended(config) or attention,
            window=config.window(layer),
            slopes=config.alibi is not None,
            cap=config.score_cap,
            sinks=f"{lead}.sinks" if config.sinks else "",
        )
        if config.output_gate:
            yield GateHeads(layer=layer, source=qkv, target=attention)
        if (whole := latent.attended(config)) is not None:
            yield JoinHeads(layer=layer, source=whole, target=attention, part="y")
        yield self._plain(f"{lead}.o", attention, BRANCH, config.o_bias, layer)

    def _norm_heads(self, layer: int) -> Iterator[NormHeads]:
        whole = self.config.head_norms == "row"
        parts: tuple[Literal["q", "k"], ...] = ("q", "k")
        for part in parts if self.config.head_norms != "none" else ():
            name = f"layer.{layer}.{part}_norm"
            yield NormHeads(
                layer=layer, name=name, target=self.qkv, part=part, whole=whole,
                one_plus=self.config.one_plus,
            )  # fmt: skip

    def _mlp(self, layer: int) -> Iterator[Operation]:
        experts = self.config.experts
        if experts is not None and layer in experts.layers:
            yield from self._experts(layer, experts)
            return
        config, lead = self.config, f"layer.{layer}"
        names = ("gate", "up") if config.gated else ("up",)
        outputs = tuple(Output(f"{lead}.{name}", "ffn") for name in names)
        shared = f"{lead}.qkv" if config.residual == "parallel" else None
        yield self._matmul(f"{lead}.up", INPUT, self.up, outputs, config.mlp_bias, layer, shared)
        yield Activate(
            layer=layer, source=self.up, target=FFN, kind=config.activation, gated=config.gated,
            scale=config.gate_scale,
        )  # fmt: skip
        yield self._plain(f"{lead}.down", FFN, BRANCH, config.mlp_bias, layer)

    def _experts(self, layer: int, experts: ExpertConfig) -> Iterator[Operation]:
        """The router, which gathers the row for the experts too, and the experts that it chooses:
        their columns of gate and up, the activation, their columns of down, summed."""
        config, lead = self.config, f"layer.{layer}"
        axes = self.router.axes
        names = (f"{lead}.router", f"{lead}.shared_gate")
        outputs = tuple(Output(name, axis) for name, axis in zip(names, axes, strict=False))
        yield self._matmul(f"{lead}.router", INPUT, self.router, outputs, experts.biased, layer)
        yield Route(
            layer=layer,
            source=self.router,
            target=CHOSEN,
            chosen=experts.chosen,
            renormalize=experts.renormalize,
            sigmoid=experts.sigmoid,
            bias=f"{lead}.choice_bias" if experts.sigmoid else "",
            groups=experts.groups,
            taken=experts.taken,
            factor=experts.factor,
        )
        fields: dict[str, Any] = {
            "layer": layer,
            "bias": experts.biased,
            "experts": experts.count,
            "chosen": experts.chosen,
            "chosen_from": CHOSEN,
        }
        yield ExpertMatmul(
            name=f"{lead}.expert_up",
            source=INPUT,
            target=EXPERT_UP,
            k=config.hidden,
            outputs=_of_experts(lead, experts.count, ("gate", "up"), "expert_ffn"),
            input_of=f"{lead}.router",
            combine=False,
            **fields,
        )
        yield Activate(
            layer=layer, source=EXPERT_UP, target=EXPERT_FFN, kind=config.activation, gated=True,
            limit=experts.limit, alpha=experts.alpha,
        )  # fmt: skip
        yield ExpertMatmul(
            name=f"{lead}.expert_down",
            source=EXPERT_FFN,
            target=BRANCH,
            k=experts.ffn,
            outputs=_of_experts(lead, experts.count, ("down",), "hidden"),
            combine=True,
            **fields,
        )
        if experts.shared:
            yield from self._shared(layer, experts)

    def _shared(self, layer: int, experts: ExpertConfig) -> Iterator[Operation]:
        """The expert of every row, added to those that it has chosen."""
        lead = f"layer.{layer}"
        outputs = tuple(Output(f"{lead}.shared.{name}", "shared_ffn") for name in ("gate", "up"))
        yield self._matmul(
            f"{lead}.shared_up", INPUT, SHARED_UP, outputs, False, layer, f"{lead}.router"
        )
        yield Activate(
            layer=layer, source=SHARED_UP, target=SHARED_FFN, kind=self.config.activation,
            gated=True,
        )  # fmt: skip
        outputs = (Output(f"{lead}.shared.down", "hidden"),)
        yield self._matmul(f"{lead}.shared_down", SHARED_FFN, SHARED, outputs, False, layer)
        if experts.shared_gate:
            yield AddGated(layer=layer, source=SHARED, gate=self.router, target=BRANCH)
        else:
            yield AddResidual(layer=layer, stream=BRANCH, branch=SHARED, target=BRANCH)

    def _after(self) -> Iterator[Operation]:
        """For the selected rows: final norm, project_out, lm_head."""
        config, selected = self.config, True
        packed = PACKED if config.final_norm else HEAD
        yield PackSelected(source=self._stream, target=packed, selected=selected)
        if config.final_norm:
            yield self._norm("final_norm", PACKED, HEAD, None)
        source = HEAD
        if self._projected:
            yield self._plain("project_out", HEAD, EMBED, selected=selected)
            source = EMBED
        yield self._plain("lm_head", source, LOGITS, config.head_bias, selected=selected)
        if config.logit_scale != 1:
            yield ScaleLogits(target=LOGITS, scale=config.logit_scale, selected=selected)
        if config.logit_cap:
            yield CapLogits(target=LOGITS, cap=config.logit_cap, selected=selected)
        yield Argmax(source=LOGITS, selected=selected)

    def _norm(self, name: str, source: Buffer, target: Buffer, layer: int | None) -> Norm:
        """Of the stream, or of a branch's output, which is not scaled."""
        config = self.config
        scale = 1.0 if source is BRANCH else config.stream_scale
        beta = config.norm == "layernorm" and config.norm_bias
        vectors = ("gamma", "beta") if beta else ("gamma",)
        return Norm(
            layer=layer,
            selected=name == "final_norm",
            name=name,
            source=source,
            target=target,
            kind=config.norm,
            vectors=vectors if config.norm_affine else (),
            eps=config.norm_eps * scale**2,
            one_plus=config.one_plus,
        )

    def _plain(
        self,
        name: str,
        source: Buffer,
        target: Buffer,
        bias: bool = False,
        layer: int | None = None,
        selected: bool = False,
    ) -> Matmul:
        """A matmul of one tensor, which has the same name."""
        outputs = (Output(name, target.axes[0]),)
        found = self._matmul(name, source, target, outputs, bias, layer)
        return replace(found, selected=selected)

    def _matmul(
        self,
        name: str,
        source: Buffer,
        target: Buffer,
        outputs: tuple[Output, ...],
        bias: bool,
        layer: int | None,
        input_of: str | None = None,
    ) -> Matmul:
        return Matmul(
            layer=layer,
            name=name,
            source=source,
            target=target,
            k=width(self.config, source.axes[0]),
            outputs=outputs,
            bias=bias,
            input_of=input_of,
        )
