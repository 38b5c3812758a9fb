"""Thoughts apart from the answer, however the text comes."""

from __future__ import annotations

import random

import pytest

from lora_sdk.serve.reasoning import FORMATS, answer_text, reasoning_format

# (format, what the prompt ends with, text, thoughts, content)
TEXTS = [
    ("qwen3", "<a>\n", "<think>\nHm.\n</think>\n\nYes.\n", "Hm.", "Yes.\n"),
    ("qwen3", "<a>\n", " \n<think>Hm.</think>Yes.", "Hm.", "Yes."),
    ("qwen3", "<a>\n", "Yes, <think>no</think>.", "", "Yes, <think>no</think>."),
    ("qwen3", "<a>\n", "\n\nYes.", "", "\n\nYes."),
    ("qwen3", "<a>\n", "<thinks", "", "<thinks"),
    ("qwen3", "<a>\n", "<thin", "", "<thin"),
    ("qwen3", "<a>\n", "<think>\nCut </thin", "Cut </thin", ""),
    ("qwen3", "<a>\n", "<think>\nCut\n\n", "Cut", ""),
    ("qwen3", "<think>\n", "A\n\nB < C\n</think>\n\nYes.", "A\n\nB < C", "Yes."),
    ("qwen3", "<think>\n", "<think>\nA</think>Yes.", "A", "Yes."),
    ("qwen3", "<think>\n", "</think>\n\nYes.", "", "Yes."),
    ("qwen3", "<think>\n\n</think>\n\n", "<think>Yes.", "", "<think>Yes."),
    ("deepseek_r1", "<a>", "A\n</think>Yes.", "A", "Yes."),
    ("deepseek_r1", "<a>", "<think>\nA</think>Yes.", "A", "Yes."),
    ("deepseek_r1", "<a>", "A without an end", "A without an end", ""),
    ("mistral", "[/INST]", "[THINK]日本 [/TH</think>[/THINK]Yes.", "日本 [/TH</think>", "Yes."),
    (
        "gpt_oss",
        "<|start|>assistant",
        "<|channel|>analysis<|message|>Hm <| ok.<|end|><|start|>"
        "assistant<|channel|>final<|message|>Yes <|no|>.",
        "Hm <| ok.",
        "Yes <|no|>.",
    ),
    ("gpt_oss", "<|start|>assistant", "<|channel|>final<|message|>Yes.<|return|>", "", "Yes."),
    ("gpt_oss", "<|start|>assistant", "<|channel|>analysis<|message|>Cut <|en", "Cut <|en", ""),
    ("gpt_oss", "<|start|>assistant", "<|channel|>anal", "", "<|channel|>anal"),
    ("gpt_oss", "<|start|>assistant", "Plain <|message|> text.", "", "Plain <|message|> text."),
    (
        "gpt_oss",
        "<|channel|>analysis<|message|>",
        "Hm.<|end|><|start|>assistant<|channel|>"
        "commentary<|message|>First.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        "Hm.",
        "First.Yes.",
    ),
    ("gpt_oss", "<|channel|>final<|message|>", "Yes.", "", "Yes."),
    (
        "gpt_oss",
        "<|start|>assistant",
        " to=functions.f<|channel|>commentary json<|message|>{}",
        "",
        "<|channel|>commentary to=functions.f<|message|>{}",
    ),
    ("gpt_oss", "<|start|>assistant", "<|channel|>" + "a" * 600, "", "<|channel|>" + "a" * 600),
    (None, "<think>\n", "<think>\nA</think>\nYes.", "", "<think>\nA</think>\nYes."),
]


@pytest.mark.parametrize(("name", "prompt", "text", "thoughts", "content"), TEXTS)
def test_thoughts_are_found_however_the_text_comes(
    name: str | None, prompt: str, text: str, thoughts: str, content: str
) -> None:
    form = None if name is None else FORMATS[name]
    thinks = None if form is None else form.thinks(prompt)
    rng = random.Random(3)
    for size in (10_000, 1, 2, 3, 7, 0, 0, 0):
        splitter, got, at = answer_text(form, thinks), ["", ""], 0
        while at < len(text):
            end = at + (size or rng.randint(1, 9))
            for index, more in enumerate(splitter.push(text[at:end])):
                got[index] += more
            at = end
        for index, more in enumerate(splitter.finish()):
            got[index] += more
        assert got == [thoughts, content], size


def test_the_format_is_that_of_the_template() -> None:
    assert reasoning_format("auto", "{{ x.split('</think>')[-1] }}") is FORMATS["qwen3"]
    assert reasoning_format("auto", "[THINK]") is FORMATS["mistral"]
    assert reasoning_format("auto", "{{ messages }}") is None
    assert reasoning_format("auto", "<|start|>assistant<|channel|>final") is FORMATS["gpt_oss"]
    assert reasoning_format("auto", "<|user|>a<|end|>") is None
    assert reasoning_format("none", "<think>") is None
    assert reasoning_format("deepseek_r1", "") is FORMATS["deepseek_r1"]
