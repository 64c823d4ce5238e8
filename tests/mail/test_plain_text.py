"""The plain text that is made from the HTML of an email, with the links."""

from itertools import pairwise

import pytest
from hypothesis import example, given, strategies as st

from connector.mail.draft import convert_html_to_text


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
        ("<ul><li>one<li>two</ul>", "* one\n* two"),
        ("<table><tr><td>1</td><td>2</td></tr></table>", "1  2"),
        ("<title>T</title><style>p {}</style><script>1 < 2</script><!-- c -->x", "x"),
        ('<div style="display:none">hidden</div>shown', "shown"),
        ('<p style="margin:1.2.3px;padding-left:99999999px;margin-top:99999em">x', "x"),
        ("[not a link](really) [https://x.example]", "[not a link](really) [https://x.example]"),
        ("", ""),
        (" \n&nbsp;<p>\t</p><br>", ""),
        ("<img src=a.png><!-- only -->", ""),
        ('<?xml version="1.0" encoding="utf-8"?><html><body>x</body></html>', "x"),
        ("a\x00b\ud800c&#x1e;d", "a b cd"),
        ("<ol><li>a<li>b<ul><li>c</ul></ol>", "1. a\n2. b\n  * c"),
        ("<table><tr><th>Item<th>Qty<tr><td>Cup<td>2</table>", "Item  Qty\nCup  2"),
        ("<pre>  a\n    b</pre>c", "a\n    b\n\nc"),
        ("<![if !mso]>a<![endif]><!--[if mso]>b<![endif]-->c<![bogus[x]]>d", "acd"),
    ],
)  # fmt: skip
def test_the_text_is_the_visible_text_of_the_html(html: str, text: str) -> None:
    assert convert_html_to_text(html).lstrip() == text


def test_each_text_and_link_of_two_table_cells_is_in_the_plain_text_once() -> None:
    cell_html = '<td><a href="https://x.example/{0}">a{0}<br>b{0}</a></td>'
    text = convert_html_to_text(f"<table><tr>{cell_html.format(1)}{cell_html.format(2)}</tr></table>")
    for part in ("a1", "b1", "a2", "b2", "[https://x.example/1]", "[https://x.example/2]"):
        assert text.count(part) == 1


@pytest.mark.parametrize("depth", [10, 60, 190, 260, 3_000])
@pytest.mark.parametrize("tag", ["div", "span", "table><tr><td", "ul><li"])
def test_the_text_inside_deeply_nested_tags_is_kept(tag: str, depth: int) -> None:
    text = convert_html_to_text("<p>before</p>" + f"<{tag}>" * depth + "inside" + "</div>" * depth + "<p>after</p>")
    assert [word for word in text.split() if word.isalpha() and word != "o"] == ["before", "inside", "after"]


HTML_TAGS = st.sampled_from(
    ["p", "div", "a href='https://x.example/y'", "a href=", "b", "table", "tr", "td rowspan=9", "td", "th", "ul", "ol",
     "li", "br", "br/", "img alt='x'", "pre", "style", "script", "!--", "![CDATA[", "?xml version='1.0' encoding='x'?",
     "html", "body", "head", "title", "q", "p style='white-space:pre;margin:1em'", "li value=x", "svg",
     "template", "frameset"]
)  # fmt: skip
HTML_PIECES = (
    st.builds("<{}>".format, HTML_TAGS)
    | st.builds(lambda tag: f"</{tag.split()[0]}>", HTML_TAGS)
    | st.text(max_size=5)
    | st.sampled_from(
        ["&nbsp;", "&#0;", "&#xd800;", "&bogus", "\n", " ", "\r", "\t", "-->", "]]>", "\x0c", "\ufdd0", "\ufdd1"]
    )
)
HTML_TEXTS = st.lists(HTML_PIECES, max_size=25).map("".join)


@given(HTML_TEXTS | st.text())
@example("</table>")
@example("<td>")
@example("a\x85<br>\u2003<br>b")
def test_the_text_of_any_html_has_no_surplus_spaces_and_blank_lines(html: str) -> None:
    lines = convert_html_to_text(html).split("\n")
    assert [line for line in lines if line != line.rstrip()] == []
    assert all(line or next_line for line, next_line in pairwise(lines))
    assert lines == [""] or (lines[0] and lines[-1])
    assert not {"\x1e", "\x1f", "\t"} & set("".join(lines))


@given(st.lists(st.sampled_from(["alpha", "beta", "gamma"]), min_size=1), st.data())
def test_the_text_has_the_visible_words_in_their_order(words: list[str], data: st.DataObject) -> None:
    html_wrappers = st.sampled_from(
        ["<p>{}</p>", "<div>{}</div>", "<b>{}</b> ", "<a href='https://x'>{}</a> ", "{}<br>", "<h2>{}</h2>"]
    )
    text = convert_html_to_text("".join(data.draw(html_wrappers).format(word) for word in words))
    assert [word for word in text.split() if word != "[https://x]"] == words
