"""`validate` and `import` report each kind of value that they omit or change."""

import pytest

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector
from tests.sources.files.people import build_xlsx
from tests.sources.files.reading import write_file

WHOLE_NAMES = ("email,Name", 'ann@x.org,"Lee, Dr. Ann"', "bob@x.org,Bob van der Ray")
CASES: list[tuple[tuple[str, ...], tuple[str, ...], str, int]] = [
    # the lines of a file, the options, a part of a message, and the number of such messages
    (
        ("Birthday,E-mail 1 - Value", " --05-12,ann@x.org", "--0512,cem@x.org", "05-12,dan@x.org", "--05-12,nobody"),
        (),
        "2 birthdays without a year",
        1,
    ),
    (("birthday,email", "--05-12,ann@x.org", "1990-05-12,bob@x.org"), ("--limit", "1"), "1 birthday without", 1),
    (("birthday,email", "1990-05-12,bob@x.org", "--05-12,ann@x.org"), ("--limit", "1"), "birthday without", 0),
    (WHOLE_NAMES, (), "the column Name seems to have whole names, which are sent unsplit as first_name", 1),
    (WHOLE_NAMES, ("--map", "first_name=Name"), "whole names", 0),
    (("email,Vorname,Name", "ann@x.org,Ann,Lee"), (), "the column Name seems to have names, and is not sent", 1),
    (
        ("email,first_name,last_name", "ann@x.org,NULL,None", "bob@x.org,Bob,Null", "NULL,x,y"),
        (),
        "for a missing value: email NULL (1), first_name NULL (1), last_name None (1). If a word is a real value",
        1,
    ),
    (
        ("email,first_name,last_name", "ann@x.org,Ann &amp; Bo,M&uuml;ller", "eve@x.org,Eve,O&#39;Brien"),
        (),
        "3 cells with HTML codes (&amp;) or backslashes before quotes are sent",
        1,
    ),
]


@pytest.mark.parametrize(("lines", "options", "expected_text", "message_count"), CASES)
def test_a_validation_has_a_message_about_each_kind_of_unusual_cell(
    connector: Connector, lines: tuple[str, ...], options: tuple[str, ...], expected_text: str, message_count: int
) -> None:
    result = connector.run_json("validate", connector.write_people(*lines), *options)
    assert len(result.find_messages(expected_text)) == message_count, result.report["messages"]


def test_an_import_has_the_messages_of_a_validation_and_sends_the_changed_values(connector: Connector) -> None:
    rows = ("ann@x.org,Ann &amp; Bo,M&uuml;ller,--05-12", "bob@x.org,NULL,Null,1980-02-29")
    path = connector.write_people("email,first_name,last_name,birthday", *rows)
    validation_result = connector.run_json("validate", path, "--active")
    result = connector.run_json("import", path, *NEWS_IMPORT_OPTIONS)
    assert len(validation_result.report["messages"]) == 3
    assert set(validation_result.report["messages"]) <= set(result.report["messages"])
    subscribers = connector.list_created_subscribers()
    field_names = ("FirstName", "LastName", "Birthday")
    values = [
        [subscribers[email].get(field_name) for field_name in field_names] for email in ("ann@x.org", "bob@x.org")
    ]
    assert values == [["Ann & Bo", "Müller", None], [None, "Null", "1980-02-29"]]


def test_the_guessed_encoding_and_the_skipped_lines_are_reported(connector: Connector) -> None:
    path = connector.folder / "people.csv"
    path.write_bytes("Everybody\n\nemail,first_name\nann@x.org,Ann\nbob@x.org,Bob\n".encode("utf-16-le"))
    result = connector.run_json("validate", path)
    assert "read as utf-16-le" in result.stderr
    assert len(result.find_messages("read as utf-16-le")) == 1
    assert len(result.find_messages("titles above its header were left out")) == 1


def test_number_cells_of_a_workbook_that_a_template_uses_are_reported(connector: Connector) -> None:
    rule = "{template: \"{{ code }} {{ row['line'] }}\"}"
    rows: list[list[object]] = [["email", "code", "line"], ["ann@x.org", 31, "06"], ["bob@x.org", 49, 30123]]
    write_file(connector.folder, "people.xlsx", build_xlsx(rows))
    fields = f"email: email, phone: {rule}, is_active: {{value: true}}"
    connector.write_job(source="file: {path: people.xlsx}", fields=fields)
    result = connector.run_json("validate", "job.yaml")
    code_column_message, line_column_message = result.find_messages("in the workbook")
    assert code_column_message.startswith("2 cells of the column code (phone) are numbers")
    assert line_column_message.startswith("1 cell of the column line (phone) is a number")
