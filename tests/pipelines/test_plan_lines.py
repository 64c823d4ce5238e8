"""What the lines of a plan say of a changed row: the service's values and the source's, however long they are."""

from pathlib import Path

from tests.databases import open_postgres
from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.planned import JOB, plan, write_job

BACKSLASH = chr(92)


def test_a_plan_by_a_ledger_in_postgresql_compares_rows_with_the_service(connector: Connector, tmp_path: Path) -> None:
    with open_postgres() as server:
        connector.environ["CONNECTOR_LEDGER"] = server.url
        write_csv(tmp_path / "people.csv", "email,name", "ann@x.org,Ann")
        connector.run_json("sync", write_job(tmp_path))
        (as_before,) = plan(connector, write_job(tmp_path)).report["planned_rows"]
        other = JOB.replace("first_name: name", "last_name: name")
        (mapped_anew,) = plan(connector, write_job(tmp_path, text=other)).report["planned_rows"]
        write_csv(tmp_path / "people.csv", "email,name", "ann@x.org,Anna")
        (changed,) = plan(connector, write_job(tmp_path)).report["planned_rows"]
    assert as_before["_outcome"] == "exists"
    assert (mapped_anew["fields"], mapped_anew["source"]) == (["last_name"], {"last_name": "Ann"})
    assert (changed["fields"], changed["service"], changed["source"]) == (
        ["first_name"],
        {"first_name": "Ann"},
        {"first_name": "Anna"},
    )


def test_long_values_are_told_whole(connector: Connector, tmp_path: Path) -> None:
    """Longer in all than Python's csv module reads of a cell, unless it is told otherwise."""
    names = ("first_name", "last_name", "phone", "custom_field1", "custom_field2", "custom_field3", "address_city")
    fields = f"email: email, {', '.join(f'{name}: {name}' for name in names)}"
    job = write_job(tmp_path, text=JOB.replace("email: email, first_name: name", fields))

    def write(letter: str) -> dict[str, str]:
        values = dict.fromkeys(names, f"{letter}{BACKSLASH * 9_998}{letter}")
        write_csv(tmp_path / "people.csv", f"email,{','.join(names)}", f"ann@x.org,{','.join(values.values())}")
        return values

    before = write("a")
    assert connector.run_json("sync", job).rows == {"read": 1, "created": 1}
    now = write("b")
    ended = plan(connector, job, "--rows", tmp_path / "rows.csv")
    assert (ended.code, ended.rows) == (0, {"read": 1, "changed": 1})
    (row,) = ended.report["planned_rows"]
    assert (row["service"], row["source"]) == (before, now)
    assert (tmp_path / "rows.csv").stat().st_size > 250_000
