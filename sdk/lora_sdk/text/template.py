"""Chat templates in jinja2's sandbox, with a bound on what they cost (`budget.py`). The syntax tree
is rewritten so that every loop, and every expression that reads or makes values of any size,
passes a function that counts."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import lru_cache, wraps
from types import GeneratorType
from typing import Any, NoReturn

from jinja2 import Template, TemplateError, Undefined, nodes, pass_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from lora_sdk.text import budget as costs
from lora_sdk.text.budget import MACRO, STEP, Budget, length, refuse, weight

_BUDGET = Budget()
# Filters for web pages, and one that would make the prompt differ from run to run.
_LEFT_OUT = (
    *("pprint", "urlize", "wordwrap", "xmlattr", "striptags", "forceescape"),
    *("filesizeformat", "random"),
)
_READ, _MADE, _JOINED, _ITERATION = "lora:read", "lora:made", "lora:joined", "lora:iteration"
"""Names of the functions that count. No template can name them."""
_WHOLE = ("join", "list", "sort", "sum", "unique", "groupby", "min", "max", "string")
_CONTAINERS = (list, tuple, dict, set)


def render_bounded(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template. Any exception of its expressions; TemplateLimit beyond its budget."""
    compiled = _compiled(template)
    _BUDGET.start(values)
    return compiled.render(**values)


@lru_cache(16)
def _compiled(template: str) -> Template:
    environment = _environment()
    _BUDGET.start(template)
    return environment.from_string(_Rewriter().visit(environment.parse(template)))


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The sandbox, with costs charged to this thread's budget."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(__obj, "__name__", "") == "join":
            args = tuple(list(one) if isinstance(one, GeneratorType) else one for one in args)
        _charge_call(__obj, (*args, *kwargs.values()))
        return _made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "%" and isinstance(left, str):
            costs.percent(_BUDGET, left, right)
        elif operator == "*":
            costs.times(_BUDGET, left, right)
        elif operator == "**":
            costs.power(left, right)
        elif operator == "+":
            _BUDGET.charge(length(left) + length(right))
        return _made(super().call_binop(context, operator, left, right))


class BoundedNamespace(Namespace):
    """`namespace()`. It may hold itself, so it is never text; as in transformers, no name in it
    begins with an underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:  # `self` may be a name, too
        given = dict(*args[1:], **kwargs)
        for name in given:
            _check_name(name)
        Namespace.__init__(args[0], given)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)

    def __repr__(self) -> str:
        refuse("a namespace as text")


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace holds no {name!r:.60}")


class Generation(Extension):
    """`{% generation %}`: what an assistant wrote, for training. The text is that of its inside."""

    tags = {"generation"}  # noqa: RUF012, as jinja2 has it

    def parse(self, parser: Parser) -> nodes.Node:
        """A scope of its own, as a macro has it."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_inside"), [], [], body).set_lineno(line)

    def _inside(self, caller: Callable[[], str]) -> str:
        text = caller()
        _BUDGET.charge(len(text))
        return text


def _charge_call(function: Any, arguments: tuple[Any, ...]) -> None:
    _BUDGET.charge((MACRO if isinstance(function, Macro) else STEP) * (1 + len(arguments)))
    name = getattr(function, "__name__", "")
    # The sandbox wraps str.format.
    owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
    if isinstance(owner, str | bytes):
        costs.text_call(_BUDGET, name, owner, arguments)
    elif isinstance(owner, int | float):
        refuse(f"a method of a number, {name}")
    elif isinstance(owner, list | tuple):
        _BUDGET.charge(weight(_BUDGET, owner, text=False))
    else:
        _BUDGET.charge(sum(weight(_BUDGET, one, text=False) for one in arguments))


def _made(value: Any) -> Any:
    """A value that an expression made."""
    if isinstance(value, str):
        _BUDGET.charge(len(value))
    elif isinstance(value, (*_CONTAINERS, int)):
        _BUDGET.charge(weight(_BUDGET, value, text=False))
    elif isinstance(value, GeneratorType):
        return _BUDGET.counted(value)
    return value


def _read(value: Any) -> Any:
    """A value that is compared, searched or sliced."""
    if isinstance(value, str | bytes):
        _BUDGET.charge(len(value))
    elif isinstance(value, _CONTAINERS):
        _BUDGET.charge(weight(_BUDGET, value))
    else:
        _BUDGET.charge(length(value))  # a range
    return value


def _joined(values: tuple[Any, ...]) -> str:
    return str(_made("".join(str(_written(None, value)) for value in values)))


@pass_context
def _written(_context: object, value: Any) -> Any:
    """A value that becomes text."""
    if isinstance(value, str):
        _BUDGET.charge(len(value))
    elif isinstance(value, Namespace):
        refuse("a namespace as text")
    elif not isinstance(value, Undefined):
        _BUDGET.charge(4 * weight(_BUDGET, value))
    return value


def _iteration(cost: int) -> bool:
    _BUDGET.charge(cost)
    return True


class _Rewriter(NodeTransformer):
    """Wraps the nodes whose cost depends on values."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        data = sum(len(found.data) for found in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        cost = nodes.Const(STEP + data, lineno=node.lineno)
        counted = nodes.ExprStmt(_wrapped(cost, _ITERATION), lineno=node.lineno)
        node.body.insert(0, counted)
        if node.test is not None:
            node.test = nodes.And(_wrapped(cost, _ITERATION), node.test, lineno=node.lineno)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:
        self.generic_visit(node)
        node.expr = _wrapped(node.expr, _READ)
        for operand in node.ops:
            operand.expr = _wrapped(operand.expr, _READ)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Getitem:
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            node.node = _wrapped(node.node, _READ)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        return _wrapped(nodes.Tuple(node.nodes, "load", lineno=node.lineno), _JOINED)

    def visit_List(self, node: nodes.List) -> nodes.Expr:
        self.generic_visit(node)
        return _wrapped(node, _MADE)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:
        self.generic_visit(node)
        return _wrapped(node, _MADE)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:
        self.generic_visit(node)
        return _wrapped(node, _MADE) if node.ctx == "load" else node


def _wrapped(node: nodes.Expr, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)


def _environment() -> BoundedEnvironment:
    environment = BoundedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, "jinja2.ext.loopcontrols"],
        finalize=_written,
        optimized=False,  # constants are computed within the budget, too
    )
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = _now
    environment.globals["namespace"] = BoundedNamespace
    del environment.globals["lipsum"]
    environment.filters["tojson"] = _to_json
    for name in _LEFT_OUT:
        del environment.filters[name]
    tables: tuple[dict[str, Any], ...] = (environment.filters, environment.tests)
    for table in tables:
        table.update({name: _bounded(name, table[name]) for name in table})
    functions = {_READ: _read, _MADE: _made, _JOINED: _joined, _ITERATION: _iteration}
    environment.filters.update(functions)
    return environment


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter or test that is charged before it runs, and its result after."""
    passes = hasattr(function, "jinja_pass_arg")

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        lead, given = args[:passes], list(args[passes:])
        if isinstance(given[0], GeneratorType) and name in _WHOLE:
            given[0] = list(given[0])  # counted
        _charge_filter(name, given[0], (*given[1:], *kwargs.values()))
        return _made(function(*lead, *given, **kwargs))

    return charged


def _charge_filter(name: str, value: Any, arguments: tuple[Any, ...]) -> None:
    _BUDGET.charge(STEP + 2 * length(value) + sum(map(length, arguments)))
    text = value if isinstance(value, str) else ""
    if name == "format":
        costs.percent(_BUDGET, text, list(arguments))
    elif name == "join":
        separator = str(arguments[0]) if arguments else ""
        _BUDGET.charge(weight(_BUDGET, value) + length(value) * len(separator))
    elif name == "indent":
        width = max((n if isinstance(n, int) else length(n) for n in arguments), default=4)
        _BUDGET.charge((len(text.splitlines()) + 1) * width)
    elif name in ("replace", "center"):
        costs.text_call(_BUDGET, name, text, arguments)
    elif name in ("batch", "slice"):
        _BUDGET.charge(sum(abs(n) for n in arguments if isinstance(n, int)))
    elif name == "round" and any(isinstance(n, int) and abs(n) > STEP for n in arguments):
        refuse(f"rounding to more than {STEP} digits")
    elif name == "title":
        _BUDGET.charge(8 * len(text))
    elif name == "int":
        _BUDGET.charge(len(text) ** 2 // STEP)
    elif name == "sum" and any(isinstance(one, (*_CONTAINERS, str)) for one in arguments[-1:]):
        if not isinstance(arguments[-1], str):
            refuse("a sum of lists")
    elif name in ("string", "sort", "unique", "groupby", "dictsort", "escape", "e", "min", "max"):
        _BUDGET.charge(4 * weight(_BUDGET, value))


def _raise(message: Any) -> NoReturn:
    raise TemplateError(str(_written(None, message)))


def _now(form: str) -> str:
    costs.percent(_BUDGET, form, ())  # widths
    return datetime.now().strftime(form)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """As transformers does it: plain JSON, not HTML-escaped."""
    _BUDGET.charge(6 * weight(_BUDGET, value))
    width = len(indent) if isinstance(indent, str) else indent
    if width is not None and (not isinstance(width, int) or abs(width) > STEP):
        refuse(f"an indent of {indent!r:.20}")
    encoder = json.JSONEncoder(
        ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
    parts = []
    for part in encoder.iterencode(value):
        _BUDGET.charge(len(part))
        parts.append(part)
    return "".join(parts)
