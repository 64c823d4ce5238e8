"""The join of source, ledger and list finds the same differences as a separate comparison of each person."""

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
from connector.spool import encode_values
from connector.states import State
from connector.subscribers.identity import IDENTITY_BYTES, digest_identity, join_digests
from pipelines.flows.reconcile_sides import COUNT_UNIDENTIFIED_SUBSCRIBERS_SQL, ComparedBases, report_differences
from pipelines.report.differences import DifferenceFile, Differences

BASE_IDS = (7, 8)
PERSON_KEYS = st.tuples(
    st.integers(0, 1), st.integers(0, 2)
)  # a base number and a person number, with few values, so that persons repeat
DRAWN_FIRST_NAMES = st.sampled_from(["", "Ann", "Bob"])
LISTED_PERSONS = st.lists(st.tuples(PERSON_KEYS, DRAWN_FIRST_NAMES), max_size=12)
SOURCE_ROWS = st.lists(
    st.tuples(PERSON_KEYS, DRAWN_FIRST_NAMES, st.booleans()), max_size=12, unique_by=lambda row: (row[0], row[2])
)
LEDGER_ENTRIES = st.dictionaries(
    PERSON_KEYS, st.tuples(st.sampled_from([State.CONFIRMED, State.UNKNOWN]), st.integers(1, 15)), max_size=8
)


def build_email(person_number: int) -> str:
    return f"p{person_number}@x.org"


def build_digest(person_number: int) -> bytes:
    return digest_identity("email", build_email(person_number))


def build_subscriber(subscriber_id: int, email: object, base_object: object, **fields: object) -> dict[str, Any]:
    return {"Id": subscriber_id, "Base": base_object, "Email": email, **fields}


def read_differences(
    comparison: Comparison, fields: Sequence[str] = (), *, base_ids: Sequence[int] = BASE_IDS
) -> list[dict[str, str]]:
    """Return the lines of the file of differences. The comparison has the rows and the ledger's entries already."""
    with tempfile.TemporaryDirectory() as folder, open_ledger(f"sqlite:///{folder}/ledger.db") as ledger:
        compared_bases = ComparedBases(comparison.bases, ledger, "main")
        for base_id in base_ids:
            compared_bases.find_base_number(BaseRef(base_id))
        comparison.assign_bases(compared_bases.listed_base_numbers)
        comparison.join_tables()
        path = Path(folder) / "differences.csv"
        with DifferenceFile(path) as file:
            report_differences(comparison, compared_bases.bases, "email", fields, Differences(is_certain=True), file)
            file.publish()
        with path.open(encoding="utf-8", newline="") as differences_file:
            return list(csv.DictReader(differences_file))


@given(LISTED_PERSONS, SOURCE_ROWS, LEDGER_ENTRIES)
def test_the_join_and_a_comparison_of_each_person_find_the_same_differences(
    listed_persons: list[tuple[tuple[int, int], str]],
    rows: list[tuple[tuple[int, int], str, bool]],
    entries: dict[tuple[int, int], tuple[State, int]],
) -> None:
    listed_names_by_person: dict[tuple[int, int], dict[int, str]] = defaultdict(dict)
    with Comparison("email", ["first_name"]) as comparison:
        for subscriber_id, ((base_number, person_number), first_name) in enumerate(listed_persons, 1):
            listed_names_by_person[base_number, person_number][subscriber_id] = first_name
            base_object = {"Id": BASE_IDS[base_number], "Name": f"Base {base_number}"}
            comparison.receive_rows(
                [build_subscriber(subscriber_id, build_email(person_number).upper(), base_object, FirstName=first_name)]
            )
        for (base_number, person_number), first_name, is_compared in rows:
            base_numbers, identities = (
                np.array([base_number]),
                join_digests([build_digest(person_number)], IDENTITY_BYTES),
            )
            if is_compared:
                stored_values = [encode_values([first_name or None])]
                comparison.add_rows(
                    base_numbers, identities, np.array([1]), [build_email(person_number)], stored_values
                )
            else:
                comparison.add_present_identities(base_numbers, identities)
        for (base_number, person_number), (state, known_id) in entries.items():
            confirmed_id = known_id if state is State.CONFIRMED else None
            comparison.add_entries(base_number, [(build_digest(person_number), state, confirmed_id, None, None)])
        differences = sorted(
            (line["difference"], line["base"].rstrip(")")[-1], line["identity"].lower(), line["ids"])
            for line in read_differences(comparison, ["first_name"])
        )
    expected_differences: list[tuple[str, str, str, str]] = []
    compared_values = {person_key: row_value for person_key, row_value, is_compared in rows if is_compared}
    for person_key in {*listed_names_by_person, *compared_values, *entries}:
        first_name_by_id: dict[int, str] = listed_names_by_person.get(person_key, {})
        row_value, entry = compared_values.get(person_key), entries.get(person_key)
        known_id = entry[1] if entry is not None and entry[0] is State.CONFIRMED else 0
        base_and_email = str(BASE_IDS[person_key[0]]), build_email(person_key[1])
        if len(first_name_by_id) > 1:
            expected_differences.append(("duplicated", *base_and_email, "; ".join(map(str, first_name_by_id))))
        if first_name_by_id and row_value is None and person_key not in {row[0] for row in rows}:
            expected_differences.append(("extra", *base_and_email, "; ".join(map(str, first_name_by_id))))
        smallest_id = min(first_name_by_id, default=0)
        if first_name_by_id and row_value is not None and first_name_by_id[smallest_id] != row_value:
            expected_differences.append(("drifted", *base_and_email, str(smallest_id)))
        if row_value is not None and not first_name_by_id:
            expected_differences.append(("missing", *base_and_email, ""))
        if not first_name_by_id and known_id > len(listed_persons):
            expected_differences.append(
                ("vanished", base_and_email[0], base_and_email[1] if row_value is not None else "", str(known_id))
            )
    assert differences == sorted(expected_differences)


def test_a_comparison_accepts_any_values_of_the_list() -> None:
    news_base = {"Id": 7, "Name": "News"}
    with Comparison("email", ["first_name", "address_city", "tags"]) as comparison:
        comparison.start_sweep(1)
        comparison.receive_rows([build_subscriber(9, "old@x.org", news_base)])
        comparison.start_sweep(2)
        comparison.receive_rows(
            [build_subscriber(3, " Ann@X.org", news_base, FirstName="\ud800", Address={"City": "Ulm"}, Tags=["a"])]
        )
        comparison.receive_rows([])
        comparison.receive_rows(
            [
                build_subscriber(subscriber_id, email, news_base)
                for subscriber_id, email in enumerate([None, "", " ", 5], 4)
            ]
        )
        comparison.receive_rows(
            [build_subscriber(1, "bob@x.org", "no base"), build_subscriber(2, "ANN@x.org", news_base, Address="none")]
        )
        assert comparison.bases == [(7, "News"), (None, None)]
        identities = join_digests([digest_identity("email", "ann@x.org")], IDENTITY_BYTES)
        stored_values = [encode_values(["Ann", "Ulm", ["a"]])]
        comparison.add_rows(np.array([0]), identities, np.array([1]), ["ann@x.org"], stored_values)
        lines = read_differences(comparison, ["first_name", "address_city", "tags"], base_ids=[7])
        assert list(comparison.fetch_rows(COUNT_UNIDENTIFIED_SUBSCRIBERS_SQL)) == [(4,)]
    assert [(line["difference"], line["identity"], line["ids"], line["field"]) for line in lines] == [
        ("drifted", "ann@x.org", "2", "first_name"), ("drifted", "ann@x.org", "2", "address_city"),
        ("drifted", "ann@x.org", "2", "tags"), ("duplicated", "ANN@x.org", "2; 3", ""),
        *[("extra", "", str(index), "") for index in range(4, 8)],
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
