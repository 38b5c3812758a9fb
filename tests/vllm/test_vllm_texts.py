"""Texts of vLLM on boards beside those of lora_sdk: the same bytes for greedy requests, the same
distribution for sampled ones, whatever vLLM's scheduler does with them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lora_sdk import Engine, SamplingParams, demo_model_path
from tests.moe_configs import MOE_CONFIGS
from tests.processes import ROOT
from tests.variants import variant, write_checkpoint
from tests.vllm.rig import (
    all_blocks,
    counts,
    expected,
    free_blocks,
    greedy,
    prompts,
    vllm_on_boards,
    worker_of,
)

pytestmark = pytest.mark.vllm


@pytest.mark.parametrize("boards", [1, 2, 4], indirect=True)
def test_greedy_texts_are_those_of_lora_sdk(boards: int) -> None:
    texts = prompts(100)
    with vllm_on_boards(demo_model_path()) as llm:
        assert greedy(llm, texts, 40) == expected(demo_model_path(), texts, 40)


@pytest.mark.parametrize("boards", [2], indirect=True)
def test_four_bit_weights(boards: int, w4a8: Path) -> None:
    texts = prompts(30)
    with vllm_on_boards(w4a8) as llm:
        assert greedy(llm, texts, 24) == expected(w4a8, texts, 24)


@pytest.mark.parametrize("family", ["qwen3_moe", "olmoe"])
@pytest.mark.parametrize("boards", [2], indirect=True)
def test_a_mixture_of_experts(family: str, boards: int, tmp_path: Path) -> None:
    assert family in MOE_CONFIGS
    model = write_checkpoint(variant(family), tmp_path / family)
    texts = [f"abc {n}" for n in range(12)]
    with vllm_on_boards(model) as llm:
        assert greedy(llm, texts, 24) == expected(model, texts, 24)


def test_preempted_requests_say_the_same() -> None:
    """With a tenth of the blocks requests lose theirs and begin again."""
    texts = prompts(24)
    with vllm_on_boards(demo_model_path(), num_gpu_blocks_override=40) as llm:
        found = greedy(llm, texts, 100)
        preempted = next(m for m in llm.get_metrics() if m.name == "vllm:num_preemptions")
        assert preempted.value > 0
    assert found == expected(demo_model_path(), texts, 100)


def test_prefix_hits_are_those_that_the_boards_found() -> None:
    texts = prompts(30)
    with vllm_on_boards(demo_model_path()) as llm:
        first = greedy(llm, texts, 8)
        again = greedy(llm, texts, 8)
        assert first == again == expected(demo_model_path(), texts, 8)
        hits = next(m for m in llm.get_metrics() if m.name == "vllm:prefix_cache_hits")
        assert hits.value > 1000
        assert counts(llm)["found_positions"] == hits.value


def test_requests_that_share_a_prefix_within_a_step() -> None:
    """vLLM lets one request use pages that another fills in the same step."""
    from vllm import SamplingParams as VllmParams

    head = list(range(300, 332))  # a page
    texts = [[*head, 40 + n, 50 + n] for n in range(8)]
    with vllm_on_boards(demo_model_path()) as llm:
        params = VllmParams(temperature=0, max_tokens=12)
        for number, text in enumerate(texts):
            llm.llm_engine.add_request(str(number), {"prompt_token_ids": text}, params)
        found: dict[int, tuple[int, ...]] = {}
        llm.llm_engine.step()
        assert counts(llm)["found_positions"] == 7 * 32 and counts(llm)["steps"] == 2
        while llm.llm_engine.has_unfinished_requests():
            for output in llm.llm_engine.step():
                if output.finished:
                    found[int(output.request_id)] = tuple(output.outputs[0].token_ids)
    with Engine() as engine:
        want = [engine.generate(text, SamplingParams(max_tokens=12)).token_ids for text in texts]
    assert [found[n] for n in range(8)] == want


def test_sampled_tokens_have_the_models_distribution() -> None:
    """1,500 first tokens at temperature 1: chi-squared against the engine's log probabilities."""
    from scipy.stats import chisquare
    from vllm import SamplingParams as VllmParams

    prompt, count = "def ", 1500
    with vllm_on_boards(demo_model_path()) as llm:
        params = VllmParams(temperature=1, max_tokens=1, n=100, seed=None)
        found = llm.generate([prompt] * (count // 100), params, use_tqdm=False)
        drawn = [one.token_ids[0] for request in found for one in request.outputs]
    with Engine() as engine:
        likely = engine.generate(prompt, SamplingParams(max_tokens=1, logprobs=20))
    top = {one.token: float(np.exp(one.logprob)) for one in likely.outputs[0].logprobs[0].top}
    top = {token: p for token, p in top.items() if p * count >= 8}
    seen = [drawn.count(token) for token in top]
    rest = count - sum(seen)
    wanted = [p * count for p in top.values()]
    assert len(top) >= 5
    assert chisquare([*seen, rest], [*wanted, count - sum(wanted)]).pvalue > 1e-4


def test_seeds_and_penalties_are_vllms() -> None:
    from vllm import SamplingParams as VllmParams

    texts = prompts(12)
    with vllm_on_boards(demo_model_path()) as llm:
        params = [
            VllmParams(temperature=0.9, top_p=0.9, top_k=20, min_p=0.01, seed=n, max_tokens=12,
                       presence_penalty=0.3, repetition_penalty=1.1, min_tokens=4)
            for n in range(len(texts))
        ]  # fmt: skip
        first, again = (
            [one.outputs[0].token_ids for one in llm.generate(texts, params, use_tqdm=False)]
            for _ in range(2)
        )
        assert first == again
        alone = llm.generate(texts[5], params[5], use_tqdm=False)[0].outputs[0].token_ids
        assert alone == first[5]


def test_log_probabilities_of_tokens_and_prompts() -> None:
    from vllm import SamplingParams as VllmParams

    text = prompts(1)[0]
    with vllm_on_boards(demo_model_path()) as llm:
        params = VllmParams(temperature=0, max_tokens=4, logprobs=2, prompt_logprobs=1)
        got = llm.generate([text], params, use_tqdm=False)[0]
    ours = SamplingParams(max_tokens=4, logprobs=2, prompt_logprobs=1)
    with Engine() as engine:
        want = engine.generate(text, ours)
    assert tuple(got.outputs[0].token_ids) == want.token_ids
    for token, theirs, our in zip(
        want.token_ids, got.outputs[0].logprobs, want.outputs[0].logprobs, strict=True
    ):
        assert theirs[token].logprob == pytest.approx(our.chosen.logprob, abs=1e-4)
    assert got.prompt_logprobs[0] is None and len(got.prompt_logprobs) == len(got.prompt_token_ids)
    for token, theirs, our in zip(
        got.prompt_token_ids[1:], got.prompt_logprobs[1:], want.prompt_logprobs[1:], strict=True
    ):
        assert theirs[token].logprob == pytest.approx(our.chosen.logprob, abs=1e-4)


def test_adapters_by_request() -> None:
    from vllm.lora.request import LoRARequest

    texts = prompts(12)
    folders = {name: ROOT / "models" / f"demo_adapter_{name}" for name in ("lora", "bdlora")}
    with vllm_on_boards(demo_model_path(), enable_lora=True, max_loras=2, max_lora_rank=16) as llm:
        asked = [None, LoRARequest("a", 1, str(folders["lora"])),
                 LoRARequest("b", 2, str(folders["bdlora"]))]  # fmt: skip
        found = greedy(llm, texts, 16, lora_request=[asked[n % 3] for n in range(12)])
    for index, adapter in enumerate((None, folders["lora"], folders["bdlora"])):
        options: dict[str, Any] = {} if adapter is None else {"adapter": adapter, "max_adapters": 1}
        mine = texts[index::3]
        assert found[index::3] == expected(demo_model_path(), mine, 16, **options), index


def test_an_adapter_that_is_loaded_in_place(tmp_path: Path) -> None:
    """From another folder, from the same one after it changed; requests that run keep theirs. Of
    those that nobody uses as many are kept as vLLM says."""
    from vllm import SamplingParams as VllmParams
    from vllm.lora.request import LoRARequest

    lora, bdlora = (ROOT / "models" / f"demo_adapter_{name}" for name in ("lora", "bdlora"))
    texts, changing = prompts(4), tmp_path / "changing"
    shutil.copytree(lora, changing)
    want = {one: expected(demo_model_path(), texts, 16, adapter=one, max_adapters=1)
            for one in (lora, bdlora)}  # fmt: skip
    options = {"enable_lora": True, "max_loras": 2, "max_lora_rank": 16}
    with vllm_on_boards(demo_model_path(), enable_prefix_caching=False, **options) as llm:
        asked = LoRARequest("a", 1, str(changing))
        engine, params = llm.llm_engine, VllmParams(temperature=0, max_tokens=16)
        engine.add_request("early", texts[0], params, lora_request=asked)
        engine.step()
        shutil.copytree(bdlora, changing, dirs_exist_ok=True)
        assert engine.add_lora(LoRARequest("a", 1, str(changing), load_inplace=True))
        early = []
        while engine.has_unfinished_requests():
            early = engine.step()
        assert tuple(early[0].outputs[0].token_ids) == want[lora][0]
        assert greedy(llm, texts, 16, lora_request=asked) == want[bdlora]
        for number, folder in ((1, lora), (2, bdlora), (3, lora), (4, bdlora)):
            moved = LoRARequest(f"a{number}", number, str(folder), load_inplace=True)
            assert greedy(llm, texts, 16, lora_request=moved) == want[folder], number
        assert engine.list_loras() == {3, 4}
        assert len(worker_of(llm)._boards.adapters.infos()) == 2
        assert engine.pin_lora(3) and not engine.pin_lora(1)
        greedy(llm, texts[:1], 1, lora_request=LoRARequest("b", 5, str(lora)))
        greedy(llm, texts[:1], 1, lora_request=LoRARequest("c", 6, str(lora)))
        assert engine.list_loras() == {3, 6}
        assert engine.remove_lora(3) and engine.list_loras() == {6}


def test_an_adapter_that_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    from vllm.lora.request import LoRARequest

    lora = ROOT / "models" / "demo_adapter_lora"
    with vllm_on_boards(demo_model_path(), enable_lora=True, max_lora_rank=1) as llm:
        for folder, line in (
            (lora, "adapter 'a': rank 8; vLLM was started with --max-lora-rank 1"),
            (tmp_path, "adapter 'a': .*adapter_config.json"),
            (tmp_path / "none", "adapter"),
        ):
            with pytest.raises(Exception, match=line):
                llm.llm_engine.add_lora(LoRARequest("a", 1, str(folder)))
        assert llm.llm_engine.list_loras() == set()
        texts = prompts(2)
        assert greedy(llm, texts, 4) == expected(demo_model_path(), texts, 4)


def test_a_json_schema_is_kept() -> None:
    import json

    from vllm import SamplingParams as VllmParams
    from vllm.sampling_params import StructuredOutputsParams

    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["a", "b"]}, "x": {"type": "integer", "maximum": 99,
                                                          "minimum": 0}},
        "required": ["name", "x"], "additionalProperties": False,
    }  # fmt: skip
    compact = {"backend": "xgrammar", "disable_any_whitespace": True}
    with vllm_on_boards(demo_model_path(), structured_outputs_config=compact) as llm:
        bound = VllmParams(
            temperature=0.8, seed=1, max_tokens=60,
            structured_outputs=StructuredOutputsParams(json=schema),
        )  # fmt: skip
        free = VllmParams(temperature=0, max_tokens=20)
        texts = prompts(8)
        found = llm.generate(texts, [bound, free] * 4, use_tqdm=False)
        for one in found[::2]:
            assert set(json.loads(one.outputs[0].text)) == {"name", "x"}
        plain = [tuple(one.outputs[0].token_ids) for one in found[1::2]]
    assert plain == expected(demo_model_path(), texts[1::2], 20)


def test_cancelled_requests_leave_no_page() -> None:
    from vllm import SamplingParams as VllmParams

    texts = prompts(200)
    with vllm_on_boards(demo_model_path()) as llm:
        engine, params = llm.llm_engine, VllmParams(temperature=0, max_tokens=20)
        names = [engine.add_request(str(n), text, params) for n, text in enumerate(texts)]
        found: dict[str, tuple[int, ...]] = {}
        cancelled = {str(n) for n in range(0, 200, 4)}
        steps = 0
        while engine.has_unfinished_requests():
            steps += 1
            if steps == 9:
                engine.abort_request([names[int(n)] for n in cancelled])
            for output in engine.step():
                if output.finished:
                    found[output.request_id] = tuple(output.outputs[0].token_ids)
        assert free_blocks(llm) == all_blocks(llm)
        kept = [n for n in range(200) if str(n) not in cancelled]
        want = expected(demo_model_path(), [texts[n] for n in kept], 20)
        assert [found[str(n)] for n in kept] == want
        llm.generate("x", VllmParams(max_tokens=1), use_tqdm=False)  # tells the worker of all ends
        assert counts(llm)["requests"] <= 1 and counts(llm)["sequences"] <= 1


def test_drafts_by_look_up_change_no_text() -> None:
    """Greedy requests get drafts, which boards verify, also beside requests that are sampled."""
    from vllm import SamplingParams as VllmParams

    texts = prompts(24)
    look_up = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}
    want = expected(demo_model_path(), texts, 40)
    with vllm_on_boards(demo_model_path(), speculative_config=look_up) as llm:
        assert greedy(llm, texts, 40) == want
        found = {one.name: one for one in llm.get_metrics()}
        drafted = found["vllm:spec_decode_num_draft_tokens"].value
        taken = found["vllm:spec_decode_num_accepted_tokens"].value
        assert 0 < taken < drafted
        free, bound = (VllmParams(temperature=t, max_tokens=40, seed=1) for t in (0, 0.9))
        mixed = llm.generate(texts, [free, bound] * 12, use_tqdm=False)
        assert [tuple(one.outputs[0].token_ids) for one in mixed[::2]] == want[::2]
