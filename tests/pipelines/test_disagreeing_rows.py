"""Rows of one subscriber that disagree: the run uses the inactive row, and the report names the fields that differ."""

from pathlib import Path

from connector.shards import Shard
from connector.sources.files import open_file
from connector.spooled_rows import SpooledRows
from connector.subscribers.preparation import prepare_chunks
from connector.subscribers.rules import ColumnRule, FieldMapping, ValidationRules
from tests.pipelines.conftest import Connector, write_csv
from tests.subscribers.test_rows import TODAY

FIELDS = "email: email, first_name: name, address_country: country, is_active: active"
ROWS = ("ann@x.org,Ann,DE,yes", "bob@x.org,Bob,DE,yes")


def write_job(connector: Connector, *job_lines: str, **job_values: str) -> Path:
    return connector.write_job(*job_lines, **{"base": "id: 7", "fields": FIELDS, **job_values})


def write_people(connector: Connector, *rows: str, name: str = "people.csv") -> None:
    connector.write_csv(name, "email,name,country,active", *rows)


def test_an_inactive_row_has_precedence_over_the_active_rows_of_its_subscriber(connector: Connector) -> None:
    write_people(connector, *ROWS, "ANN@x.org,A,DE,no", "ann@x.org,B,DE,no")
    write_job(connector)
    plan_result = connector.run_json("plan", "job.yaml")
    plan_result.expect(0, read=4, duplicate=2, created=2)
    result = connector.sync()
    result.expect(0, read=4, duplicate=2, created=2)
    assert connector.read_is_active_by_email() == {"ANN@x.org": False, "bob@x.org": True}
    expected_text = "1 subscriber has rows that disagree on is_active: the inactive row is used (row 4)"
    assert result.find_messages("disagree") == plan_result.find_messages("disagree") == [expected_text]
    connector.sync().expect(0, read=4, duplicate=2, exists=2)


def test_an_inactive_row_has_precedence_even_if_the_option_limit_leaves_out_the_row(connector: Connector) -> None:
    write_people(connector, *(f"p{index}@x.org,Pat,DE,yes" for index in range(8)), name="part0.csv")
    write_people(connector, "p8@x.org,Pat,DE,yes", name="part1.csv")
    write_people(connector, "p5@x.org,Pat,DE,no", "P8@X.org,Pat,DE,no", "p7@x.org,Paul,FR,yes", name="part2.csv")
    write_job(connector, "guard: {max_creates: 10}", source="file: {path: 'part*.csv'}")
    for options, created_count in ((["--limit", "8"], 7), (["--limit", "2"], 0)):
        result = connector.sync("job.yaml", *options)
        assert result.rows.get("created", 0) == created_count, result.stderr
        assert result.rows["read"] == int(options[1])
        assert result.find_messages("All 12 rows were read, because a row beyond --limit may show")
    assert "p5@x.org" not in connector.list_created_subscribers()  # a row that --limit leaves out is inactive
    assert connector.run_json("validate", "job.yaml").rows == {"read": 12, "valid": 9, "duplicate": 3}
    unlimited_result = connector.sync()
    assert unlimited_result.rows == {"read": 12, "exists": 7, "created": 2, "duplicate": 3}, unlimited_result.stderr
    assert [email for email, is_active in connector.read_is_active_by_email().items() if not is_active] == [
        "p5@x.org",
        "P8@X.org",
    ]
    (message,) = unlimited_result.find_messages("disagree on is_active")
    assert f"row 2 of {connector.folder}/part2.csv" in message


def test_the_report_names_the_fields_that_differ(connector: Connector) -> None:
    write_people(connector, *ROWS, "ann@x.org,Anna,FR,yes", "BOB@x.org,Bob,DE,yes", "ann@x.org,Ann,FR,yes")
    write_job(connector)
    expected_causes = [("first_name, address_country", 1), ("address_country", 1)]
    for command in ("plan", "sync"):
        result = connector.run_json(command, "job.yaml")
        causes = [(cause["message"].partition("differs in ")[2], cause["rows"]) for cause in result.report["causes"]]
        assert sorted(causes) == sorted(expected_causes)
        assert {cause["code"] for cause in result.report["causes"]} == {"differs"}
        assert result.rows == {"read": 5, "created": 2, "duplicate": 3}


def test_an_invalid_inactive_row_prevents_the_create_of_its_subscriber(connector: Connector) -> None:
    write_people(
        connector,
        *ROWS,
        "ann@x.org,Ann,Narnia,no",
        "eve@x.org,Eve,Narnia,no",
        "eve@x.org,Eve,DE,yes",
        "cem@x.org,Cem,Narnia,no",
        "cem@x.org,Cem,DE,yes",
        "cem@x.org,Cem,DE,no",
        "dan@x.org,Dan,DE,perhaps",
        "dan@x.org,Dan,DE,yes",
        "bob@x.org,Bob,Narnia,yes",  # no row of bob says inactive, so his first row is created
        "bob@x.org,Bob,DE,",
    )
    write_job(connector)
    result = connector.sync().expect(1, read=12, invalid=6, duplicate=4, created=2)
    assert connector.read_is_active_by_email() == {"bob@x.org": True, "cem@x.org": False}
    (message,) = result.find_messages("an invalid row that says inactive")
    assert message.startswith("3 subscribers have an invalid row that says inactive, or that cannot be read (rows 4, 5")
    causes = [cause for cause in result.report["causes"] if cause["outcome"] == "duplicate"]
    assert sorted((cause["code"], cause["rows"]) for cause in causes) == [("overruled", 1), ("overruled", 3)]


UNREADABLE_ROWS = (
    "{email},Ann,DE,paused",
    "{email},Ann,no",  # too few cells
    "{email},Lee, Ann,DE,no",  # too many cells
    "Dr., {email},Ann,DE,no",  # the comma after Dr. makes one cell too many
    '"Ann "X" Lee",{email},DE,no',  # a stray quote
    "{email},Ann,D\xff,no",  # an undecodable byte
    "{email},Ann,Narnia,paused",  # a country that does not exist
)


def test_an_unreadable_row_prevents_the_create_of_its_subscriber_as_active(connector: Connector) -> None:
    rows = ["bob@x.org,Bob,DE,yes"]
    for index, template in enumerate(UNREADABLE_ROWS):
        row_pair = [f"p{index}@x.org,Ann,DE,yes", template.format(email=f"P{index}@X.org")]
        rows += row_pair if index % 2 == 0 else reversed(row_pair)
    text = "\n".join(["email,name,country,active", *rows, ""])
    (connector.folder / "people.csv").write_bytes(text.encode("latin-1"))
    result = connector.sync(write_job(connector))
    assert result.rows == {"read": 15, "invalid": 7, "duplicate": 7, "created": 1}, result.stderr
    assert (result.exit_code, connector.read_is_active_by_email()) == (1, {"bob@x.org": True})
    assert result.find_messages("that cannot be read (rows 4, 5, 8, 9, 12, 13, 16)")
    causes = [cause for cause in result.report["causes"] if cause["outcome"] == "duplicate"]
    assert [(cause["code"], cause["rows"]) for cause in causes] == [("overruled", 7)]


def test_an_invalid_row_with_an_unknown_base_prevents_each_create_of_its_identity(connector: Connector) -> None:
    rows = ("A1,7,yes", "A1,,no", "B2,7,yes", "C3;9,no", "C3,7,yes")
    connector.write_people("id,list,active", *rows)
    fields, subscriber = "client_user_id: id, is_active: active", "identity: client_user_id"
    result = connector.sync(write_job(connector, base="column: list", fields=fields, subscriber=subscriber))
    result.expect_rows(read=5, invalid=2, duplicate=2, created=1)


def test_a_malformed_row_prevents_the_create_in_every_shard(tmp_path: Path) -> None:
    rows = [row for index in range(20) for row in (f"p{index}@x.org,Pat,DE,yes", f"p{index}@x.org,no")]
    path = write_csv(tmp_path / "people.csv", "email,name,country,active", *rows)
    mapping = FieldMapping({"email": ColumnRule(column="email"), "is_active": ColumnRule(column="active")})
    planned_row_count = 0
    for index in (1, 2):
        with open_file(path) as source, SpooledRows(source, "email") as source_rows:
            rules, shard = ValidationRules(), Shard(index, 2)
            for _ in source_rows.spool(
                prepare_chunks(source, mapping, rules, today=TODAY, row_limit=None, shard=shard)
            ):
                pass
            for prepared_chunk in source_rows.read():
                planned_row_count += len(prepared_chunk.planned_chunk.subscribers)
    assert planned_row_count == 0


def test_an_inactive_suppressed_row_prevents_the_create_of_its_subscriber(connector: Connector) -> None:
    connector.write_people("id,email,active", "1,ann@x.org,yes", "1,gone@x.org,no", "2,bob@x.org,yes")
    connector.write_csv("gone.csv", "address", "gone@x.org")
    suppress_line = "suppress: {file: {path: gone.csv, column: address}, field: email}"
    fields = "client_user_id: id, email: email, is_active: active"
    write_job(connector, suppress_line, fields=fields, subscriber="identity: client_user_id")
    connector.sync().expect_rows(read=3, suppressed=1, duplicate=1, created=1)
    assert list(connector.list_created_subscribers()) == ["bob@x.org"]


def test_an_inactive_row_has_no_precedence_over_a_row_for_another_base(connector: Connector) -> None:
    rows = ("ann@x.org,7,yes", "ann@x.org,9,no", "ann@x.org,9,yes", "bob@x.org,7,yes", "bob@x.org,7,no")
    connector.write_people("email,list,active", *rows)
    write_job(connector, base="column: list", fields="email: email, is_active: active")
    result = connector.sync()
    assert result.rows == {"read": 5, "created": 3, "duplicate": 2}
    subscribers = [event["subscriber"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created"]
    values = [(subscriber["Base"]["Id"], subscriber["Email"], subscriber["IsActive"]) for subscriber in subscribers]
    assert sorted(values) == [(7, "ann@x.org", True), (7, "bob@x.org", False), (9, "ann@x.org", False)]
    (message,) = result.find_messages("disagree")
    assert message == "2 subscribers have rows that disagree on is_active: the inactive row is used (rows 3, 6)"


def test_a_run_with_a_limit_reads_no_further_row_if_the_field_is_active_has_no_column(connector: Connector) -> None:
    write_people(connector, *(f"p{index}@x.org,Pat,DE,yes" for index in range(5)), name="part0.csv")
    write_people(connector, '"never closed', *ROWS, name="part1.csv")
    options = ("--active", "--map", "is_active=", "--base-name", "News", "--quiet-period", "100ms")
    arguments = ("import", connector.folder / "part*.csv", *options)
    refused_result = connector.run_json(*arguments)
    assert refused_result.exit_code == 2, refused_result.stderr
    result = connector.run_json(*arguments, "--limit", "3")
    assert result.rows == {"read": 3, "created": 3}, result.stderr
    assert result.find_messages("rows were read") == []
