"""The plain text of HTML: what is read there, links and all, for any HTML."""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connector.mail.plain_text import make_plain_text


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<h1>Hello</h1><p>Ann &amp; Bob&nbsp; </p><p>bye</p>", "Hello\n\nAnn & Bob\n\nbye"),
        ("a<br>b<br><br><br><br>c", "a\nb\n\nc"),
        ('See <a href="https://x.example/a?b=1&amp;c=2">our  shop</a>.', "See our shop [https://x.example/a?b=1&c=2]."),
        ('<a href="https://x.example/">https://x.example</a>', "https://x.example"),
        ('<a href="mailto:a@x.example">a@x.example</a>', "a@x.example"),
        ('<a href="https://x.example"></a>left <a href="#top">top</a><a name=x>q</a>', "left topq"),
        ('<a href="https://x.example"><img src=logo.png alt="Shop"></a>', "Shop [https://x.example]"),
        ('<img src="a.png"><img src="b.png" alt="A cat">', "A cat"),
        ("<ul><li>one<li>two</ul>", "* one\n  * two"),
        ("<table><tr><td>1</td><td>2</td></tr></table>", "1  2"),
        ("<title>T</title><style>p {}</style><script>1 < 2</script><!-- c -->x", "x"),
        ('<div style="display:none">hidden</div>shown', "shown"),
        ('<p style="margin:1.2.3px;padding-left:99999999px;margin-top:99999em">x', "x"),
        ("[not a link](really) [https://x.example]", "[not a link](really) [https://x.example]"),
        ("", ""),
        (" \n&nbsp;<p>\t</p><br>", ""),
        ("<img src=a.png><!-- only -->", ""),
        ('<?xml version="1.0" encoding="utf-8"?><html><body>x</body></html>', "x"),
        ("a\x00b\ud800c\ufdd0d", "a b cd"),
    ],
)  # fmt: skip
def test_the_text_is_what_the_page_shows(html: str, text: str) -> None:
    assert make_plain_text(html).lstrip() == text


def test_links_of_neighbouring_columns_are_all_told() -> None:
    cell = '<td><a href="https://x.example/{0}">a{0}<br>b{0}</a></td>'
    text = make_plain_text(f"<table><tr>{cell.format(1)}{cell.format(2)}</tr></table>")
    for part in ("a1", "b1", "a2", "b2", "[https://x.example/1]", "[https://x.example/2]"):
        assert text.count(part) == 1


@pytest.mark.parametrize("depth", [10, 60, 190, 260, 3_000])
@pytest.mark.parametrize("tag", ["div", "span", "table><tr><td", "ul><li"])
def test_nothing_is_lost_however_deep_it_is(tag: str, depth: int) -> None:
    text = make_plain_text("<p>before</p>" + f"<{tag}>" * depth + "inside" + "</div>" * depth + "<p>after</p>")
    assert [word for word in text.split() if word.isalpha() and word != "o"] == ["before", "inside", "after"]


TAGS = st.sampled_from(
    ["p", "div", "a href='https://x.example/y'", "a href=", "b", "table", "tr", "td rowspan=9", "td", "th", "ul", "ol",
     "li", "br", "br/", "img alt='x'", "pre", "style", "script", "!--", "![CDATA[", "?xml version='1.0' encoding='x'?",
     "html", "body", "head", "title", "q", "p style='white-space:pre;margin:1em'", "li value=x", "svg",
     "template", "frameset"]
)  # fmt: skip
PIECES = (
    st.builds("<{}>".format, TAGS)
    | st.builds(lambda tag: f"</{tag.split()[0]}>", TAGS)
    | st.text(max_size=5)
    | st.sampled_from(
        ["&nbsp;", "&#0;", "&#xd800;", "&bogus", "\n", " ", "\r", "\t", "-->", "]]>", "\x0c", "\ufdd0", "\ufdd1"]
    )
)
PAGES = st.lists(PIECES, max_size=25).map("".join)


@given(PAGES | st.text())
@example("</table>")
@example("<td>")
def test_any_html_has_a_text_and_it_is_tidy(html: str) -> None:
    lines = make_plain_text(html).split("\n")
    assert [line for line in lines if line != line.rstrip()] == []
    assert all(first or second for first, second in pairwise(lines))
    assert lines == [""] or (lines[0] and lines[-1])
    assert not {"\ufdd0", "\ufdd1", "\ufdd2"} & set("".join(lines))


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma"]), min_size=1), st.data())
def test_every_word_that_is_shown_is_told_in_its_order(words: list[str], data: st.DataObject) -> None:
    wraps = st.sampled_from(
        ["<p>{}</p>", "<div>{}</div>", "<b>{}</b> ", "<a href='https://x'>{}</a> ", "{}<br>", "<h2>{}</h2>"]
    )
    text = make_plain_text("".join(data.draw(wraps).format(word) for word in words))
    assert [word for word in text.split() if word != "[https://x]"] == words


def test_without_the_library_it_says_what_to_install() -> None:
    script = (
        "import sys\nsys.modules['inscriptis'] = None  # as if it were not installed\n"
        "from connector.mail.plain_text import make_plain_text\nmake_plain_text('<p>x')"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "pip install 'subscriber-connector[mail]'" in ended.stderr.splitlines()[-1]
