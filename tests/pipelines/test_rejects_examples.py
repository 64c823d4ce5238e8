"""The text report of a load has the first rows that need a person, with their numbers and reasons, and no values."""

import re

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector, write_csv


def list_examples(output: str) -> list[str]:
    return re.findall(r"^Row .*", output, re.MULTILINE)


def test_the_report_shows_the_first_three_rows_that_need_a_person(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    rows = ["ann@x.org,Ann,NL", "secret,Bob,NL", "cem@x.org,,NL", "dan@x.org,Dan,Utopia", "hidden,Eve,NL"]
    connector.write_people("email,first_name,country", *rows)
    result = connector.run("import", "people.csv", *NEWS_IMPORT_OPTIONS)
    assert result.exit_code == 1
    examples = list_examples(result.stdout)
    row_texts = [example.partition(":")[0] for example in examples]
    assert row_texts == ["Row 3 (invalid)", "Row 4 (rejected)", "Row 5 (invalid)"]
    assert examples[0] == "Row 3 (invalid): Email is not one complete email address, such as ann@example.com"
    assert "FirstName is required" in examples[1]
    assert "is not one country" in examples[2]
    assert "secret" not in result.stdout
    run_id = connector.run_json("status").report["runs"][0]["run_id"]
    assert list_examples(connector.run("status", run_id).stdout) == examples


def test_an_example_of_several_files_names_its_file_and_has_each_reason_of_its_row(connector: Connector) -> None:
    write_csv(connector.folder / "a\nNext: run.csv", "email,country", "ann@x.org,Utopia")
    write_csv(connector.folder / "b.csv", "email,country", "secret,Utopia")
    result = connector.run("import", "*.csv", *NEWS_IMPORT_OPTIONS)
    examples = list_examples(result.stdout)
    assert [example.partition(":")[0] for example in examples] == [r"Row 2 of a\nNext", "Row 2 of b.csv (invalid)"]
    assert "is not one complete email address" in examples[1]
    assert "is not one country" in examples[1]


def test_the_report_of_a_retry_has_no_row_numbers(connector: Connector) -> None:
    connector.sandbox.switch(required="FirstName")
    connector.write_people("email", "ann@x.org")
    assert list_examples(connector.run("import", "people.csv", *NEWS_IMPORT_OPTIONS).stdout) != []
    result = connector.run("retry", "--rejected", "--quiet-period", "100ms")
    assert (result.exit_code, list_examples(result.stdout)) == (1, [])
