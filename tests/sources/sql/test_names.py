"""The `:names` of a query, and what only looks like one."""

import pytest

from connector.sources import CursorKind, open_incremental
from connector.sources.cursor import escape_others, find_names, mark_names
from tests.databases import OPEN, read_all

EVERYWHERE = [
    ("a >= :cursor", {"cursor"}),
    ("a >= :cursor and b = :b", {"cursor", "b"}),
    ("a::date > :cursor::date", {"cursor"}),
    ("a = ':cursor'", set()),
    ("a = 'it''s :cursor' and b >= :b", {"b"}),
    ('":cursor" >= :b', {"b"}),
    ("`:cursor` >= :b", {"b"}),
    ("a >= :b -- :cursor", {"b"}),
    ("-- it's\na >= :b", {"b"}),
    ("a >= :b /* :cursor\n:cursor */", {"b"}),
    ("a = '12:30' and b = :b", {"b"}),
    ("a = 'never closed and b = :b", {"b"}),
    ("a[1:2] = :b", {"b"}),
]
OF_SOME = [
    ("postgresql", "a = $x$ it's :cursor $x$ and b = :b", {"b"}),
    ("postgresql", "a = $$ :cursor $$", set()),
    ("postgresql", "a = 'C:\\' and b = :b and c = 'x'", {"b"}),
    ("postgresql", "a #> '{b}' = :b", {"b"}),
    ("mysql", r"a = 'it\'s' and b >= :b and c = 'it\'s'", {"b"}),
    ("mariadb", "a >= :b # it's :cursor", {"b"}),
    ("mariadb", "a = 5--:b", {"b"}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("database", "query", "names"),
    [*((database, *case) for database in ("sqlite", "mariadb") for case in EVERYWHERE), *OF_SOME],
)
def test_names_are_those_of_the_statement(database: str, query: str, names: set[str]) -> None:
    assert find_names(query, database) == names
    marked = mark_names(query, names, "$", database)
    assert marked.count("$") == query.count("$") + len(names)
    assert mark_names(query, set(), "$", database) == query
    assert escape_others(query, names, database).replace("\\:", ":") == query


@pytest.mark.parametrize("kind", sorted(OPEN))
def test_a_name_in_a_text_or_a_comment_stays_what_it_is(kind: str) -> None:
    cast = ":cursor::integer" if kind in ("postgresql", "duckdb") else ":cursor"
    query = f"select id, ':cursor' as t from people where id >= {cast} /* not :cursor */ -- nor it's :cursor"
    with OPEN[kind]() as database:
        database.run("create table people (id integer)", "insert into people values (1), (2), (3)")
        with open_incremental(database.url, query=query, column="id", kind=CursorKind.INTEGER) as source:
            source.begin_at(2)
            rows = read_all(source)
    assert sorted(row["id"] or "" for row in rows) == ["2", "3"]
    assert {row["t"] for row in rows} == {":cursor"}
