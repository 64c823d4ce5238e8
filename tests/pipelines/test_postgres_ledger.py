"""A ledger in PostgreSQL serves every command. A plan and a reconciliation need only the right to read the ledger."""

from tests.databases import open_postgres
from tests.pipelines.conftest import Connector, read_rows
from tests.pipelines.planned import plan, read_outcomes, write_job
from tests.pipelines.reconciled import erase_oldest, find_differences, reconcile


def write_people(connector: Connector, person_count: int, *first_names: str) -> None:
    """Write this many people. The first people get the first_names in `first_names`, and the others are called Ann."""
    rows = [f"p{index}@x.org,{(first_names[index : index + 1] or ('Ann',))[0]}" for index in range(person_count)]
    connector.write_people("email,name", *rows)


def test_a_ledger_that_moved_to_postgresql_knows_the_created_subscribers(connector: Connector) -> None:
    with open_postgres() as database:
        write_job(connector)
        write_people(connector, 20)
        assert connector.sync().rows == {"read": 20, "created": 20}
        copy_result = connector.run_json("ledger", "copy", database.url)
        assert copy_result.exit_code == 0, copy_result.stderr
        assert (copy_result.report["entries"], copy_result.report["emails"]) == (20, 0)
        connector.environ["CONNECTOR_LEDGER"] = database.url
        write_people(connector, 21)
        assert connector.sync().rows == {"read": 21, "exists": 20, "created": 1}


def test_a_ledger_in_postgresql_serves_every_command(connector: Connector) -> None:
    with open_postgres() as database:
        connector.environ["CONNECTOR_LEDGER"] = database.url
        database.run("create role reader_of_ledgers login")
        write_job(connector)
        write_people(connector, 100)
        assert connector.sync().rows == {"read": 100, "created": 100}
        database.run("grant select on all tables in schema public to reader_of_ledgers")
        connector.environ["CONNECTOR_LEDGER"] = database.url.replace("postgres:@", "reader_of_ledgers:@")
        write_people(connector, 102)
        result = plan(connector, write_job(connector), "--rows", connector.folder / "rows.csv")
        result.expect(0, read=102, exists=100, created=2)
        assert list(read_outcomes(connector.folder / "rows.csv").values()) == ["exists"] * 100 + ["created"] * 2
        write_people(connector, 1, "Anna")
        plan(connector, write_job(connector), "--rows", connector.folder / "changed.csv")
        (changed_row,) = read_rows(connector.folder / "changed.csv")
        assert (changed_row["service"], changed_row["source"]) == ('{"first_name":"Ann"}', '{"first_name":"Anna"}')
        write_people(connector, 100)
        erase_oldest(connector.sandbox, 2)
        assert find_differences(reconcile(connector)) == {"missing": 2, "vanished": 2}
        connector.environ["CONNECTOR_LEDGER"] = database.url
        assert connector.run_json("forget", "p0@x.org").report["forgotten"] == 1
        assert connector.sync().rows == {"read": 100, "exists": 99, "created": 1}
