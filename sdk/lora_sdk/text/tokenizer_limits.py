"""Bounds on what a tokenizer.json makes of a text, checked before the tokenizers package gets it:
loading already applies its rules to the added tokens."""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from lora_sdk.text.panics import without_panic_reports

MAX_STEPS = 64  # of one kind, as decoders
MAX_GROWTH = 64  # times that a text may become longer
MAX_ADDED = 1024  # tokens that a post-processor may add
_SECTIONS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
_LONGEST = 1 << 20  # characters of a section; a character map has 320,000
_MARK = re.compile(r'["\[\]{}]')
_SPACE = re.compile(r"[ \t\r\n]*")
_AGAIN = (  # what the regular expression finds only behind the text before it
    *((f'"{name}"', re.compile(rf'"{name}"\s*:\s*[^\s\d]')) for name in _SECTIONS),
    ("\\u00", re.compile(r"\\u00[2-7]")),
)
_LETTER = re.compile(r"(?!.*\{(?:0|,))(?:[^()|*?^$\\]|\\[sSdDwW])+")  # matches no empty text
_SECONDS = 0.1  # of this thread, for one text of `_LENGTHS`
_LENGTHS = (8, 12, 16, 20, 24, 28, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_LETTERS = "aA1 \n\r.'-_日é\u0301\U0001f600"
_PARTS = {  # where each kind keeps those that it is made of
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
    "decoder": "decoders",
}


def check_limits(definition: bytes) -> None:
    """ValueError: the file is no JSON object, or its rules may take more time or memory than the
    limits above."""
    expressions: dict[str, None] = {}
    for name, value in _sections(definition.decode("utf-8")):
        steps = list(_steps(value, _PARTS[name]))
        if len(steps) > MAX_STEPS:
            raise ValueError(f"{name} has {len(steps)} steps; expected {MAX_STEPS} at most")
        if name == "post_processor":
            _check_added(steps)
        growth = prod(_growth(step, name) for step in steps)
        if growth > MAX_GROWTH:
            raise ValueError(
                f"{name} may make a text {growth:.3g} times as long; expected {MAX_GROWTH} at most"
            )
        patterns = [step["pattern"] for step in steps if isinstance(step.get("pattern"), dict)]
        found = [one["Regex"] for one in patterns if isinstance(one.get("Regex"), str)]
        expressions.update(dict.fromkeys(found))
    with without_panic_reports():
        for expression in expressions:
            _check_time(expression)


def _sections(text: str) -> Iterator[tuple[str, Any]]:
    """The sections above of a tokenizer.json, each time that it has one. Its model, which is large
    and comes last, is not parsed."""
    decoder = json.JSONDecoder()
    place = _after_space(text, 0)
    if text[place : place + 1] != "{":
        raise ValueError("expected a JSON object")
    place = _after_space(text, place + 1)
    while text[place : place + 1] != "}":
        key, place = decoder.raw_decode(text, place)
        place = _after_space(text, place)
        if not isinstance(key, str) or text[place : place + 1] != ":":
            raise ValueError(f"expected a key and a colon before character {place}")
        place = _after_space(text, place + 1)
        if key in _SECTIONS:
            value, size = decoder.raw_decode(text[place : place + _LONGEST])
            yield key, value
            place += size
        elif key == "model" and not _comes_again(text, place):
            return
        else:
            place = _after_value(text, place, decoder)
        place = _after_space(text, place)
        if text[place : place + 1] == ",":
            place = _after_space(text, place + 1)
        elif text[place : place + 1] != "}":
            raise ValueError(f"expected a comma at character {place}")


def _comes_again(text: str, place: int) -> bool:
    """Whether a section may follow, its name perhaps written with escapes."""
    return any(
        (first := text.find(start, place)) >= 0 and pattern.search(text, first)
        for start, pattern in _AGAIN
    )


def _after_space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _after_value(text: str, place: int, decoder: json.JSONDecoder) -> int:
    """Where the value at `place` ends. Lists and objects are not made."""
    if text[place : place + 1] not in ("{", "["):
        return decoder.raw_decode(text, place)[1]
    depth = 0
    while found := _MARK.search(text, place):
        place, letter = found.end(), found.group()
        if letter == '"':
            place = _after_string(text, place)
        else:
            depth += 1 if letter in "{[" else -1
        if depth == 0:
            return place
    raise ValueError("expected the end of a list or an object")


def _after_string(text: str, place: int) -> int:
    """Behind the quotation mark that ends the string that `place` is in."""
    while (end := text.find('"', place)) >= 0:
        back = end
        while text[back - 1] == "\\":
            back -= 1
        place = end + 1
        if (end - back) % 2 == 0:
            return place
    raise ValueError("expected the end of a string")


def _steps(value: Any, parts: str) -> Iterator[dict[str, Any]]:
    """The steps of a section, sequences taken apart."""
    if not isinstance(value, dict):
        return
    within = value.get(parts)
    if isinstance(within, list):
        for one in within:
            yield from _steps(one, parts)
    else:
        yield value


def _growth(step: dict[str, Any], section: str) -> float:
    """How many times as long a text may become. Not by the type, which old files leave out."""
    pattern, content = step.get("pattern"), step.get("content")
    if pattern is not None and isinstance(content, str):  # Replace
        string, expression = (
            pattern.get(form) if isinstance(pattern, dict) else None for form in ("String", "Regex")
        )
        if string:
            return max(1, len(content) / len(string))
        if isinstance(expression, str) and _LETTER.fullmatch(expression):
            return max(1, len(content))
        return 1 + len(content)  # it may match between any two characters
    if "precompiled_charsmap" in step:
        return _longest_of(step["precompiled_charsmap"])
    if "prepend" in step:  # to each part of the text, which is a character at least
        return 1 + len(str(step["prepend"]))
    if section == "decoder" and "" in (step.get("word_delimiter_token"), step.get("suffix")):
        return 2
    if section == "post_processor":
        return max(1, *(sum("Sequence" in one for one in list_) for list_ in _templates(step)))
    return 1


def _longest_of(charsmap: Any) -> int:
    """The longest text that a character map has for a character: SentencePiece's form, a trie
    behind its size, then texts that end with NUL."""
    try:
        data = base64.b64decode(charsmap)
    except (TypeError, ValueError):
        return 1  # which the package refuses
    texts = data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")
    return max(1, *(len(one.decode("utf-8", "replace")) for one in texts))


def _templates(step: dict[str, Any]) -> Sequence[list[dict[str, Any]]]:
    """Of a post-processor, for one text and for two."""
    found = [step.get("single"), step.get("pair")]
    return [
        [one for one in parts if isinstance(one, dict)] if isinstance(parts, list) else []
        for parts in found
    ]


def _check_added(steps: Sequence[dict[str, Any]]) -> None:
    added = 0
    for step in steps:
        special = step.get("special_tokens")
        known = special if isinstance(special, dict) else {}
        for parts in _templates(step):
            for one in parts:
                token = one.get("SpecialToken")
                name = token.get("id") if isinstance(token, dict) else None
                entry = known.get(name) if isinstance(name, str) else None
                ids = entry.get("ids") if isinstance(entry, dict) else None
                added += len(ids) if isinstance(ids, list) else 1
    if added > MAX_ADDED:
        raise ValueError(
            f"post_processor may add {added} tokens to a text; expected {MAX_ADDED} at most"
        )


def _check_time(expression: str) -> None:
    """Matches texts of ever more equal parts, as long as that is quick."""
    from tokenizers import Regex, decoders

    remove = decoders.Replace(Regex(expression), "")
    letters = dict.fromkeys((*re.findall(r"\w", expression), *_LETTERS))
    rest = "\x00" + "".join(letters) + "\x00"  # what is not there at all is found out at once
    pairs = dict.fromkeys(re.findall(r"(?=(\w\w))", expression))
    for length in _LENGTHS:
        for part in (*letters, *pairs)[:64]:
            begun = time.thread_time()
            try:
                remove.decode([part * (length // len(part)) + rest])
                took = time.thread_time() - begun
            except BaseException as error:
                if isinstance(error, (KeyboardInterrupt, SystemExit)):
                    raise
                took = _SECONDS + 1
            if took > _SECONDS:
                raise ValueError(
                    f"the expression {expression!r:.60} takes too long for {length} characters as "
                    f"{part * 3!r}; expected one whose steps grow with the text"
                )
