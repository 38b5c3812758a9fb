"""Weights that change on boards are found by sums, named and loaded again. Requests that got tokens
from them fail, and the others go on. Bits of emulated boards' memory, flipped before chosen steps.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from typing import Any

import numpy as np
import pytest

from lora_host import abi
from lora_host.errors import LoraError, TransportError
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run as lora_run_command
from lora_sdk.cli.statistics import Statistics
from tests.commands import lora_run
from tests.fault_table import LONG, PROMPT, SITUATIONS
from tests.few_pages import few_pages
from tests.recovery_rig import (
    Disturbed,
    Folders,
    inject,
    opened,
    speculation,
    write_folders,
)
from tests.scrub_rig import flip, flip_adapter, flip_at, sum_at_every_step, sum_nothing

LIMIT = 60.0  # seconds to wait for a thread: far beyond what a busy machine needs


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("scrub"))


@contextmanager
def scrubbed(folders: Folders, check: str = "on", **options: Any) -> Iterator[Engine]:
    """Two boards whose weights are summed after every step."""
    with opened(folders, 2, check_weights=check, **options) as engine:
        if check == "on":
            sum_at_every_step(engine)
        yield engine


def tokens_of(
    engine: Engine, prompt: list[int] = PROMPT, tokens: int = 8, **more: Any
) -> list[int]:
    result = engine.generate(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True, **more))
    assert isinstance(result, Result)
    return list(result.token_ids)


def run(situation: str, folders: Folders, check: str, plant: Callable[[Engine], None]) -> list[int]:
    """The situation's tokens, with `plant` at its place."""
    options: dict[str, Any] = {"max_adapters": 1}
    if situation == "verify":
        options["speculation"] = speculation(folders, "lookup")
    with scrubbed(folders, check, **options) as engine:
        return SITUATIONS[situation](engine, lambda: plant(engine))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "situation",
    ["decode", "prefill", *(pytest.param(one, marks=SLOW) for one in ("idle", "verify"))],
)
def test_no_text_holds_tokens_of_a_flipped_bit(folders: Folders, situation: str) -> None:
    """A prompt without a token yet is computed again; a request with tokens fails."""
    want = run(situation, folders, "off", lambda _: None)
    assert run(situation, folders, "off", flip) != want  # the bit matters
    if situation == "prefill":
        assert run(situation, folders, "on", flip) == want
    else:
        with pytest.raises(TransportError, match=r"1 byte of layer\.1\.down.* submit it again"):
            run(situation, folders, "on", flip)


@SLOW
def test_damage_is_recorded_and_the_boards_hold_the_weights_again(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        place = flip(engine)
        with pytest.raises(TransportError, match=re.escape(place)):
            tokens_of(engine)
        (record,) = engine.recoveries
        assert place in record.cause and record.weight_bytes > 0
        engine.check_weights()
        assert engine.scrubbed is not None and engine.scrubbed.damaged == 1


def test_requests_that_got_no_token_from_the_damage_go_on(folders: Folders) -> None:
    """Of three, two decode and the prompt of one is being computed; a fourth waits."""
    params = SamplingParams(max_tokens=8, ignore_eos=True, temperature=0.9, seed=3)
    prompts = [PROMPT, PROMPT[:5], LONG, LONG[:70]]
    with scrubbed(folders, "off", max_sequences=3) as engine:
        want = [list(one.token_ids) for one in engine.generate(prompts, params)]
    with scrubbed(folders, max_sequences=3) as engine:
        errors: dict[int, LoraError] = {}
        texts: dict[int, list[int]] = {}
        places: list[str] = []
        with Disturbed(engine, {2: lambda: places.append(flip(engine))}):
            engine.generate(
                prompts,
                params,
                on_result=lambda at, one: texts.update({at: list(one.token_ids)}),
                on_error=lambda at, error: errors.update({at: error}),
            )
        assert set(errors) == {0, 1} and all(places[0] in str(one) for one in errors.values())
        assert texts == {2: want[2], 3: want[3]}
        assert tokens_of(engine, **vars_of(params)) == want[0]  # the engine goes on


def vars_of(params: SamplingParams) -> dict[str, Any]:
    return {"temperature": params.temperature, "seed": params.seed}


def test_what_a_prompt_was_asked_for_is_computed_again(folders: Folders) -> None:
    """Log probabilities of its tokens, from rows before the damage was found."""
    params = SamplingParams(max_tokens=2, ignore_eos=True, prompt_logprobs=1)

    def shown(engine: Engine) -> Any:
        result = engine.generate(LONG, params)
        assert isinstance(result, Result)
        return result.prompt_logprobs

    with scrubbed(folders) as engine:
        want = shown(engine)
        with Disturbed(engine, {1: lambda: flip(engine) and None}):
            assert shown(engine) == want
        assert len(engine.recoveries) == 1


@SLOW
def test_beams_fail(folders: Folders) -> None:
    params = BeamSearchParams(beam_width=3, n=2, max_tokens=10, ignore_eos=True)

    def found(engine: Engine) -> list[Any]:
        result = engine.beam_search(PROMPT, params)
        assert isinstance(result, Result)
        return [(one.token_ids, one.score) for one in result.outputs]

    with scrubbed(folders) as engine:
        want = found(engine)
        with (
            Disturbed(engine, {4: lambda: flip(engine) and None}),
            pytest.raises(TransportError, match=r"layer.1.down.* submit it again"),
        ):
            found(engine)
        assert len(engine.recoveries) == 1 and found(engine) == want


@pytest.mark.parametrize("at", [2, 7])
def test_a_stream_ends_once_it_may_have_delivered_wrong_tokens(folders: Folders, at: int) -> None:
    """In the boards' own loop, of which the host looks after eight tokens."""
    with scrubbed(folders) as engine:
        want = tokens_of(engine, tokens=16)
        assert engine._watch is not None
        facts = engine._watch.scrubber.facts
        engine._watch.scrubber.facts = replace(facts, loop_tokens=8)
        seen: list[int] = []
        places: list[str] = []

        def received(delta: Any) -> None:
            seen.append(delta.token_id)
            if len(seen) == at:
                places.append(flip(engine))

        params = SamplingParams(max_tokens=16, ignore_eos=True)
        with pytest.raises(TransportError) as error:
            engine.generate(PROMPT, params, on_delta=received)
        assert places[0] in str(error.value) and seen[:at] == want[:at]
        assert tokens_of(engine, tokens=16) == want


def test_a_text_that_ended_in_the_loop_beside_the_damage_is_told(folders: Folders) -> None:
    """The weights were right in a step of the loop, of which the host has not looked yet."""
    with scrubbed(folders) as engine:
        assert engine._watch is not None
        facts = engine._watch.scrubber.facts
        engine._watch.scrubber.facts = replace(facts, loop_tokens=64)
        seen: list[object] = []

        def received(delta: object) -> None:
            seen.append(delta)
            if len(seen) == 15:
                flip(engine)

        params = SamplingParams(max_tokens=16, ignore_eos=True)
        engine.generate(PROMPT, params, on_delta=received)
        with pytest.raises(TransportError, match="1 request that has ended may hold"):
            engine.confirm()


def test_pages_computed_from_damaged_weights_serve_nobody(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        want = tokens_of(engine, LONG)
    with opened(folders, 2, kv_offload=0.01) as engine:
        few_pages(engine, 9)
        flip(engine)
        assert tokens_of(engine, LONG) != want  # it ended before its weights were summed
        tokens_of(engine, [9] * 270)  # its pages go to the host
        host = engine.kv_use.host
        assert host is not None and host.kept > 0
        sum_at_every_step(engine)
        with pytest.raises(TransportError):
            tokens_of(engine, PROMPT[1:4], tokens=4)  # finds it
        assert len(engine.recoveries) == 1
        result = engine.generate(LONG, SamplingParams(max_tokens=8, ignore_eos=True))
        assert isinstance(result, Result)
        assert list(result.token_ids) == want and result.cached_tokens == 0


@SLOW
def test_what_ended_before_the_damage_was_found_is_told(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(folders, 2) as engine, caplog.at_level(logging.WARNING, "lora_sdk.recovery"):
        tokens_of(engine, tokens=2)
        place = flip(engine)
        tokens_of(engine, tokens=2)
        sum_at_every_step(engine)
        scrubber = engine._watch.scrubber  # type: ignore[union-attr]
        scrubber._follow()
        scrubber._since = 0
        with pytest.raises(TransportError):
            tokens_of(engine, tokens=6)
    assert any("have ended may hold wrong tokens" in r.message and place in r.message
               for r in caplog.records)  # fmt: skip


def test_ends_are_confirmed_or_told_once(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        sum_nothing(engine)
        want = tokens_of(engine)
        engine.confirm()
        place = flip(engine)
        assert tokens_of(engine) != want
        with pytest.raises(TransportError, match="1 request that has ended may hold") as error:
            engine.confirm()
        assert place in str(error.value)
        engine.confirm()
        assert tokens_of(engine) == want
        engine.confirm()


def test_ends_before_a_recovery_that_loaded_weights_again_are_told(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        sum_nothing(engine)
        want = tokens_of(engine)
        flip(engine)
        assert tokens_of(engine) != want
        inject(engine, 1, abi.FAULT_FIRMWARE_DEAD)
        with pytest.raises(LoraError, match="2 requests that have ended may hold"):
            engine.confirm()
        assert tokens_of(engine) == want


def test_lora_run_fails_after_a_text_from_changed_weights(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--model", str(folders.model), "--boards", "2", "-p", "ab", "-n", "4"]
    assert run_command(lora_run_command, "lora-run", arguments) == 0
    loaded = Statistics.loaded
    places: list[str] = []

    def flipped(statistics: Statistics, engine: Engine, drafts: Any) -> None:
        loaded(statistics, engine, drafts)
        sum_nothing(engine)
        places.append(flip(engine))

    monkeypatch.setattr(Statistics, "loaded", flipped)
    assert run_command(lora_run_command, "lora-run", arguments) == 1
    told = capsys.readouterr().err
    assert places[0] in told and "1 request that has ended may hold wrong tokens" in told


@SLOW
def test_sequences_of_the_token_api_are_computed_again(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        one = engine.open_sequence("a")
        engine.prefill(one, LONG[:40])
        want = engine.export_kv(one)
        flip(engine)
        spoilt = engine.open_sequence()
        for token in range(3):
            engine.prefill(spoilt, [token])
        assert len(engine.recoveries) == 1 and 40 < engine.recoveries[0].rows <= 43
        logits = engine.prefill(engine.open_sequence(), PROMPT)
        assert np.array_equal(engine.export_kv(one).k.view(np.uint16), want.k.view(np.uint16))
        assert np.array_equal(engine.prefill(engine.open_sequence(), PROMPT), logits)


@SLOW
def test_adapters_are_summed_and_written_again(folders: Folders) -> None:
    with scrubbed(folders, "off") as engine:
        want = tokens_of(engine, adapter="a")
        flip_adapter(engine, "a")
        assert tokens_of(engine, LONG[:2], tokens=2, adapter="a") is not None
        assert tokens_of(engine, adapter="a", cache_salt="x") != want
    with scrubbed(folders) as engine:
        with (
            Disturbed(engine, {3: lambda: flip_adapter(engine, "a") and None}),
            pytest.raises(TransportError, match="adapter 'a'"),
        ):
            tokens_of(engine, adapter="a", logprobs=1)
        assert tokens_of(engine, adapter="a") == want
        (record,) = engine.recoveries
        assert re.search(r"board 1 bank \S+: \d+ bytes of adapter 'a'", record.cause)


@SLOW
def test_an_adapter_that_left_its_slot_is_no_damage(folders: Folders) -> None:
    with scrubbed(folders, max_adapters=1) as engine:
        scrubber = engine._watch.scrubber  # type: ignore[union-attr]
        tokens_of(engine, tokens=2, adapter="a")
        assert not scrubber.advance_for(0)  # with the ranges of "a"
        engine._adapters.attach(99, "b")
        assert not scrubber.advance_for(LIMIT)
        assert not engine.recoveries


@SLOW
def test_the_draft_s_weights_are_loaded_again(folders: Folders) -> None:
    with opened(folders, 2, check_weights="off") as engine:
        want = tokens_of(engine, tokens=16)
    with scrubbed(folders, speculation=speculation(folders, "draft")) as engine:
        board = engine._speculation.draft_board  # type: ignore[union-attr]
        assert board is not None
        bank, offset = board.opened.plan.boards[0].matrices["layer.0.down"].address(0)
        (byte,) = board.opened.cluster.read(0, bank, offset, 1)
        board.opened.cluster.write(0, bank, offset, bytes([byte ^ 1]))
        assert tokens_of(engine, tokens=16) == want
        board.opened.runner.check_weights()
        assert board.recovery.count == 1 and not engine.recoveries


def test_values_that_are_not_finite_are_explained_by_damage(folders: Folders) -> None:
    """At the shipped share the step fails long before the sums come by."""
    with opened(folders, 2) as engine:
        want = tokens_of(engine)
        plan = engine.plan.boards[0]
        table = plan.tables["layer.0.attn_norm.gamma"]
        flip_at(engine, plan.board, table.bank, table.offset + 1, 0x7C ^ 0x3C)
        flip_at(engine, plan.board, table.bank, table.offset + 3, 0x7C ^ 0x3C)
        assert tokens_of(engine, cache_salt="x") == want  # it had no token yet
        assert "layer.0.attn_norm.gamma" in engine.recoveries[0].cause


def test_memory_that_stays_damaged_ends_requests(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        flip(engine)
        cluster, load = engine.cluster, engine.cluster.place

        def place_badly(*given: Any) -> Any:
            written = load(*given)
            flip(engine)
            return written

        cluster.place = place_badly  # type: ignore[method-assign]
        with pytest.raises(TransportError, match=r"board 1 .*damaged"):
            tokens_of(engine)
        cluster.place = load  # type: ignore[method-assign]
        with pytest.raises(TransportError, match=r"board 1 .*damaged"):
            tokens_of(engine)


def test_off_sums_nothing(folders: Folders) -> None:
    with opened(folders, 1, check_weights="off") as engine:
        assert engine.scrubbed is None
        tokens_of(engine)
        before = engine.cluster.stats().doorbells
        engine.generate(PROMPT, SamplingParams(max_tokens=1))
        assert engine.cluster.stats().doorbells - before <= 3


# --- the share -----------------------------------------------------------------------------------


def test_the_share_is_kept_and_all_weights_are_summed_in_time(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        scrubber = engine._watch.scrubber  # type: ignore[union-attr]
        share = 0.5
        scrubber.facts = replace(scrubber.facts, share=share, loop_tokens=8)
        scrubber.proved()
        scrubber._follow()
        begun, pace = engine._stepper.progress, scrubber._pace
        each = max(
            sum(pace.seconds(one.bytes) for one in scrubber._regions.all if one.board == board)
            for board in range(2)
        )
        steps = ceil(each * pace.clock_hz / (share * pace.token_cycles)) + 1
        while engine._stepper.progress - begun < steps:
            tokens_of(engine, PROMPT[:4], tokens=60)
            ran = engine._stepper.progress - begun
            use = scrubber.use
            assert use.modelled_seconds <= share * ran * pace.token_cycles / pace.clock_hz
        more = ceil(
            pace.seconds(scrubber.facts.slice_bytes) * pace.clock_hz / (share * pace.token_cycles)
        )
        tokens_of(engine, PROMPT[:4], tokens=more + 20)  # a command may have waited for its credit
        assert scrubber.use.passes >= 1


def accesses_of_a_step(folders: Folders, check: str) -> tuple[dict[str, int], int]:
    """Of one step of the token API, and the sums that were made around it."""
    with scrubbed(folders, check) as engine:
        tokens_of(engine, tokens=3)
        one = engine.open_sequence()

        def step() -> dict[str, int]:
            rows = engine.rows(one, [5], logits=False, argmax=[0])
            before = engine.cluster.stats()
            engine.step(rows)
            after = engine.cluster.stats()
            names = ("register_reads", "register_writes", "memory_reads", "memory_writes", "polls")
            return {name: getattr(after, name) - getattr(before, name) for name in names}

        step()
        before = 0 if engine.scrubbed is None else engine.scrubbed.operations
        found = step(), step()
        assert found[0] == found[1]
        step()
        return found[0], 0 if engine.scrubbed is None else engine.scrubbed.operations - before


def test_sums_cost_the_host_no_access(folders: Folders) -> None:
    alone, none = accesses_of_a_step(folders, "off")
    found, sums = accesses_of_a_step(folders, "on")
    assert none == 0 and sums > 100  # all regions of two boards, again and again
    assert found == alone


@SLOW
def test_idle_boards_are_summed_by_the_thread_of_adopted_requests(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        asyncio.run(engine.agenerate(PROMPT, max_tokens=2))
        place = flip(engine)
        end = time.monotonic() + LIMIT
        while not engine.recoveries and time.monotonic() < end:
            time.sleep(0.02)
        assert place in engine.recoveries[0].cause
        engine.check_weights()


@SLOW
def test_lora_run_tells_what_was_summed(folders: Folders) -> None:
    done = lora_run(
        *("--model", folders.model, "--boards", 2, "--stats"),
        *("-p", "ab", "-n", 4),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"measured: .* MiB of weights summed \(a part of", done.stderr.decode())


def test_a_region_is_as_good_as_when_its_first_bytes_were_summed(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        assert engine._watch is not None
        scrubber = engine._watch.scrubber
        scrubber.facts = replace(scrubber.facts, share=1e-12, slice_bytes=64)
        scrubber.proved()
        tokens_of(engine)
        assert not scrubber.advance_for(0)  # 64 bytes of the first region of each board
        first = next(one for one in scrubber._regions.all if one.board == 1)
        before = engine._stepper.progress
        tokens_of(engine)
        flip_at(engine, first.board, first.bank, first.offset)
        scrubber._rate = 1e9
        assert not scrubber.advance_for((first.bytes - 64) / 1e9)  # those behind the flipped one
        assert scrubber._regions.good_steps()[-1][1] is None
        assert scrubber.last_good([first]) <= before < engine._stepper.progress
        assert scrubber.prove()
