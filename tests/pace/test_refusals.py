"""Refusals that may be temporary reduce the pace. Only refusals that continue at the reduced pace are final."""

import pytest

from connector.pace.refusals import SERIES_LENGTH, TemporaryRefusals

REFUSAL_KIND = "200 Too many requests"


@pytest.mark.parametrize(("sent_at", "is_final"), [(1.0, False), (3.0, True)])
def test_refusals_of_one_kind_are_final_if_they_continue_at_a_reduced_pace(sent_at: float, is_final: bool) -> None:
    """In its first two seconds, the reduced pace is still above the limit of the service. So refusals of creates that
    were sent in these seconds do not count."""
    refusals = TemporaryRefusals()
    refusals.record_accepted_create(0.0)
    for _ in range(SERIES_LENGTH):
        refusals.record_refusal(REFUSAL_KIND, 0.0, 0.1)
    for _ in range(19):
        refusals.record_accepted_create(sent_at)
        refusals.record_refusal(REFUSAL_KIND, sent_at, sent_at + 0.1)
    for _ in range(4):
        refusals.record_refusal(REFUSAL_KIND, sent_at, sent_at + 0.1)
    assert (refusals.is_final_kind(REFUSAL_KIND), refusals.may_be_temporary(REFUSAL_KIND)) == (is_final, not is_final)
