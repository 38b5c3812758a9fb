"""Which tokens end a text, in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken

from lora_sdk import Engine, SamplingParams
from lora_sdk.text.ends import end_tokens
from lora_sdk.text.tokenizer import Tokenizer
from tests.variant_tokenizer import make_tokenizer
from tests.variants import variant, write_checkpoint


def tokenizer(folder: Path, eos: Any, *added: str, special: bool = True) -> Tokenizer:
    """Added tokens have the ids 400, 401 and so on."""
    backend = make_tokenizer(400)
    backend.add_tokens([AddedToken(name, special=special) for name in added])
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": eos}))
    return Tokenizer(folder, 500)


@pytest.mark.parametrize(
    ("ids", "eos", "added", "expected"),
    [
        ((7, 3), "</s>", ("<|im_end|>",), (7, 3, 1, 400)),
        ((), {"content": "</s>", "special": True}, (), (1,)),
        ((1, 400), "</s>", ("<|im_end|>", "<|eot_id|>"), (1, 400, 401)),
        ((), None, ("<x>", "<end_of_turn>"), (401,)),
        ((), "<none>", (), ()),
        ((), 5, ("<|im_end|",), ()),
        ((), None, ("<|end|>",), (400,)),
        ((), None, ("<|end|>", "<|call|>", "<|return|>"), (402, 401)),  # harmony's
    ],
)
def test_the_order_of_ends(
    ids: tuple[int, ...], eos: Any, added: tuple[str, ...], expected: Any, tmp_path: Path
) -> None:
    for special in (True, False):
        found = tokenizer(tmp_path, eos, *added, special=special)
        assert end_tokens(ids, found, 500) == expected
    assert end_tokens((), found, 400) == ((1,) if "</s>" in str(eos) else ())


def test_a_chat_ends_at_its_turns_end(tmp_path: Path) -> None:
    """The configuration names another end, as base models' do."""
    which = variant("llama")
    folder = write_checkpoint(which, tmp_path / "model")
    plain = SamplingParams(max_tokens=12, ignore_eos=True)
    with Engine(folder) as engine:
        tokens = engine.generate([5, 6, 7], plain).token_ids
    turn = next(token for token in tokens[2:] if token > 1)
    first = tokens.index(turn)
    value = json.loads((folder / "tokenizer.json").read_text())
    name = next(word for word, token in value["model"]["vocab"].items() if token == turn)
    value["added_tokens"].append(value["added_tokens"][0] | {"id": turn, "content": "<|im_end|>"})
    value["model"]["vocab"] = {
        "<|im_end|>" if word == name else word: token
        for word, token in value["model"]["vocab"].items()
    }
    value["model"]["merges"] = [
        pair for pair in value["model"]["merges"] if name not in (*pair, "".join(pair))
    ]
    (folder / "tokenizer.json").write_text(json.dumps(value))
    with Engine(folder) as engine:
        output = engine.generate([5, 6, 7], max_tokens=12).outputs[0]
        assert output.token_ids == tokens[: first + 1]
        assert (output.finish_reason, output.stop_reason) == ("stop", turn)
        assert "<|im_end|>" not in output.text
        assert engine.generate([5, 6, 7], plain).token_ids == tokens
