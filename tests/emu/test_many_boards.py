"""More than eight boards, which share segments of rows: the bytes of one. docs/numbers.md, 2.3.
Small models with heads enough; some boards own no column of some rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host import abi
from lora_host.errors import LoraError
from lora_sdk import Engine, SamplingParams
from lora_sdk.adapters.slots import AdapterSlots
from lora_sdk.model.checkpoint import Checkpoint
from lora_sdk.plan.adapters import AdapterOptions
from tests.adapter_folders import Folder, read_factors, write_adapter
from tests.drive import Driver, Logits, open_runner
from tests.emu.test_identity import tokens_of as named_tokens
from tests.oracle.adapted import Adapted
from tests.oracle.forward import Oracle, load_weights
from tests.quantized import SCHEMES, QuantizedModel
from tests.variants import Variant, write_checkpoint

LENGTH = 19
CUTS = (7, 1, 5, 1)
_LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 2,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "vocab_size": 515,
    "hidden_size": 544, "intermediate_size": 800, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 8, "tie_word_embeddings": False,
}  # fmt: skip
_GPT2 = {
    "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_positions": 64, "n_layer": 2,
    "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "n_embd": 320, "n_head": 32,
    "vocab_size": 300,
}  # fmt: skip
_GEMMA2 = {
    **_LLAMA, "model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"],
    "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
    "num_attention_heads": 32, "query_pre_attn_scalar": 8, "sliding_window": 16,
    "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": True,
}  # fmt: skip
_BLOOM = {
    "model_type": "bloom", "architectures": ["BloomForCausalLM"], "n_layer": 2, "seq_length": 64,
    "layer_norm_epsilon": 1e-5, "pretraining_tp": 1, "hidden_size": 320, "n_head": 32,
    "vocab_size": 311,
}  # fmt: skip
_OPT_POST = {
    "model_type": "opt", "architectures": ["OPTForCausalLM"], "num_hidden_layers": 2,
    "max_position_embeddings": 64, "activation_function": "relu", "hidden_size": 320,
    "num_attention_heads": 32, "ffn_dim": 416, "vocab_size": 297, "do_layer_norm_before": False,
    "word_embed_proj_dim": 80,
}  # fmt: skip
_OLMO2 = {
    **_LLAMA, "model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"],
    "num_attention_heads": 32, "head_dim": 18, "hidden_size": 576,
}  # fmt: skip
CONFIGS = {
    "llama": _LLAMA,
    "gpt2": _GPT2,
    "gemma2": _GEMMA2,
    "bloom": _BLOOM,
    "opt": _OPT_POST,
    "olmo2": _OLMO2,
}
Made = tuple[Path, Logits]


def tokens_of(name: str) -> list[int]:
    size = int(CONFIGS[name]["vocab_size"])  # type: ignore[call-overload]
    return [token % size for token in named_tokens("gpt2", LENGTH)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A folder and the logits that the independent implementation gives."""
    root, known = tmp_path_factory.mktemp("many"), dict[str, Made]()

    def of(name: str) -> Made:
        if name not in known:
            folder = write_checkpoint(Variant(name, CONFIGS[name]), root / name)
            checkpoint = Checkpoint.open(folder)
            oracle = Oracle(checkpoint.config, load_weights(checkpoint))
            known[name] = folder, oracle.logits(tokens_of(name))
        return known[name]

    return of


FAST = [("llama", 16), ("llama", 64), ("gpt2", 32), ("opt", 16)]
PAIRS = [*((name, boards) for name in CONFIGS for boards in (16, 32)), ("llama", 64)]
PARAMS = [p if p in FAST else pytest.param(*p, marks=pytest.mark.slow) for p in PAIRS]


@pytest.mark.parametrize(("name", "boards"), PARAMS)
def test_many_boards_give_the_bytes_of_one(
    name: str, boards: int, made: Callable[[str], Made]
) -> None:
    folder, want = made(name)
    with open_runner(folder, boards, sequences=1, context=64) as runner:
        got = Driver(runner).feed(0, tokens_of(name), CUTS)
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize(
    "scheme",
    [
        "w8a8_dynamic",
        *(pytest.param(s, marks=pytest.mark.slow) for s in ("w8a8", "w4a8_dynamic_order")),
    ],
)
def test_quantized_models_too(scheme: str, made: Callable[[str], Made]) -> None:
    """Rows with scales of their own are quantized behind their gather."""
    folder = made("llama")[0]
    model = QuantizedModel(folder, SCHEMES[scheme])
    want = model.oracle().logits(tokens_of("llama"))
    with open_runner(folder, 16, sequences=1, context=64, model=model) as runner:
        got = Driver(runner).feed(0, tokens_of("llama"), CUTS)
    assert got.tobytes() == want.tobytes()


def test_numpy_kernels_too(made: Callable[[str], Made]) -> None:
    folder, want = made("gpt2")
    with open_runner(folder, 16, kernels="numpy", sequences=1, context=64) as runner:
        got = Driver(runner).feed(0, tokens_of("gpt2")[:9], CUTS)
    assert got.tobytes() == want[:9].tobytes()


def test_ports_send_the_planned_bytes(made: Callable[[str], Made]) -> None:
    """Each port of each of 32 boards, in a step of three rows."""
    with open_runner(made("llama")[0], 32, sequences=1, context=64) as runner:
        emulated, plan = runner.cluster.emulated, runner.plan
        assert emulated is not None
        driver = Driver(runner)
        driver.step({0: tokens_of("llama")[:3]})
        ports = plan.link_bytes(3, 3)
        before = {port: emulated.link_bytes(*port) for port in ports}
        driver.step({0: tokens_of("llama")[3:6]})
        for port, sent in ports.items():
            after = emulated.link_bytes(*port)
            found = tuple(b - a for a, b in zip(before[port], after, strict=True))
            assert found == (sent.frames, sent.payload), port


def test_boards_choose_tokens_by_64_votes(made: Callable[[str], Made]) -> None:
    """Greedy tokens without the host: every board reads all boards' votes."""
    folder, texts = made("llama")[0], []
    for boards in (1, 64):
        with Engine(model=folder, boards=boards, context=64, max_sequences=1) as engine:
            out = engine.generate("a", SamplingParams(max_tokens=12, ignore_eos=True))
            texts.append(out.text)
    assert texts[0] and texts[0] == texts[1]


@pytest.mark.parametrize("board", [31, 45, 63])
def test_the_board_that_fails_is_named(board: int, made: Callable[[str], Made]) -> None:
    """Also those whose bit lies beyond 32."""
    with open_runner(made("llama")[0], 64, sequences=1, context=64) as runner:
        driver = Driver(runner)
        driver.step({0: tokens_of("llama")[:3]})
        assert runner.cluster.emulated is not None
        runner.cluster.emulated.fault(board, abi.FAULT_UNIT_STUCK, abi.UNIT_MPU)
        with pytest.raises(LoraError, match=f"board {board}\\b"):
            driver.step({0: [5]})


@pytest.mark.slow
def test_70b_in_small_runs_on_64_boards(tmp_path: Path) -> None:
    """LLaMA2-70B's layers, heads and KV heads with a 32nd of its columns."""
    shape = {
        **_LLAMA, "num_hidden_layers": 80, "hidden_size": 256, "intermediate_size": 896,
        "head_dim": 4, "num_key_value_heads": 8,
    }  # fmt: skip
    folder = write_checkpoint(Variant("llama", shape), tmp_path / "model")
    found = []
    for boards in (1, 64):
        with open_runner(folder, boards, sequences=1, context=64) as runner:
            found.append(Driver(runner).feed(0, tokens_of("llama")[:5], (4, 1)).tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("mode", ["auto", pytest.param("s", marks=pytest.mark.slow)])
def test_adapters_too(mode: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    """Rows of one adapter; "s" gathers its ranks of 16 boards."""
    folder, tokens = made("gpt2")[0], tokens_of("gpt2")[:9]
    which = Variant("gpt2", CONFIGS["gpt2"])
    path = write_adapter(which, Folder("plain", rank=12), tmp_path / "adapter")
    checkpoint = Checkpoint.open(folder)
    adapted = Adapted(checkpoint.config, load_weights(checkpoint), read_factors(which, path))
    options = AdapterOptions(1, 16, mode)
    with open_runner(folder, 16, sequences=1, context=64, adapters=options) as runner:
        held = AdapterSlots(runner.cluster, runner.plan)
        held.load("plain", path)
        held.attach(0, "plain")
        driver = Driver(runner)
        driver.adapters[0] = held.slot_of(0)
        got = driver.feed(0, tokens, CUTS)
    assert got.tobytes() == adapted.logits(tokens).tobytes()


@pytest.mark.slow
def test_a_lost_board_of_64_leaves_32_and_the_text(made: Callable[[str], Made]) -> None:
    """Its bit lies beyond 32; the text goes on where it was."""
    folder, texts = made("llama")[0], []
    params = SamplingParams(max_tokens=12, temperature=0.9, seed=3, ignore_eos=True)
    for lost in (None, 40):
        with Engine(model=folder, boards=64, context=64, max_sequences=1) as engine:
            first = engine.generate("a", params).text
            if lost is not None:
                assert engine.cluster.emulated is not None
                engine.cluster.emulated.fault(lost, abi.FAULT_BOARD_LOST)
            texts.append((first, engine.generate("b", params).text))
            assert engine.cluster.size == (64 if lost is None else 32)
    assert texts[0] == texts[1]
