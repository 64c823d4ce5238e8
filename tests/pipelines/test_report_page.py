"""The HTML pages of reports show all values, escape texts, and load no external resource."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from connector.outcomes import MailOutcome, Outcome
from pipelines.report.page import build_page
from tests.pipelines.conftest import Connector


class PageReader(HTMLParser):
    """The text of a page, and the tags that would load a resource or run a script."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.loading_tags = "", list[str]()
        self.feed(page)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        loading_attribute_names = {"src", "srcset", "action", "href"} & {
            name for name, value in attributes.items() if value != "data:," and not (value or "").startswith("#")
        }
        loading_attribute_names |= {name for name in attributes if name.startswith("on")}
        if loading_attribute_names or tag in ("script", "img", "iframe", "object", "embed"):
            self.loading_tags.append(tag)


def read_page_text(path: Path) -> str:
    """Check that a page needs no external resource, and return its text with single blanks."""
    assert path.stat().st_mode & 0o077 == 0
    page = path.read_text(encoding="utf-8")
    reader = PageReader(page)
    assert reader.loading_tags == []
    assert re.findall(r"url\(|@import|https?:", page.partition("</style>")[0]) == []
    return read_text(page)


def read_text(page: str) -> str:
    return re.sub(r"\s+", " ", PageReader(page).text.partition("\n}\n\n")[2])


def test_the_page_of_an_import_shows_its_problems_and_the_next_step(connector: Connector) -> None:
    rows = [f"person{index}@example.com,Ann" for index in range(20)]
    invalid_rows = ["secret.lady@hidden,Ann", "another.lady@hidden,Ann", "one,cell,too many"]
    path = connector.write_csv("<b>people & co.csv", "email,first_name", *rows, *invalid_rows)
    result = connector.import_file(path, "--report", "run.html", "--max-rate", "400")
    page_text = read_page_text(connector.folder / "run.html")
    report = result.report
    assert "<b>people" not in (connector.folder / "run.html").read_text(encoding="utf-8")
    for expected_text in (
        "<b>people & co partial", report["run_id"], connector.sandbox.base_url, "News", "400/s", "23 read", "20created",
        "3invalid", "2 invalid · email: email is not one complete email address", "s•••••.l•••@h•••••",
    ):  # fmt: skip
        assert expected_text in page_text
    assert all(message in page_text for message in report["messages"])
    assert f"then import this file: connector import {report['rejects_file']} --base-name" in page_text
    for secret in ("secret", "another.lady", connector.sandbox.token):
        assert secret not in page_text
        assert secret not in json.dumps(report)


def test_a_page_of_a_run_can_be_written_after_the_run_and_after_a_kill(connector: Connector) -> None:
    run_id = connector.import_file(connector.write_addresses(3)).report["run_id"]
    connector.run("status", run_id, "--report", "earlier.html")
    assert "3created" in (page_text := read_page_text(connector.folder / "earlier.html"))
    assert "connector status" not in page_text
    run = {"run_id": "20261123T080000-0a1b2c", "job": "", "command": "sync", "status": "killed"}
    page = build_page({**run, "started_at": "2026-11-23T08:00:00+00:00"})
    assert "connector retry" in PageReader(page).text


@pytest.mark.parametrize("outcomes", [Outcome, MailOutcome])
def test_the_page_of_a_run_explains_each_outcome_of_rows(outcomes: type[Outcome] | type[MailOutcome]) -> None:
    rows = {"read": 100 * len(outcomes)} | {str(outcome): 100 for outcome in outcomes}
    run = {"run_id": "20261123T080000-0a1b2c", "job": "crm", "command": "sync", "status": "partial", "rows": rows}
    page = build_page({**run, "started_at": "2026-11-23T08:00:00+00:00"})
    assert [outcome for outcome in outcomes if f"100{outcome.replace('_', ' ')}" not in read_text(page)] == []


def test_the_page_of_an_export_shows_the_certificate_without_filter_values(connector: Connector) -> None:
    connector.import_file(connector.write_addresses(3))
    arguments = ("--email", "person1@example.com", "--report", "run.html")
    report = connector.run_json("export", "sqlite:///out.db", *arguments).report
    page_text = read_page_text(connector.folder / "run.html")
    assert "Every subscriber who stayed on the list while the run read it is in the output, once." in page_text
    assert "sqlite:///" in page_text
    assert "person1" not in page_text + json.dumps({**report, "certificate": None})


def test_the_health_page_shows_each_job_and_the_report_of_each_run(connector: Connector) -> None:
    people_path = connector.write_addresses(3)
    for path in (people_path, people_path, connector.write_csv("later.csv", "email", "no address")):
        connector.import_file(path)
    runs = connector.run_json("status", "--last", "1", "--html", "health.html").report["runs"]
    assert [run["job"] for run in runs] == ["later"]
    page_text = read_page_text(connector.folder / "health.html")
    assert page_text.index("later import") < page_text.index("people import")
    assert page_text.count("1 run:") == 2
    assert "No job has run" in page_text, "an import of a single file is not a job"
    assert "No recorded run succeeded" in page_text
    assert f"then import this file: connector import {runs[0]['rejects_file']} --base-name" in page_text
    connector.run("status", "--html", "health.html", "--job", "people")  # replaces the page
    assert "later import" not in read_page_text(connector.folder / "health.html")
    assert connector.run("status", "--html", "health.html", "--quiet").stdout == ""
    assert connector.run("status", "--html", people_path.name).exit_code == 2
    assert connector.run("status", runs[0]["run_id"], "--html", "run.html").exit_code == 2
    assert connector.run("status", "--report", "all.html").exit_code == 2
    connector.write_csv(people_path, "email", "ann@example.com", "nobody")
    connector.write_job(base="name: Jobs")
    run_id = connector.sync("job.yaml", "--report", "run.html").report["run_id"]
    assert connector.run("reconcile", "job.yaml").exit_code == 0, "two commands of one job count as one job"
    (connector.folder / "list.yaml").write_text("job: list\nexport: {to: list.csv}\n")
    assert connector.run("export", "list.yaml").exit_code == 0
    connector.run("status", "--html", "health.html")
    assert "The last run of 1 of 2 jobs ended well" in read_page_text(connector.folder / "health.html")
    page = (connector.folder / "health.html").read_text(encoding="utf-8")
    assert f'<a href="#{run_id}">' in page
    article = page.partition(f'<article id="{run_id}"')[2].partition("</article>")[0]
    assert "Some rows or subscribers need your attention" in article
    assert "What to do next" in article
