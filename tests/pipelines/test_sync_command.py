"""`connector sync JOB…` loads the source of each job."""

from tests.pipelines.conftest import Connector

SOURCE = "sql: {url: 'sqlite:///crm.db', query: select * from customers where wanted = 1 order by mail}"
FIELDS = (
    "email: mail, is_active: {value: true}, gender: {column: sex, values: {F: female, M: male}}, address_zip: zip, "
    "tags: {column: segments, split: '|'}, birthday: {column: dob, format: '%d/%m/%Y'}"
)


def test_a_database_is_synced_by_its_job(connector: Connector) -> None:
    rows: list[tuple[object, ...]] = [
        ("ann@x.org", "F", "a|b", "29/02/1980", 1012, 1),
        ("bob@x.org", None, None, None, None, 1),
        ("bad@x.org", "?", "", "31/02/1980", 1, 1),
        ("out@x.org", "M", "", "", 1, 0),
    ]
    connector.crm.run("CREATE TABLE customers (mail, sex, segments, dob, zip, wanted)")
    connector.crm.insert_rows("customers", rows)
    connector.write_job(source=SOURCE, fields=FIELDS)
    result = connector.sync().expect(1, read=3, invalid=1, created=2)
    assert result.report["command"] == "sync"
    ann = connector.list_created_subscribers()["ann@x.org"]
    assert (ann["Gender"], ann["Tags"], ann["Birthday"], ann["Address"]["Zip"], ann["IsActive"]) == (
        "female", ["a", "b"], "1980-02-29", "1012", True,
    )  # fmt: skip
    connector.sync().expect_rows(read=3, invalid=1, exists=2)
