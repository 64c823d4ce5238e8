"""Jinja's environment for emails: sandboxed, with nothing to reach out by, and each operation bounded.

`compile_tree` takes only trees that the grammar allows.
"""

from collections.abc import Mapping
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.runtime import Context, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from connector.mail.templates.bounds import check_length, check_number
from connector.mail.templates.filters import COUNTED, JOINED, build_filters, finalize
from connector.mail.templates.grammar import TESTS


class Cells(dict[str, object]):
    """A row's cells by column."""


class _Undefined(StrictUndefined):
    """What a row does not have: told by its name in the template, and by nothing that could be of the row."""

    @property
    def _undefined_message(self) -> str:
        is_column = self._undefined_obj is missing or isinstance(self._undefined_obj, Cells)
        if is_column and self._undefined_hint is None:
            return f"{self._undefined_name!r} is not defined: the row has no such column"
        return "it asks for something that this row does not have"


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja asks for a class to be told what operators do."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic for numbers of a bounded size; `+` joins texts, too."""
        if operator == "+" and isinstance(left, str) and isinstance(right, str):
            check_length(len(left) + len(right))
            return left + right
        check_number(left)
        check_number(right)
        return super().call_binop(context, operator, left, right)


def build_environment(*, is_html: bool) -> jinja2.Environment:
    """The environment; texts are escaped for HTML alone."""
    environment = _Environment(
        undefined=_Undefined, autoescape=is_html, finalize=finalize, keep_trailing_newline=True, loader=None
    )
    environment.globals.clear()
    environment.tests = {name: test for name, test in environment.tests.items() if name in TESTS}
    environment.filters = build_filters()
    return environment


def compile_tree(environment: jinja2.Environment, tree: nodes.Template) -> jinja2.Template:
    """The template of a tree, in which every loop is counted and every `~` bounded."""
    for loop in list(tree.find_all(nodes.For)):
        loop.iter = _filter(loop.iter, COUNTED)
    _bound_joins(tree)
    code = environment.compile(tree)
    return jinja2.Template.from_code(environment, code, environment.globals)


def fill(template: jinja2.Template, variables: Mapping[str, object]) -> str:
    """The text that a template makes, given up as soon as it is too long."""
    made: list[str] = []
    length = 0
    for piece in template.generate(variables):
        length += len(piece)
        check_length(length)
        made.append(piece)
    return "".join(made)


def _bound_joins(node: nodes.Node) -> None:
    """Put a filter in the place of every `~`, wherever in its parent that stands."""
    for field, value in node.iter_fields():
        if isinstance(value, list):
            setattr(node, field, [_bound_join(each) for each in value])
        else:
            setattr(node, field, _bound_join(value))


def _bound_join(value: Any) -> Any:
    if isinstance(value, nodes.Node):
        _bound_joins(value)
    if isinstance(value, nodes.Concat):
        return _filter(nodes.Tuple(value.nodes, "load", lineno=value.lineno), JOINED)
    return value


def _filter(node: nodes.Node, name: str) -> nodes.Filter:
    return nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
