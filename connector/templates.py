"""Jinja2 templates over the columns of one row, for mappings and emails: sandboxed, strict, and bounded.

Theory of operation. The job's author writes the template and may use all of Jinja but other templates; a row, which is
untrusted, gives the values. What a value can make large or long is bounded before it is done, by one budget of work for
each rendering: steps of loops, calls, filters and texts take from it. What multiplies (`*`, `replace`, `join`, a width)
takes the product of what it is given. No clock is read.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache, wraps
from itertools import chain
from math import prod
from typing import Any

import jinja2
from jinja2 import meta, nodes, pass_eval_context
from jinja2.filters import FILTERS
from jinja2.runtime import Context, Undefined, markup_join, str_join
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from connector.errors import ConfigurationError, ConnectorError

ROW = "row"
"""Under this name a template has the columns whose own names are no words: `row["First Name"]`."""

_MOST_AT_ONCE = 10_000_000  # characters that one operation may make: 40 MB at most, for as long as it lasts
_MOST_WORK = 100_000_000  # characters and steps of one rendering: about a second
_STEP = 1_000  # the work of a step of a loop, a filter or a call, which leaves 100,000 of them
_LARGEST_NUMBER = 10**30
_HIGHEST_POWER = 64
_DEEPEST = 60  # nodes within each other; Python compiles no more than 200 brackets, of which a node takes up to three
# A width of four digits and more, or one that a value gives: "%5000d"|format(…), "%*d", "{:{}}".format(…).
_WIDE = re.compile(r"\d{4,}|\*|\{[^}]*\{")
# Filters, methods and operators whose numbers say how much they make.
_SIZED = frozenset(
    {"*", "batch", "center", "expandtabs", "indent", "ljust", "rjust", "round", "slice", "tojson", "wordwrap", "zfill"}
)
_HOLDING = (list, tuple, set)
_LOOP, _JOIN = " loop", " ~"  # filters that no template can name


class TemplateError(ConnectorError):
    """A row of which a template makes no text: `problem` says why, and in which line, and shows nothing of the row."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name
        self.problem = problem


class Template:
    """A template ready for rows; `columns` are those that it names, each once, sorted."""

    def __init__(self, name: str, columns: tuple[str, ...], longest: int, template: jinja2.Template) -> None:
        self.name = name
        self.columns = columns
        self._longest = longest
        self._template = template

    def render(self, cells: Mapping[str, str]) -> str:
        """Return the text for a row's cells by column ("" for an empty one). Raises TemplateError."""
        try:
            with _bounded(self._longest) as work:
                for cell in cells.values():
                    work.check(cell)
                pieces, length = [], 0
                for piece in self._template.generate({**cells, ROW: cells}):
                    length += len(piece)
                    work.check_length(length)
                    pieces.append(piece)
                return "".join(pieces)
        except _BoundError as error:
            problem = str(error)
        except jinja2.UndefinedError as error:  # its own words may hold a cell
            problem = f"asks in {_find_line(error)} for something that this row does not have"
        except Exception as error:  # noqa: BLE001 - whatever a template does with a row costs that row alone
            problem = f"fails in {_find_line(error)} for this row ({type(error).__name__})"
        raise TemplateError(self.name, problem)


@lru_cache(maxsize=64)
def compile_template(
    source: str, *, name: str = "the template", longest: int = 10_000, is_html: bool = False
) -> Template:
    """Return the template, called `name` in errors. It makes at most `longest` characters, of cells that are no longer,
    and escapes what a row holds if `is_html`.

    Raises ConfigurationError, with the name and the line, for what is no template.
    """
    if len(source) > longest:
        raise ConfigurationError(f"{name} has {len(source):,} characters; a template has at most {longest:,}")
    if source != source.encode(errors="replace").decode():
        raise ConfigurationError(f"{name} holds half a character (a lone surrogate)")
    environment = _Environment(
        undefined=jinja2.StrictUndefined, autoescape=is_html, finalize=_finalize, keep_trailing_newline=True
    )
    environment.globals.pop("lipsum")
    environment.filters = {key: _bound_filter(key, each) for key, each in FILTERS.items() if key != "random"}
    environment.filters |= {_LOOP: _count_steps, _JOIN: _join_texts}
    try:
        with _bounded(longest):
            tree = environment.parse(source)
            _refuse_depth(tree, name)
            columns = _find_columns(tree, name, environment.globals)
            code = environment.compile(_Bounding(name).visit(tree))
    except jinja2.TemplateSyntaxError as error:
        raise ConfigurationError(f"{name}, line {error.lineno}, cannot be read: {error.message}") from None
    except (RecursionError, MemoryError, SyntaxError):  # Python's own ways of saying so
        raise ConfigurationError(f"{name} is nested too deeply") from None
    except ValueError:  # of Python's reader of numbers
        raise ConfigurationError(f"{name} holds a number that is too long") from None
    return Template(name, columns, longest, jinja2.Template.from_code(environment, code, environment.globals))


def _refuse_depth(tree: nodes.Template, name: str) -> None:
    """Level by level: calls within calls are too slow for what is too deep, or give up."""
    level: list[nodes.Node] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.iter_child_nodes()]
    if level:
        raise ConfigurationError(f"{name}, line {level[0].lineno}, is nested too deeply")


def _find_columns(tree: nodes.Template, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Return the columns that are named, those had as `row["…"]` and `row.…` among them."""
    found = meta.find_undeclared_variables(tree).difference(known)
    if ROW in found:
        found.remove(ROW)
        attributes = {id(node.node): node.attr for node in tree.find_all(nodes.Getattr)}
        items = {id(node.node): node.arg for node in tree.find_all(nodes.Getitem)}
        for used in (each for each in tree.find_all(nodes.Name) if each.name == ROW):
            key = items.get(id(used))
            if id(used) in attributes:
                found.add(attributes[id(used)])
            elif isinstance(key, nodes.Const):
                found.add(str(key.value))
            else:
                raise ConfigurationError(
                    f"{name}, line {used.lineno}, must name the column after {ROW}, in quotes: {ROW}['First Name']"
                )
    return tuple(sorted(found))


def _find_line(error: BaseException) -> str:
    """Return where in the template an error was raised: Jinja gives its lines to Python's traceback."""
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f"line {line}" if line else "one of its lines"


# The bounds


class _BoundError(Exception):
    """Something of a row would be larger than it may be; says which bound, and nothing of the row."""


class _Work:
    """The work of one rendering, or of compiling a template, whose constants are computed beforehand."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._left = _MOST_WORK

    def take(self, work: int) -> None:
        """Raises _BoundError once it is too much."""
        self._left -= work
        if self._left < 0 or work > _MOST_AT_ONCE:
            raise _BoundError("would do too much for one row: it repeats, multiplies or widens more than a text needs")

    def check(self, value: Any) -> None:
        """Raises _BoundError for a text that is too long."""
        if isinstance(value, str):
            self.check_length(len(value))

    def check_length(self, length: int) -> None:
        """Raises _BoundError for more characters than a text may have."""
        if length > self._longest:
            raise _BoundError(f"has more than {self._longest:,} characters to read or to write for this row")


_WORK: ContextVar[_Work] = ContextVar("work of a template")


@contextmanager
def _bounded(longest: int) -> Iterator[_Work]:
    work = _Work(longest)
    token = _WORK.set(work)
    try:
        yield work
    finally:
        _WORK.reset(token)


def _take_product(name: str, *values: Any) -> None:
    """Take the product of the sizes of what an operation is given: no operation makes more."""
    _WORK.get().take(_STEP + prod(_measure(value, is_count=name in _SIZED) for value in values))


def _measure(value: Any, *, is_count: bool = False) -> int:
    if isinstance(value, str):
        return len(value) + 1
    if isinstance(value, int) and is_count:
        return max(abs(value), 1)
    size, rest = 1, [value]
    while rest and size <= _MOST_AT_ONCE:  # one list that is in another twice, and that in a third, has no end else
        each = rest.pop()
        size += len(each) + 1 if isinstance(each, str) else 1
        rest += chain(*each.items()) if isinstance(each, dict) else each if isinstance(each, _HOLDING) else ()
    return size


def _refuse_widths(text: Any) -> None:
    if _WIDE.search(str(text)):
        raise _BoundError("has a format of more than three digits, or one that a value gives")


# Jinja, with the bounds


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja asks for a class to have its operators and calls intercepted."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute; numbers have at most 30 digits."""
        if isinstance(left, int | float) and isinstance(right, int | float):
            if max(abs(left), abs(right)) > _LARGEST_NUMBER or (operator == "**" and right > _HIGHEST_POWER):
                raise _BoundError("computes with numbers of more than 30 digits")
        elif operator == "+":  # that makes as much as both are together, which in a loop doubles
            _WORK.get().take(_STEP + _measure(left) + _measure(right))
        else:
            _take_product(operator, left, right)
        if operator == "%" and isinstance(left, str):
            _refuse_widths(left)
        made = super().call_binop(context, operator, left, right)
        _WORK.get().check(made)
        return made

    def call(self, context: Context, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a function or a method of a value."""
        _take_product(getattr(function, "__name__", ""), getattr(function, "__self__", None), *args, *kwargs.values())
        made = super().call(context, function, *args, **kwargs)
        _WORK.get().check(made)
        return made

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """The method `format` of a text."""
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _refuse_widths(value.__self__)
        return wrapped


class _Bounding(NodeTransformer):
    """Has every loop counted and every `~` measured, which Jinja does not intercept; refuses other templates."""

    def __init__(self, name: str) -> None:
        self._name = name

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - Jinja's name
        written = sum(len(each.data) for each in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _LOOP, [nodes.Const(written)], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        texts = nodes.Tuple(node.nodes, "load", lineno=node.lineno)
        return nodes.Filter(texts, _JOIN, [], [], None, None, lineno=node.lineno)

    def visit_Include(self, node: nodes.Node) -> nodes.Node:  # noqa: N802
        raise ConfigurationError(
            f"{self._name}, line {node.lineno}, asks for another template; a template stands alone here"
        )

    visit_Import = visit_FromImport = visit_Extends = visit_Include  # noqa: N815


def _bound_filter(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(plain)  # with it goes Jinja's mark of what else the filter is to be given
    def bounded(*args: Any, **kwargs: Any) -> Any:
        if name == "format":
            _refuse_widths(args[0])
        _take_product(name, *args, *kwargs.values())
        made = plain(*args, **kwargs)
        made = list(_count_steps(made)) if isinstance(made, Iterator) else made
        _WORK.get().check(made)
        return made

    return bounded


def _count_steps(items: Iterable[Any], written: int = 0) -> Iterator[Any]:
    """Yield a loop's items; `written` characters are in its body."""
    for item in items:
        _WORK.get().take(_STEP + written)
        yield item


@pass_eval_context
def _join_texts(eval_ctx: nodes.EvalContext, texts: Iterable[Any]) -> str:
    """Return what `~` makes."""
    written = [_write(text) for text in texts]
    return markup_join(written) if eval_ctx.autoescape else str_join(written)


@pass_eval_context
def _finalize(_: nodes.EvalContext, value: Any) -> Any:
    """Return what is written of a value. That it asks for a context keeps Jinja from writing constants beforehand,
    where it would escape None first."""
    return _write(value)


def _write(value: Any) -> Any:
    """Texts and numbers as they are, nothing for None. Raises TypeError for anything else, such as a list."""
    if value is None:
        return ""
    if isinstance(value, str):
        _WORK.get().take(len(value))
    elif not isinstance(value, int | float | Undefined):
        raise TypeError("only texts and numbers can be written")
    return value
