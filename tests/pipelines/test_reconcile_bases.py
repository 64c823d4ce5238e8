"""Reconciliations of jobs with several bases: one listing, and a comparison for each base."""

from connector.listing.evidence import MAX_REQUESTS
from tests.pipelines.conftest import Connector
from tests.pipelines.lists import write_lists
from tests.pipelines.planned import count_requests
from tests.pipelines.reconciled import create_in_service, erase_oldest, find_differences, read_lines, reconcile

ROWS = ("ann@x.org,news", "ann@x.org,shop", "bob@x.org,shop", "cem@x.org,club")


def test_each_base_is_compared_separately(connector: Connector) -> None:
    write_lists(connector, *ROWS)
    assert connector.sync().rows["created"] == 4
    assert reconcile(connector).exit_code == 0
    list_request_count = count_requests(connector.sandbox, "list")
    erase_oldest(connector.sandbox, BaseId=11)  # erases cem from the club
    create_in_service(connector.sandbox, "bob@x.org", {"Id": 7}, IsActive=True)  # the source has bob in the shop
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 9})  # a second, inactive ann@x.org
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 5})  # a base that the job does not have
    rows = (*ROWS[:3], "cem@x.org,news", "cem@x.org,club", "dan@x.org,nwes")
    write_lists(connector, *rows)
    result = reconcile(connector)
    # The bound counts the listing, the evidence and the erasing.
    assert count_requests(connector.sandbox, "list") <= list_request_count + 6 + MAX_REQUESTS
    assert {f"{line['difference']} {line['base']} {line['identity']}" for line in read_lines(connector.folder)} == {
        "missing Base 7 (id 7) cem@x.org", "extra Base 7 (id 7) bob@x.org", "duplicated Base 9 (id 9) ann@x.org",
        "missing Base 11 (id 11) cem@x.org", "vanished Base 11 (id 11) cem@x.org",
    }  # fmt: skip
    assert find_differences(result) == {"missing": 2, "extra": 1, "duplicated": 1, "vanished": 1}
    assert result.rows == {"read": 6, "valid": 5, "invalid": 1}
    assert any("1 of the invalid rows has no identity or no base" in message for message in result.report["messages"])


def test_a_base_without_rows_is_compared_if_the_job_names_the_base(connector: Connector) -> None:
    create_in_service(connector.sandbox, "ann@x.org", {"Id": 9})
    create_in_service(connector.sandbox, "bob@x.org", {"Id": 11})
    create_in_service(connector.sandbox, "cem@x.org", {"Id": 7}, IsActive=True)
    write_lists(connector, "cem@x.org,news", base="news: 7, shop: 9")
    assert find_differences(reconcile(connector)) == {"extra": 1}
    write_lists(connector, "cem@x.org,7", base="")  # a job without other bases
    assert find_differences(reconcile(connector)) == {}
