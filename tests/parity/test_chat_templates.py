"""Chat templates against transformers' apply_chat_template, byte for byte."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from lora_host.errors import RequestError
from lora_sdk.text.chat import render
from lora_sdk.text.tokenizer import Tokenizer
from tests.parity.chat_templates import CONVERSATIONS, TEMPLATES
from tests.variant_tokenizer import make_tokenizer

pytestmark = pytest.mark.parity
_NULLS_STAY = ("5.23.", "5.22.", "5.21.", "5.20.", "4.")
"""Versions of transformers that hand nulls of messages on; later ones leave them out, as here."""


@pytest.fixture(scope="module")
def both(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> tuple[Tokenizer, Any]:
    """The same tokenizer, ours and transformers'."""
    try:
        import transformers
    except ImportError:
        if pytestconfig.getoption("--require-parity"):
            raise
        pytest.skip("needs transformers")
    folder: Path = tmp_path_factory.mktemp("templates")
    made = make_tokenizer(400)
    made.save(str(folder / "tokenizer.json"))
    config = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    theirs = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **config)
    return Tokenizer(folder, 400), theirs


def rendered(both: tuple[Tokenizer, Any], template: str, given: dict[str, Any]) -> tuple[Any, Any]:
    """(ours, theirs): a text, or that it is refused."""
    import transformers

    ours, theirs = both
    given = copy.deepcopy(given)
    messages = given.pop("messages")
    tools, prompt = given.pop("tools", None), given.pop("add_generation_prompt", True)
    goes_on = given.pop("continue_final_message", False)
    results = []
    try:
        results.append(render(template, messages, ours, prompt, tools, given, goes_on))
    except RequestError as error:
        results.append(("refused", str(error)))
    if transformers.__version__.startswith(_NULLS_STAY):
        messages = [{k: v for k, v in one.items() if v is not None} for one in messages]
    try:
        results.append(
            theirs.apply_chat_template(
                messages, tools=tools, chat_template=template, tokenize=False,
                add_generation_prompt=prompt, continue_final_message=goes_on, **given,
            )
        )  # fmt: skip
    except Exception as error:  # a template's own, or jinja2's
        results.append(("refused", str(error)))
    return results[0], results[1]


@pytest.mark.parametrize("conversation", CONVERSATIONS)
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_prompt_is_transformers(
    template: str, conversation: str, both: tuple[Tokenizer, Any]
) -> None:
    ours, theirs = rendered(both, TEMPLATES[template], CONVERSATIONS[conversation])
    if isinstance(theirs, tuple):
        assert isinstance(ours, tuple), theirs
    else:
        assert ours == theirs


def test_most_of_them_are_texts(both: tuple[Tokenizer, Any]) -> None:
    """A corpus that both refuse would show nothing."""
    texts = refused = 0
    for template in TEMPLATES.values():
        for given in CONVERSATIONS.values():
            if isinstance(rendered(both, template, given)[1], str):
                texts += 1
            else:
                refused += 1
    assert texts > 140 and refused < texts / 8, (texts, refused)
