"""Times of overlays say all that a token takes first, and what it consists of second."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from lora_lab.cli.model import model
from lora_lab.timing import step as steps
from lora_lab.timing.target import OverlayTarget, make_target
from lora_sdk.cli.plan import plan
from lora_sdk.model.shapes import shape_config

PLAN = ("--model", "llama2-70b", "--boards", "64", "--stages", "4")
MODEL = (*PLAN, "--design", "lora_f_u280", "--context", "128")


@pytest.fixture(scope="module")
def target() -> OverlayTarget:
    found = make_target("lora_f_u280", None, shape_config("llama2-70b"), 64, None, 4)
    assert isinstance(found, OverlayTarget)
    return found


def test_a_token_is_charged_its_dispatch_host_accesses_and_sums(target: OverlayTarget) -> None:
    shape = steps.decode(128)
    whole, units = target.decode(128), target.timing.step(shape).timeline
    more = {name: whole.by[name] for name in ("dispatch", "host", "scrub")}
    assert min(more.values()) > 0 and sum(whole.by.values()) == pytest.approx(whole.seconds)
    assert whole.seconds == pytest.approx(
        target.timing.machine.seconds(units.cycles) + sum(more.values())
    )
    assert more["dispatch"] > target.timing.machine.seconds(units.cycles)  # here it is the most


def test_plan_and_model_say_the_same_whole_time_first(target: OverlayTarget) -> None:
    whole = target.decode(128).seconds * 1e3
    said = CliRunner().invoke(plan, PLAN).output.splitlines()
    begin = "modelled, ideal units not built: "
    lines = [index for index, line in enumerate(said) if line.startswith(begin)]
    assert said[lines[0]].startswith(f"{begin}{whole:.3f} ms per token at context 128, ")
    assert all(said[index + 1].startswith("  dispatch ") for index in lines) and len(lines) == 2
    assert said[lines[-1] + 2].startswith("  ideal: ") and "planned as FP16" in said[0]
    found = json.loads(CliRunner().invoke(plan, (*PLAN, "--json")).output)["modelled"][0]
    assert found["modelled_ms_a_token"] == pytest.approx(whole)
    assert found["units_ms"] < whole / 2 and sum(found["shares"].values()) == pytest.approx(1)
    first = CliRunner().invoke(model, MODEL).output.splitlines()[0]
    assert first.endswith(f": {whole:.3f} ms, {1e3 / whole:.1f} tokens/s")
