"""The jinja2 environment of chat templates: sandboxed, measured, and marking what it writes.

It renders what `transformers` renders. On top of jinja2's immutable sandbox, the compiler here
writes every constant of the template as a trusted string (`marked.py`), joins with the marks kept,
and passes loops, calls, filters, operators and literals by the budget (`budget.py`).
"""

# ruff: noqa: D102 - visit_Name methods are what jinja2 calls for a node of that name
from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from string import Formatter
from typing import Any

from jinja2 import TemplateError, nodes, pass_environment
from jinja2.compiler import CodeGenerator, Frame
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment, SandboxedFormatter
from jinja2.utils import Namespace

from golem_core.errors import BadRequest
from golem_core.text.budget import Budget, Ticked
from golem_core.text.marked import Marked, joined, mark

# No conversation needs these, and what they make has no bound that is known before.
_WITHOUT_FILTERS = ("batch", "center", "filesizeformat", "pprint", "random", "slice", "urlize",
                    "wordwrap", "xmlattr")  # fmt: skip
_WITHOUT_GLOBALS = ("lipsum",)
_PADDING = {"center", "ljust", "rjust", "zfill", "expandtabs"}
_WIDEST = 1024
_OBJECT = 64
_BITS = 4096
_BREAKS = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u2028\u2029"
# Filters that make an object of each character or word.
_CHARACTERWISE = ("do_list", "do_title", "do_wordcount", "do_urlencode")
_LONGEST_RANGE = 10_000
_NUMBER = re.compile(r"\d+|\*")


class Rejected(Exception):
    """What a template says with raise_exception."""


class Marking(CodeGenerator):
    """Compiles a template so that its own text is trusted and its work is counted."""

    environment: Sandbox

    def _constant(self, text: str) -> str:
        self.environment.constants.append(Marked.trusted(text))
        return f"environment.constants[{len(self.environment.constants) - 1}]"

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self._constant("".join(group))

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:
        # Nothing is computed while compiling, where no budget runs.
        if not isinstance(node, nodes.TemplateData):
            raise nodes.Impossible
        return super()._output_child_to_const(node, frame, finalize)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:
        if isinstance(node.value, str):
            self.write(self._constant(node.value))
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:
        self.write(self._constant(node.data))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        ticked = nodes.EnvironmentAttribute("ticked", lineno=node.lineno)
        node.iter = nodes.Call(ticked, [node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self.write("environment.budget.made(")
        super().visit_List(node, frame)
        self.write(")")

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx != "load":
            super().visit_Tuple(node, frame)
            return
        self.write("environment.budget.made(")
        super().visit_Tuple(node, frame)
        self.write(")")

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self.write("environment.budget.made(")
        super().visit_Dict(node, frame)
        self.write(")")


class _Generation(Extension):
    """`{% generation %}`, which marks an answer for training; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The statements up to the end tag."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Namespace(Namespace):
    """A namespace that prints nothing of what it holds: it may hold itself."""

    def __repr__(self) -> str:
        return "<Namespace>"


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of one template. `budget` is set by whoever renders, thread by thread."""

    code_generator_class = Marking
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            extensions=[_Generation, loopcontrols],
        )
        self.constants: list[Marked] = []
        self._local = threading.local()
        self.filters.update(indent=_indent, join=_join, replace=_replace, sum=_sum, tojson=_tojson)
        for name in _WITHOUT_FILTERS:
            del self.filters[name]
        for name in _WITHOUT_GLOBALS:
            del self.globals[name]
        self.filters = {name: self._counted(one) for name, one in self.filters.items()}
        self.globals.update(
            range=_range,
            namespace=_Namespace,
            raise_exception=_raise_exception,
            strftime_now=_strftime_now,
        )

    @property
    def budget(self) -> Budget:
        """What the rendering that runs in this thread has left."""
        budget: Budget = self._local.budget
        return budget

    @budget.setter
    def budget(self, budget: Budget) -> None:
        self._local.budget = budget

    def ticked(self, iterable: Iterable[Any]) -> Ticked:
        """What a loop goes over, counted."""
        return Ticked(iterable, self.budget)

    def concat(self, parts: Iterable[str]) -> Marked:
        """Joins what blocks and macros write."""
        parts = list(parts)
        self.budget.spend(sum(map(len, parts)))
        return joined(parts)

    def call_binop(self, context: Context, op: str, left: Any, right: Any) -> Any:
        """An operator, refused where its result would be too large."""
        self.budget.spend(_size_of(op, left, right))
        return self.budget.made(self.binop_table[op](left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """A call: methods of strings keep marks, and are refused where they would grow too much."""
        self = __self
        bound = getattr(__obj, "__self__", None)
        if isinstance(bound, str):
            name = __obj.__name__
            if name in ("replace", "join") and not isinstance(bound, Marked):
                __obj = getattr(mark(bound), name)
            if name == "join" and args:
                args = (list(args[0]), *args[1:])
            self.budget.spend(_growth(bound, name, args))
        else:
            self.budget.step()
        result = super().call(__context, __obj, *args, **kwargs)
        return self.budget.made(result)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format`, with marks kept."""
        if super().wrap_str_format(value) is None:
            return None
        text: str = value.__self__

        def wrapper(*args: Any, **kwargs: Any) -> str:
            if value.__name__ == "format_map":
                args, kwargs = (), dict(*args)
            return _formatted(self, text, args, kwargs)

        return functools.update_wrapper(wrapper, value)

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def counted(*args: Any, **kwargs: Any) -> Any:
            if function.__name__ in _CHARACTERWISE:
                self.budget.objects(sum(len(value) for value in args if isinstance(value, str)))
            if function.__name__ == "do_format":
                _check_widths(str(args[0]), args[1:])
            self.budget.step()
            result = function(*args, **kwargs)
            if isinstance(result, str):
                self.budget.spend(len(result))
            return self.budget.made(result)

        return counted


def _size_of(op: str, left: Any, right: Any) -> int:
    """Characters that an operator is about to make."""
    numbers = isinstance(left, (int, float)) and isinstance(right, (int, float))
    if numbers:
        if op == "**" and abs(right) * max(int(left).bit_length(), 1) > _BITS:
            raise BadRequest("the chat template computes with too large a number", "messages")
        if op == "*" and int(left).bit_length() + int(right).bit_length() > _BITS:
            raise BadRequest("the chat template computes with too large a number", "messages")
        return 1
    sizes = [len(side) for side in (left, right) if hasattr(side, "__len__")]
    if op == "*" and len(sizes) == 1:
        times = right if hasattr(left, "__len__") else left
        unit = 1 if isinstance(left, str) or isinstance(right, str) else 8
        return sizes[0] * max(times, 0) * unit if isinstance(times, int) else 0
    if op == "%" and isinstance(left, str):
        _check_widths(left, right)
    return sum(sizes)


def _growth(text: str, name: str, args: tuple[Any, ...]) -> int:
    """Characters that a method of a string is about to make."""
    if name in _PADDING:
        width = args[0] if args and isinstance(args[0], int) else 8
        return max(len(text), width) if name != "expandtabs" else (len(text) + 1) * max(width, 1)
    if name == "replace" and len(args) >= 2:
        old, new = args[:2]
        if isinstance(old, str) and isinstance(new, str):
            return len(text) + text.count(old) * len(new)
    if name == "join" and args:
        parts = [part for part in args[0] if isinstance(part, str)]
        return sum(map(len, parts)) + len(parts) * len(text)
    if name in ("split", "rsplit", "splitlines"):
        separator = args[0] if args and isinstance(args[0], str) and args[0] else None
        breaks = text.count(separator) if separator else sum(map(text.count, _BREAKS))
        return len(text) + _OBJECT * breaks
    return len(text)


def _check_widths(text: str, values: Any) -> None:
    """Refuses a format whose widths alone would make a long text."""
    listed = values if isinstance(values, tuple) else (values,)
    numbers = [int(found) for found in _NUMBER.findall(text) if found != "*" and len(found) < 9]
    long = any(len(found) >= 9 for found in _NUMBER.findall(text))
    if "*" in text:
        numbers += [value for value in listed if isinstance(value, int)]
    if long or any(abs(number) > _WIDEST for number in numbers):
        raise BadRequest("the chat template formats with too large a width", "messages")


def _formatted(env: Sandbox, text: str, args: Any, kwargs: Mapping[str, Any]) -> str:
    formatter = SandboxedFormatter(env)
    own = isinstance(text, Marked) and 0 not in text.mask
    parts: list[str] = []
    automatic = 0
    for literal, field, spec, conversion in Formatter().parse(text):
        parts.append(Marked.trusted(literal) if own else literal)
        if field is None:
            continue
        if field[:1] in ("", ".", "["):
            field = f"{automatic}{field}"
            automatic += 1
        value, _ = formatter.get_field(field, args, kwargs)
        if conversion:
            value = formatter.convert_field(value, conversion)
        spec = formatter.vformat(spec or "", args, kwargs)
        _check_widths(spec, ())
        parts.append(str(value) if not spec else formatter.format_field(value, spec))
    return env.concat(parts)


@pass_environment
def _indent(
    env: Sandbox, s: str, width: int | str = 4, first: bool = False, blank: bool = False
) -> str:
    indention = width if isinstance(width, str) else " " * min(width, _WIDEST + 1)
    if len(indention) > _WIDEST:
        raise BadRequest("the chat template indents too far", "messages")
    s = str(s)
    env.budget.spend(len(s) + sum(map(s.count, _BREAKS)) * (len(indention) + _OBJECT))
    newline = Marked("\n")
    lines = (mark(s) + newline).splitlines()
    if blank:
        text: str = (newline + indention).join(lines)
    else:
        text = newline.join([indention + x if i and x else x for i, x in enumerate(lines)])
    return indention + text if first else text


@pass_environment
def _join(
    env: Sandbox, value: Iterable[Any], d: str = "", attribute: str | int | None = None
) -> str:
    if attribute is not None:
        value = map(make_attrgetter(env, attribute), value)
    parts = list(map(str, value))
    env.budget.spend(_growth(str(d), "join", (parts,)))
    return joined(parts, str(d))


@pass_environment
def _replace(env: Sandbox, s: str, old: str, new: str, count: int | None = None) -> str:
    s, old, new = str(s), str(old), str(new)
    env.budget.spend(_growth(s, "replace", (old, new)))
    times = -1 if count is None else count
    if not isinstance(s, Marked) and not isinstance(new, Marked):
        return s.replace(old, new, times)
    return mark(s).replace(old, new, times)


@pass_environment
def _sum(
    env: Sandbox, iterable: Iterable[Any], attribute: str | int | None = None, start: float = 0
) -> Any:
    if not isinstance(start, (int, float)):
        raise BadRequest("the chat template sums what is no number", "messages")
    if attribute is not None:
        iterable = map(make_attrgetter(env, attribute), iterable)
    return sum(iterable, start)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > _LONGEST_RANGE:
        raise BadRequest(
            f"the chat template counts to {len(found)}; at most {_LONGEST_RANGE} is allowed",
            "messages",
        )
    return found


def _tojson(
    x: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    if indent is not None and (len(indent) if isinstance(indent, str) else indent) > 16:
        raise BadRequest("the chat template indents too far", "messages")
    return json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> None:
    raise Rejected(str(message))


def _strftime_now(format: str) -> str:
    if len(format) > _WIDEST:
        raise TemplateError("a date's format is too long")
    return datetime.now().strftime(format)
