"""`lora lab model --adapter-rank`: bytes, collectives and time of an adapter, in three ways."""

import json

import pytest
from click.testing import CliRunner

from lora_host.errors import RequestError
from lora_lab.cli.model import model as command
from lora_lab.timing import step as steps
from lora_lab.timing.adapter_ops import MODES, AdapterUse
from lora_lab.timing.designs import ArrayDesign, load_design
from lora_lab.timing.facts import board_facts
from lora_lab.timing.machine import machine_of
from lora_lab.timing.ops import ADAPTER, ROUTER, Op
from lora_lab.timing.shape_ops import step_ops
from lora_lab.timing.target import ArrayTarget, make_target
from lora_sdk.model.shapes import shape_config


def ops(boards: int, adapter: AdapterUse | None, rows: int = 1) -> list[Op]:
    design = load_design("lora-f")
    assert isinstance(design, ArrayDesign)
    shape = steps.decode(64) if rows == 1 else steps.verify(rows, 64)
    machine = machine_of(design, board_facts("u280"))
    return step_ops(machine, shape_config("gpt2-345m"), boards, shape, adapter)


def seconds(design: str, model: str, boards: int, adapter: AdapterUse | None) -> float:
    return make_target(design, None, shape_config(model), boards, adapter).decode(128).seconds


# Values of a block of gpt2-345m (d = 1024, ffn 4096; q, k, v, o, up, down) on 4 boards at rank 16,
# where a board has 256 columns of q, k, v, o and down and 1024 of up.
BY_HAND = {
    "nfs": 16 * (5 * 1024 + 4096) + 16 * (5 * 256 + 1024),
    "s": 4 * (5 * 1024 + 4096) + 16 * (5 * 256 + 1024),
    "bd": 4 * (5 * 1024 + 4096) + 4 * (3 * 256 + 1024) + 16 * 2 * 256,
}


@pytest.mark.parametrize("mode", MODES)
def test_bytes_of_a_board_as_counted_by_hand(mode: str) -> None:
    found = [op for op in ops(4, AdapterUse(16, mode)) if op.category == ADAPTER]
    assert sum(op.bytes for op in found) == 24 * 2 * BY_HAND[mode]
    assert sum(op.macs for op in found) == 24 * BY_HAND[mode]
    target = make_target("lora-f", None, shape_config("gpt2-345m"), 4, AdapterUse(16, mode))
    totals, plain = target.decode(64), make_target(
        "lora-f", None, shape_config("gpt2-345m"), 4
    ).decode(64)  # fmt: skip
    assert totals.bytes.pop("adapter") == 24 * 2 * BY_HAND[mode]
    assert totals.bytes["weights"] == plain.bytes["weights"] and "adapter" not in plain.bytes
    assert totals.by["adapter"] > 0 and sum(totals.by.values()) == pytest.approx(totals.seconds)


def test_more_rows_than_the_array_read_it_again() -> None:
    once, twice = (
        sum(op.bytes for op in ops(4, AdapterUse(16), rows) if op.category == ADAPTER)
        for rows in (32, 33)
    )
    assert twice == 2 * once == 2 * 24 * 2 * BY_HAND["bd"]


@pytest.mark.parametrize("boards", [1, 2, 4, 8])
def test_only_dealt_ranks_need_collectives(boards: int) -> None:
    def routed(adapter: AdapterUse | None) -> list[Op]:
        return [op for op in ops(boards, adapter) if op.unit == ROUTER]

    plain = routed(None)
    assert len(routed(AdapterUse(16, "bd"))) == len(routed(AdapterUse(16, "nfs"))) == len(plain)
    more = [op for op in routed(AdapterUse(16, "s")) if "adapter" in op.what]
    assert len(routed(AdapterUse(16, "s"))) == len(plain) + len(more)
    assert len(more) == (4 * 24 if boards > 1 else 0)
    if boards == 4:  # qkv gathers 3 modules' h: 3/4 of 3 * 16 FP16 over two links, two hops
        first = more[0]
        assert first.link_bytes == 3 / 4 * 3 * 16 * 2 / 2
        assert first.start == pytest.approx(115.87)
        assert first.compute == pytest.approx(2 * 60 + first.link_bytes / 32)


@pytest.mark.parametrize(("design", "model"), [("lora-f", "gpt2-345m"), ("own-u280", "llama2-7b")])
@pytest.mark.parametrize("rank", [32, 64, 128, 256])
def test_bd_is_fastest_from_medium_ranks_at_batch_one(design: str, model: str, rank: int) -> None:
    for boards in (4, 8):
        plain = seconds(design, model, boards, None)
        bd, s, nfs = (seconds(design, model, boards, AdapterUse(rank, mode)) for mode in MODES)
        assert plain < bd < s and bd < nfs


def test_gain_over_replicated_a_grows_with_rank_and_over_gathers_with_boards() -> None:
    def ratio(rank: int, boards: int, mode: str) -> float:
        bd = seconds("own-u280", "llama2-7b", boards, AdapterUse(rank))
        return seconds("own-u280", "llama2-7b", boards, AdapterUse(rank, mode)) / bd

    assert ratio(16, 4, "nfs") < ratio(64, 4, "nfs") < ratio(256, 4, "nfs")
    assert ratio(64, 2, "s") < ratio(64, 4, "s") < ratio(64, 8, "s")


def test_one_board_takes_the_same_time_in_every_mode() -> None:
    assert len({seconds("lora-f", "gpt2-345m", 1, AdapterUse(16, mode)) for mode in MODES}) == 1


def test_no_adapter_changes_nothing() -> None:
    config = shape_config("gpt2-345m")
    target = make_target("lora-f", None, config, 4)
    assert isinstance(target, ArrayTarget) and target.adapter is None
    arguments = ["--design", "lora-f", "--model", "gpt2-345m", "--boards", "4", "--context", "64"]
    plain = CliRunner().invoke(command, [*arguments, "--json"])
    zero = CliRunner().invoke(command, [*arguments, "--json", "--adapter-rank", "0"])
    assert plain.exit_code == 0 and plain.output == zero.output
    assert "adapter" not in plain.output


def test_the_command_shows_it() -> None:
    arguments = ["--design", "lora-f", "--model", "gpt2-345m", "--boards", "4", "--context", "64",
                 "--adapter-rank", "16", "--adapter-mode"]  # fmt: skip
    found = {}
    for mode in MODES:
        result = CliRunner().invoke(command, [*arguments, mode, "--json"])
        assert result.exit_code == 0, result.output
        found[mode] = json.loads(result.output)
        assert found[mode]["bytes"]["adapter"] == 24 * 2 * BY_HAND[mode]
        assert found[mode]["breakdown"]["adapter"] > 0
        assert f"rank 16, mode {mode}" in " ".join(found[mode]["notes"])
    assert found["s"]["bytes"]["link"] > found["bd"]["bytes"]["link"]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["--adapter-rank", "-1"], "adapter rank -1 is out of range: 1 to"),
        (["--adapter-rank", "100000"], "out of range"),
        (["--adapter-rank", "6"], "not a multiple of 4 boards"),
        (["--adapter-mode", "s"], "--adapter-mode needs --adapter-rank"),
        (["--adapter-rank", "8", "--design", "lora_f_u280"], "are timed for array designs"),
        (["--adapter-rank", "8", "--design", "flightllm", "--boards", "1"], "for array designs"),
    ],
)
def test_errors_say_what_to_do(extra: list[str], words: str) -> None:
    arguments = ["--design", "lora-f", "--model", "gpt2-345m", "--boards", "4", "--context", "64"]
    result = CliRunner().invoke(command, [*arguments, *extra])
    assert isinstance(result.exception, RequestError)
    assert words in str(result.exception) and "\n" not in str(result.exception)


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(RequestError, match="expected one of bd, s, nfs"):
        AdapterUse(8, "auto")
    result = CliRunner().invoke(command, ["--adapter-rank", "8", "--adapter-mode", "auto"])
    assert result.exit_code == 2 and "'bd', 's', 'nfs'" in result.output
