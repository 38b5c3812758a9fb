"""Files that are no files, that do not end, or that are not text."""

from __future__ import annotations

from functools import partial

from tests.hostile_cases.case import (
    FIFO,
    FOLDER,
    NOWHERE,
    SOCKET,
    ZERO,
    Case,
    Make,
    Place,
    Words,
    put,
)  # fmt: skip

PLAN = ("plan", "-m")
RUN = ("lora-run", "-p", "hello", "-n", "1", "-m")
BIG = b" " * ((16 << 20) + 1)


def model(place: Place, *, file: str, content: object, command: Words = PLAN) -> Words:
    """A model folder in which one file is `content`."""
    return (*command, place.copy(place.stock.model(), {file: content}))


def sharded(place: Place, *, file: str, content: object) -> Words:
    return (*PLAN, place.copy(place.stock.sharded(), {file: content}))


def adapter(place: Place, *, file: str, content: object) -> Words:
    folder = place.copy(place.stock.adapter(), {file: content})
    return (*RUN, place.stock.model(), "--adapter", f"a={folder}")


def argument(place: Place, *, command: Words, content: object) -> Words:
    """A command with a file named x; "{}" is its path."""
    path = str(put(place.path / "x", content))
    named = {"MODEL": str(place.stock.model())}
    return tuple(named.get(str(word), str(word)).replace("{}", path) for word in command)


def overlay(place: Place, *, file: str, content: object, command: Words) -> Words:
    folder = place.overlay({})
    (folder / file).unlink()
    put(folder / file, content)
    return (*command, folder)


def _no_file(name: str, make: Make, code: int = 1) -> tuple[Case, Case]:
    """A file that never comes, and one that never ends."""
    return (
        Case(f"{name}: a FIFO", partial(make, content=FIFO), "is a FIFO; expected a", code),
        Case(f"{name}: /dev/zero", partial(make, content=ZERO), "is a device; expected a", code),
    )


CHAT = ("lora-run", "--chat", *RUN[1:])
CONFIG = partial(model, file="config.json")
QUANTIZE = ("quantize", "MODEL", "{}-out", "--scheme", "w8a8", "--calibration", "{}")
CASES = (
    *_no_file("config.json", CONFIG),
    Case("config.json: a socket", partial(CONFIG, content=SOCKET), "is a socket; expected a"),
    Case("config.json: a folder", partial(CONFIG, content=FOLDER), "is a folder; expected a"),
    Case("config.json: a dangling link", partial(CONFIG, content=NOWHERE), "not found", 2),
    Case("config.json: 16 MiB and a byte", partial(CONFIG, content=BIG), "larger than the limit"),
    *_no_file("generation_config.json", partial(model, file="generation_config.json")),
    *_no_file("tokenizer_config.json", partial(model, file="tokenizer_config.json", command=CHAT)),
    *_no_file("chat_template.jinja", partial(model, file="chat_template.jinja", command=CHAT)),
    *_no_file("tokenizer.json", partial(model, file="tokenizer.json", command=RUN)),
    *_no_file("model.safetensors", partial(model, file="model.safetensors")),
    *_no_file("a shard", partial(sharded, file="model-00002-of-00003.safetensors")),
    *_no_file("the index", partial(sharded, file="model.safetensors.index.json")),
    *_no_file("adapter_config.json", partial(adapter, file="adapter_config.json")),
    *_no_file("adapter_model.safetensors", partial(adapter, file="adapter_model.safetensors")),
    *_no_file("cluster file", partial(argument, command=("links", "--cluster", "{}"))),
    *_no_file("manifest", partial(argument, command=(*PLAN, "MODEL", "--overlay", "{}"))),
    *_no_file("firmware", partial(overlay, file="firmware.bin", command=("links", "--overlay"))),
    *_no_file("container", partial(argument, command=("inspect", "{}"))),
    *_no_file("calibration text", partial(argument, command=QUANTIZE), 2),
    *_no_file("evaluation text", partial(argument, command=("eval", "--text", "{}")), 2),
    *_no_file("API keys", partial(argument, command=("serve", "--api-key-file", "{}")), 2),
    *_no_file("table", partial(argument, command=("lab", "spec", "show", "{}"))),
    *_no_file("a table's model", partial(
        model, file="speculation.json", command=("lora-run", "-p", "x", "-m"))),
)  # fmt: skip
