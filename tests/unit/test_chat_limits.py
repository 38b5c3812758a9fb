"""What rendering a chat template may cost: counted, so a test depends on no clock."""

from __future__ import annotations

import re
import resource

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lora_sdk.text.budget import TemplateLimit
from lora_sdk.text.template import render_bounded
from tests.hostile_cases.templates import TEMPLATES
from tests.mutations import time_limit

MESSAGES = [{"role": role, "content": f" hello, {role} é{{}}% \n"} for role in ("user", "a") * 100]
VALUES = {"messages": MESSAGES, "tools": None, "bos_token": "<s>"}
SLOW = ("nests", "loops", "a tree", "filters", "a search", "doubles by .rep", "doubles by |rep")
ORDINARY = (
    "{% for m in messages[1:] if m.role != 'tool' %}{{ loop.index }}{{ m['content'] | trim }}"
    "{{ '\n' if not loop.last }}{% endfor %}",
    "{% set ns = namespace(text='', seen=[]) %}{% for m in messages %}{% set ns.text = ns.text + "
    "m.content %}{% set ns.seen = ns.seen + [m.role] %}{% endfor %}{{ ns.seen|unique|join(',') }}"
    "{{ ns.text|length }}{{ ns.text.split('hello')[-1] }}",
    "{% macro f(x, depth=0) %}{% if depth < 3 %}({{ f(x, depth + 1) }}){% else %}{{ x }}"
    "{% endif %}{% endmacro %}{{ f('a') }}{{ ['b', 'a']|sort|join(', ') }}",
    "{{ '%s is %05.1f%%' % ('it', 3) }}{{ '{} {:>4}'.format('a', 1) }}{{ '%s'|format(2) }}",
    "{{ {'a': [1, 2], 'b': none}.items()|list }}{{ [3, 1]|map('string')|join }}{{ [1] * 3 }}",
    "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}{{ 'a' ~ 1 ~ none ~ b }}",
    "{{ 'Q: %s' % messages[0].content.strip()|upper|replace('E', '3') }}{{ 2 ** 8 }}{{ 7 // 2 }}",
    "{% set x %}{% for m in messages %}{% if m.role == 'a' %}{% break %}{% endif %}{{ m.role }}"
    "{% endfor %}{% endset %}{{ x|indent(4, true) }}{{ bos_token.join(['a', 'b']) }}",
    "{% set ns = namespace(all=[]) %}{% for m in messages %}{% set one = namespace(role=m.role) %}"
    "{% set one.text = m.content %}{% set ns.all = ns.all + [one] %}{% endfor %}{% for one in "
    "ns.all if one.role == 'a' %}{{ one.text }}{% endfor %}{{ ns.all|length }}"
    "{{ ns.all[0] in ns.all }}"
    "{{ ns.all|map(attribute='role')|unique|join }}{{ (ns.all|selectattr('role')|first).text }}",
    "{{ '-'.join({'a': 1}.keys()) }}{{ '-'.join(['a']|map('upper')) }}{{ 'a' in 'abc' }}",
)  # fmt: skip


@pytest.mark.parametrize("template", ORDINARY)
def test_ordinary_templates_give_what_jinja_gives(template: str) -> None:
    plain = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    assert render_bounded(template, VALUES) == plain.from_string(template).render(**VALUES)


@pytest.mark.parametrize(
    ("template", "says"),
    [
        pytest.param(template, says, id=name, marks=[pytest.mark.slow] * name.startswith(SLOW))
        for name, template, says in TEMPLATES
    ],
)
def test_a_template_without_bound_is_refused(template: str, says: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with time_limit(60), pytest.raises(Exception, match=re.escape(says)):
        render_bounded(template, VALUES)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB


def test_long_conversations_have_more_budget() -> None:
    """Ten readings of 2 MB."""
    messages = [{"role": "user", "content": "hello " * 7000} for _ in range(50)]
    template = "{% for m in messages %}" + "{{ m.content|trim|length }}" * 10 + "{% endfor %}"
    assert len(render_bounded(template, {"messages": messages})) == 50 * 10 * 5
    with pytest.raises(TemplateLimit, match="too many steps"):
        render_bounded("{% for i in range(99999) %}" * 2 + "{% endfor %}" * 2, {"messages": []})
