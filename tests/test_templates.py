"""Templates: the texts that they make, their limits, and errors that show no personal data."""

import traceback
from html import unescape

import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.templates import TemplateError, compile_template, split_name

MAX_LENGTH = 1_000_000
SAMPLE_ROW = {"first": "Ann", "markup": "<b> & 'x'", "count": "3", "empty": "", "tags": "a,b,c", "First Name": "Zoë"}


def fill_template(template_text: str, *, is_html: bool = False, **row: str) -> str:
    template = compile_template(template_text, name="body", max_length=MAX_LENGTH, is_html=is_html)
    return template.render(row or SAMPLE_ROW)


def test_a_template_is_filled_in_with_a_row() -> None:
    templates_and_texts: list[tuple[str, str]] = [
        ("Hello {{ first }}\r\n", "Hello Ann\n"),
        ("{{ markup }}", "<b> & 'x'"),
        ("{{ empty }}|{{ none }}|{{ empty or 'friend' }}", "||friend"),
        ("{{ row['First Name'] }} {{ row['first'] }} {{ row.first }}", "Zoë Ann Ann"),
        ("{{ count|int * 2 + 1 }} {{ count|int / 2 }} {{ 2 ** 10 }} {{ 7 % 4 }}", "7 1.5 1024 3"),
        ("{{ '%.2f'|format(2.345) }} {{ 2.345|round(1) }} {{ '{:>5}'.format(first) }}", "2.35 2.3   Ann"),
        ("{{ 20231122001|string }} {{ '%09d'|format(20231122001) }}", "20231122001 20231122001"),
        ("{% for tag in tags.split(',') %}{{ loop.index }}{{ tag }}{{ loop.cycle(1, 2) }}{% endfor %}", "1a12b23c1"),
        ("{{ tags.split(',')|map('upper')|reject('equalto', 'B')|join('/') }}", "A/C"),
        ("{% if count in ['1', '3'] and first is defined %}x{% endif %}{{ 'a' if nosuch is defined else 'b' }}", "xb"),
    ]  # fmt: skip
    for template_text, text in templates_and_texts:
        assert fill_template(template_text) == text


def test_a_value_of_a_row_is_escaped_in_html() -> None:
    templates_and_texts: list[tuple[str, str]] = [
        ("<p>{{ markup }}</p>{{ none }}", "<p>&lt;b&gt; &amp; &#39;x&#39;</p>"),
        ("{{ markup ~ '<i>' }}", "&lt;b&gt; &amp; &#39;x&#39;&lt;i&gt;"),
        ("{{ markup|safe }}", "<b> & 'x'"),
        ("{{ markup|upper|replace('B', '<') }}", "&lt;&lt;&gt; &amp; &#39;X&#39;"),
        ("{% macro m(x) %}<i>{{ x }}</i>{% endmacro %}{{ m(markup) }}", "<i>&lt;b&gt; &amp; &#39;x&#39;</i>"),
        ("{% set x %}<i>{{ markup }}</i>{% endset %}{{ x }}", "<i>&lt;b&gt; &amp; &#39;x&#39;</i>"),
    ]
    for template_text, text in templates_and_texts:
        assert fill_template(template_text, is_html=True) == text


@given(st.text(), st.text())
def test_any_value_is_unchanged_in_text_and_escaped_in_html(first_value: str, second_value: str) -> None:
    assert (
        fill_template("{{ a }}|{{ a ~ b }}", a=first_value, b=second_value)
        == f"{first_value}|{first_value}{second_value}"
    )
    html = fill_template("{{ a }}|{{ a ~ b }}", is_html=True, a=first_value, b=second_value)
    assert not set("<>\"'") & set(html)
    escaped_value = fill_template("{{ a }}", is_html=True, a=first_value)
    assert escaped_value.count("&") == sum(first_value.count(character) for character in "&<>\"'")
    assert len(unescape(escaped_value)) <= len(escaped_value)


def test_a_template_knows_the_names_of_its_columns() -> None:
    template_text = (
        "{{ b }}{{ row['First Name'] }}{% for x in a %}{{ x }}{{ loop.index }}{% endfor %}{% set y = c %}{{ y }}{{ b }}"
        "{{ row.d }}{{ range(2)|join }}{% macro m(e) %}{{ e }}{% endmacro %}"
    )
    assert compile_template(template_text).columns == ("First Name", "a", "b", "c", "d")


def test_the_error_for_a_wrong_template_shows_its_name_and_the_line() -> None:
    templates_and_errors: list[tuple[str, str]] = [
        ("a\n\n{{ b", "line 3, cannot be read"),
        ("{{ first|nosuch }}", "line 1, cannot be read: No filter named 'nosuch'"),
        ("{{ [1, 2]|random }}", "No filter named 'random'"),
        ("\n{% include 'x' %}", "line 2, asks for another template"),
        ("{{ row }}", "line 1: after `row`, write the name of the column"),
        ("{{ row[first] }}", "line 1: after `row`, write the name of the column"),
        ("{% for x in row %}{% endfor %}", "line 1: after `row`, write the name of the column"),
        ("{{ " + "9" * 5000 + " }}", "a number that is too long"),
        ("{{ " + "not " * 900 + "a }}", "nested too deeply"),
        ("x" * (MAX_LENGTH + 1), "has 1,000,001 characters"),
        ("{{ '\ud800' }}", "contains a lone surrogate"),
    ]  # fmt: skip
    for template_text, expected_text in templates_and_errors:
        with pytest.raises(ConfigurationError, match=expected_text) as error_info:
            compile_template(template_text, name="the body", max_length=MAX_LENGTH)
        assert str(error_info.value).startswith("the body")


SECRET_VALUE = "ann@example.com"


def test_the_error_for_a_row_has_no_data_of_the_row() -> None:
    templates_and_errors: list[tuple[str, str]] = [
        ("\n{{ nosuch }}", "uses in line 2 a value that this row does not have"),
        ("{{ empty[0] }}", "uses in line 1 a value that this row does not have"),
        ("{{ secret + 2 }}", "fails in line 1 for this row (TypeError)"),
        ("{{ secret.__class__.__mro__ }}", "fails in line 1 for this row (SecurityError)"),
        ("{{ '{0.__class__.__mro__}'.format(secret) }}", "fails in line 1 for this row (SecurityError)"),
        (r"{{ secret }}{{ '\ud800' }}", "makes a lone surrogate"),
        ("{{ [secret].append(secret) }}", "fails in line 1 for this row (SecurityError)"),
    ]
    for template_text, expected_text in templates_and_errors:
        template = compile_template(template_text, name="body", is_html=True)
        with pytest.raises(TemplateError) as error_info:
            template.render({"secret": SECRET_VALUE, "empty": ""})
        assert expected_text in error_info.value.problem
        assert str(error_info.value) == f"body {error_info.value.problem}"
        assert SECRET_VALUE not in "".join(traceback.format_exception(error_info.value))


def test_a_template_that_exceeds_a_limit_is_an_error() -> None:
    templates_and_errors: list[tuple[str, str]] = [
        ("{{ 'a' * 10**9 }}", "multiplies a text"),
        ("{{ ['a'] * many|int }}", "multiplies a text"),
        ("{{ big }}{{ big }}", "1,000,000 characters"),
        ("{% for x in 'ab' %}{{ big }}{% endfor %}", "1,000,000 characters"),
        ("{{ larger|length }}", "1,000,000 characters"),
        ("{{ many|int ** (many|int) }}", "30 digits"),
        ("{{ 10000000000000000 * 10000000000000000 * 10 }}", "30 digits"),
        ("{% for i in range(many|int) %}x{% endfor %}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ]
    for template_text, expected_text in templates_and_errors:
        row = {"big": "y" * MAX_LENGTH, "many": "999999999"} | (
            {"larger": "y" * (MAX_LENGTH + 1)} if "larger" in template_text else {}
        )
        with pytest.raises(TemplateError, match=expected_text):
            compile_template(template_text, name="body", max_length=MAX_LENGTH).render(row)


def test_values_at_the_limits_are_allowed() -> None:
    longest_value = "y" * MAX_LENGTH
    assert fill_template("{{ big }}", big=longest_value) == longest_value
    assert fill_template("{{ big|upper|length }} {{ big|truncate(5) }}", big=longest_value) == "1000000 yy..."
    template = compile_template("{% for x in a %}{% endfor %}ok", name="body", max_length=MAX_LENGTH)
    assert [template.render({"a": "x" * 50_000}) for _ in range(3)] == ["ok"] * 3  # the limit is for each row


TEMPLATE_SOURCES = st.lists(
    st.sampled_from(
        ["{{", "}}", "{%", "%}", "a", "row['b']", "|upper", "|join", "~", "+", "*", "if ", "endif", "for x in ",
         "endfor", "else", "set x =", "endset", "'t'", "1", "[", "]", "(", ")", "{", ":", ".x", " is ", "defined",
         "not ", " ", "\n", "{#", "#}", "loop", "macro a()", "endmacro", "block a", "filter upper", "range", "include"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(TEMPLATE_SOURCES, st.booleans())
def test_any_text_is_a_template_or_a_printable_error(template_text: str, is_html: bool) -> None:
    try:
        template = compile_template(template_text, name="body", is_html=is_html)
        assert isinstance(template.render(dict.fromkeys(template.columns, "v")), str)
    except (ConfigurationError, TemplateError) as error:
        assert str(error).startswith("body")  # noqa: PT017 - a template without an error is right too


def test_a_full_name_is_split_into_given_name_and_family_name() -> None:
    names: list[tuple[str, str, str]] = [
        ("Ann Lee", "Ann", "Lee"),
        ("  Ann   Lee ", "Ann", "Lee"),
        ("Lee, Ann", "Ann", "Lee"),
        ("García Márquez, Gabriel José", "Gabriel José", "García Márquez"),
        ("van der Berg, Dr. Ann", "Ann", "van der Berg"),
        ("Dr. Ann Lee", "Ann", "Lee"),
        ("Herr Prof. Dr. Jürgen Müller", "Jürgen", "Müller"),
        ("Mrs Ann Lee", "Ann", "Lee"),
        ("Mme Zoë Lévêque", "Zoë", "Lévêque"),
        ("Ann Lee, PhD", "Ann", "Lee"),
        ("Sammy Davis Jr.", "Sammy", "Davis"),
        ("Ludwig van Beethoven", "Ludwig", "van Beethoven"),
        ("Ann von der Heide", "Ann", "von der Heide"),
        ("Leonardo da Vinci", "Leonardo", "da Vinci"),
        ("Osama bin Ahmed", "Osama", "bin Ahmed"),
        ("Sean O'Neil", "Sean", "O'Neil"),
        ("Jean-Luc Picard", "Jean-Luc", "Picard"),
        ("Ju\u0308rgen Mu\u0308ller", "Ju\u0308rgen", "Mu\u0308ller"),
    ]
    for name, given_name, family_name in names:
        assert split_name(name) == (given_name, family_name)


def test_an_ambiguous_full_name_is_not_split() -> None:
    for name in [
        "", "Cher", "Ann Mary Lee", "Herr Müller", "van Gogh", "Maria García de la Cruz", "Lee, Ann, Berlin", "Lee,",
        "Acme GmbH", "Lee & Sons", "Ann and Bob Lee", "Ann + Bob", "Familie Müller", "Acme, Inc.", "Ann Lee (HR)",
        "ann@example.com", "Ann 2", "Ann/Bob Lee", "Dr. Lee", "Lee, Dr.", "王小明", "Ann Lee van", "N/A",
    ]:  # fmt: skip
        assert split_name(name) == (name, "")


def test_a_template_fills_in_the_given_name_and_the_family_name() -> None:
    template = compile_template("{{ name | given_name }}/{{ row['Full Name'] | family_name }}")
    assert template.render({"name": "Dr. Ann Lee", "Full Name": "Lee, Ann"}) == "Ann/Lee"
