"""Mutations that make an input large: values repeated, texts lengthened, levels added."""

from __future__ import annotations

import json
from random import Random

from tests.fuzz.structure import UNFIT
from tests.mutations import _places

MANY = (100, 10_000, 300_000)
LONGEST = 8 << 20


def of_json(random: Random, data: bytes) -> bytes:
    """One value of JSON, many times; of_bytes for what is no JSON."""
    try:
        value = json.loads(data)
        holder, key = random.choice(list(_places(value)))
    except (*UNFIT, KeyError):
        return of_bytes(random, data)
    mark, count = "\0grown", random.choice(MANY)
    inner, holder[key] = holder[key], mark
    try:
        text, item = json.dumps(value), json.dumps(inner)
    except UNFIT:
        return data
    count = min(count, LONGEST // max(len(item), 16))
    match random.randrange(5):
        case 0:
            grown = "[" + ",".join([item] * count) + "]"
        case 1:
            grown = "{" + ",".join(f'"{i}":{item}' for i in range(min(count, 100_000))) + "}"
        case 2:
            grown = '{"a":' * count + item + "}" * count
        case 3 if isinstance(inner, str):
            grown = json.dumps(inner * count)
        case 4 if isinstance(inner, list) and inner:
            grown = json.dumps(inner * (count // len(inner) + 1))
        case _:
            grown = "[" * count + item + "]" * count
    return text.replace(json.dumps(mark), grown, 1).encode("utf-8", "surrogatepass")


def of_bytes(random: Random, data: bytes) -> bytes:
    """A run of bytes, many times."""
    start = random.randrange(len(data) + 1)
    run = data[start : start + random.choice((1, 2, 8, 40))]
    count = min(random.choice(MANY), LONGEST // max(len(run), 1))
    return data[:start] + run * count + data[start:]
