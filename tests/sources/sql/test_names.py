"""The `:cursor` of a query, and what only looks like one."""

import pytest

from connector.sources import CursorKind, open_incremental, uses_cursor
from tests.databases import OPEN, read_all

EVERYWHERE = [
    ("a >= :cursor", True),
    ("a::date > :cursor::date", True),
    ("a = ':cursor'", False),
    ("a = 'it''s :cursor' and b >= :b", False),
    ('":cursor" >= :b', False),
    ("`:cursor` >= :b", False),
    ("a >= :b -- :cursor", False),
    ("-- it's\na >= :cursor", True),
    ("a >= :b /* :cursor\n:cursor */", False),
    ("a = '12:30' and b = :cursor", True),
    ("a = 'never closed and b = :cursor", True),
    ("a = :cursors or a[1:cursor] = ::cursor", False),
]
OF_SOME = [
    ("postgresql", "a = $x$ it's :cursor $x$ and b = :b", False),
    ("postgresql", "a = $$ :cursor $$", False),
    ("postgresql", "a = 'C:\\' and b = :cursor and c = 'x'", True),
    ("postgresql", "a #> '{b}' = :cursor", True),
    ("mysql", r"a = 'it\'s' and b >= :cursor and c = 'it\'s'", True),
    ("mariadb", "a >= :b # it's :cursor", False),
    ("mariadb", "a = 5--:cursor", True),
]  # fmt: skip


@pytest.mark.parametrize(
    ("database", "query", "is_there"),
    [*((database, *case) for database in ("sqlite", "mariadb") for case in EVERYWHERE), *OF_SOME],
)
def test_a_cursor_is_looked_for_in_the_statement_alone(database: str, query: str, is_there: bool) -> None:
    assert uses_cursor(query, database) is is_there


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_a_name_in_a_text_or_a_comment_stays_what_it_is(kind: str) -> None:
    cast = ":cursor::integer" if kind in ("postgresql", "duckdb") else ":cursor"
    query = (
        f"select id, ':cursor 12:30 :draft' as t from people where id >= {cast} /* not :cursor */ -- nor it's :cursor"
    )
    with OPEN[kind]() as database:
        database.run("create table people (id integer)", "insert into people values (1), (2), (3)")
        with open_incremental(database.url, query=query, column="id", kind=CursorKind.INTEGER) as source:
            source.begin_at(2)
            rows = read_all(source)
    assert sorted(row["id"] or "" for row in rows) == ["2", "3"]
    assert {row["t"] for row in rows} == {":cursor 12:30 :draft"}
