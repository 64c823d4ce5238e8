"""A job whose rows go to many bases reads the account's list once for all of them."""

import csv
from pathlib import Path

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, Ended
from tests.pipelines.lists import write_lists, write_parts

SUBSCRIBERS = 10_000
ROWS = 1000


def sync_into(sandbox: SandboxProcess, folder: Path, bases: int) -> Ended:
    """Load new rows into `bases` bases, which share the account's subscribers."""
    folder.mkdir()
    for number in range(bases):
        sandbox.seed(SUBSCRIBERS // bases, base_id=100 + number)
    lines = [f"new{number}@x.org,{100 + number % bases}" for number in range(ROWS)]
    ended = Connector(sandbox, folder).run_json("sync", write_lists(folder, *lines, base="{column: list}"))
    assert (ended.code, ended.rows) == (0, {"read": ROWS, "created": ROWS}), ended.stderr
    return ended


def count_listed(ended: Ended) -> int:
    sent: int = ended.report["requests"]["list"]["sent"]
    return sent


def test_twenty_bases_take_no_more_list_requests_than_one(sandbox: SandboxProcess, tmp_path: Path) -> None:
    of_one = count_listed(sync_into(sandbox, tmp_path / "one", 1))
    sandbox.reset()
    of_twenty = count_listed(sync_into(sandbox, tmp_path / "twenty", 20))
    assert of_twenty <= 1.1 * of_one


def test_bases_that_only_later_chunks_bring_are_not_listed_again(connector: Connector, tmp_path: Path) -> None:
    for number in range(20):
        connector.sandbox.seed(100, base_id=100 + number)
    path = tmp_path / "out.csv"
    assert connector.run("export", path, "--columns", "email,base_id").code == 0
    with path.open(encoding="utf-8", newline="") as file:
        rows = sorted((row["base_id"], row["email"]) for row in csv.DictReader(file))
    lines = [f"{email},{base_id}" for base_id, email in rows]

    listed = list[int]()
    for size in (len(lines), 250):
        folder = tmp_path / str(size)
        folder.mkdir()
        chunks = [tuple(lines[start : start + size]) for start in range(0, len(lines), size)]
        ended = Connector(connector.sandbox, folder).run_json("sync", write_parts(folder, *chunks))
        assert (ended.rows["read"], ended.rows["exists"] + ended.rows["changed"]) == (2000, 2000)
        listed.append(count_listed(ended))
    in_one_chunk, in_eight_chunks = listed
    assert in_eight_chunks <= 1.1 * in_one_chunk
