"""Jinja2 templates over the columns of one row, for mappings and emails. Templates run in Jinja's sandbox, with limits
of length.

The author of a job writes the template. The author of a template is trusted, and may use loops. A row is not trusted,
so the lengths of cells and of the text are limited. A product (`'x' * n`, `a ** b`) is checked before it is computed. A
template cannot use other templates.
"""

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any
from unicodedata import category

import jinja2
from jinja2 import meta, nodes, pass_eval_context
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment

from connector.errors import ConfigurationError, ConnectorError

# Functions for names of persons

_PERSON_TITLES = frozenset({
    "dr", "drs", "prof", "professor", "doctor", "doktor", "mr", "mrs", "ms", "miss", "mx", "sir", "madam", "rev",
    "herr", "herrn", "frau", "hr", "fr", "fräulein", "dipl-ing", "ing", "mag", "med", "phil", "jur", "h.c", "dott",
    "m", "mme", "mlle", "monsieur", "madame", "sr", "sra", "srta", "señor", "señora", "don", "doña", "sig", "signor",
    "signora", "dhr", "mevr", "mw", "mevrouw", "ir", "pan", "pani", "inż", "mgr", "dottor", "dr.-ing", "prof.dr",
})  # fmt: skip
"""Titles without their last dot, in lower case."""

_NAME_PARTICLES = frozenset({
    "van", "von", "vom", "zu", "zum", "zur", "de", "del", "della", "dello", "dei", "di", "da", "das", "do", "dos",
    "du", "des", "la", "le", "las", "los", "der", "den", "het", "ter", "ten", "te", "bin", "bint", "ibn", "al", "el",
    "ben", "af", "av", "st", "saint", "san", "santa", "o'", "mac", "mc", "d'",
})  # fmt: skip
"""The words that begin a family name of several words (`de Vries`), in lower case and without dots."""

_NAME_SUFFIXES = frozenset({
    "jr", "sr", "ii", "iii", "iv", "phd", "md", "mba", "msc", "bsc", "ma", "ba", "llm", "esq", "jun", "sen", "cpa",
})  # fmt: skip
"""Words after a name that do not belong to the name, in lower case and without dots."""

_WORDS_OF_GROUP_NAMES = frozenset({
    "&", "+", "and", "und", "et", "en", "or", "oder", "family", "familie", "famille", "familia", "famiglia", "team",
    "gmbh", "ag", "kg", "ohg", "ug", "ltd", "limited", "inc", "llc", "corp", "company", "co", "plc", "bv", "nv", "sa",
    "sarl", "srl", "spa", "oy", "ab", "as", "group", "foundation", "verein", "ev",
})  # fmt: skip
"""Words that show that a name is the name of several people or of a company, in lower case and without dots."""

_NAME_PUNCTUATION = " ,.'’-"


@lru_cache(maxsize=1024)  # a template calls this function for each of the two parts of a name
def split_name(name: str) -> tuple[str, str]:
    """Return the given name and the family name, without titles, of a name such as `Lee, Ann`, `Dr. Ann Lee` or `Ann
    van der Lee`.

    If the split is not certain, return the whole name and an empty family name. Examples of names without a certain
    split are a single word, several given or family names without a comma, two people, and a company.
    """
    whole_name = " ".join(name.split())
    word_lists = [words_between_commas.split() for words_between_commas in whole_name.split(",")]
    words = [word for word_list in word_lists for word in word_list]
    plain_words = [word.lower().replace(".", "") for word in words]
    if not _WORDS_OF_GROUP_NAMES.isdisjoint(plain_words) or any(
        category(character)[0] not in "LM" and character not in _NAME_PUNCTUATION for character in whole_name
    ):
        return whole_name, ""
    if len(word_lists) == 2 and all(word in _NAME_SUFFIXES for word in plain_words[len(word_lists[0]) :]):
        word_lists = word_lists[:1]  # for example `Ann Lee, PhD`
    if len(word_lists) == 2:
        family_name_words, given_name_words = (_drop_titles(word_list) for word_list in word_lists)
    elif len(word_lists) == 1:
        given_name_words, family_name_words = _split_given_and_family_name(_drop_titles(word_lists[0]))
    else:
        return whole_name, ""
    if not given_name_words or not family_name_words:
        return whole_name, ""
    return " ".join(given_name_words), " ".join(family_name_words)


def _split_given_and_family_name(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the single word of the given name, and the words of the family name. If the split is not certain, return
    all words as the given name."""
    particle_mask = [word.lower().replace(".", "") in _NAME_PARTICLES for word in words]
    has_one_given_and_one_family_name = len(words) == 2 and not any(particle_mask)
    has_compound_family_name = len(words) > 2 and particle_mask[:2] == [False, True] and not particle_mask[-1]
    return (words[:1], words[1:]) if has_one_given_and_one_family_name or has_compound_family_name else (words, [])


def _drop_titles(words: list[str]) -> list[str]:
    """Return the words without titles at the beginning, and without suffixes at the end."""
    first_index, end_index = 0, len(words)
    while first_index < end_index and words[first_index].lower().removesuffix(".") in _PERSON_TITLES:
        first_index += 1
    while end_index > first_index and words[end_index - 1].lower().replace(".", "") in _NAME_SUFFIXES:
        end_index -= 1
    return words[first_index:end_index]


ROW = "row"
"""The name of the variable with all columns. Templates need this variable for a column whose name is not one word:
`row["First Name"]`."""

_MAX_NUMBER = 10**30  # no id and no amount has more digits
_MAX_POWER = 64
_TEMPLATE_REFERENCES = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends)


class TemplateError(ConnectorError):
    """The error of a template that cannot return a text for a row. `problem` has the reason and the line of the
    template, and no value of the row."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"{name} {problem}")
        self.name = name
        self.problem = problem


class Template:
    """A compiled template. `columns` are the columns that the template uses, sorted and without duplicates."""

    def __init__(self, name: str, columns: tuple[str, ...], max_length: int, template: jinja2.Template) -> None:
        self.name = name
        self.columns = columns
        self._max_length = max_length
        self._template = template

    def render(self, cells: Mapping[str, str]) -> str:
        """Return the text for a row. `cells` has the cells by column. An empty cell is "". Raises TemplateError."""
        try:
            self._check_length(max(map(len, cells.values()), default=0))
            pieces, length = [], 0
            for piece in self._template.generate({**cells, ROW: cells}):
                length += len(piece)
                self._check_length(length)
                pieces.append(piece)
            return "".join(pieces).encode().decode()  # raises UnicodeEncodeError for a lone surrogate
        except _LimitError as error:
            problem_text = str(error)
        except UnicodeEncodeError:
            problem_text = "makes a lone surrogate (half of a character)"
        except jinja2.UndefinedError as error:  # Jinja's message is not shown, because it may contain a cell
            problem_text = f"uses in {_describe_error_line(error)} a value that this row does not have"
        except Exception as error:  # noqa: BLE001 - any error of a template concerns only one row
            problem_text = f"fails in {_describe_error_line(error)} for this row ({type(error).__name__})"
        raise TemplateError(self.name, problem_text)

    def _check_length(self, length: int) -> None:
        if length > self._max_length:
            raise _LimitError(f"has more than {self._max_length:,} characters to read or to write for this row")


@lru_cache(maxsize=64)
def compile_template(
    template_text: str, *, name: str = "the template", max_length: int = 10_000, is_html: bool = False
) -> Template:
    """Compile a template. `name` is its name in messages, and `max_length` the maximum length of a cell and of the
    text. With `is_html`, values of the row are escaped.

    Raises ConfigurationError with the name and the line if the template is invalid.
    """
    if len(template_text) > max_length:
        raise ConfigurationError(
            f"{name} has {len(template_text):,} characters; a template can have at most {max_length:,}"
        )
    if template_text != template_text.encode(errors="replace").decode():
        raise ConfigurationError(f"{name} contains a lone surrogate (half of a character)")
    environment = _Environment(
        undefined=jinja2.StrictUndefined, autoescape=is_html, finalize=_finalize_value, keep_trailing_newline=True
    )
    environment.filters |= {
        "given_name": lambda name: split_name(str(name))[0],
        "family_name": lambda name: split_name(str(name))[1],
    }
    # Random texts are not allowed, because another text in the next run would look like a change of the row.
    environment.filters.pop("random")
    environment.globals.pop("lipsum")
    environment.max_length = max_length
    try:
        tree = environment.parse(template_text)
        for node in tree.find_all(_TEMPLATE_REFERENCES):
            raise ConfigurationError(
                f"{name}, line {node.lineno}, asks for another template; a template cannot use other templates"
            )
        columns = _find_columns(tree, name, environment.globals)
        code = environment.compile(tree)
    except jinja2.TemplateSyntaxError as error:
        raise ConfigurationError(f"{name}, line {error.lineno}, cannot be read: {error.message}") from None
    except (RecursionError, MemoryError, SyntaxError, ValueError):
        # These are Python's errors for too many brackets and for numbers that are too long.
        raise ConfigurationError(f"{name} is nested too deeply, or holds a number that is too long") from None
    return Template(name, columns, max_length, jinja2.Template.from_code(environment, code, environment.globals))


def _find_columns(tree: nodes.Template, name: str, global_names: Collection[str]) -> tuple[str, ...]:
    """Return the columns that the template uses as a variable, as `row["…"]` or as `row.…`."""
    columns = meta.find_undeclared_variables(tree).difference(global_names)
    if ROW in columns:
        columns.remove(ROW)
        attribute_by_node_id = {id(node.node): node.attr for node in tree.find_all(nodes.Getattr)}
        item_by_node_id = {id(node.node): node.arg for node in tree.find_all(nodes.Getitem)}
        for row_node in (node for node in tree.find_all(nodes.Name) if node.name == ROW):
            item_node = item_by_node_id.get(id(row_node))
            if id(row_node) in attribute_by_node_id:
                columns.add(attribute_by_node_id[id(row_node)])
            elif isinstance(item_node, nodes.Const):
                columns.add(str(item_node.value))
            else:
                raise ConfigurationError(
                    f"{name}, line {row_node.lineno}: after `{ROW}`, write the name of the column in quotes, for "
                    f"example {ROW}['First Name']"
                )
    return tuple(sorted(columns))


def _describe_error_line(error: BaseException) -> str:
    """Return a text with the number of the template's line that raised the error. Jinja writes the number into Python's
    traceback."""
    traceback, line_number = error.__traceback__, 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line_number = traceback.tb_lineno
        traceback = traceback.tb_next
    return f"line {line_number}" if line_number else "one of its lines"


class _LimitError(Exception):
    """The error of a cell, a text or a number that exceeds its limit. The message names the limit, and no value of the
    row."""


class _Environment(ImmutableSandboxedEnvironment):
    """A Jinja environment that raises an error before it computes a product or a power that could be too large."""

    intercepted_binops = frozenset({"*", "**"})
    max_length: int

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return a product or a power. Raises _LimitError if the result would be too large."""
        if isinstance(left, int | float) and isinstance(right, int | float):
            if max(abs(left), abs(right)) > _MAX_NUMBER or (operator == "**" and right > _MAX_POWER):
                raise _LimitError(f"computes with numbers of more than 30 digits, or with a power above {_MAX_POWER}")
        else:
            factor = next((value for value in (left, right) if isinstance(value, int)), 0)
            repeated_value = next((value for value in (left, right) if isinstance(value, str | list | tuple)), ())
            if factor * len(repeated_value) > self.max_length:
                raise _LimitError(f"multiplies a text to more than {self.max_length:,} characters for this row")
        return super().call_binop(context, operator, left, right)


@pass_eval_context
def _finalize_value(_: nodes.EvalContext, value: Any) -> Any:
    """Return a text or a number unchanged, and "" for None. Raises TypeError for another value, such as a list.

    Without the decorator, Jinja would also call this function while it compiles a template. Then a None is already the
    text "None".
    """
    if value is None:
        return ""
    if not isinstance(value, str | int | float | Undefined):
        raise TypeError("only texts and numbers can be written")
    return value
