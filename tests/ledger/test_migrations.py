"""Older ledgers are brought forward: what comes out is a ledger like a new one, and nobody in it is lost."""

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from connector.errors import LedgerError
from connector.ledger import (
    SentFields,
    keep_mapping,
    migrations,
    move_cursor,
    open_ledger,
    read_cursor,
)
from connector.ledger.schema import SCHEMA_VERSION
from connector.states import State
from tests.ledger.moves import INTENT, add_base, bring_to, read_entry, read_state
from tests.ledger.old_ledgers import FIELDS, PERSON, SOURCE, BrokenError, build_old, heard, read_rows

CHECK = re.compile(r"CONSTRAINT (\w+) CHECK \((.*)\)(?=,|$|\) WITHOUT)", re.MULTILINE)


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A ledger of version 1, with entries in every state."""
    return build_old(tmp_path, "version_1.sql")


def describe(path: Path) -> dict[str, Any]:
    """Everything that the schema says, whichever way it was written: columns, keys, CHECKs, kind of table."""
    with closing(sqlite3.connect(path)) as connection:

        def ask(pragma: str, table: str) -> list[tuple[Any, ...]]:
            return sorted(connection.execute(f"SELECT * FROM pragma_{pragma}(?)", (table,)).fetchall(), key=repr)

        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall())
        without_rowid = dict(connection.execute("SELECT name, wr FROM pragma_table_list WHERE schema = 'main'"))
        return {
            name: {
                "columns": ask("table_xinfo", name),
                "foreign keys": sorted(
                    key[2:] for key in ask("foreign_key_list", name)
                ),  # by number they are in any order
                "unique": [index[2:] for index in ask("index_list", name)],
                "checks": dict(CHECK.findall(sql)),
                "number of checks": sql.count("CHECK"),
                "without rowid": without_rowid[name],
            }
            for name, sql in tables.items()
        }


def test_there_is_a_step_from_every_older_version() -> None:
    assert sorted(migrations.STEPS) == list(range(1, SCHEMA_VERSION))


@pytest.mark.parametrize("sample", ["version_1.sql", "version_2.sql", "version_3.sql"])
def test_a_migrated_ledger_is_built_like_a_new_one(tmp_path: Path, sample: str) -> None:
    old, new = build_old(tmp_path, sample), tmp_path / "new.db"
    for path in (old, new):
        with open_ledger(f"sqlite:///{path}"):
            pass
    assert describe(old) == describe(new)
    assert all(table["number of checks"] == len(table["checks"]) for table in describe(new).values())
    assert len(describe(new)["entry"]["checks"]) == 8
    assert read_rows(old, "name, value", "meta") == read_rows(new, "name, value", "meta")


def test_nobody_and_nothing_is_lost_by_a_migration(old: Path) -> None:
    before = {table: read_rows(old, table=table) for table in ("entry", "base")}
    runs = read_rows(old, table="run")
    with open_ledger(f"sqlite:///{old}"):
        pass
    assert {table: read_rows(old, table=table) for table in ("entry", "base")} == before
    assert [row[:-4] for row in read_rows(old, table="run")] == runs
    assert read_rows(old, "suppressed_by, is_holding, rows_read, for_account", "run") == [(None, None, None, None)] * 2
    assert len(before["entry"]) == 10


def test_everybody_in_a_migrated_ledger_can_go_on(old: Path) -> None:
    with open_ledger(f"sqlite:///{old}") as ledger:
        with ledger.transaction():
            assert ledger.mark_died() == 2
        news, shop = add_base(ledger, 7), add_base(ledger, None, "Shop")
    with open_ledger(f"sqlite:///{old}") as ledger:
        with ledger.transaction() as connection:
            ledger.mark_found(news, State.UNKNOWN, [(PERSON[5], 5)])
            ledger.mark_dropped(news, [PERSON[6]])
            ledger.mark_forgotten(news, State.REJECTED, [PERSON[7]])
            ledger.mark_refused(news, State.UNKNOWN, [(PERSON[8], 422, "no")])
            ledger.mark_doubted(news, [PERSON[8]])
            assert [each.field for each in ledger.find_unfinished(shop, State.UNKNOWN)] == ["client_user_id"] * 2
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
        assert read_state(ledger, news, PERSON[8]) is State.UNKNOWN
        assert read_state(ledger, news, PERSON[1]) is State.CONFIRMED


def test_what_version_1_rejected_has_no_body_and_is_not_doubted(old: Path) -> None:
    with open_ledger(f"sqlite:///{old}") as ledger:
        news = add_base(ledger, 7)
        entry = read_entry(ledger, news, PERSON[7])
        with ledger.transaction():
            assert ledger.find_unfinished(news, State.REJECTED) == []
    assert entry is not None
    assert (entry.state, entry.status, entry.message) == (
        State.REJECTED, 422, 'Email is not valid: "x"\nsecond line'
    )  # fmt: skip


def test_all_that_version_2_knew_is_there_today(tmp_path: Path) -> None:
    old = build_old(tmp_path, "version_2.sql")
    before = {table: read_rows(old, table=table) for table in ("entry", "base", "run", "refusal")}
    assert [len(rows) for rows in before.values()] == [10, 2, 2, 2]
    with open_ledger(f"sqlite:///{old}") as ledger, ledger.transaction() as connection:
        assert read_cursor(connection, "crm-nightly", SOURCE) is None
        move_cursor(connection, "crm-nightly", SOURCE, "7", 1)
    before["run"] = [(*row, None, None) for row in before["run"]]  # how many rows they read, and for whom, nobody noted
    assert {table: read_rows(old, table=table) for table in before} == before
    assert read_rows(old, "job, value, run_key", "source_cursor") == [("crm-nightly", "7", 1)]


def test_all_that_version_3_knew_is_there_in_version_4_and_no_field_of_what_was_sent(tmp_path: Path) -> None:
    old = build_old(tmp_path, "version_3.sql")
    before = {table: read_rows(old, table=table) for table in ("entry", "base", "run", "refusal", "source_cursor")}
    assert [len(rows) for rows in before.values()] == [10, 2, 2, 2, 1]
    with open_ledger(f"sqlite:///{old}") as ledger:
        news = add_base(ledger, 7)
        with ledger.transaction() as connection:
            assert ledger.find_sent_fields(news, PERSON) == {}
            key = keep_mapping(connection, FIELDS).key
            ledger.record_fingerprints(news, [(PERSON[9], b"f" * 8, key, b"12")])
            assert ledger.find_sent_fields(news, PERSON) == {PERSON[9]: SentFields(FIELDS, b"12")}
    before["run"] = [(*row, None, None) for row in before["run"]]
    assert {table: read_rows(old, table=table) for table in ("base", "run", "refusal", "source_cursor")} == {
        table: rows for table, rows in before.items() if table != "entry"
    }
    assert [row for row in read_rows(old) if row[1] != PERSON[9]] == [
        row for row in before["entry"] if row[1] != PERSON[9]
    ]


def test_a_migrated_ledger_is_not_migrated_again(old: Path) -> None:
    statements: list[list[str]] = [[], []]
    for heard_of in statements:
        with heard(heard_of.append), open_ledger(f"sqlite:///{old}"):
            pass
    first, second = ([each.split()[0] for each in heard_of] for heard_of in statements)
    assert {"ALTER", "CREATE", "DROP"} <= set(first)
    assert {"ALTER", "CREATE", "DROP"}.isdisjoint(second)


@pytest.mark.parametrize("last", range(1, 13))  # eleven statements, and the one that writes the version
def test_a_migration_that_breaks_leaves_the_old_ledger_whole(old: Path, last: int) -> None:
    before = describe(old), read_rows(old)
    made: list[str] = []

    def break_in_the_middle(statement: str) -> None:
        if made or statement.startswith("ALTER TABLE run"):
            made.append(statement)
        if len(made) == last:
            raise BrokenError

    with heard(break_in_the_middle), pytest.raises(BrokenError), open_ledger(f"sqlite:///{old}"):
        pass
    assert (describe(old), read_rows(old)) == before
    assert ("schema_version", "1") in read_rows(old, "name, value", "meta")


@pytest.mark.parametrize("last", ["CREATE TABLE entry_2", "DROP TABLE entry", "ALTER TABLE entry ADD", "UPDATE meta"])
def test_a_migration_that_is_killed_leaves_the_old_ledger_whole_and_is_made_the_next_time(old: Path, last: str) -> None:
    before = describe(old), read_rows(old)
    killed = subprocess.run([sys.executable, "-c", _KILLED, str(old), last], check=False)
    assert killed.returncode == -9
    assert (describe(old), read_rows(old)) == before
    with open_ledger(f"sqlite:///{old}") as ledger:
        assert read_state(ledger, add_base(ledger, 7), PERSON[1]) is State.CONFIRMED
    assert read_rows(old) == before[1]


_KILLED = """
import os, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from connector.ledger import open_ledger

@event.listens_for(Engine, "after_cursor_execute")
def die(connection, cursor, statement, *_):
    if statement.strip().startswith(sys.argv[2]):
        os.kill(os.getpid(), 9)

with open_ledger("sqlite:///" + sys.argv[1]):
    pass
"""


@pytest.mark.parametrize("version", ["99", "5", "0", "", "two", "²"])
def test_a_ledger_of_a_version_that_is_not_known_is_left_alone(ledger_url: str, version: str) -> None:
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE meta SET value = '{version}' WHERE name = 'schema_version'")
    with pytest.raises(LedgerError, match=f"schema_version {version or 'none'}"), open_ledger(ledger_url):
        pass


def test_a_ledger_of_another_identity_rule_is_left_alone(ledger_url: str) -> None:
    with open_ledger(ledger_url) as ledger, ledger.transaction() as connection:
        connection.exec_driver_sql("UPDATE meta SET value = '2' WHERE name = 'identity_rule'")
    with pytest.raises(LedgerError, match="identity_rule 2"), open_ledger(ledger_url):
        pass


def test_a_migrated_ledger_keeps_the_body_of_whom_it_rejects_from_now_on(old: Path) -> None:
    with open_ledger(f"sqlite:///{old}") as ledger:
        base = add_base(ledger, 9)
        bring_to(ledger, base, State.REJECTED)
        with ledger.transaction():
            (entry,) = ledger.find_unfinished(base, State.REJECTED)
    assert entry.body == INTENT.body
