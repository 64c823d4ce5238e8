"""A template of an email ready for rows, and the errors of rows: by the template's name, with nothing of the row."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from connector.errors import ConfigurationError, ConnectorError
from connector.mail.templates.bounds import LONGEST, MOST_STEPS, ROW, BoundError, Steps, check_length

if TYPE_CHECKING:
    import jinja2
    from jinja2 import nodes

__all__ = ["LONGEST", "MOST_STEPS", "MailTemplate", "RowTemplateError", "compile_text"]

_TOO_DEEP = "is nested too deeply"


class RowTemplateError(ConnectorError):
    """A row of which a template makes no text: `template` is its name; nothing of the row's data is said."""

    def __init__(self, template: str, problem: str) -> None:
        super().__init__(f"the template {template!r} cannot be filled in for this row: {problem}")
        self.template = template
        self.problem = problem


class MailTemplate:
    """One template; `variables` are the columns that it names, sorted, those had as `row["…"]` among them."""

    def __init__(self, name: str, variables: tuple[str, ...], template: "jinja2.Template") -> None:
        self.name = name
        self.variables = variables
        self._template = template

    def render(self, row: Mapping[str, object]) -> str:
        """The text for a row's values by column: None is empty, dates are ISO. Raises RowTemplateError.

        It is at most LONGEST characters, after at most MOST_STEPS steps of loops; each step does no more than the
        template says, on texts of at most LONGEST characters. No clock is looked at.
        """
        from jinja2 import UndefinedError

        from connector.mail.templates.filters import STEPS
        from connector.mail.templates.rendering import Cells, fill

        try:
            for value in row.values():
                check_length(len(value) if isinstance(value, str) else 0)
            return fill(self._template, {**row, ROW: Cells(row), STEPS: Steps()})
        except UndefinedError as error:
            raise RowTemplateError(self.name, str(error.message)) from None
        except BoundError as error:
            raise RowTemplateError(self.name, str(error)) from None
        except Exception as error:  # noqa: BLE001 - whatever a template does with a row costs that row alone
            raise RowTemplateError(self.name, f"it fails ({type(error).__name__})") from None


def compile_text(source: str, *, is_html: bool, name: str) -> MailTemplate:
    """The template, called `name` in errors; values are escaped if `is_html`.

    Raises ConfigurationError with the name and the line for what is no template, or none for emails.
    """
    _check_source(source, name)
    try:
        import jinja2

        from connector.mail.templates import rendering
        from connector.mail.templates.grammar import GrammarError
    except ImportError:
        raise ConfigurationError(
            "a template needs Jinja2, which is not installed: pip install 'subscriber-connector[mail]'"
        ) from None
    environment = rendering.build_environment(is_html=is_html)
    try:
        tree = environment.parse(source)
        variables = _name_variables(tree)
        return MailTemplate(name, variables, rendering.compile_tree(environment, tree))
    except jinja2.TemplateSyntaxError as error:
        raise _fault(name, error.lineno, f"cannot be read: {error.message}") from None
    except GrammarError as error:
        raise _fault(name, error.lineno, str(error)) from None
    except (RecursionError, MemoryError, SyntaxError):  # Python's own ways of saying so
        raise ConfigurationError(f"the template {name!r} {_TOO_DEEP}") from None
    except ValueError:  # of Python's reader of numbers
        raise ConfigurationError(f"the template {name!r} holds a number that is too long") from None


def _check_source(source: str, name: str) -> None:
    if len(source) > LONGEST:
        raise ConfigurationError(f"the template {name!r} has more than {LONGEST:,} characters; make it shorter")
    try:
        source.encode()
    except UnicodeEncodeError:
        raise ConfigurationError(f"the template {name!r} holds half a character (a lone surrogate)") from None


def _name_variables(tree: "nodes.Template") -> tuple[str, ...]:
    from jinja2 import meta

    from connector.mail.templates.filters import FILTERS
    from connector.mail.templates.grammar import check_tree, list_row_columns

    check_tree(tree, FILTERS)
    named = meta.find_undeclared_variables(tree) - {ROW}
    return tuple(sorted(named | set(list_row_columns(tree))))


def _fault(name: str, line: int, problem: str) -> ConfigurationError:
    return ConfigurationError(f"the template {name!r}, line {line}, {problem}")
