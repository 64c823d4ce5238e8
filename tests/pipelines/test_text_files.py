"""What imports fail on: each complaint about text files, through the command and into the service."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.pipelines.conftest import Connector


@dataclass(frozen=True)
class Complaint:
    """A file, the outcomes of its rows, and what must be stored of whom: the service's fields by address."""

    words: str
    content: str
    rows: dict[str, int]
    stored: dict[str, dict[str, Any]]
    encoding: str = "utf-8"


COMPLAINTS = [
    Complaint(
        "a BOM hides the email column",
        "email,first name\nann@x.org,Ann\n",
        {"read": 1, "created": 1},
        {"ann@x.org": {"FirstName": "Ann"}},
        "utf-8-sig",
    ),
    Complaint(
        "a BOM before a quoted header",
        '"Email","First name"\r\n"ann@x.org","Ann"\r\n',
        {"read": 1, "created": 1},
        {"ann@x.org": {"FirstName": "Ann"}},
        "utf-8-sig",
    ),
    Complaint(
        "Excel's Unicode text is UTF-16 with tabs",
        "Email\tFirst name\r\nann@x.org\tŁucja\r\n",
        {"read": 1, "created": 1},
        {"ann@x.org": {"FirstName": "Łucja"}},
        "utf-16",
    ),
    Complaint(
        "umlauts of Excel's CSV turn into signs",
        "email;first name;last name\nann@x.org;Jürgen;Müller\n",
        {"read": 1, "created": 1},
        {"ann@x.org": {"FirstName": "Jürgen", "LastName": "Müller"}},
        "cp1252",
    ),
    Complaint(
        "phones turn into floats, also where some are missing",
        "email,phone\nann@x.org,31612345678\nben@x.org,\ncem@x.org,+31612345670\ndan@x.org,0612345678\n",
        {"read": 4, "created": 4},
        {
            "ann@x.org": {"Phone": "31612345678"},
            "ben@x.org": {},
            "cem@x.org": {"Phone": "+31612345670"},
            "dan@x.org": {"Phone": "0612345678"},
        },
    ),
    Complaint(
        "leading zeros are lost, long numbers rounded",
        "email,client_user_id,phone\nann@x.org,00042,0031201234567\nben@x.org,12345678901234567890,1E5\n",
        {"read": 2, "created": 2},
        {
            "ann@x.org": {"ClientUserId": "00042", "Phone": "0031201234567"},
            "ben@x.org": {"ClientUserId": "12345678901234567890", "Phone": "1E5"},
        },
    ),
    Complaint(
        "words such as NA and null turn into nothing",
        "email,first name,last name\nann@x.org,NA,Null\nben@x.org,None,nan\n",
        {"read": 2, "created": 2},
        {"ann@x.org": {"FirstName": "NA", "LastName": "Null"}, "ben@x.org": {"FirstName": "None", "LastName": "nan"}},
    ),
    Complaint(
        "short rows shift values onto the wrong person",
        "email,first name,last name\nann@x.org,Ann,Lee\nben@x.org,Oz\nO'Neil,cem@x.org,Cem\ndan@x.org,Dan,Li\n",
        {"read": 4, "created": 2, "invalid": 2},
        {"ann@x.org": {"FirstName": "Ann", "LastName": "Lee"}, "dan@x.org": {"FirstName": "Dan", "LastName": "Li"}},
    ),
    Complaint(
        "long rows shift values, too",
        "first name,email\nAnn,ann@x.org\nDoe, Ben,ben@x.org\n",
        {"read": 2, "created": 1, "invalid": 1},
        {"ann@x.org": {"FirstName": "Ann"}},
    ),
    Complaint(
        "an address in capitals comes in twice",
        "email,first name\nann@x.org,Ann\nANN@X.ORG,Ann\n Ann@x.org ,Ann\nben@x.org,Ben\n",
        {"read": 4, "created": 2, "duplicate": 2},
        {"ann@x.org": {"FirstName": "Ann"}, "ben@x.org": {"FirstName": "Ben"}},
    ),
]


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda complaint: complaint.words)
def test_what_people_complain_of_does_not_happen(connector: Connector, tmp_path: Path, complaint: Complaint) -> None:
    path = tmp_path / "people.csv"
    path.write_bytes(complaint.content.encode(complaint.encoding))
    ended = connector.import_file(path)
    assert ended.rows == complaint.rows
    events = [event["subscriber"] for event in connector.sandbox.truth()["events"] if event["kind"] == "created"]
    assert {each["Email"] for each in events} == complaint.stored.keys()
    assert len(events) == len(complaint.stored)
    for each in events:
        wanted = {"FirstName": "", "LastName": "", "Phone": "", "ClientUserId": ""} | complaint.stored[each["Email"]]
        assert {name: each.get(name) or "" for name in wanted} == wanted


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
