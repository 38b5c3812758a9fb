"""Chat templates that take time or memory without bound, or that are broken. A tuple: the name, the
template, a part of the message."""

from __future__ import annotations

from functools import partial

from tests.hostile_cases.case import Case, Place, Words

_COSTS = "takes too many steps or makes too much text"
_BIG = "{% set x = 'a' * 1000000 %}{% for i in range(99999) %}"


def _doubling(step: str, start: str = "'a'") -> str:
    return (
        f"{{% set ns = namespace(x={start}) %}}{{% for i in range(60) %}}{{% set ns.x = {step} %}}"
        "{% endfor %}{{ ns.x }}"
    )


def _doubled_namespaces(use: str) -> str:
    """Sixty levels, each with the one below twice."""
    return _doubling("namespace(a=ns.x, b=ns.x)", "namespace()").removesuffix("{{ ns.x }}") + use


TEMPLATES = (
    ("repeats a text", "{{ 'a' * 20000000000 }}", _COSTS),
    ("repeats a text to itself", "{% set x = 'a' * 20000000000 %}", _COSTS),
    ("repeats a list", "{{ ([0] * 10000000000)|length }}", _COSTS),
    ("doubles by +", _doubling("ns.x + ns.x"), _COSTS),
    ("doubles by ~", _doubling("ns.x ~ ns.x"), _COSTS),
    ("doubles by %", _doubling("'%s%s' % (ns.x, ns.x)"), _COSTS),
    ("doubles by .format", _doubling("'{0}{0}'.format(ns.x)"), _COSTS),
    ("doubles by |format", _doubling("'%s%s'|format(ns.x, ns.x)"), _COSTS),
    ("doubles by |join", _doubling("[ns.x, ns.x]|join"), _COSTS),
    ("doubles by .join", _doubling("ns.x.join([ns.x, ns.x])"), _COSTS),
    ("doubles by .replace", _doubling("ns.x.replace('a', 'aa')"), _COSTS),
    ("doubles by |replace", _doubling("ns.x|replace('a', 'aa')"), _COSTS),
    ("doubles a block", "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set y %}"
     "{{ ns.x }}{{ ns.x }}{% endset %}{% set ns.x = y %}{% endfor %}", _COSTS),
    ("nests lists", _doubling("[ns.x, ns.x]", "[]"), _COSTS),
    ("nests objects", _doubling("{'a': ns.x, 'b': ns.x}", "{}"), _COSTS),
    ("nests dict()", _doubling("dict(a=ns.x, b=ns.x)", "{}"), _COSTS),
    ("a namespace in itself", "{% set ns = namespace() %}{% set ns.a = [ns] %}{{ ns.a }}",
     "a namespace as text"),
    *((f"namespaces in namespaces as {how}", _doubled_namespaces(use), "a namespace as text")
      for how, use in (
          ("text", "{{ [ns.x] }}"), ("%", "{{ '%s' % ns.x }}"), (".format",
          "{{ '{}'.format([ns.x]) }}"), ("|upper", "{{ ns.x|upper }}"), ("|join",
          "{{ [ns.x]|join }}"), ("|string", "{{ [ns.x]|map('string')|list }}"), ("an error",
          "{{ raise_exception([ns.x]) }}"), ("a missing key", "{{ messages[(ns.x,)].a }}"),
          ("|replace", "{{ ns.x|replace('a', 'b') }}"), ("~", "{{ 'a' ~ ns.x }}"))),
    ("namespaces in namespaces as JSON", _doubled_namespaces("{{ [ns.x]|tojson }}"),
     "not JSON serializable"),
    ("a name with an underscore", "{% set ns = namespace(_a=1) %}", "a namespace holds no '_a'"),
    ("a namespace as text", "{% set ns = namespace() %}{{ ns }}", "a namespace as text"),
    ("|center", "{{ 'a'|center(10000000000) }}", _COSTS),
    (".center", "{{ 'a'.center(10000000000) }}", _COSTS),
    (".zfill", "{{ 'a'.zfill(10000000000) }}", _COSTS),
    (".ljust of bytes", "{{ 'a'.encode().ljust(10000000000) }}", _COSTS),
    (".expandtabs", "{{ '\t'.expandtabs(10000000000) }}", "str.expandtabs is not supported"),
    ("|indent", "{{ 'a\n'|indent(10000000000, true) }}", _COSTS),
    ("a width of %", "{{ '%10000000000d' % 1 }}", "a width of more than 4 digits"),
    ("a width of % by *", "{{ '%*d' % (10000000000, 1) }}", "a width '*'"),
    ("a width of .format", "{{ '{:10000000000}'.format(1) }}", "a width of more than 4 digits"),
    ("a width in a width", "{{ '{:{}}'.format(1, 10000000000) }}", "a format of a format"),
    ("a width of a date", "{{ strftime_now('%10000000000Y') }}", "a width of more than 4 digits"),
    ("a power", "{{ 10 ** (10 ** 10) }}", "is not supported"),
    ("squares", _doubling("ns.x * ns.x", "10"), "an integer of"),
    ("a method of a number", "{{ (5).to_bytes(10000000000, 'big') }}", "a method of a number"),
    ("|round", "{{ 5|round(-10000000000) }}", "rounding to more than"),
    ("|batch", "{{ [1]|batch(10000000000, 0)|list }}", _COSTS),
    ("loops in loops", "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
     "{% endfor %}", _COSTS),
    ("loops that take nothing", "{% for i in range(99999) if false %}{% endfor %}" * 400, _COSTS),
    ("text in a loop", "{% for i in range(99999) %}" + "x" * 100_000 + "{% endfor %}", _COSTS),
    ("a macro of itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ("a tree of macros", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}"
     "{% endmacro %}{{ f(60) }}", _COSTS),
    ("a recursive loop", "{% for i in [1, 1] recursive %}{{ loop([1, 1]) }}{% endfor %}", "recurs"),
    ("filters over a range", "{% for i in range(99999) %}{{ range(99999)|map('string')|list|length"
     " }}{% endfor %}", _COSTS),
    ("a search in a range", "{% for i in range(99999) %}{{ 'x' in range(99999) }}{% endfor %}",
     _COSTS),
    ("a search in a text", _BIG + "{{ 'ab' in x }}{% endfor %}", _COSTS),
    ("a search backwards", "{% set x = 'a' * 1000000 %}{{ x.rfind('b' ~ 'a' * 400000) }}", _COSTS),
    ("comparisons", _BIG + "{% if x == x ~ '' %}{% endif %}{% endfor %}", _COSTS),
    ("slices", _BIG + "{% set y = x[1:] %}{% endfor %}", _COSTS),
    ("a sum of lists", "{{ ([[0] * 10] * 10)|sum(start=[])|length }}", "a sum of lists"),
    ("a negative cost", "{{ [-1000000000000]|map('lora:iteration')|list }}{{ 'a' * 900000000 }}",
     _COSTS),
    ("a slow codec", "{{ ('a' * 1000000).encode('punycode') }}", "the codec 'punycode'"),
    ("an indent of JSON", "{{ [[1]]|tojson(indent=1000000000) }}", "an indent of 1000000000"),
    ("an indent of JSON by a text", "{{ [[1]]|tojson(indent=' ' * 1000000) }}", "an indent of"),
    ("separators of JSON", "{% set s = 'a' * 1000000 %}{{ range(9999)|list|tojson(separators="
     "(s, s)) }}", _COSTS),
    ("text in {% generation %}", "{% for i in range(99999) %}{% generation %}" + "x" * 100_000
     + "{% endgeneration %}{% endfor %}", _COSTS),
    ("doubles in {% generation %}", "{% set ns = namespace(x='a') %}{% for i in range(60) %}"
     "{% generation %}{% set ns.x = ns.x ~ ns.x %}{% endgeneration %}{% endfor %}", _COSTS),
    ("a long number", "{{ ('9' * 4000000)|int }}", _COSTS),
    ("parentheses", "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}", "recursion"),
    ("nested blocks", "{% if 1 %}" * 3000 + "{% endif %}" * 3000, "recursion"),
    ("a class", "{{ ''.__class__.__mro__ }}", "is unsafe"),
    ("no end", "{% for", "unexpected 'end of template'"),
    ("another file", "{% include '/etc/passwd' %}", "no loader"),
    ("no such filter", "{{ 'a'|urlize }}", "No filter named 'urlize'"),
)  # fmt: skip


def _chat(place: Place, *, template: object) -> Words:
    folder = place.copy(place.stock.model(), {"chat_template.jinja": template})
    return ("lora-run", "--chat", "-p", "hello", "-n", "1", "-m", folder)


CASES = (
    Case("chat template: repeats a text", partial(_chat, template=TEMPLATES[0][1]), _COSTS, 2),
    Case("chat template: not UTF-8", partial(_chat, template=b"a\xff"), "not UTF-8 at byte 1"),
    Case("chat template: too long", partial(_chat, template=b"a" * (1 << 20) + b"a"), "1 MiB"),
)
