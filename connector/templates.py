"""Jinja2 templates over the columns of one row, for mappings and emails: sandboxed, strict, bounded in length.

Theory of operation. The author of a job writes the template and may use all of Jinja but other templates. A row, which
is untrusted, gives the values: a cell and the text that is made are bounded in length, and a product (`'x' * n`, `a **
b`) is bounded before it is computed. An endless loop that the author writes is the author's.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

import jinja2
from jinja2 import meta, nodes, pass_eval_context
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from connector.errors import ConfigurationError, ConnectorError
from connector.person_names import split_name

ROW = "row"
"""Under this name a template has the columns whose own names are no words: `row["First Name"]`."""

_LARGEST_NUMBER = 10**30  # more digits than an id or an amount has
_HIGHEST_POWER = 64
_NO_OTHER_TEMPLATE = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


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
            self._check_length(max(map(len, cells.values()), default=0))
            pieces, length = [], 0
            for piece in self._template.generate({**cells, ROW: cells}):
                length += len(piece)
                self._check_length(length)
                pieces.append(piece)
            return "".join(pieces).encode().decode()  # raises UnicodeEncodeError
        except _BoundError as error:
            problem = str(error)
        except UnicodeEncodeError:
            problem = "makes half a character (a lone surrogate)"
        except jinja2.UndefinedError as error:  # its own words may hold a cell
            problem = f"asks in {_find_line(error)} for something that this row does not have"
        except Exception as error:  # noqa: BLE001 - whatever a template does with a row costs that row alone
            problem = f"fails in {_find_line(error)} for this row ({type(error).__name__})"
        raise TemplateError(self.name, problem)

    def _check_length(self, length: int) -> None:
        if length > self._longest:
            raise _BoundError(f"has more than {self._longest:,} characters to read or to write for this row")


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
    environment.filters |= {
        "given_name": lambda name: split_name(str(name))[0],
        "family_name": lambda name: split_name(str(name))[1],
    }
    environment.filters.pop("random")  # a row gives the same text each time, or it would differ from itself
    environment.globals.pop("lipsum")
    environment.longest = longest
    try:
        tree = environment.parse(source)
        for node in tree.find_all(_NO_OTHER_TEMPLATE):
            raise ConfigurationError(
                f"{name}, line {node.lineno}, asks for another template; a template stands alone here"
            )
        columns = _find_columns(tree, name, environment.globals)
        code = environment.compile(tree)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigurationError(f"{name}, line {error.lineno}, cannot be read: {error.message}") from None
    except (RecursionError, MemoryError, SyntaxError, ValueError):  # Python's own, of brackets and of numbers
        raise ConfigurationError(f"{name} is nested too deeply, or holds a number that is too long") from None
    return Template(name, columns, longest, jinja2.Template.from_code(environment, code, environment.globals))


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


class _BoundError(Exception):
    """Something of a row would be larger than it may be; says which bound, and nothing of the row."""


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja asks for a class to have its operators intercepted."""

    intercepted_binops = frozenset({"*", "**"})
    longest: int

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute a product or a power. Raises _BoundError for one that is too large."""
        if isinstance(left, int | float) and isinstance(right, int | float):
            if max(abs(left), abs(right)) > _LARGEST_NUMBER or (operator == "**" and right > _HIGHEST_POWER):
                raise _BoundError("computes with numbers of more than 30 digits")
        else:
            count = next((each for each in (left, right) if isinstance(each, int)), 0)
            longer = next((each for each in (left, right) if isinstance(each, str | list | tuple)), ())
            if count * len(longer) > self.longest:
                raise _BoundError(f"would repeat a text to more than {self.longest:,} characters for this row")
        return super().call_binop(context, operator, left, right)


@pass_eval_context
def _finalize(_: nodes.EvalContext, value: Any) -> Any:
    """Return texts and numbers as they are, "" for None. That it asks for a context keeps Jinja from writing constants
    beforehand, where it would escape None first. Raises TypeError for anything else, such as a list."""
    if value is None:
        return ""
    if not isinstance(value, str | int | float | Undefined):
        raise TypeError("only texts and numbers can be written")
    return value
