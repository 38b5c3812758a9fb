"""Tuning from end to end on emulated boards: measure, search, choose, write, follow."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lora_host.errors import RequestError
from lora_lab.spec_tuning.acceptance import accepted_nodes, rounds_of
from lora_lab.spec_tuning.acceptance_file import Measured
from lora_lab.spec_tuning.analysis import analyze
from lora_lab.spec_tuning.collect import (
    NEW_TOKENS,
    OwnText,
    Prompts,
    continue_prompts,
    cut_prompts,
    model_ranks,
    proposer_ranks,
)
from lora_lab.spec_tuning.head_ranks import head_ranks, layers_of_head
from lora_lab.spec_tuning.measure import TuneRequest, measure
from lora_lab.spec_tuning.tree_search import maximal_tree
from lora_lab.spec_tuning.tuning import BoardSetup, modelled_tables, wall_tables
from lora_lab.timing.run import time_engine
from lora_sdk import Engine, SamplingParams, demo_model_path
from lora_sdk.cli.main import lora
from lora_sdk.cli.outcome import run_command
from lora_sdk.opening.speculation_options import SpeculationOptions
from lora_sdk.spec.draft_model import DraftModel
from lora_sdk.spec.eagle3 import Eagle3
from lora_sdk.spec.table import find_table, load_tables
from lora_sdk.step.tree_shape import TreeShape
from tests.commands import LORA, command, lora_run

DEMO = demo_model_path()
DRAFT, HEAD = DEMO.parent / "demo_draft", DEMO.parent / "demo_eagle3"
TEXT = Path(__file__).parents[1] / "data" / "heldout.txt"
CONTEXT = 384
FEW = 12


def unseen(_what: str) -> Callable[[int, int], None]:
    return lambda _done, _total: None


@pytest.fixture(scope="module")
def random_draft(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The draft's shapes with random weights."""
    folder = tmp_path_factory.mktemp("random") / "draft"
    shutil.copytree(DRAFT, folder)
    random = np.random.default_rng(0)
    tensors = {
        name: (random.normal(0, 0.02, value.shape) if value.ndim > 1 else np.ones(value.shape))
        .astype(np.float16)
        for name, value in load_file(DRAFT / "model.safetensors").items()
    }  # fmt: skip
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def texts() -> list[OwnText]:
    """Continuations of a few prompts by the demo model, short ones."""
    with Engine(DEMO, context=CONTEXT) as engine:
        tokens = engine.tokenizer.encode(TEXT.read_text(), special=False)
        prompts = cut_prompts(tokens, CONTEXT, FEW, engine.tokenizer.begins_with).search[:3]
        whole = continue_prompts(engine, prompts)
    return [OwnText(text.ids[: text.prompt + 30], text.prompt) for text in whole]


def test_prompts_of_the_halves_come_from_different_pieces() -> None:
    tokens = list(range(100, 6000))
    prompts = cut_prompts(tokens, 384, 20, [7])
    search, held_out = (
        {token for prompt in half for token in prompt[1:]}
        for half in (prompts.search, prompts.held_out)
    )
    assert not search & held_out and len(prompts.search) == len(prompts.held_out) == 20
    assert all(prompt[0] == 7 for prompt in prompts.search)
    lengths = {len(prompt) for prompt in prompts.held_out}
    assert max(lengths) + NEW_TOKENS <= 384 and len(lengths) >= 4
    assert isinstance(prompts, Prompts)
    with pytest.raises(RequestError, match="give more text"):
        cut_prompts(tokens[:800], 384, 20, [])
    with pytest.raises(RequestError, match="raise --ctx-size"):
        cut_prompts(tokens, 128, 20, [])


def test_ranks_at_once_are_the_proposals_one_by_one(texts: list[OwnText]) -> None:
    """A draft model and a head, over a whole text, against the drafts that decoding uses."""
    tree = maximal_tree(4, 6)
    layers = layers_of_head(HEAD, 8)
    with Engine(DEMO, context=CONTEXT, hidden_layers=layers) as target:
        with Engine(DRAFT, max_sequences=1, context=CONTEXT) as draft:
            fast = [model_ranks(draft, texts, tree.depth), head_ranks(HEAD, target, texts, 4)]
        model = DraftModel.open_model(DRAFT, target.config.vocabulary, CONTEXT, 1)
        head = Eagle3.open_head(HEAD, DEMO, target.config, CONTEXT)
        slow = [
            proposer_ranks(model, texts, tree),
            proposer_ranks(head, texts, tree, target),
        ]
        model.close()
        with pytest.raises(RequestError, match="hidden states; give the target"):
            proposer_ranks(head, texts, tree)
    for ours, theirs in zip(fast, slow, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one.context == other.context
            count = min(len(one.ranks), len(other.ranks))
            assert count >= 20
            nodes = accepted_nodes(tree, one.ranks[:count])
            assert np.array_equal(nodes, accepted_nodes(tree, other.ranks[:count]))
            assert nodes.max() > 0


@pytest.fixture(scope="module")
def looked_up() -> Measured:
    return measure(TuneRequest(DEMO, "lookup", None, 0.0, FEW, CONTEXT), [TEXT], unseen)


def test_aat_is_what_decoding_emits(looked_up: Measured) -> None:
    """Rounds simulated from ranks are those of the speculative loop, text for text."""
    tree = TreeShape.chain(5)
    rounds = rounds_of(tree, looked_up.search)
    with Engine(DEMO, context=CONTEXT) as engine:
        tokens = engine.tokenizer.encode(TEXT.read_text(), special=False)
        prompts = cut_prompts(tokens, CONTEXT, FEW, engine.tokenizer.begins_with).search
    request = SpeculationOptions("lookup", tree=tree)
    length = len(looked_up.search.texts[0].ranks)
    params = SamplingParams(max_tokens=length + 1, ignore_eos=True)
    emitted = rounds_run = 0
    with Engine(DEMO, context=CONTEXT, speculation=request) as engine:
        for prompt in prompts[:4]:
            statistics = engine.generate(list(prompt), params).speculation  # type: ignore[union-attr]
            emitted, rounds_run = (
                emitted + statistics.emitted,
                rounds_run + statistics.verifications,
            )
    first = rounds.only(rounds.texts < 4)
    # The last round of each text may be cut short by max_tokens.
    assert abs(rounds_run - len(first.roots)) <= 4
    assert emitted / rounds_run == pytest.approx(first.aat, rel=0.1)


@pytest.mark.slow
def test_a_draft_of_random_weights_is_off(random_draft: Path) -> None:
    request = TuneRequest(DEMO, "draft", random_draft, 0.0, FEW, CONTEXT)
    measured = measure(request, [TEXT], unseen)
    setups = [BoardSetup(board, None, 8) for board in ("u280", "v80")]
    path = random_draft.parent / "table.json"
    for place in setups:
        (table,) = modelled_tables(request, measured, [place], 16, path)
        assert not table.pays and table.choose(128) == TreeShape() and table.speedup == 1.0
        assert table.board == place.board
    analysis = analyze(measured, 16, CONTEXT)
    assert all(analysis.curve_at(128)(rows) < 1.1 for rows in range(2, 17))


def test_the_shipped_draft_is_on_where_boards_make_room(looked_up: Measured) -> None:
    """Eight boards leave little to compute: look-up pays on the same text."""
    request = TuneRequest(DEMO, "lookup", None, 0.0, FEW, CONTEXT)
    (table,) = modelled_tables(
        request, looked_up, [BoardSetup("u280", None, 8)], 16, DEMO / "x.json"
    )
    assert table.pays and table.speedup > 1.2


def test_a_run_gains_by_the_shipped_table() -> None:
    """Modelled time of the steps that were really run, four boards, contexts of 100 to 170. Short
    texts repeat themselves less than the long ones that the table was made from."""
    table = find_table(DEMO, "lora_f_u280", 4, "modelled")
    assert table is not None and table.measurement.proposer == "lookup"
    params = SamplingParams(max_tokens=65, ignore_eos=True)
    seconds = {}
    for name, options in (("plain", None), ("auto", table.options())):
        with Engine(DEMO, boards=4, speculation=options) as engine:
            tokens = engine.tokenizer.encode(TEXT.read_text(), special=False)
            time = time_engine(engine)
            for start in range(0, 6000, 750):
                engine.generate(tokens[start : start + 100], params)
            seconds[name] = time.totals(False).seconds
    gain = seconds["plain"] / seconds["auto"]
    assert 1.5 < gain < 1.25 * table.choice(135).speedup


@pytest.mark.slow
def test_times_by_the_clock_choose_too(looked_up: Measured, tmp_path: Path) -> None:
    request = TuneRequest(DEMO, "lookup", None, 0.0, FEW, CONTEXT)
    (table,) = wall_tables(
        request, looked_up, [BoardSetup("u280", None, 1)], 6, tmp_path / "t.json", [TEXT], unseen
    )
    assert table.objective == "wall" and table.machine and table.kernels == "native"
    for choice in table.choices:
        assert choice.plain_s > 0 and choice.verify_s > 0
        assert choice.rows == 1 or (choice.speedup >= 1.15 and choice.draft_s > 0)
        if choice.rows > 1:
            round_s = (choice.verify_s + choice.draft_s) / choice.aat
            assert choice.speedup == pytest.approx(choice.plain_s / round_s)


def test_commands_collect_tune_show_and_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = tmp_path / "model"
    shutil.copytree(DEMO, model, ignore=shutil.ignore_patterns("speculation.json"))
    ranks = tmp_path / "ranks.npz"
    measuring = ("--text", TEXT, "--prompts", FEW, "-c", CONTEXT)
    assert lora_spec("collect", model, "lookup", *measuring, "-o", ranks) == 0
    asked = ("--acceptance", ranks, "--boards", 8, "--largest", 16, "--json")
    done = command(LORA, "lab", "spec", "tune", model, "lookup", *asked)
    assert done.returncode == 0, done.stderr
    (answer,) = json.loads(done.stdout)
    assert answer["label"] == "modelled" and answer["boards"] == 8 and answer["pays"]
    assert {curve["used"] for curve in answer["curves"]} <= {"fit", "measurement"}
    (table,) = load_tables(model / "speculation.json")
    capsys.readouterr()
    assert lora_spec("show", model) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3
    assert lora_spec("show", model, "--full") == 0
    shown = capsys.readouterr().out.splitlines()  # a summary first
    assert shown[0].split() == ["draft", "boards", "objective", "gain"]
    assert shown[1].split()[:5] == ["lookup", "8", "x", "u280", "modelled"]
    assert f"{max(choice.speedup for choice in table.choices):.2f} times" in shown[1]
    assert shown[3].startswith("modelled: model")
    run = lora_run(
        "--model", model, "--boards", 8, "--spec-objective", "modelled", "-p", "import os\n",
        "-n", 40, "--json", "--stats",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    speculation = json.loads(run.stdout)["speculation"]
    assert speculation["proposer"] == "lookup" and speculation["verifications"] > 0
    assert set(map(int, speculation["chosen_lengths"])) <= {c.rows for c in table.choices}
    assert lora_spec("tune", model, DRAFT, "--acceptance", ranks) == 2
    assert "; expected" in capsys.readouterr().err


def lora_spec(*arguments: object) -> int:
    """`lora lab spec` in this process; its exit code."""
    return run_command(lora, "lora", ["lab", "spec", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("tune", "no/model", "lookup"), "no such folder"),
        (("tune", DEMO, "no/draft"), "the word lookup"),
        (("tune", DEMO, DRAFT, "--proposer", "lookup"), "the word lookup"),
        (("tune", DEMO, "lookup", "--proposer", "draft"), "needs one"),
        (("tune", DEMO, "lookup"), "give --text"),
        (("tune", DEMO, "lookup", "--prompts", 0), "expected at least 12"),
        (("tune", DEMO, "lookup", "--text", "no/text"), "No such file"),
        (("tune", DEMO, "lookup", "--objective", "wall"), "give --text"),
        (("tune", DEMO, "lookup", "--largest", 5), "expected 6 to 256"),
        (("tune", DEMO, "lookup", "--acceptance", TEXT), "not a file of measured acceptance"),
        (("show", TEXT.parent), "lora lab spec tune writes one"),
        (("design", "lora-f", "gpt2-345m"), "no draft model"),
        (("design", "flightllm-sd", "llama3.1-8b", "-c", 0), "out of range"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(
    arguments: tuple[object, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lora_spec(*arguments) == 2
    found = capsys.readouterr()
    assert found.out == "" and found.err.count("\n") == 1 and part in found.err


def test_published_lengths_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    design = ("design", "flightllm-sd", "llama3.1-8b", "--board", "u280", "-c", 256)
    assert lora_spec(*design, "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["contexts"]
    assert entry["rows"] == 4 and entry["speedup"] == pytest.approx(2.07, rel=0.08)
    assert lora_spec(*design) == 0
    assert "LongSpec for Llama-3.1-8B" in capsys.readouterr().out
