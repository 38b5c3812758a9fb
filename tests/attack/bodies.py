"""Attacks with what a request asks for: wide and deep values, schemas, expressions and grammars
that grow, odd names."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

Request = tuple[str, bytes]
COMPLETIONS, CHAT, RESPONSES, MESSAGES = (
    "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"
)  # fmt: skip
WORDS = (
    "",
    "a",
    "\0",
    "\x1b[2J",
    "\ud800",
    "\u202e",
    "\u0300" * 500,
    "\U0001f468\u200d" * 200,
    "%s%n",
    "{{ 7*7 }}",
    "{% for i in range(9999999) %}a{% endfor %}",
    "<|endoftext|>",
    "<tool_call>",
    "\r\n",
    "../../etc/passwd",
    "a" * 5000,
    "\u0661",
    "__class__",
    "constructor",
    "NaN",
    "1e999",
    "\ufeff",
)
NUMBERS = (
    -1, 0, 1, 2**31, 2**63, -(2**70), 10**400, 0.5, -0.0, 1e308, 5e-324, float("nan"), float("inf"),
)  # fmt: skip


def _json(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


def _one(random: Random) -> Any:
    return random.choice((*WORDS, *NUMBERS, None, True, [], {}, [[]], {"a": [None]}))


def deep(random: Random) -> Request:
    """A value in a value in a value."""
    depth = random.choice((50, 250, 257, 1000, 100_000))
    opening, end = random.choice(((b"[", b"]"), (b'{"a":', b"}"), (b'[{"a":[', b"]}]")))
    value = opening * depth + b"1" + end * random.choice((depth, 0))
    path, field = random.choice((
        (COMPLETIONS, b"prompt"), (CHAT, b"messages"), (CHAT, b"chat_template_kwargs"),
        (CHAT, b"tools"), (COMPLETIONS, b"guided_json"), (RESPONSES, b"input"),
        (MESSAGES, b"system"), ("/tokenize", b"messages"), ("/detokenize", b"tokens"),
        (COMPLETIONS, b"unknown"), (RESPONSES, b"metadata"),
    ))  # fmt: skip
    return path, b'{"prompt":"a","max_tokens":1,"' + field + b'":' + value + b"}"


def wide(random: Random) -> Request:
    """Lists and objects of as many values as a body has room for."""
    count = random.choice((1100, 70_000, 260_000, 700_000))
    item = random.choice((b"{}", b"[]", b"1", b'""', b'{"a":1}', b"null", b'{"role":"user"}'))
    items = (b"[" + b",".join([item] * count) + b"]")[: 4 << 20]
    if random.random() < 0.3:
        items = b"{" + b",".join(b'"%d":1' % i for i in range(count)) + b"}"
    path, field = random.choice((
        (COMPLETIONS, b"prompt"), (COMPLETIONS, b"stop"), (COMPLETIONS, b"logit_bias"),
        (COMPLETIONS, b"bad_words"), (COMPLETIONS, b"allowed_token_ids"), (CHAT, b"messages"),
        (CHAT, b"tools"), (CHAT, b"chat_template_kwargs"), (RESPONSES, b"input"),
        (MESSAGES, b"messages"), ("/tokenize", b"messages"), ("/detokenize", b"tokens"),
        (COMPLETIONS, b"guided_choice"), (COMPLETIONS, b"unknown"),
    ))  # fmt: skip
    return path, b'{"max_tokens":1,"' + field + b'":' + items + b"}"


def broken(random: Random) -> Request:
    """Bytes that are no JSON, or JSON of another kind."""
    whole = b'{"prompt":"a","max_tokens":1}'
    return random.choice((COMPLETIONS, CHAT, MESSAGES, "/tokenize")), random.choice(
        (
            b"",
            b"\xef\xbb\xbf" + whole,
            whole.decode().encode("utf-16"),
            b"\xff" * 3000,
            b"1" * 200_000,
            b'{"prompt":"' + b"\\ud800" * 10_000 + b'"}',
            b'{"prompt":"\xed\xa0\x80","max_tokens":1}',
            b'{"max_tokens":1' + b',"prompt":"a"' * 50_000 + b"}",
            b'{"prompt":"a","max_tokens":1e999}',
            b'{"prompt":"a","max_tokens":' + b"9" * 100_000 + b"}",
            b'{"prompt":NaN}',
            b"nullnull",
            b'{"prompt":"a","temperature":-Infinity}',
            whole + whole,
            whole[:-1],
            b'"' + b"a" * 1_000_000,
            b'{"\\u0000":1,"prompt":"a"}',
            b"[" + whole + b"]",
            b'{"prompt":"a",}',
            b"{'prompt':'a'}",
            b'{"prompt":"a","max_tokens":0.' + b"0" * 300_000 + b"1}",
            b"/*" + whole,
        )
    )


def texts(random: Random) -> Request:
    """Long texts that a tokenizer may be slow with."""
    word = random.choice(
        (
            " ",
            "a",
            "\n",
            "\t ",
            "1",
            "a.",
            "\u00e9",
            "\u4e00",
            "\U0001f600",
            "\u0300",
            "aA",
            "=-",
            "\u200d",
            "\0",
            "'s",
            "<|endoftext|>",
            "\ufffd",
        )
    )
    size = random.choice((3000, 100_000, 1_000_000))
    text = word * (size // len(word.encode()))
    return random.choice((
        ("/tokenize", _json({"prompt": text})), (COMPLETIONS, _json({"prompt": text})),
        (COMPLETIONS, _json({"prompt": text, "max_tokens": 1, "truncate_prompt_tokens": 5})),
        ("/tokenize", _json({"messages": [{"role": "user", "content": text}]})),
        (CHAT, _json({"messages": [{"role": "user", "content": text}], "max_tokens": 1})),
        ("/detokenize", _json({"tokens": [random.randrange(4000)] * (size // 20)})),
    ))  # fmt: skip


def schema(random: Random) -> Any:
    """A JSON schema that grows when it is made a grammar."""
    size = random.choice((10, 100, 1000))
    nested: Any = {"type": "string"}
    for _ in range(random.choice((5, 30, 120))):
        nested = (
            {
                random.choice(("anyOf", "oneOf", "allOf")): [
                    nested,
                    {"type": "object", "properties": {"a": nested}},
                ]
            }
            if random.random() < 0.1
            else {"type": "object", "properties": {"a": nested}}
        )
        if len(_json(nested)) > 60_000:
            break
    chain = {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}, "minItems": 9,
                       "maxItems": 9} for i in range(12)}  # fmt: skip
    return random.choice((
        nested, {"enum": [str(i) * 20 for i in range(size)]}, {"$ref": "#"}, {"$ref": "#/$defs/x"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$defs": {**chain, "d12": {"type": "string"}}, "$ref": "#/$defs/d0"},
        {"type": "object", "required": [f"k{i}" for i in range(size)],
         "properties": {f"k{i}": {"type": ["string", "null"]} for i in range(size)}},
        {"type": "array", "items": {}, "minItems": 10**9}, {"type": "string", "minLength": 10**9},
        {"type": "string", "maxLength": 10**12}, {"type": "number", "multipleOf": 1e-300},
        {"type": "integer", "minimum": -(10**300), "maximum": 10**300}, {"const": "a" * 20_000},
        {"type": "string", "pattern": expression(random)}, {"$ref": "file:///etc/passwd"},
        {"$ref": "http://127.0.0.1:22/"}, {"allOf": [{"$ref": "#"}] * 50}, {"not": {"not": {}}},
        {"patternProperties": {expression(random): {}}}, {"type": "object", "minProperties": 10**9},
        {"oneOf": [{"type": "object", "properties": {f"p{i}": {"const": i}}} for i in range(size)]},
        {"type": "array", "prefixItems": [{"type": "string"}] * size}, {"type": [["string"]]},
        {"properties": {str(_one(random)): _one(random)}}, _one(random),
        {"if": {"const": 1}, "then": {"$ref": "#"}, "else": {"$ref": "#"}}, {"format": "regex"},
        {"dependentSchemas": {"a": {"$ref": "#"}}}, {"unevaluatedProperties": {"$ref": "#"}},
    ))  # fmt: skip


def expression(random: Random) -> str:
    """A regular expression that is slow, large or wrong."""
    return random.choice(
        (
            "(a+)+$",
            "(.*)*",
            "((a{1,100}){1,100}){1,100}",
            "(a|a)*b",
            "a{1,1000000000}",
            "(?=a)b",
            "(a)\\1",
            "(?<!a)b",
            "(" * 500 + ")" * 500,
            "[^\\x00-\\U0010ffff]",
            "\\p{L}{1,4000}",
            "[",
            "(x+x+)+y",
            "(.{0,999}){9}",
            "(?i)" + "\\w" * 900,
            "|".join(["a"] * 2000),
            "a" * 4096,
            "",
            "(?:" * 200 + "a" + "*)*" * 100,
            ".{1000}" * 200,
            "(?s:.)*" * 300,
            "\\",
            "(?P<a>b)",
            "[a-\\d]",
            "(.*a){25}",
            "(\\w{1,64}\\.){1,64}",
            "[\u0000-\U0010ffff]{2000}",
            "^^^$$$",
            "\\b\\B",
        )
    )


def grammar(random: Random) -> str:
    """A grammar in Lark's form that is ambiguous, endless, empty, or large."""
    return random.choice(
        (
            "start: start",
            'start: start start | "a"',
            "start: a\na: b\nb: a",
            "start:",
            "",
            "%%%",
            "start: /" + expression(random).replace("/", "\\/") + "/",
            'start: ""*',
            'start: ("a"*)*',
            "start: " + " | ".join(f'"{i}"' for i in range(2500)),
            "start: a\n" + 'a: "x"\n' * 500,
            "start: " + "(" * 300 + '"a"' + ")" * 300,
            'start: ("a"~1000)~1000',
            "start: /a{9999}/~99",
            "\n".join(f"r{i}: r{i + 1} r{i + 1}" for i in range(60)) + '\nr60: "a"\nstart: r0',
            "start: %json " + json.dumps(schema(random)),
            "start: @other",
            "%import common.WORD\nstart: WORD",
            "start: <|endoftext|>",
            "start: <[0-99999999]>",
            "start[max_tokens=99999999999]: /.*/",
            'start: "a" "' + "b" * 15_000 + '"',
            "start: " + '"a"? ' * 2000,
            'start: S\nS: S "a"',
        )
    )


def constrained(random: Random) -> Request:
    """A text by a grammar that grows."""
    more = random.choice((
        {"guided_json": schema(random)}, {"guided_regex": expression(random)},
        {"guided_grammar": grammar(random)}, {"structured_outputs": {"json": schema(random)}},
        {"guided_choice": [str(_one(random)) for _ in range(random.choice((1, 64, 900)))]},
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": "a", "schema": schema(random), "strict": True}}},
        {"structured_outputs": {"json": schema(random), "regex": expression(random)}},
    ))  # fmt: skip
    return COMPLETIONS, _json({"prompt": "a", "max_tokens": 6, "temperature": 0, **more})


def tools(random: Random) -> Request:
    """Functions with such schemas, in the three forms."""
    count = random.choice((1, 1, 3, 128, 600))
    name = random.choice(
        ("f", "a" * 64, "a" * 5000, "a b", "\u00e9", "", "../x", '"}]', "<tool_call>")
    )
    made = [(f"{name}{i}", schema(random)) for i in range(count)]
    message = [{"role": "user", "content": random.choice(WORDS)}]
    choice = random.choice(
        ("auto", "required", "none", {"type": "function", "function": {"name": name}})
    )
    kind = random.randrange(3)
    if kind == 0:
        given = [{"name": n, "input_schema": s} for n, s in made]
        asked = {"type": random.choice(("auto", "any", "tool", "none")), "name": name}
        return MESSAGES, _json({"messages": message, "max_tokens": 4, "tools": given,
                                "tool_choice": asked})  # fmt: skip
    if kind == 1:
        given = [{"type": "function", "name": n, "parameters": s} for n, s in made]
        return RESPONSES, _json({"input": message, "max_output_tokens": 4, "tools": given})
    given = [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in made]
    return CHAT, _json(
        {"messages": message, "max_tokens": 4, "tools": given, "tool_choice": choice}
    )


def messages(random: Random) -> Request:
    """Histories that no client has: roles, parts, calls with arguments in arguments."""
    arguments: str = random.choice(
        ("{}", "[" * 3000, '{"a":' * 300 + "1" + "}" * 300, "\0", "1e999")
    )
    roles = ("system", "user", "assistant", "tool", "developer", "", "a" * 3000, "\0", None)
    one = {
        "role": random.choice(roles),
        "name": _one(random),
        "tool_call_id": _one(random),
        "content": random.choice(
            (
                _one(random),
                [{"type": "text", "text": _one(random)}] * 3,
                [{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}],
            )
        ),
        "tool_calls": random.choice(
            (
                None,
                _one(random),
                [
                    {
                        "id": "a",
                        "type": "function",
                        "function": {"name": random.choice(WORDS), "arguments": arguments},
                    }
                ]
                * random.choice((1, 200)),
            )
        ),
        "reasoning_content": _one(random),
        random.choice(WORDS): _one(random),
    }
    kept = {name: value for name, value in one.items() if random.random() < 0.6 or name == "role"}
    history = [kept, {"role": "user", "content": "a"}] * random.choice((1, 1, 30, 1000))
    path, field, limit = random.choice((
        (CHAT, "messages", "max_tokens"), (RESPONSES, "input", "max_output_tokens"),
        (MESSAGES, "messages", "max_tokens"), ("/tokenize", "messages", "max_tokens"),
    ))  # fmt: skip
    return path, _json({field: history, limit: 2})


def template(random: Random) -> Request:
    """Variables of a chat template that take its names, or are large."""
    names = (
        "messages",
        "tools",
        "raise_exception",
        "self",
        "loop",
        "range",
        "__class__",
        "bos_token",
        "add_generation_prompt",
        "namespace",
        "strftime_now",
        "caller",
        "enable_thinking",
        "true",
        "a b",
        "_",
        "1",
        "x" * 9000,
    )
    value = random.choice(
        (_one(random), ["a"] * 9000, {str(i): "b" for i in range(9000)}, "c" * 300_000)
    )
    return CHAT, _json({
        "messages": [{"role": "user", "content": random.choice(WORDS)}], "max_tokens": 2,
        "chat_template_kwargs": {random.choice(names): value, random.choice(names): _one(random)},
    })  # fmt: skip


def sampled(random: Random) -> Request:
    """Fields of sampling, out of range, of another type, or very many."""
    many = random.choice((3, 300, 1500, 20_000))
    fields = {
        "logit_bias": random.choice(
            (
                {str(i): random.choice((1, -100, 100, 1e9)) for i in range(many)},
                {"-1": 1},
                {"0x5": 1},
                {"\u0661": 1},
                {"99999999": 1},
                {"1": float("nan")},
                {"1_0": 2},
                {" 1": 1},
                {"1": "a"},
            )
        ),
        "stop": random.choice(([""], ["a"] * many, ["b" * 5000], list(WORDS[:4]), "\0")),
        "bad_words": random.choice(([""], ["a b"] * many, list(WORDS[:8]))),
        "stop_token_ids": [random.choice((0, 5, -1, 2**31))] * many,
        "allowed_token_ids": random.choice(([5] * many, [-1], [2**40], [], list(range(many)))),
        "n": random.choice((1, 2, 16, 129, 10**9, 0)),
        "best_of": random.choice((1, 4, 10**6)),
        "use_beam_search": True,
        "length_penalty": random.choice(NUMBERS),
        "seed": random.choice(NUMBERS),
        "top_k": random.choice(NUMBERS),
        "top_p": random.choice(NUMBERS),
        "min_p": random.choice(NUMBERS),
        "temperature": random.choice(NUMBERS),
        "repetition_penalty": random.choice(NUMBERS),
        "presence_penalty": random.choice(NUMBERS),
        "frequency_penalty": random.choice(NUMBERS),
        "logprobs": random.choice((0, 5, 20, 10**9, -1)),
        "prompt_logprobs": random.choice((0, 5, 10**9)),
        "min_tokens": random.choice((0, 3, 10**9)),
        "truncate_prompt_tokens": random.choice(NUMBERS),
        "echo": True,
        "suffix": _one(random),
        "cache_salt": _one(random),
        "stream": True,
        "stream_options": {"include_usage": _one(random)},
        "priority": random.choice(NUMBERS),
        "return_token_ids": True,
        "user": "u" * 100_000,
        "model": random.choice(("demo", *WORDS)),
        "prompt": random.choice(
            (["a"] * 128, ["a"] * 129, [[1]] * 64, [[-1]], [2**40], [[]], [""])
        ),
        "prompt_embeds": "AAAA",
        "max_tokens": random.choice((0, -1, 10**9, 2**64)),
    }
    chosen = random.sample(sorted(fields), random.choice((1, 1, 2, 4)))
    return COMPLETIONS, _json({"prompt": "a", "max_tokens": 3, **{k: fields[k] for k in chosen}})


def adapters(random: Random) -> Request:
    """Names and folders of adapters that lead elsewhere."""
    where = (
        "other",
        "../../../etc",
        "/etc",
        "outside",
        "outside/ssl",
        "fifo",
        ".",
        "",
        "/",
        "//",
        "a/../..",
        "/proc/self/root",
        "/dev/zero",
        "\0",
        "a" * 5000,
        "other/adapter_config.json",
        "~",
        "$HOME",
        "%2e%2e/",
        "..\\..",
        "other\n",
        "file:///etc",
        "\ud800",
    )
    path = random.choice(("/v1/load_lora_adapter", "/v1/unload_lora_adapter"))
    return path, _json({
        "lora_name": random.choice(("x", "demo", *WORDS)), "lora_path": random.choice(where),
        random.choice(("load_inplace", "lora_int_id", "base_model_name")): _one(random),
    })  # fmt: skip


BODIES: dict[str, Callable[[Random], Request]] = {
    one.__name__: one
    for one in (
        deep,
        wide,
        broken,
        texts,
        constrained,
        tools,
        messages,
        template,
        sampled,
        adapters,
    )
}
