"""Bad input through the command lines: one clear line on stderr, a non-zero exit, nothing on
stdout."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lora_host import native
from lora_sdk import Engine, SamplingParams
from tests.commands import LORA, RUN, command, lora_run, one_line_error
from tests.variants import variant, write_checkpoint

ROOT = Path(__file__).resolve().parents[2]
TOPOLOGIES = ROOT / "tests" / "topologies"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(variant("llama_narrow"), tmp_path_factory.mktemp("bad") / "model")


@pytest.mark.parametrize(
    "content, parts",
    [
        (None, ("does not exist",)),
        (b"", ("is empty",)),
        (b"\n", ("is empty",)),
        (b"ab\xff\xfe", ("is not UTF-8", "0xff at 2")),
        (b"x " * 250, ("tokens", "more than the context of 384")),
    ],
)
def test_bad_prompt_files(
    folder: Path, tmp_path: Path, content: bytes | None, parts: tuple[str, ...]
) -> None:
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    one_line_error(lora_run("--model", folder, file), *parts)


@pytest.mark.parametrize(
    "arguments, parts",
    [
        (("--boards", 3), ("3 boards", "1, 2, 4, 8, 16, 32 or 64")),
        (("--boards", 0), ("0 boards",)),
        (("--device", "emo:u280"), ("emo", "did you mean")),
        (("--device", "emu:u28"), ("did you mean", "u280")),
        (("--overlay", "lora_f_u28"), ("did you mean",)),
        (("--temp", "-1"), ("--temp/--temperature is -1.0",)),
        (("-n", "0"), ("-n/--predict is 0",)),
        (("--top-p", "2"), ("--top-p is 2.0",)),
        (("-n", "3", "--min-tokens", "4"), ("--min-tokens is 4", "new tokens, 3")),
        (("-c", "9999"), ("context 9999",)),
        (("--cluster", "/nowhere.yaml"), ("/nowhere.yaml",)),
        (("--chat",), ("no chat template",)),
        (("--nonsense",), ("nonsense",)),
        (("--temp", "nan"), ("temperature is nan", "0 to 1e+06")),
        (("--logprobs", "2"), ("--logprobs needs --json",)),
        (("--echo", "--json"), ("--echo is for text",)),
    ],
)
def test_bad_arguments(folder: Path, arguments: tuple[object, ...], parts: tuple[str, ...]) -> None:
    one_line_error(lora_run("--model", folder, *arguments, "-p", "hi"), *parts)


def test_a_prompt_that_is_no_unicode(folder: Path) -> None:
    one_line_error(lora_run("--model", folder, "-p", b"a\xff"), "not UTF-8", "0xff at 1")


def test_flags_that_a_batch_has_no_use_for(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "batch.jsonl"
    file.write_text('"a"')
    one_line_error(lora_run("--model", folder, "--batch", file, "--chat"), "--chat is for one")
    one_line_error(lora_run("--model", folder, "--batch", file, "--echo"), "--echo is for one")


@pytest.mark.parametrize(
    "closed, arguments, part",
    [(0, "-", "standard input is closed"), (1, "-p x", "standard output is closed")],
)
def test_closed_standard_streams(folder: Path, closed: int, arguments: str, part: str) -> None:
    code = f"import os; os.execlp('sh', 'sh', '-c', '\"$@\" {closed}>&-', '-', *{{argv}})"
    argv = [sys.executable, "-c", RUN, "--model", str(folder), "-n", "2", *arguments.split()]
    one_line_error(command(code.format(argv=argv)), part)


def test_a_closed_stderr_puts_nothing_on_stdout(folder: Path) -> None:
    argv = [sys.executable, "-c", RUN, "--model", str(folder), "-n", "5", "--json", "-p", "x"]
    code = f"import os; os.execlp('sh', 'sh', '-c', '\"$@\" 2>&-', '-', *{argv})"
    done = command(code)
    assert done.returncode == 0 and json.loads(done.stdout)["usage"]["completion_tokens"] == 5


def test_a_prompt_comes_from_one_place(folder: Path) -> None:
    one_line_error(lora_run("--model", folder), "found none")
    one_line_error(lora_run("--model", folder, "-p", "x", "file.txt"), "-p and PROMPT_FILE")


def broken(folder: Path, target: Path, change: Callable[[Path], None]) -> Path:
    shutil.copytree(folder, target)
    change(target)
    return target


def _cut(model: Path) -> None:
    file = model / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])


def _garbage(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"\xff" * 4000)


def _architecture(model: Path) -> None:
    (model / "config.json").write_text('{"model_type": "mamba"}')


def _only_bin(model: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")


@pytest.mark.parametrize(
    "change, parts",
    [
        (_cut, ("model.safetensors",)),
        (_garbage, ("model.safetensors",)),
        (_architecture, ("mamba", "state-space")),
        (_only_bin, (".bin",)),
        (lambda model: (model / "tokenizer.json").unlink(), ("no tokenizer.json",)),
        (lambda model: (model / "tokenizer.json").write_text("{}"), ("tokenizer.json",)),
        (lambda model: (model / "config.json").unlink(), ("config.json",)),
        (lambda model: (model / "config.json").write_text("{"), ("config.json", "JSON")),
    ],
)
def test_bad_models(
    folder: Path, tmp_path: Path, change: Callable[[Path], None], parts: tuple[str, ...]
) -> None:
    model = broken(folder, tmp_path / "model", change)
    one_line_error(lora_run("--model", model, "-p", "hi"), *parts)


def test_more_boards_than_query_heads(tmp_path: Path) -> None:
    from dataclasses import replace

    small = variant("llama_narrow")
    config = {**small.config, "num_attention_heads": 4, "hidden_size": 64}
    model = write_checkpoint(replace(small, name="few_heads", config=config), tmp_path / "model")
    one_line_error(
        lora_run("--model", model, "--boards", 8, "-p", "x"), "8 boards", "4 query heads"
    )


def test_a_model_that_does_not_fit_says_how_many_boards_would_do(tmp_path: Path) -> None:
    """Refused from config.json alone: no weights are there."""
    config = {
        "model_type": "llama", "hidden_size": 8192, "num_attention_heads": 64,
        "num_key_value_heads": 8, "intermediate_size": 28672, "num_hidden_layers": 80,
        "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
        "hidden_act": "silu", "tie_word_embeddings": False,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = lora_run("--model", tmp_path, "-p", "x")
    one_line_error(done, "board 0", "requested", "capacity", "MiB", "4 boards would fit")


def test_an_overlay_of_another_abi_is_refused(folder: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    shutil.copytree(ROOT / "overlays" / "lora_f_u280", overlay)
    manifest = overlay / "manifest.yaml"
    text = manifest.read_text()
    assert f"abi: {native.ABI_NUMBER}" in text
    manifest.write_text(text.replace(f"abi: {native.ABI_NUMBER}", "abi: 7"))
    wrong = f"ABI 7 found, {native.ABI_NUMBER} expected"
    one_line_error(lora_run("--model", folder, "--overlay", overlay, "-p", "x"), wrong)


def test_an_overlay_for_another_board_is_refused(folder: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    shutil.copytree(ROOT / "overlays" / "lora_f_u280", overlay)
    manifest = overlay / "manifest.yaml"
    text = manifest.read_text()
    assert "board: u280" in text
    manifest.write_text(text.replace("board: u280", "board: v80"))
    shared = ("--model", folder, "--overlay", overlay, "-p", "x")
    one_line_error(lora_run(*shared), "v80")
    one_line_error(lora_run(*shared, "--device", "emu:u280"), "v80")


def test_cluster_files_without_the_path_and_with_another_board(
    folder: Path, tmp_path: Path
) -> None:
    shared = ("--model", folder, "-p", "x", "--cluster")
    broken = TOPOLOGIES / "broken4.yaml"
    one_line_error(lora_run(*shared, broken), "no ring or path of 4 boards", "board 1 port 1")
    one_line_error(lora_run(*shared, broken, "--boards", 8), "4 boards found, 8 requested")
    other = tmp_path / "other.yaml"
    other.write_text((TOPOLOGIES / "pair.yaml").read_text().replace("emu:u280", "emu:v80", 1))
    one_line_error(lora_run(*shared, other), "board 1 (emu:u280)", "lora_f_v80 is for a v80")
    forced = lora_run(*shared, other, "--overlay", "lora_f_u280")
    one_line_error(forced, "board 0 (emu:v80)", "lora_f_u280 is for a u280")


def test_of_a_larger_cluster_the_boards_with_a_path_are_taken(folder: Path, tmp_path: Path) -> None:
    """Boards 0 and 1 share no cable here, 0 and 2 do."""
    file = tmp_path / "cluster.yaml"
    file.write_text(
        "boards:\n"
        + "".join(f"  - {{ uri: 'emu:u280', serial: {n} }}\n" for n in (11, 12, 13, 14))
        + "cables:\n"
        + "".join(
            f"  - {{ board_a: {a}, port_a: 1, board_b: {b}, port_b: 0 }}\n"
            for a, b in ((0, 2), (2, 1), (1, 3))
        )
    )
    with Engine(folder, boards=2, cluster_file=file) as engine:
        want = engine.generate("x", SamplingParams(max_tokens=6))
        assert [info.serial for info in engine.cluster.infos] == [11, 13]
        assert engine.cluster.why.endswith("(of its 4 boards 0, 2)")
    done = lora_run("--model", folder, "--boards", 2, "--cluster", file, "-n", 6, "-p", "x")
    assert done.stdout.decode() == want.text + "\n"
    plan = ("plan", "--model", folder, "--boards")
    planned = command(LORA, *plan, 2, "--cluster", file).stdout.decode()
    assert f"boards by rank: 0, 1; a path, cabled as {file} (of its 4 boards 0, 2)" in planned
    one_line_error(command(LORA, *plan, 8, "--cluster", file), "4 boards found, 8 requested")
    one_line_error(command(LORA, *plan, 0, "--cluster", file), "0 boards")


@pytest.mark.parametrize(
    ("tensor", "place"),
    [
        ("model.layers.1.mlp.down_proj.weight", (3, 7)),
        ("model.layers.1.input_layernorm.weight", (2,)),
    ],
)
def test_nan_in_the_weights_names_the_tensor(
    tensor: str, place: tuple[int, ...], folder: Path, tmp_path: Path
) -> None:
    from safetensors.numpy import load_file, save_file

    def spoil(model: Path) -> None:
        tensors = load_file(model / "model.safetensors")
        spoilt = tensors[tensor].copy()
        spoilt[place] = float("nan")
        tensors[tensor] = spoilt
        save_file(tensors, model / "model.safetensors")

    model = broken(folder, tmp_path / "model", spoil)
    done = lora_run("--model", model, "--boards", 2, "-q", "-p", "hi")
    one_line_error(done, f"{tensor}: weight {list(place)} is nan")


# What the command line cannot ask for is planted in the boards that it opens.
PLANTED = """
from lora_host import abi
from lora_host.cluster import Cluster
from lora_sdk.cli.run import main

opened = Cluster.open


def plant(*arguments, **more):
    cluster = opened(*arguments, **more)
    {planted}
    return cluster


Cluster.open = plant
main()
"""


@pytest.mark.parametrize(
    "planted, parts",
    [
        (
            "cluster.emulated.fault(1, abi.FAULT_LINK_DOWN, 1)",
            ("link", "board 1", "port 1", "board 2", "port 0"),
        ),
        (
            "cluster.emulated.fault(1, abi.FAULT_LINK_GARBLE, 1)",
            ("link", "board 1", "port 1", "board 2", "port 0"),
        ),
        (
            "cluster.emulated.fault(1, abi.FAULT_LINK_FLIP, 1, 0, 1000000)",
            ("board 1", "board 2"),
        ),
        (
            "cluster.reserve(2, 0, 255 << 20, 4 << 20)",
            ("board 2 bank 0", "255.0 MiB", "asked for", "of 256.0 MiB free"),
        ),
    ],
    ids=["down", "silently wrong", "wrong with a CRC", "bank full"],
)
def test_faults_of_boards_are_one_line(folder: Path, planted: str, parts: tuple[str, ...]) -> None:
    code = PLANTED.format(planted=planted)
    one_line_error(command(code, "--model", folder, "--boards", 4, "-n", 3, "-p", "x"), *parts)


SPOILT_LIST = """
from dataclasses import replace

from lora_host import abi
from lora_sdk.step import runner
from lora_sdk.compile.isa import Command, Matrix

lower = runner.lower


def spoil(command):
    {spoil}
    return command


def lower_spoilt(*arguments):
    return [spoil(c) if str(c) == "layer 1 matrix o" else c for c in lower(*arguments)]


runner.lower = lower_spoilt
from lora_sdk.cli.run import main

main()
"""


@pytest.mark.parametrize(
    "spoil, parts",
    [
        (
            "command = type('Odd', (Matrix,), {'OPCODE': 99})(**vars(command))",
            ("command 31", "opcode"),
        ),
        ("command = replace(command, wait_value=200)", ("command 31", "counter")),
        (
            "command = replace(command, weight_line=1 << 22)",
            ("command 31", "address outside", "bank"),
        ),
    ],
    ids=["opcode", "counter", "address"],
)
def test_a_wrong_command_is_refused_with_its_index(
    folder: Path, spoil: str, parts: tuple[str, ...]
) -> None:
    code = SPOILT_LIST.format(spoil=spoil)
    one_line_error(command(code, "--model", folder, "--boards", 2, "-n", 3, "-p", "x"), *parts)
