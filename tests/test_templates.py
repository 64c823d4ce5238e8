"""Templates: their texts, refused templates, bounds, and errors without the data of a row."""

import traceback
from html import unescape

import pytest
from hypothesis import given, strategies as st

from connector.errors import ConfigurationError
from connector.templates import TemplateError, compile_template

LONGEST = 1_000_000
ROW = {"first": "Ann", "markup": "<b> & 'x'", "count": "3", "empty": "", "tags": "a,b,c", "First Name": "Zoë"}


def fill(source: str, *, is_html: bool = False, **row: str) -> str:
    return compile_template(source, name="body", max_length=LONGEST, is_html=is_html).render(row or ROW)


def test_a_template_is_filled_in_with_a_row() -> None:
    cases: list[tuple[str, str]] = [
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
    for source, text in cases:
        assert fill(source) == text


def test_a_value_of_a_row_is_escaped_in_html() -> None:
    cases: list[tuple[str, str]] = [
        ("<p>{{ markup }}</p>{{ none }}", "<p>&lt;b&gt; &amp; &#39;x&#39;</p>"),
        ("{{ markup ~ '<i>' }}", "&lt;b&gt; &amp; &#39;x&#39;&lt;i&gt;"),
        ("{{ markup|safe }}", "<b> & 'x'"),
        ("{{ markup|upper|replace('B', '<') }}", "&lt;&lt;&gt; &amp; &#39;X&#39;"),
        ("{% macro m(x) %}<i>{{ x }}</i>{% endmacro %}{{ m(markup) }}", "<i>&lt;b&gt; &amp; &#39;x&#39;</i>"),
        ("{% set x %}<i>{{ markup }}</i>{% endset %}{{ x }}", "<i>&lt;b&gt; &amp; &#39;x&#39;</i>"),
    ]
    for source, text in cases:
        assert fill(source, is_html=True) == text


@given(st.text(), st.text())
def test_any_text_is_unchanged_in_text_and_escaped_in_html(first: str, second: str) -> None:
    assert fill("{{ a }}|{{ a ~ b }}", a=first, b=second) == f"{first}|{first}{second}"
    made = fill("{{ a }}|{{ a ~ b }}", is_html=True, a=first, b=second)
    assert not set("<>\"'") & set(made)
    escaped = fill("{{ a }}", is_html=True, a=first)
    assert escaped.count("&") == sum(first.count(sign) for sign in "&<>\"'")
    assert len(unescape(escaped)) <= len(escaped)


def test_the_columns_are_those_that_are_named() -> None:
    source = (
        "{{ b }}{{ row['First Name'] }}{% for x in a %}{{ x }}{{ loop.index }}{% endfor %}{% set y = c %}{{ y }}{{ b }}"
        "{{ row.d }}{{ range(2)|join }}{% macro m(e) %}{{ e }}{% endmacro %}"
    )
    assert compile_template(source).columns == ("First Name", "a", "b", "c", "d")


def test_a_wrong_template_is_refused_by_name_and_line() -> None:
    cases: list[tuple[str, str]] = [
        ("a\n\n{{ b", "line 3, cannot be read"),
        ("{% if %}", "line 1, cannot be read"),
        ("{{ first|nosuch }}", "line 1, cannot be read: No filter named 'nosuch'"),
        ("{{ [1, 2]|random }}", "No filter named 'random'"),
        ("\n{% include 'x' %}", "line 2, asks for another template"),
        ("{% extends 'x' %}", "line 1, asks for another template"),
        ("{{ row }}", "line 1, must name the column"),
        ("{{ row[first] }}", "line 1, must name the column"),
        ("{% for x in row %}{% endfor %}", "line 1, must name the column"),
        ("{{ " + "9" * 5000 + " }}", "a number that is too long"),
        ("{{ " + "not " * 900 + "a }}", "nested too deeply"),
        ("x" * (LONGEST + 1), "has 1,000,001 characters"),
        ("{{ '\ud800' }}", "half a character"),
    ]  # fmt: skip
    for source, words in cases:
        with pytest.raises(ConfigurationError, match=words) as caught:
            compile_template(source, name="the body", max_length=LONGEST)
        assert str(caught.value).startswith("the body")


SECRET = "ann@example.com"


def test_a_row_that_fails_is_reported_without_its_data() -> None:
    cases: list[tuple[str, str]] = [
        ("\n{{ nosuch }}", "asks in line 2 for something that this row does not have"),
        ("{{ nosuch.x }}", "asks in line 1"),
        ("{{ row['No Such'] }}", "asks in line 1"),
        ("{{ {}[secret] }}", "asks in line 1"),
        ("{{ empty[0] }}", "asks in line 1"),
        ("{{ secret + 2 }}", "fails in line 1 for this row (TypeError)"),
        ("{{ [secret] }}", "fails in line 1 for this row (TypeError)"),
        ("{{ secret.upper }}", "fails in line 1 for this row (TypeError)"),
        ("{{ secret['__class__'] }}", "fails in line 1 for this row (SecurityError)"),
        ("{{ secret.__class__.__mro__ }}", "fails in line 1 for this row (SecurityError)"),
        ("{{ '{0.__class__.__mro__}'.format(secret) }}", "fails in line 1 for this row (SecurityError)"),
        ("{{ range.__init__.__globals__ }}", "fails in line 1 for this row (SecurityError)"),
        (r"{{ secret }}{{ '\ud800' }}", "makes half a character"),
        ("{{ [secret].append(secret) }}", "fails in line 1 for this row (SecurityError)"),
    ]
    for source, words in cases:
        template = compile_template(source, name="body", is_html=True)
        with pytest.raises(TemplateError) as caught:
            template.render({"secret": SECRET, "empty": ""})
        assert words in caught.value.problem
        assert str(caught.value) == f"body {caught.value.problem}"
        assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_a_cell_that_makes_a_text_too_large_is_refused() -> None:
    cases: list[tuple[str, str]] = [
        ("{{ 'a' * 10**9 }}", "would repeat a text"),
        ("{{ many|int * 'a' }}", "would repeat a text"),
        ("{{ ['a'] * many|int }}", "would repeat a text"),
        ("{{ big }}{{ big }}", "1,000,000 characters"),
        ("{% for x in 'ab' %}{{ big }}{% endfor %}", "1,000,000 characters"),
        ("{{ larger|length }}", "1,000,000 characters"),
        ("{{ many|int ** (many|int) }}", "30 digits"),
        ("{{ 10000000000000000 * 10000000000000000 * 10 }}", "30 digits"),
        ("{% for i in range(many|int) %}x{% endfor %}", "OverflowError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
    ]
    for source, words in cases:
        row = {"big": "y" * LONGEST, "many": "999999999"} | (
            {"larger": "y" * (LONGEST + 1)} if "larger" in source else {}
        )
        with pytest.raises(TemplateError, match=words):
            compile_template(source, name="body", max_length=LONGEST).render(row)


def test_the_bounds_themselves_are_allowed() -> None:
    big = "y" * LONGEST
    assert fill("{{ big }}", big=big) == big
    assert fill("{{ big|upper|length }} {{ big|truncate(5) }}", big=big) == "1000000 yy..."
    template = compile_template("{% for x in a %}{% endfor %}ok", name="body", max_length=LONGEST)
    assert [template.render({"a": "x" * 50_000}) for _ in range(3)] == ["ok"] * 3  # each row has its own


SOURCES = st.lists(
    st.sampled_from(
        ["{{", "}}", "{%", "%}", "a", "row['b']", "|upper", "|join", "~", "+", "*", "if ", "endif", "for x in ",
         "endfor", "else", "set x =", "endset", "'t'", "1", "[", "]", "(", ")", "{", ":", ".x", " is ", "defined",
         "not ", " ", "\n", "{#", "#}", "loop", "macro a()", "endmacro", "block a", "filter upper", "range", "include"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(SOURCES, st.booleans())
def test_any_text_is_a_template_or_a_printable_error(source: str, is_html: bool) -> None:
    try:
        template = compile_template(source, name="body", is_html=is_html)
        assert isinstance(template.render(dict.fromkeys(template.columns, "v")), str)
    except (ConfigurationError, TemplateError) as error:
        assert str(error).startswith("body")  # noqa: PT017 - either will do
