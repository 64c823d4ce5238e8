"""Each fault on a real socket: what the client sees, what was stored, and what the truth log says of it."""

import http.client
import time
from random import Random

import pytest

from connector.sandbox.faults import Fault, FaultDraw
from tests.sandbox.calls import Calls, read_answers, read_to_end, wait_until

CLOSED = (http.client.RemoteDisconnected, http.client.BadStatusLine, ConnectionResetError, BrokenPipeError)


def stored(calls: Calls) -> list[tuple[str, str]]:
    return [(event["email"], event["answered"]) for event in calls.events()]


def counted(calls: Calls) -> dict[str, int]:
    answers: dict[str, int] = calls.sandbox.stats()["requests"]["create"]["answers"]
    return answers


@pytest.mark.parametrize("cut_by", ["close", "reset"])
@pytest.mark.parametrize(("fault", "events"), [("drop_before", []), ("drop_after", [("a@example.com", "cut")])])
def test_a_dropped_connection_carries_no_byte_of_an_answer(
    calls: Calls, fault: str, events: list[tuple[str, str]], cut_by: str
) -> None:
    calls.sandbox.switch(**{fault: 1, "cut_by": cut_by})
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
        if cut_by == "reset":
            with pytest.raises(ConnectionResetError):
                read_to_end(sock)
        else:
            assert read_to_end(sock) == b""
    assert (stored(calls), counted(calls)) == (events, {"cut": 1})


@pytest.mark.parametrize(
    ("fault", "events"), [("error_before", []), ("error_after", [("a@example.com", "server_error")])]
)
def test_a_server_error_comes_before_or_after_storing(calls: Calls, fault: str, events: list[object]) -> None:
    calls.sandbox.switch(**{fault: 1, "server_error": 502})
    assert calls.create("a@example.com").status == 502
    assert (stored(calls), counted(calls)) == (events, {"502": 1})


def test_a_cut_answer_ends_in_its_middle(calls: Calls) -> None:
    calls.sandbox.switch(cut_answer=1)
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
        head, _, body = read_to_end(sock).partition(b"\r\n\r\n")
    length = int(head.partition(b"Content-Length: ")[2].split(b"\r\n")[0])
    assert head.startswith(b"HTTP/1.1 200 ")
    assert 0 < len(body) < length
    assert stored(calls) == [("a@example.com", "cut_in_answer")]


def test_a_hung_request_is_stored_and_never_answered_while_others_are(calls: Calls) -> None:
    calls.sandbox.switch(hang_after=1)
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com") + calls.raw_create("b@example.com"))
        wait_until(lambda: stored(calls))
        calls.sandbox.switch(hang_after=0)
        assert calls.create("c@example.com").status == 200
        sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    assert stored(calls) == [("a@example.com", "hung"), ("c@example.com", "answered")]
    assert counted(calls) == {"hung": 1, "200": 1}


def test_garbage_is_no_success_whatever_form_it_takes(calls: Calls) -> None:
    calls.sandbox.switch(garbage_after=1)
    replies = [calls.create(f"{n}@example.com") for n in range(40)]
    assert len({reply.body for reply in replies}) > 4
    for reply in replies:
        try:
            answer = reply.json
        except ValueError:
            continue
        is_object = isinstance(answer, dict) and answer.get("success") is True
        assert not (is_object and (answer.get("Subscriber") or {}).get("Id"))
    assert [fate for _, fate in stored(calls)] == ["garbage"] * 40


@pytest.mark.parametrize("status", [422, 429])
def test_a_create_that_took_place_can_look_refused(calls: Calls, status: int) -> None:
    calls.sandbox.switch(**{f"created_{status}": 1})
    reply = calls.create("a@example.com")
    assert (reply.status, reply.json["success"]) == (status, False)
    assert stored(calls) == [("a@example.com", f"answered_{status}")]


def test_a_create_that_took_place_can_be_answered_with_a_status_that_denies_it(calls: Calls) -> None:
    calls.sandbox.switch(executed_status=1)
    statuses = [calls.create(f"{n}@example.com").status for n in range(40)]
    assert set(statuses) == {401, 403, 404, 405}
    assert [fate for _, fate in stored(calls)] == ["answered_as_refused"] * 40
    calls.sandbox.switch(executed_statuses=["200"])
    reply = calls.create("said@example.com")
    assert (reply.status, reply.json["success"], len(stored(calls))) == (200, False, 41)


def test_a_wrong_answer_shows_somebody_else(calls: Calls) -> None:
    calls.sandbox.switch(wrong_answer=1)
    assert calls.create("a@example.com").json["Subscriber"]["Email"] == "somebody.else@example.net"
    assert calls.emails() == ["a@example.com"]


def test_a_create_is_executed_late_after_its_connection_was_cut(calls: Calls) -> None:
    calls.sandbox.switch(drop_before=1, late_ms=2000, duplicates="reject_409")
    started = time.monotonic()
    with pytest.raises(CLOSED):
        calls.create("a@example.com")
    assert stored(calls) == []
    wait_until(lambda: stored(calls))
    assert time.monotonic() - started > 1.9
    assert stored(calls) == [("a@example.com", "late")]


def test_a_reset_forgets_what_was_to_be_executed_late(calls: Calls) -> None:
    calls.sandbox.switch(drop_before=1, late_ms=100)
    with pytest.raises(CLOSED):
        calls.create("a@example.com")
    calls.sandbox.reset()
    calls.sandbox.switch(latency_ms=200)
    calls.create("b@example.com")
    assert stored(calls) == [("b@example.com", "answered")]


def test_a_create_whose_client_is_gone_is_executed_and_the_truth_says_so(calls: Calls) -> None:
    calls.sandbox.switch(latency_ms=500)  # within which it is seen that the client has gone
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
    wait_until(lambda: stored(calls))
    assert stored(calls) == [("a@example.com", "gone")]


def test_a_rejected_create_stays_rejected_under_faults_that_speak_of_stored_ones(calls: Calls) -> None:
    calls.sandbox.switch(created_422=1)
    assert calls.create("nobody").status == 400
    assert stored(calls) == []


def test_faults_befall_the_operations_of_the_switch(calls: Calls) -> None:
    calls.sandbox.switch(drop_after=1)
    assert calls.ask_list().status == 200
    calls.sandbox.switch(fault_operations=["list"])
    assert calls.create("a@example.com").status == 200
    with pytest.raises(CLOSED):
        calls.ask_list()


def test_a_cut_does_not_harm_answers_that_went_before_on_the_connection(calls: Calls) -> None:
    with calls.connect() as sock:
        sock.sendall(calls.raw_create("a@example.com"))
        assert read_answers(sock, 1)[0][0] == 200
        calls.sandbox.switch(drop_after=1)
        sock.sendall(calls.raw_create("b@example.com") + calls.raw_create("c@example.com"))
        assert read_to_end(sock) == b""
    assert stored(calls) == [("a@example.com", "answered"), ("b@example.com", "cut")]


def test_chances_come_again_with_the_seed(calls: Calls) -> None:
    def statuses() -> list[int]:
        calls.sandbox.switch(seed=7, error_after=0.3, created_422=0.3)
        return [calls.create(f"{n}@example.com").status for n in range(60)]

    first = statuses()
    assert {200, 422, 500} == set(first)
    assert statuses() == first


def test_each_fault_strikes_as_often_as_its_share_of_what_earlier_ones_left() -> None:
    draw = FaultDraw(("create",), {Fault.REFUSE: 0.5, Fault.DROP_AFTER: 0.5, Fault.GARBAGE_AFTER: 1})
    random = Random(3)
    drawn = [draw.draw("create", random) for _ in range(20_000)]
    shares = [drawn.count(fault) / len(drawn) for fault in (Fault.REFUSE, Fault.DROP_AFTER, Fault.GARBAGE_AFTER)]
    assert shares == pytest.approx([0.5, 0.25, 0.25], abs=0.02)


def test_without_faults_nothing_is_drawn() -> None:
    random = Random(1)
    before = random.getstate()
    assert FaultDraw(("create",), {}).draw("create", random) is None
    assert random.getstate() == before
