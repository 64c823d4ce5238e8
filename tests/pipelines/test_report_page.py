"""A report as a page: everything of it is there, and nothing of it is HTML."""

import json
from html.parser import HTMLParser
from pathlib import Path

from pipelines.report import write_page, write_plain
from tests.pipelines.conftest import Connector, write_addresses


class Reader(HTMLParser):
    """The text of a page, and what it would fetch or run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.reaching = "", list[str]()
        self.feed(page)
        self.close()

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name for name, _ in attrs} & {"src", "href", "onload", "onclick"}
        if names or tag in ("script", "link", "img", "iframe"):
            self.reaching.append(tag)


def test_a_report_can_be_written_as_a_page(connector: Connector, tmp_path: Path) -> None:
    path = write_addresses(tmp_path / "<b>people & co.csv", 3)
    ended = connector.import_file(path, "--report", "run.html")

    page = (tmp_path / "run.html").read_text(encoding="utf-8")
    assert (tmp_path / "run.html").stat().st_mode & 0o077 == 0
    read = Reader(page)
    assert read.reaching == []
    assert all(each in read.text for each in ("<b>people & co", ended.report["run_id"], "created", "3"))
    assert all(message in read.text for message in ended.report["messages"])
    assert "<b>people" not in page


def test_several_jobs_make_one_page(connector: Connector, tmp_path: Path) -> None:
    write_addresses(tmp_path / "people.csv", 3)
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(
            f"job: {name}\nsource: {{file: {{path: people.csv}}}}\n"
            "subscriber: {base: {name: News}, fields: {email: email, is_active: {value: true}}}\n",
            encoding="utf-8",
        )
    connector.run_json("sync", "one.yaml", "two.yaml", "--report", "run.html")
    text = Reader((tmp_path / "run.html").read_text(encoding="utf-8")).text
    assert "2 jobs: ok" in text
    assert "one ok" in text
    assert "two ok" in text


def test_an_export_shows_its_certificate(connector: Connector, tmp_path: Path) -> None:
    connector.import_file(write_addresses(tmp_path / "people.csv", 3))
    ended = connector.run_json("export", "out.csv", "--report", "run.html")
    read = Reader((tmp_path / "run.html").read_text(encoding="utf-8"))
    assert "complete" in read.text
    assert "complete" in write_plain(ended.report)
    json.dumps(ended.report)
    assert Reader(write_page(ended.report)).text == read.text
