"""A template over the columns of one row: Jinja's language, cut down to what can neither reach out nor run long.

It has names of columns, texts, filters, comparisons, `~` and if; no loops, calls, attributes or arithmetic, so that
what it costs is bounded by what it holds. Jinja is asked for only where a job has a template.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from connector.errors import ConfigurationError

if TYPE_CHECKING:
    from jinja2 import nodes

LONGEST = 10_000
"""Characters of what a template may make: as many as validation lets a text have."""

_DEEPEST = 40  # nodes within each other; Python compiles no more than 200 brackets, of which a node takes up to three
_LONGEST_TEMPLATE = 2_000  # characters; a longer one is no rule of one field, and its cost grows with it
ROW = "row"
"""The name by which a column is had whose own name is no word: `row["First Name"]`."""
_ITSELF = "self"

_FILTERS = frozenset({"capitalize", "default", "first", "last", "length", "lower", "replace", "title", "trim", "upper"})
_NODES = frozenset({"Template", "Output", "TemplateData", "Name", "Const", "Getitem", "Slice", "Filter", "Concat"}) | {
    "Neg", "If", "CondExpr", "Compare", "Operand", "And", "Or", "Not",
}  # fmt: skip
_TOO_DEEP = "the template is nested too deeply"
_WORDS = {"Call": "a call", "For": "a loop", "Test": "a test (is …)", "Assign": "an assignment", "Keyword": "a keyword"}


class TemplateError(Exception):
    """A row for which a template gives no text; says why, without any of the row's data."""


@lru_cache(maxsize=64)
def find_columns(text: str) -> tuple[str, ...]:
    """The columns that a template names, each once. Raises ConfigurationError for what is no template of ours."""
    tree = _parse(text)
    _refuse_depth(tree)
    _refuse_others(tree)
    return tuple(dict.fromkeys(_name_columns(tree)))


@lru_cache(maxsize=64)
def compile_template(text: str) -> "CompiledTemplate":
    """The template ready for rows. Raises ConfigurationError for what is no template of ours."""
    return CompiledTemplate(text)


class CompiledTemplate:
    """One template; `columns` are those that it names."""

    def __init__(self, text: str) -> None:
        self.columns = find_columns(text)
        self._template = _build_environment().from_string(text)

    def render(self, cells: Mapping[str, str]) -> str:
        """The text for a row's `cells` by column ("" for an empty one). Raises TemplateError."""
        import jinja2

        if any(len(cell) > LONGEST for cell in cells.values()):
            raise TemplateError(f"reads a cell of more than {LONGEST:,} characters")
        words = {name: cell for name, cell in cells.items() if name.isidentifier()}
        try:
            text = self._template.render({**words, ROW: cells})
        except jinja2.UndefinedError:
            raise TemplateError("asks for something that this row does not have") from None
        except TemplateError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a template does with a row costs that row alone
            raise TemplateError(f"fails for this row ({type(error).__name__})") from None
        return _bound(text)


def _bound(text: str) -> str:
    if len(text) > LONGEST:
        raise TemplateError(f"makes more than {LONGEST:,} characters of this row")
    return text


def _replace(text: Any, old: str, new: str) -> str:
    """Jinja's own `replace`, its result bounded before it is made."""
    plain = str(text)
    if len(plain) + plain.count(old) * max(len(new) - len(old), 0) > LONGEST:
        raise TemplateError(f"makes more than {LONGEST:,} characters of this row")
    return plain.replace(old, new)


def _build_environment() -> Any:
    try:
        from jinja2 import StrictUndefined
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ConfigurationError(
            "a template needs Jinja2, which is not installed: pip install 'subscriber-connector[template]'"
        ) from None
    environment = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False)
    environment.globals.clear()
    environment.tests.clear()
    environment.filters = {name: environment.filters[name] for name in _FILTERS}
    environment.filters["replace"] = _replace
    return environment


def _parse(text: str) -> "nodes.Template":
    if len(text) > _LONGEST_TEMPLATE:
        raise ConfigurationError(f"a template has at most {_LONGEST_TEMPLATE:,} characters, this one {len(text):,}")
    environment = _build_environment()
    import jinja2

    try:
        tree: nodes.Template = environment.parse(text)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigurationError(f"the template cannot be read: {error.message}") from None
    except RecursionError:
        raise ConfigurationError(_TOO_DEEP) from None
    return tree


def _refuse_depth(tree: "nodes.Template") -> None:
    """Level by level, since what is too deep cannot be gone through by calls within calls."""
    level: list[nodes.Node] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in node.iter_child_nodes()]
    if level:
        raise ConfigurationError(_TOO_DEEP)


def _refuse_others(tree: "nodes.Template") -> None:
    """Refuse whatever is not on the lists above."""
    from jinja2 import nodes

    for node in tree.find_all(nodes.Node):
        kind = type(node).__name__
        if kind == "Getattr":
            raise ConfigurationError(
                f"the template asks for an attribute, .{node.attr}; a column of any name is had by {ROW}['its name']"  # type: ignore[attr-defined] # it is one
            )
        if kind not in _NODES:
            raise ConfigurationError(
                f"the template holds {_WORDS.get(kind, kind)}, which a field's template cannot; it has names of "
                f"columns, texts, ~, comparisons, if and these filters: {', '.join(sorted(_FILTERS))}"
            )
        if isinstance(node, nodes.Filter) and node.name not in _FILTERS:
            raise ConfigurationError(
                f"the template has no filter {node.name!r}; there are: {', '.join(sorted(_FILTERS))}"
            )


def _name_columns(tree: "nodes.Template") -> Iterator[str]:
    """The columns in the order of their being named; refuses other subscripts than numbers: they may be attributes."""
    from jinja2 import nodes

    asked = {id(node.node): node.arg for node in tree.find_all(nodes.Getitem) if isinstance(node.node, nodes.Name)}
    for name in tree.find_all(nodes.Name):
        key = asked.get(id(name))
        if name.name == _ITSELF:
            raise ConfigurationError(f"in a template {_ITSELF} is itself; a column of that name is {ROW}['{_ITSELF}']")
        if name.name != ROW:
            yield name.name
        elif isinstance(key, nodes.Const) and isinstance(key.value, str):
            yield key.value
        else:
            raise ConfigurationError(f"in the template {ROW}[…] must name its column as a text, in quotes")
    for node in tree.find_all(nodes.Getitem):
        is_column = isinstance(node.node, nodes.Name) and node.node.name == ROW
        if not is_column and not _is_number(node.arg):
            raise ConfigurationError(
                "the template may take letters of a text by number only, as in name[0] or name[:3]"
            )


def _is_number(node: "nodes.Node | None") -> bool:
    """Whether a subscript is written as a whole number, or as a slice of such."""
    from jinja2 import nodes

    if isinstance(node, nodes.Slice):
        return all(each is None or _is_number(each) for each in (node.start, node.stop, node.step))
    if isinstance(node, nodes.Neg):
        return _is_number(node.node)
    return isinstance(node, nodes.Const) and isinstance(node.value, int)
