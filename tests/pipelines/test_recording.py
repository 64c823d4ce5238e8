"""`--record`: requests and answers for a bug report, without the token and without a personal value."""

import csv
import json
import stat
from pathlib import Path
from typing import Any

import pytest

from connector.service.answers import build_mask
from connector.service.recording import Masking
from connector.service.wire import RawAnswer, Request
from tests.pipelines.conftest import Connector, write_csv

PERSONAL = (
    "ann.lee@x.org",
    "Ann",
    "Müller-Lüdenscheidt",
    "+31612345678",
    "Keizersgracht",
    "10117",
    "1980-02-29",
    "vip",
)


def read_recording(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def people(tmp_path: Path) -> Path:
    header = "email,first_name,last_name,phone,address_line1,address_zip,birthday,tags"
    return write_csv(tmp_path / "people.csv", header, ",".join(PERSONAL))


def test_a_recording_shows_what_was_asked_and_answered_and_no_personal_value(
    connector: Connector, people: Path, tmp_path: Path
) -> None:
    path = tmp_path / "record.jsonl"
    assert connector.import_file(people, "--record", str(path)).code == 0
    begun, *lines = read_recording(path)
    assert (begun["recording"], begun["host"], begun["authorization"]) == (1, "127.0.0.1", "{token}")
    (create,) = [line for line in lines if line["method"] == "POST"]
    sent, answered = create["sent"]["Subscriber"], create["answer"]["Subscriber"]
    assert sent["Email"] == answered["Email"] != PERSONAL[0]
    assert [len(part) for part in sent["Email"].replace("@", ".").split(".")] == [3, 3, 1, 3]
    assert (sent["Phone"][0], len(sent["Phone"])) == ("+", len(PERSONAL[3]))
    assert type(sent["Address"]["Zip"]) is int
    assert type(answered["Address"]["Zip"]) is str
    assert (create["status"], answered["Id"], create["answer"]["success"]) == (200, 100001, True)
    assert create["headers"]["Content-Type"].startswith("application/json")
    assert create["took_ms"] > 0
    listed = [line for line in lines if line["method"] == "GET"]
    assert {line["query"]["limit"] for line in listed} == {"1000"}
    text = path.read_text()
    assert [each for each in (*PERSONAL, "Lüdenscheidt", "x.org", connector.sandbox.token) if each in text] == []
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert connector.import_file(people, "--record", str(path)).is_refused


@pytest.mark.parametrize("command", [("check",), ("export", "out.csv")])
def test_each_command_of_a_first_contact_records(
    connector: Connector, tmp_path: Path, command: tuple[str, ...]
) -> None:
    seeded = connector.sandbox.seed(30, base_name="News")
    assert seeded["count"] == 30
    assert connector.run(*command, "--record", "record.jsonl").code == 0
    lines = read_recording(tmp_path / "record.jsonl")
    assert all(line["status"] in (200, 400) for line in lines[1:])
    if command[0] == "export":
        page = next(line["answer"]["SubscribersList"] for line in lines[1:])
        assert (page["TotalCount"], page["Subscribers"][-1]) == (30, "and 27 more")
        with (tmp_path / "out.csv").open(newline="") as file:
            emails = [row["email"] for row in csv.DictReader(file)]
        assert len(emails) == 30
        assert not any(email in (tmp_path / "record.jsonl").read_text() for email in emails)


def test_a_failure_is_recorded_with_its_reason(connector: Connector, people: Path, tmp_path: Path) -> None:
    connector.sandbox.switch(drop_before=1)
    connector.run("import", people, "--base-name", "News", "--quiet-period", "0ms", "--record", "r.jsonl")
    failed = [line["failed"] for line in read_recording(tmp_path / "r.jsonl")[1:] if "failed" in line]
    assert "the connection was cut before the answer" in failed


@pytest.mark.parametrize(
    ("said", "kept", "gone"),
    [
        ("Email ann.lee@x.org exists already", ["Email", "exists already", "@"], ["ann", "lee", "x.org"]),
        ("the subscriber 'tom' is on the list", ["the subscriber", "is on the list"], ["tom"]),
        ("bob was refused, as was Carla in base 12345", ["was refused", "in base"], ["bob", "Carla", "12345"]),
        ("invalid token s3cret-token-of-mine", ["nvalid token"], ["s3cret"]),
    ],
)
def test_words_of_a_refusal_stay_and_values_among_them_do_not(said: str, kept: list[str], gone: list[str]) -> None:
    masking = Masking(b"k" * 32, build_mask("s3cret-token-of-mine"))
    masked = masking.mask_words(said, {"bob"})
    assert [each for each in kept if each not in masked] == []
    assert [each for each in gone if each in masked] == []


def test_a_token_that_is_sent_back_is_in_no_header_and_no_key() -> None:
    masking, token = Masking(b"k" * 32, build_mask("s3cret-token")), "s3cret-token"
    answer = RawAnswer(400, {"Server": token, "X-RateLimit-Key": token}, b'{"%s": "Marie"}' % token.encode())
    described = str(masking.describe_answer(answer, Request("list", "GET", "/")))
    assert [each for each in (token, "Marie") if each in described] == []
