"""The join of source, ledger and list, checked against a comparison for each person."""

import csv
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from connector.errors import RunAborted
from connector.fields import BaseRef
from connector.ledger.opening import open_ledger
from connector.reconcile import Comparison
from connector.spool import write_values
from connector.states import State
from connector.subscribers.identity import IDENTITY_BYTES, digest_identity, join_digests
from pipelines.flows.reconcile_sides import NAMELESS, Sides, report_differences
from pipelines.report.differences import DifferenceFile, Differences

BASES = (7, 8)
PERSON = st.tuples(st.integers(0, 1), st.integers(0, 2))  # a side and a person: few, so that persons repeat
VALUES = st.sampled_from(["", "Ann", "Bob"])
LISTED = st.lists(st.tuples(PERSON, VALUES), max_size=12)
ROWS = st.lists(st.tuples(PERSON, VALUES, st.booleans()), max_size=12, unique_by=lambda row: (row[0], row[2]))
ENTRIES = st.dictionaries(
    PERSON, st.tuples(st.sampled_from([State.CONFIRMED, State.UNKNOWN]), st.integers(1, 15)), max_size=8
)


def name(person: int) -> str:
    return f"p{person}@x.org"


def digest(person: int) -> bytes:
    return digest_identity("email", name(person))


def build_wire(subscriber_id: int, email: object, base: object, **fields: object) -> dict[str, Any]:
    return {"Id": subscriber_id, "Base": base, "Email": email, **fields}


def report(comparison: Comparison, names: Sequence[str] = (), *, asked: Sequence[int] = BASES) -> list[dict[str, str]]:
    """Return the lines of differences of a comparison to which source and entries were added."""
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        sides = Sides(comparison.bases, ledger, "main")
        for base in asked:
            sides.find(BaseRef(base))
        comparison.assign_bases(sides.listed_sides)
        comparison.join()
        path = Path(folder) / "differences.csv"
        with DifferenceFile(path) as file:
            report_differences(comparison, sides.bases, "email", names, Differences(is_certain=True), file)
            file.publish()
        with path.open(encoding="utf-8", newline="") as written:
            return list(csv.DictReader(written))


@given(LISTED, ROWS, ENTRIES)
def test_the_join_agrees_with_a_comparison_person_by_person(
    listed: list[tuple[tuple[int, int], str]],
    rows: list[tuple[tuple[int, int], str, bool]],
    entries: dict[tuple[int, int], tuple[State, int]],
) -> None:
    people: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    with Comparison("email", ["first_name"]) as comparison:
        for subscriber_id, ((side, person), value) in enumerate(listed, 1):
            people[side, person][subscriber_id] = value
            base = {"Id": BASES[side], "Name": f"Base {side}"}
            comparison.take([build_wire(subscriber_id, name(person).upper(), base, FirstName=value)])
        for (side, person), value, is_compared in rows:
            sides, identities = np.array([side]), join_digests([digest(person)], IDENTITY_BYTES)
            if is_compared:
                contents = [write_values([value or None])]
                comparison.add_rows(sides, identities, np.array([1]), [name(person)], contents)
            else:
                comparison.add_present(sides, identities)
        for (side, person), (state, known_id) in entries.items():
            confirmed_id = known_id if state is State.CONFIRMED else None
            comparison.add_entries(side, [(digest(person), state, confirmed_id, None, None)])
        found = sorted(
            (line["difference"], line["base"].rstrip(")")[-1], line["identity"].lower(), line["ids"])
            for line in report(comparison, ["first_name"])
        )

    expected: list[tuple[str, str, str, str]] = []
    compared = {somebody: row_value for somebody, row_value, is_compared in rows if is_compared}
    for somebody in {*people, *compared, *entries}:
        ids: dict[int, str] = people.get(somebody, {})
        row_value, known = compared.get(somebody), entries.get(somebody)
        known_id = known[1] if known is not None and known[0] is State.CONFIRMED else 0
        described = str(BASES[somebody[0]]), name(somebody[1])
        if len(ids) > 1:
            expected.append(("duplicated", *described, "; ".join(map(str, ids))))
        if ids and row_value is None and somebody not in {row[0] for row in rows}:
            expected.append(("extra", *described, "; ".join(map(str, ids))))
        chosen = min(ids, default=0)
        if ids and row_value is not None and ids[chosen] != row_value:
            expected.append(("drifted", *described, str(chosen)))
        if row_value is not None and not ids:
            expected.append(("missing", *described, ""))
        if not ids and known_id > len(listed):
            expected.append(("vanished", described[0], described[1] if row_value is not None else "", str(known_id)))
    assert found == sorted(expected)


def test_values_of_the_list_are_compared_unchanged() -> None:
    news = {"Id": 7, "Name": "News"}
    with Comparison("email", ["first_name", "address_city", "tags"]) as comparison:
        comparison.start_sweep(1)
        comparison.take([build_wire(9, "old@x.org", news)])
        comparison.start_sweep(2)
        comparison.take([build_wire(3, " Ann@X.org", news, FirstName="\ud800", Address={"City": "Ulm"}, Tags=["a"])])
        comparison.take([])
        comparison.take([build_wire(number, email, news) for number, email in enumerate([None, "", " ", 5], 4)])
        comparison.take([build_wire(1, "bob@x.org", "no base"), build_wire(2, "ANN@x.org", news, Address="none")])
        assert comparison.bases == [(7, "News"), (None, None)]
        identities = join_digests([digest_identity("email", "ann@x.org")], IDENTITY_BYTES)
        contents = [write_values(["Ann", "Ulm", ["a"]])]
        comparison.add_rows(np.array([0]), identities, np.array([1]), ["ann@x.org"], contents)
        lines = report(comparison, ["first_name", "address_city", "tags"], asked=[7])
        assert list(comparison.fetch(NAMELESS)) == [(4,)]
    assert [(line["difference"], line["identity"], line["ids"], line["field"]) for line in lines] == [
        ("drifted", "ann@x.org", "2", "first_name"), ("drifted", "ann@x.org", "2", "address_city"),
        ("drifted", "ann@x.org", "2", "tags"), ("duplicated", "ANN@x.org", "2; 3", ""),
        *[("extra", "", str(number), "") for number in range(4, 8)],
    ]  # fmt: skip


def test_the_temporary_folder_is_private_and_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Comparison("email", []):
        (folder,) = tmp_path.iterdir()
        assert folder.stat().st_mode & 0o777 == 0o700
    assert list(tmp_path.iterdir()) == []


def test_a_missing_temporary_folder_ends_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    with pytest.raises(RunAborted, match="TMPDIR"):
        Comparison("email", [])
