"""Weights that change on boards are found by sums, named, loaded again, and what was computed from
them is computed again. Real bits of emulated boards' memory, flipped before chosen steps."""

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

from lora_cluster import Fleet
from lora_host import abi
from lora_host.errors import LoraError, RequestError, TransportError
from lora_sdk import BeamSearchParams, Engine, Result, SamplingParams
from lora_sdk.cli.outcome import run_command
from lora_sdk.cli.run_command import lora_run as lora_run_command
from lora_sdk.cli.statistics import Statistics
from tests.commands import lora_run
from tests.fault_table import LONG, PROMPT, SITUATIONS
from tests.recovery_rig import (
    Disturbed,
    Folders,
    inject,
    mixed,
    opened,
    speculation,
    texts,
    write_folders,
)
from tests.scrub_rig import flip, flip_adapter, flip_at, sum_at_every_step, sum_nothing

LIMIT = 60.0  # seconds to wait for a thread: far beyond what a busy machine needs


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    return write_folders(tmp_path_factory.mktemp("scrub"))


@contextmanager
def scrubbed(folders: Folders, scrub: str = "redo", **options: Any) -> Iterator[Engine]:
    """Two boards whose weights are summed after every step."""
    with opened(folders, 2, scrub=scrub, **options) as engine:
        if scrub != "off":
            sum_at_every_step(engine)
        yield engine


def tokens_of(
    engine: Engine, prompt: list[int] = PROMPT, tokens: int = 8, **more: Any
) -> list[int]:
    result = engine.generate(prompt, SamplingParams(max_tokens=tokens, ignore_eos=True, **more))
    assert isinstance(result, Result)
    return list(result.token_ids)


def run(situation: str, folders: Folders, scrub: str, plant: Callable[[Engine], None]) -> list[int]:
    """The situation's tokens, with `plant` at its place."""
    options: dict[str, Any] = {"max_adapters": 1}
    if situation == "verify":
        options["speculation"] = speculation(folders, "lookup")
    with scrubbed(folders, scrub, **options) as engine:
        return SITUATIONS[situation](engine, lambda: plant(engine))


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "situation",
    [
        "decode",
        *(pytest.param(one, marks=SLOW) for one in ("idle", "prefill", "verify", "adapter load")),
    ],
)
def test_a_flipped_bit_changes_no_token(folders: Folders, situation: str) -> None:
    want = run(situation, folders, "off", lambda _: None)
    assert run(situation, folders, "off", flip) != want  # the bit matters
    assert run(situation, folders, "redo", flip) == want


@SLOW
def test_damage_is_recorded_and_the_boards_hold_the_weights_again(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        place = flip(engine)
        tokens_of(engine)
        (record,) = engine.recoveries
        assert place in record.cause and record.weight_bytes > 0
        engine.check_weights()
        assert engine.scrubbed is not None and engine.scrubbed.damaged == 1


@pytest.mark.parametrize("scrub", ["redo", pytest.param("fail", marks=SLOW)])
def test_a_running_request_is_redone_or_fails(folders: Folders, scrub: str) -> None:
    requests = mixed(3)
    with scrubbed(folders, "off") as engine:
        want = texts(engine, requests)
    with scrubbed(folders, scrub) as engine:
        places: list[str] = []
        with Disturbed(engine, {5: lambda: places.append(flip(engine))}):
            if scrub == "redo":
                assert texts(engine, requests) == want
            else:
                with pytest.raises(TransportError) as error:
                    texts(engine, requests)
                assert places[0] in str(error.value)
        assert texts(engine, requests) == want  # the engine goes on


@SLOW
def test_beams_begin_again(folders: Folders) -> None:
    params = BeamSearchParams(beam_width=3, n=2, max_tokens=10, ignore_eos=True)

    def found(engine: Engine) -> list[Any]:
        result = engine.beam_search(PROMPT, params)
        assert isinstance(result, Result)
        return [(one.token_ids, one.score) for one in result.outputs]

    with scrubbed(folders) as engine:
        want = found(engine)
        with Disturbed(engine, {4: lambda: flip(engine) and None}):
            assert found(engine) == want
        assert len(engine.recoveries) == 1


def stream_and_flip(engine: Engine, at: int, bit: int) -> tuple[list[int], str]:
    """Tokens of a stream whose weights change after the token number `at`; the place."""
    seen: list[int] = []
    place = ""

    def received(delta: Any) -> None:
        nonlocal place
        seen.append(delta.token_id)
        if len(seen) == at:
            place = flip(engine, bit=bit)

    params = SamplingParams(max_tokens=16, ignore_eos=True)
    try:
        engine.generate(PROMPT, params, on_delta=received)
    except TransportError as error:
        assert place in str(error) and "delivered" in str(error)
        found = re.search("wrong from new token ([0-9]+) on", str(error))
        assert found is not None
        return seen, f"failed at {found[1]}"
    return seen, "whole"


@SLOW
def test_a_stream_goes_on_where_what_was_delivered_is_right(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        want = tokens_of(engine, tokens=16)
        assert stream_and_flip(engine, 5, 1) == (want, "whole")
        assert len(engine.recoveries) == 1


def test_a_stream_ends_where_a_wrong_token_was_delivered(folders: Folders) -> None:
    with scrubbed(folders) as engine:
        want = tokens_of(engine, tokens=16)
        assert engine._watch is not None
        facts = engine._watch.scrubber.facts
        engine._watch.scrubber.facts = replace(facts, loop_tokens=8)
        seen, how = stream_and_flip(engine, 2, 0x40)
        first = next(at for at, token in enumerate(seen, 1) if token != want[at - 1])
        assert how == f"failed at {first}" and first > 2
        assert tokens_of(engine, tokens=16) == want


def test_with_prove_no_request_ends_before_its_weights_are_proved(folders: Folders) -> None:
    """With the shipped share: nothing but the proof finds it."""
    with opened(folders, 2, scrub="off") as engine:
        want = tokens_of(engine)
    with opened(folders, 2, scrub="prove") as engine:
        assert tokens_of(engine) == want
        place = flip(engine)
        assert tokens_of(engine) == want
        assert place in engine.recoveries[0].cause
        assert engine.scrubbed is not None and engine.scrubbed.passes >= 1


def test_pages_computed_from_damaged_weights_serve_nobody(folders: Folders) -> None:
    with opened(folders, 2) as engine:
        want = tokens_of(engine, LONG)
    with opened(folders, 2, kv_offload=0.01) as engine:
        flip(engine)
        assert tokens_of(engine, LONG) != want  # it ended before its weights were summed
        sum_at_every_step(engine)
        assert tokens_of(engine, PROMPT[1:4], tokens=4)  # finds it
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
        with Disturbed(engine, {3: lambda: flip_adapter(engine, "a") and None}):
            results = engine.generate(
                [PROMPT, PROMPT[:5]], SamplingParams(max_tokens=8, ignore_eos=True, adapter="a")
            )
        assert isinstance(results, list) and list(results[0].token_ids) == want
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
    with opened(folders, 2, scrub="off") as engine:
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
        assert tokens_of(engine, cache_salt="x") == want
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
    with opened(folders, 1, scrub="off") as engine:
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


def accesses_of_a_step(folders: Folders, scrub: str) -> tuple[dict[str, int], int]:
    """Of one step of the token API, and the sums that were made around it."""
    with scrubbed(folders, scrub) as engine:
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
    found, sums = accesses_of_a_step(folders, "redo")
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
        *("--model", folders.model, "--boards", 2, "--scrub", "prove", "--stats"),
        *("-p", "ab", "-n", 4),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"measured: .* MiB of weights summed \(1 times all of", done.stderr.decode())


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


def test_a_request_begins_again_three_times(folders: Folders) -> None:
    params = SamplingParams(max_tokens=40, ignore_eos=True)
    with (
        scrubbed(folders) as engine,
        pytest.raises(TransportError, match="began again 3 times"),
    ):
        for number, _ in enumerate(engine.stream(PROMPT, params)):
            flip(engine, bit=1, byte=2 * number)


def test_prove_is_refused_where_other_weights_compute(folders: Folders) -> None:
    with pytest.raises(RequestError, match="the worker 'boards:1'"):
        Engine(folders.model, scrub="prove", prefill="boards:1")
    with opened(folders, 1, scrub="prove") as engine, pytest.raises(RequestError, match="fleet"):
        Fleet([], [engine])
