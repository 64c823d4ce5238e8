"""Templates of emails: what they make of a row, what they cannot hold or do, and errors that tell nothing of it."""

import subprocess
import sys
import traceback
from datetime import UTC, date, datetime
from decimal import Decimal
from html import unescape
from time import monotonic

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.errors import ConfigurationError
from connector.mail.templates import LONGEST, MOST_STEPS, RowTemplateError, compile_text

ROW = {
    "first": "Ann",
    "markup": "<b> & 'x'",
    "count": 3,
    "price": Decimal("9.50"),
    "due": date(2026, 12, 24),
    "at": datetime(2026, 12, 24, 9, 30, tzinfo=UTC),
    "nothing": None,
    "tags": "a,b,c",
    "list": ["x", None, 2],
    "map": {"k": "<v>"},
    "First Name": "Zoë",
}


def fill(source: str, *, is_html: bool = False, **row: object) -> str:
    return compile_text(source, is_html=is_html, name="body").render(row or ROW)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Hello {{ first }}\r\n", "Hello Ann\n"),
        ("{{ markup }}", "<b> & 'x'"),
        ("{{ nothing }}|{{ none }}|{{ nothing ~ none }}|", "|||"),
        ("{{ due }} {{ at }} {{ due ~ '' }}", "2026-12-24 2026-12-24T09:30:00+00:00 2026-12-24"),
        ("{{ at.strftime('%d.%m.%Y') }}", "24.12.2026"),
        ("{{ row['First Name'] }} {{ row['first'] }}", "Zoë Ann"),
        ("{{ count * 2 + 1 }} {{ price * count }} {{ count / 2 }} {{ -count }}", "7 28.50 1.5 -3"),
        ("{{ '%.2f'|format(price) }} {{ 2.345|round(1) }} {{ '%s!'|format(nothing) }}", "9.50 2.3 !"),
        ("{% for tag in tags.split(',') %}{{ loop.index }}{{ tag }}{{ loop.cycle(1, 2) }}{% endfor %}", "1a12b23c1"),
        ("{% for k, v in map.items() %}{{ k }}={{ v }}{% endfor %}{{ map.k }}", "k=<v><v>"),
        ("{% for x in list if x %}{{ x }}{% else %}none{% endfor %}", "x2"),
        ("{{ list|join('/') }}", "x//2"),
        ("{% if count in [1, 3] and first is defined %}yes{% endif %}{{ 'a' if nosuch is defined else 'b' }}", "yesb"),
        ("{{ nosuch|default('friend') }} {{ nothing|default('friend', true) }}", "friend friend"),
        ("{% set n = count + 1 %}{% with m = n ~ first %}{{ m|upper }}{% endwith %}", "4ANN"),
        ("{{ first|replace('n', 'm')|lower }} {{ first + '!' }} {{ first[:2] }} {{ first|length }}", "amm Ann! An 3"),
        ("{# a remark #}{% raw %}{{ first }}{% endraw %}", "{{ first }}"),
    ],
)  # fmt: skip
def test_a_template_is_filled_in_with_a_row(source: str, text: str) -> None:
    assert fill(source) == text


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("<p>{{ markup }}</p>", "<p>&lt;b&gt; &amp; &#39;x&#39;</p>"),
        ("{{ markup ~ '<i>' }}", "&lt;b&gt; &amp; &#39;x&#39;&lt;i&gt;"),
        ("{{ markup|safe }}", "<b> & 'x'"),
        ("{{ markup|upper|replace('B', '<') }}", "&lt;&lt;&gt; &amp; &#39;X&#39;"),
        ("{{ nothing }}{{ none }}{{ map.k }}", "&lt;v&gt;"),
        ("{{ [1, 2]|join('<br>') }}", "1&lt;br&gt;2"),
        ("{% for x in map.values() %}{{ x }}{% endfor %}", "&lt;v&gt;"),
    ],
)
def test_what_a_row_holds_is_text_in_html(source: str, text: str) -> None:
    assert fill(source, is_html=True) == text


@given(st.text(), st.text())
def test_any_text_is_written_as_it_is_and_escaped_in_html(first: str, second: str) -> None:
    assert fill("{{ a }}|{{ a ~ b }}", a=first, b=second) == f"{first}|{first}{second}"
    made = fill("{{ a }}|{{ a ~ b }}", is_html=True, a=first, b=second)
    assert not set("<>\"'") & set(made)
    assert unescape(made.replace("&#34;", '"').replace("&#39;", "'")).count("|") >= 1
    assert compile_text("{{ a }}", is_html=True, name="x").render({"a": first}).count("&") == sum(
        first.count(sign) for sign in "&<>\"'"
    )


def test_the_variables_are_the_columns_that_are_named() -> None:
    source = (
        "{{ b }}{{ row['First Name'] }}{% for x in a %}{{ x }}{{ loop.index }}{% endfor %}{% set y = c %}{{ y }}{{ b }}"
    )
    assert compile_text(source, is_html=True, name="body").variables == ("First Name", "a", "b", "c")


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("a\n\n{{ b", "line 3, cannot be read"),
        ("{% if %}", "line 1, cannot be read"),
        ("\n{% include 'x' %}", "line 2, holds an include"),
        ("{% import 'x' as y %}", "an import"),
        ("{% from 'x' import y %}", "an import"),
        ("{% extends 'x' %}", "an extends"),
        ("{% block x %}{% endblock %}", "a block"),
        ("{% macro f() %}{% endmacro %}", "a macro"),
        ("{% set x %}{% endset %}", "an assignment of a block"),
        ("{% filter upper %}{% endfilter %}", "a filter of a block"),
        ("{% autoescape false %}{% endautoescape %}", "a change of autoescape"),
        ("{{ range(9) }}", "calls something else"),
        ("{{ first.center(9) }}", "calls something else"),
        ("{{ '{:>9}'.format(1) }}", "calls something else"),
        ("{{ first['upper']() }}", "calls something else"),
        ("{% set f = first.upper %}{{ f() }}", "calls something else"),
        ("{% for x in y recursive %}{{ loop(x) }}{% endfor %}", "calls"),
        ("{{ first|center(9) }}", "no filter 'center'"),
        ("{{ first|attr('upper') }}", "no filter 'attr'"),
        ("{{ first is callable }}", "no test 'callable'"),
        ("{{ first.__class__ }}", "asks for .__class__"),
        ("{{ 9 ** 9 }}", r"a power \(\*\*\)"),
        ("{{ {'a': 1} }}", "a dictionary"),
        ("{% set a = [1] %}{% set b = [a, a] %}", "a list of something else"),
        ("{{ first.split(*list) }}", r"with \*"),
        ("{{ self }}", "names self"),
        ("{{ row }}", "must name the column"),
        ("{{ row[first] }}", "must name the column"),
        ("{% set row = 1 %}", "assigns to row"),
        ("{{ " + "9" * 5000 + " }}", "a number that is too long"),
        ("{{ " + "(" * 500 + "a" + ")" * 500 + " }}", "nested too deeply"),
        ("{{ " + "not " * 900 + "a }}", "nested too deeply"),
        ("{{ a" + "|upper" * 100 + " }}", "nested too deeply"),
        ("{% for x in a %}" * 25 + "{% endfor %}" * 25, "nested too deeply"),
        ("x" * (LONGEST + 1), "more than 1,000,000 characters"),
        ("{{ '\ud800' }}", "half a character"),
        ("\ud800", "half a character"),
    ],
    ids=lambda text: str(text)[:30],
)  # fmt: skip
def test_what_is_no_template_of_an_email_is_refused_by_name_and_line(source: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        compile_text(source, is_html=True, name="the body")
    assert "'the body'" in str(caught.value)


BIG = "y" * LONGEST
SECRET = "ann@example.com"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ nosuch }}", "'nosuch' is not defined"),
        ("{{ nosuch.x }}", "'nosuch' is not defined"),
        ("{% for x in nosuch %}{% endfor %}", "'nosuch' is not defined"),
        ("{% if nosuch %}{% endif %}", "'nosuch' is not defined"),
        ("{{ 'x' ~ nosuch }}", "'nosuch' is not defined"),
        ("{{ nosuch|upper }}", "'nosuch' is not defined"),
        ("{{ row['No Such'] }}", "'No Such' is not defined"),
        ("{{ secret.x }}", "it asks for something that this row does not have"),
        ("{{ map[secret] }}", "it asks for something that this row does not have"),
        ("{{ empty|first }}", "it asks for something that this row does not have"),
        ("{{ secret * 2 }}", "it fails (TypeError)"),
        ("{{ '%d' % 1 }}", "it fails (TypeError)"),
        ("{{ list }}", "it fails (TypeError)"),
        ("{{ secret.upper }}", "it fails (TypeError)"),
        ("{{ secret['__class__'] }}", "it fails (SecurityError)"),
        ("{{ secret|format(1) }}", "it fails (TypeError)"),
        ("{{ '%999d'|format(1) }}", "it fails (ValueError)"),
        ("{{ 1|round(99999999) }}", "it fails (ValueError)"),
        ("{{ 1 / none|length }}", "it fails (TypeError)"),
        ("{{ 10000000000000000 * 10000000000000000 * 10 }}", "more than 30 digits"),
    ],
)
def test_a_row_that_fails_is_told_without_its_data(source: str, words: str) -> None:
    template = compile_text(source, is_html=True, name="body")
    with pytest.raises(RowTemplateError) as caught:
        template.render({"secret": SECRET, "map": {}, "empty": "", "list": [SECRET]})
    assert str(caught.value) == f"the template 'body' cannot be filled in for this row: {caught.value.problem}"
    assert words in caught.value.problem
    assert caught.value.template == "body"
    assert SECRET not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ big }}{{ big }}", "1,000,000 characters"),
        ("{% for x in tags %}{{ big }}{% endfor %}", "1,000,000 characters"),
        ("{% set a = big ~ big %}", "1,000,000 characters"),
        ("{% set a = big + big %}", "1,000,000 characters"),
        ("{% set a = big|replace('', big) %}", "1,000,000 characters"),
        ("{% set a = big|join(big) %}", "1,000,000 characters"),
        ("{% set a = '%s%s'|format(big, big) %}", "1,000,000 characters"),
        ("{% set a = (percent * 1)|urlencode %}", "TypeError"),
        ("{% set a = percent|urlencode %}", "1,000,000 characters"),
        ("{% set a = percent|e %}", "1,000,000 characters"),
        ("".join(f"{{% set a{n + 1} = a{n} ~ a{n} %}}" for n in range(60)), "1,000,000 characters"),
        ("{% for x in big %}{% for y in big %}{% endfor %}{% endfor %}", "10,000 steps"),
        ("{% for x in few %}{% for y in few %}{% for z in few %}{% endfor %}{% endfor %}{% endfor %}", "10,000 steps"),
        ("{{ larger|length }}", "1,000,000 characters"),
    ],
    ids=lambda text: str(text)[:40],
)
def test_what_would_grow_or_last_without_end_is_given_up_at_once(source: str, words: str) -> None:
    row: dict[str, object] = {
        "big": BIG, "tags": "ab", "percent": "&" * LONGEST, "a0": "x", "few": "x" * 100,
    }  # fmt: skip
    template = compile_text(source, is_html=True, name="body")
    begun = monotonic()
    with pytest.raises(RowTemplateError, match=words):
        template.render(row | ({"larger": BIG + "y"} if "larger" in source else {}))
    assert monotonic() - begun < 10  # each would take hours, or all memory


def test_the_bounds_themselves_are_allowed() -> None:
    assert fill("{{ big }}", big=BIG) == BIG
    assert fill("{% for x in a %}{% endfor %}ok", a="x" * MOST_STEPS) == "ok"
    template = compile_text("{% for x in a %}{% endfor %}ok", is_html=False, name="body")
    assert [template.render({"a": "x" * MOST_STEPS}) for _ in range(3)] == ["ok"] * 3  # each row has its own


def test_rows_leave_nothing_behind() -> None:
    template = compile_text("{% set seen = a %}{{ seen }}{{ b|default('-') }}", is_html=False, name="body")
    assert [template.render(row) for row in ({"a": "1", "b": "x"}, {"a": "2"})] == ["1x", "2-"]


SOURCES = st.lists(
    st.sampled_from(
        ["{{", "}}", "{%", "%}", "a", "row['b']", "|upper", "|join", "~", "+", "*", "if ", "endif", "for x in ",
         "endfor", "else", "set x =", "'t'", "1", "[", "]", "(", ")", ".x", " is ", "defined", "not ", " ", "\n",
         "{#", "#}", "loop"]
    ),
    max_size=14,
).map("".join)  # fmt: skip


@given(SOURCES, st.booleans())
def test_whatever_is_written_is_a_template_or_an_error_that_can_be_shown(source: str, is_html: bool) -> None:
    try:
        template = compile_text(source, is_html=is_html, name="body")
        assert isinstance(template.render(dict.fromkeys(template.variables, "v")), str)
    except (ConfigurationError, RowTemplateError) as error:
        assert "'body'" in str(error)  # noqa: PT017 - either will do


def test_without_the_library_it_says_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['jinja2'] = None  # as if it were not installed\n"
        "from connector.mail.templates import compile_text\ncompile_text('x', is_html=True, name='x')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[mail]'" in ended.stderr.splitlines()[-1]
