"""A text file whose encoding is not certain, through the command and into the service."""

from pathlib import Path

from tests.pipelines.conftest import Connector


def test_an_encoding_that_is_not_certain_costs_its_rows_and_the_next_import_brings_them(
    connector: Connector, tmp_path: Path
) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes("email,first name\nann@x.org,Ann\nben@x.org,Søren\n".encode("cp850"))
    unsure = connector.import_file(path)
    assert (unsure.code, unsure.rows) == (1, {"read": 2, "created": 1, "invalid": 1})
    assert any("not certain" in message and "may be cp850" in message for message in unsure.report["messages"])
    named = connector.import_file(path, "--encoding", "cp850")
    assert named.rows == {"read": 2, "exists": 1, "created": 1}
