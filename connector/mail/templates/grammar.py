"""What a template of an email may hold, by Jinja's parts of speech. Whatever is not listed is refused.

Conditions, loops, filters, arithmetic and assignments are; nothing that names another template, defines something to
call, or calls anything but a few methods of texts and dates.
"""

from collections.abc import Iterator

from jinja2 import nodes

from connector.errors import ConfigurationError
from connector.mail.templates.bounds import ROW

METHODS = frozenset(
    {"capitalize", "endswith", "get", "isoformat", "items", "keys", "lower", "lstrip", "rstrip", "split", "splitlines",
     "startswith", "strftime", "strip", "title", "upper", "values", "cycle", "changed"}
)  # fmt: skip
TESTS = frozenset(
    {"boolean", "defined", "divisibleby", "eq", "equalto", "even", "false", "float", "ge", "greaterthan", "gt", "in",
     "integer", "le", "lessthan", "lower", "lt", "mapping", "ne", "none", "number", "odd", "sequence", "string", "true",
     "undefined", "upper", "==", "!=", ">", ">=", "<", "<="}
)  # fmt: skip
_NODES = frozenset(
    {"Template", "Output", "TemplateData", "Name", "Const", "Getitem", "Getattr", "Slice", "Filter", "Test", "Call",
     "Keyword", "If", "For", "CondExpr", "Compare", "Operand", "And", "Or", "Not", "Neg", "Pos", "Add", "Sub", "Mul",
     "Div", "FloorDiv", "Mod", "Concat", "Assign", "With", "List", "Tuple"}
)  # fmt: skip
_WORDS = {
    "Include": "an include", "Import": "an import", "FromImport": "an import", "Extends": "an extends",
    "Block": "a block", "Macro": "a macro", "CallBlock": "a call block", "Pow": "a power (**)", "Dict": "a dictionary",
    "AssignBlock": "an assignment of a block", "FilterBlock": "a filter of a block",
    "Scope": "a change of autoescape", "NSRef": "a namespace",
}  # fmt: skip
_ITSELF = "self"
_DEEPEST = 60  # nodes within each other; Python compiles no more than 200 brackets, of which a node takes up to three


class GrammarError(ConfigurationError):
    """What a template must not hold; `lineno` where."""

    def __init__(self, problem: str, lineno: int) -> None:
        super().__init__(problem)
        self.lineno = lineno


def check_tree(tree: nodes.Template, filters: frozenset[str]) -> None:
    """Raises GrammarError for the first thing that is not allowed; by levels, since it may be too deep for calls."""
    level: list[nodes.Node] = [tree]
    for _ in range(_DEEPEST):
        for node in level:
            _check_node(node, filters)
        level = [child for node in level for child in node.iter_child_nodes()]
    if level:
        raise GrammarError("is nested too deeply", level[0].lineno)


def _check_node(node: nodes.Node, filters: frozenset[str]) -> None:
    kind = type(node).__name__
    if kind not in _NODES:
        raise GrammarError(f"holds {_WORDS.get(kind, kind)}, which a template of an email cannot", node.lineno)
    for problem in _find_faults(node, filters):
        raise GrammarError(problem, node.lineno)


def _find_faults(node: nodes.Node, filters: frozenset[str]) -> Iterator[str]:
    if isinstance(node, nodes.Filter) and node.name not in filters:
        yield f"has no filter {node.name!r}; there are: {', '.join(sorted(filters))}"
    if isinstance(node, nodes.Test) and node.name not in TESTS:
        yield f"has no test {node.name!r}; there are: {', '.join(sorted(TESTS))}"
    if isinstance(node, nodes.Filter | nodes.Test | nodes.Call) and (node.dyn_args or node.dyn_kwargs):
        yield "hands over a list of arguments with *, which a template of an email cannot"
    if isinstance(node, nodes.Call) and not (isinstance(node.node, nodes.Getattr) and node.node.attr in METHODS):
        yield f"calls something else than one of: {', '.join(sorted(METHODS))}"
    if isinstance(node, nodes.Getattr) and node.attr.startswith("_"):
        yield f"asks for .{node.attr}; what begins with _ is not for templates"
    if isinstance(node, nodes.For) and node.recursive:
        yield "has a loop that calls itself"
    if isinstance(node, nodes.Name) and node.name == _ITSELF:
        yield f"names {_ITSELF}, which in a template is itself; a column of that name is {ROW}['{_ITSELF}']"
    if isinstance(node, nodes.Name) and node.name == ROW and node.ctx != "load":
        yield f"assigns to {ROW}, by which columns are had"
    if isinstance(node, nodes.List | nodes.Tuple) and not _is_plain_list(node):
        yield "has a list of something else than texts and numbers written there"


def _is_plain_list(node: nodes.List | nodes.Tuple) -> bool:
    """Lists within lists could be written out at lengths that nothing bounds; names stand in those assigned to."""
    if isinstance(node, nodes.Tuple) and node.ctx == "store":
        return all(isinstance(item, nodes.Name) for item in node.items)
    return all(isinstance(item, nodes.Const) for item in node.items)


def list_row_columns(tree: nodes.Template) -> Iterator[str]:
    """The columns had as `row["its name"]`. Raises GrammarError for any other use of `row`."""
    asked = {id(node.node): node.arg for node in tree.find_all(nodes.Getitem)}
    for name in tree.find_all(nodes.Name):
        if name.name != ROW:
            continue
        key = asked.get(id(name))
        if not (isinstance(key, nodes.Const) and isinstance(key.value, str)):
            raise GrammarError(f"must name the column in {ROW}[…] as a text, in quotes", name.lineno)
        yield key.value
