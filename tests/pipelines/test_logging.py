"""`-v` and `--log-format`: the log of a run on stderr, without a token and without personal data."""

import json
from pathlib import Path

from tests.pipelines.conftest import NEWS_IMPORT_OPTIONS, Connector
from tests.pipelines.leftovers import read_rejects
from tests.pipelines.virtual_time import skip_waits

PERSONAL_VALUES = {
    "email": "ann.lee@x.org", "first_name": "Annabel", "last_name": "Müller-Lüdenscheidt", "phone": "+31612345678",
    "address_line1": "Keizersgracht", "address_zip": "10117", "birthday": "1980-02-29", "tags": "vip-guests",
    "client_user_id": "crm-4711",
}  # fmt: skip
SEND_COMMAND = "send --to ann.lee@x.org --from a@example.com --subject vip-guests --text people.csv"


def write_people(connector: Connector) -> Path:
    rows = [f"ann{index}@secret-domain.org,Annabel{index}" for index in range(12)]
    return connector.write_people("email,first_name", *rows)


def test_vv_logs_events_and_the_field_names_of_each_request(connector: Connector) -> None:
    connector.sandbox.switch(rate=20, burst=4, retry_after="seconds")
    result = connector.import_file(write_people(connector), "-vv", "--log-format", "json")
    assert result.exit_code == 0, result.stderr
    lines = [json.loads(line) for line in result.stderr.splitlines()]
    events = {line["event"] for line in lines}
    assert events >= {"run begins", "page", "look-up", "batch", "commit", "refusal", "pause", "run ends"}
    assert [line["status"] for line in lines if line["event"] == "run ends"] == ["ok"]
    assert {"at", "level", "logger", "message"} <= set.intersection(*(set(line) for line in lines))
    requests = {line["method"]: line for line in lines if line["event"] == "request" and line["status"] == 200}
    assert requests["POST"]["path"] == "/api/subscribers/create-subscriber/"
    assert {"Subscriber.Email", "Subscriber.FirstName"} <= set(requests["POST"]["fields"].split(", "))
    assert {"offset", "limit"} <= set(requests["GET"]["fields"].split(", "))
    for secret in (connector.environ["CONNECTOR_TOKEN"], "secret-domain", "Annabel"):
        assert secret not in result.stderr


def test_vv_logs_a_refusal_without_the_message_of_the_service(connector: Connector) -> None:
    """The message of the service may contain values of the row."""
    connector.sandbox.switch(required="Phone")
    result = connector.import_file(connector.write_people("email", "ann@x.org"), "-vv")
    (service_message,) = {row["_message"] for row in read_rejects(result)}
    lines = [line for line in result.stderr.splitlines() if "refusal: create refused" in line]
    assert (len(lines), [line for line in lines if service_message in line]) == (1, [])


def test_the_option_v_adds_look_ups_to_the_log(connector: Connector) -> None:
    path = write_people(connector).rename(connector.folder / "one\ntwo.csv")
    log_text = connector.import_file(path, "-v").stderr
    assert r"run begins: import one\ntwo" in log_text
    assert "look-up" in log_text
    assert "commit" not in log_text
    lines = connector.import_file(path).stderr.splitlines()
    messages = [line.partition("connector.runs.report  ")[2].partition(" (")[0] for line in lines]
    assert messages == [r"run begins: import one\ntwo", "run ends: ok, 12 read, 12 exists"]
    quiet_result = connector.run("import", path, *NEWS_IMPORT_OPTIONS, "--quiet")
    assert (quiet_result.exit_code, quiet_result.stdout, quiet_result.stderr) == (0, "", "")


def test_log_format_json_writes_messages_as_json_lines(connector: Connector) -> None:
    result = connector.import_file(connector.folder / "missing.csv", "--log-format", "json")
    (line,) = (json.loads(text) for text in result.stderr.splitlines())
    assert (result.exit_code, line["event"]) == (2, "message")
    assert "missing.csv" in line["text"]
    refused_result = connector.run("import", "--no-such-option", "--log-format", "json")
    (line,) = (json.loads(text) for text in refused_result.stderr.splitlines())
    assert (refused_result.exit_code, line["text"]) == (2, "No such option '--no-such-option'.")


def test_vv_logs_no_value_of_a_row(connector: Connector) -> None:
    path = connector.write_people(",".join(PERSONAL_VALUES), ",".join(PERSONAL_VALUES.values()))
    changed_values = ",".join(PERSONAL_VALUES.values()).replace("crm-4711", "crm-4712")
    changed_path = connector.write_csv("changed.csv", ",".join(PERSONAL_VALUES), changed_values)
    job_path = connector.write_job(source="file: {path: changed.csv}", fields="")
    export_options = ("--email", PERSONAL_VALUES["email"], "--first-name", PERSONAL_VALUES["first_name"])
    log_texts = [
        connector.run(*command, "-vv", clock=skip_waits()).stderr
        for command in (
            ("import", path, *NEWS_IMPORT_OPTIONS),
            ("import", changed_path, *NEWS_IMPORT_OPTIONS),
            ("export", "out.csv", *export_options),
            ("reconcile", job_path),
            ("check", job_path),
            SEND_COMMAND.split(),
        )
    ]
    requests = [line for text in log_texts for line in text.splitlines() if "request: " in line]
    assert all(any(name in line for line in requests) for name in ("Email", "FirstName", "SendEmail.Email"))
    assert [value for value in PERSONAL_VALUES.values() if value in "".join(log_texts)] == []
