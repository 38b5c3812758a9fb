"""Files of requests to mutate: chat templates, batch files, and tables of speculation."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from lora_sdk import demo_model_path
from lora_sdk.cli.prompts import read_batch
from lora_sdk.spec.table import FILE_NAME, load_tables
from lora_sdk.text.chat import find_template, render
from lora_sdk.text.tokenizer import Tokenizer
from tests.mutations import Subject, as_json, damaged, rewritten
from tests.variants import variant, write_checkpoint

TEMPLATE = (
    "{% set names = namespace(last='') %}{{ bos_token }}{% for message in messages %}"
    "{% if message.role == names.last %}{{ raise_exception('roles alternate') }}{% endif %}"
    "{% set names.last = message['role'] %}[{{ message.role | upper }}] "
    "{{ message['content'].strip() }}{{ '\\n' * 2 }}{% for i in range(3) %}{{ i }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}{{ '[A] ' ~ (messages | length) }}{% endif %}"
)
MESSAGES = [
    {"role": "user", "content": " one "},
    {"role": "assistant", "content": "two"},
    {"role": "user", "content": "three"},
]
LINES = [
    {"prompt": "a prompt"},
    {"prompt": "b", "max_tokens": 3, "temperature": 0.5, "stop": ["x"], "seed": 1},
    {"tokens": [1, 2, 3], "logit_bias": {"5": 1.0}, "logprobs": 2},
    {"messages": MESSAGES, "top_p": 0.9, "top_k": 4, "adapter": None},
]


def template(folder: Path) -> Subject:
    """A chat template in a file of its own."""
    model = write_checkpoint(variant("llama_narrow"), folder / "model")
    tokenizer = Tokenizer(model, 300)
    path = model / "chat_template.jinja"

    def read() -> None:
        render(find_template(model, tokenizer), MESSAGES, tokenizer, True)

    return Subject(
        path,
        lambda random: (
            rewritten(random, TEMPLATE).encode("utf-8", "surrogatepass")
            if random.random() < 0.7
            else damaged(random, TEMPLATE.encode())
        ),
        read,
    )


def batch(folder: Path) -> Subject:
    """A batch file. The error of a line is the file's here."""
    path = folder / "batch.jsonl"

    def read() -> None:
        for line in read_batch(str(path), {}):
            if line.error is not None:
                raise line.error

    def mutate(random: Random) -> bytes:
        lines = [json.dumps(line).encode() for line in LINES]
        at = random.randrange(len(lines))
        lines[at] = as_json(random, LINES[at])
        return b"\n".join(lines)

    return Subject(path, mutate, read)


def tables(folder: Path) -> Subject:
    """A small file of speculation tables."""
    value = json.loads((demo_model_path() / FILE_NAME).read_text())
    measurement = value["measurements"][0]
    kept = measurement["tables"][:1]
    rows = {str(choice["rows"]) for choice in kept[0]["choices"]}
    measurement["trees"] = {s: t for s, t in measurement["trees"].items() if s in rows}
    value["measurements"] = [{**measurement, "tables": kept}]
    path = folder / FILE_NAME
    return Subject(path, lambda random: as_json(random, value), lambda: load_tables(path))
