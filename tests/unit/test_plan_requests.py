"""`lora plan --requests`: counts that stream every block once, sizes, and what merging saves."""

from __future__ import annotations

import json

from click.testing import CliRunner

from lora_host import abi
from lora_sdk.cli.plan import plan as command
from lora_sdk.plan.placement import make_plan
from lora_sdk.plan.requests import Stream, requests_report
from tests.unit.plan_rig import GPT2, LLAMA2_7B, board, overlay


def test_counts_and_sizes_stream_every_block_once() -> None:
    plan = make_plan(GPT2, overlay(), board(), 4)
    found = requests_report(plan)
    blocks = sum(placed.spec.blocks for placed in plan.boards[0].matrices.values())
    by_ratio = {one["ratio"]: one["requests"] for one in found["total"]}
    assert by_ratio[1] == blocks
    assert blocks / 4 <= by_ratio[4] < blocks / 4 + len(plan.boards[0].matrices)
    for stream in found["matrices"]:
        sizes = {one["ratio"]: one["request_bytes"] for one in stream["ratios"]}
        assert sizes == {ratio: ratio * abi.BLOCK_BYTES_FP16 for ratio in sizes}
        assert stream["metadata_bytes"] == 0


def test_a_ratio_of_four_makes_8_kib_requests_32_kib() -> None:
    """GLITCHES' example, one linear layer of LLaMA2-7B."""
    found = requests_report(make_plan(LLAMA2_7B, overlay(), board(), 8))
    down = next(stream for stream in found["matrices"] if stream["matrix"] == "down")
    assert down["matrices"] == LLAMA2_7B.layers
    sizes = {one["ratio"]: one["request_bytes"] for one in down["ratios"]}
    assert (sizes[1], sizes[4]) == (8192, 32768)


def test_metadata_apart_doubles_the_requests_of_4_bit_blocks() -> None:
    stream = Stream("up", 2, (10, 7), abi.BLOCK_BYTES_INT4_128, 128)
    assert [stream.count(ratio) for ratio in (1, 4)] == [17, 3 + 2]


def test_the_command_prints_them_for_people_and_machines() -> None:
    text = CliRunner().invoke(command, ["--boards", "2", "--requests"])
    assert text.exit_code == 0 and "memory requests per decoded token, board 0" in text.output
    found = json.loads(CliRunner().invoke(command, ["--requests", "--json"]).output)["requests"]
    assert [one["ratio"] for one in found["total"]] == [1, 2, 4, 8]


def test_columns_of_the_text_stay_apart() -> None:
    """Where one board streams every block of a large model."""
    asked = ["--model", "llama2-7b", "--overlay", "lora_f_u280", "--requests"]
    lines = CliRunner().invoke(command, asked).output.splitlines()
    (down,) = (line for line in lines if line.startswith("down "))
    assert down.split()[:5] == ["down", "8192", "352256", "x", "8192"]
    assert len(down.split()) == 2 + 4 * 3


def test_a_token_that_is_mostly_dispatch_names_the_control_in_hardware() -> None:
    for boards, mostly in (("8", True), ("1", False)):
        found = CliRunner().invoke(command, ["--model", "llama2-7b", "--boards", boards])
        shares = [line for line in found.output.splitlines() if "dispatch " in line]
        assert found.exit_code == 0 and shares
        assert ("lora lab model --design own-u280" in found.output) == mostly
