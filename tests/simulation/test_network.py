"""The simulated network returns the same answers as real sockets, for every fault of a request."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from connector.clock import Clock
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.settings import Service, Token
from connector.service.wire import AmbiguousResult, CreatedAnswer, NotSent, Refused
from tests.simulation.network import Network, NetworkFaults
from tests.simulation.people import People
from tests.simulation.process import Process, ProcessState
from tests.simulation.requests import Call, EventRecord
from tests.simulation.service import SimulatedService
from tests.simulation.timeline import Timeline

BODY = b'{"Subscriber":{"Base":{"Id":7},"Email":"ann1@x.org","FirstName":"Ann"}}'
TIMEOUT_S = 1.0  # half of this time is for the connection
Answer = CreatedAnswer | Refused | AmbiguousResult | NotSent

SWITCHES_BY_FAULT: dict[str, dict[str, object]] = {
    "no fault": {},
    "lost before storing": {"drop_before": 1},
    "lost after storing": {"drop_after": 1},
    "cut in the middle of the answer": {"cut_answer": 1},
    "hang": {"hang_after": 1},
    "500": {"error_after": 1, "error_shape": "nested"},
    "503 with an HTML body": {"error_before": 1, "error_shape": "html", "server_error": 503},
    "429": {"refuse": 1, "refuse_retry_after_s": 3},
    "429 with a date": {"refuse": 1, "refuse_retry_after_s": 3, "retry_after": "date"},
    "422-but-created": {"created_422": 1, "error_shape": "empty"},
    "redirect": {"redirect_to": "https://elsewhere.example"},
    "a field that is missing": {"required": ["LastName"]},
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as sandbox_process:
        yield sandbox_process


def send_over_sockets(sandbox: SandboxProcess, switches: dict[str, object]) -> Answer:
    async def send() -> Answer:
        service = Service(sandbox.base_url, Token(sandbox.token), timeout_s=TIMEOUT_S)
        async with open_client(service) as client:
            return await client.create_subscriber(BODY)

    sandbox.reset()
    sandbox.switch(**switches)
    return asyncio.run(send())


def send_in_simulation(switches: dict[str, object], network_faults: NetworkFaults) -> Answer | None:
    timeline, process_state = Timeline(), ProcessState()
    record = EventRecord()
    service = SimulatedService(timeline, switches, People("email"), record)
    call = Call(1, 1, "create", 0, "", timeline.now_s, record.add_line)
    network = Network(timeline, service, process_state, lambda request: call, Random(1), TIMEOUT_S)
    network.network_faults = network_faults

    async def send() -> Answer:
        return await Client(
            network, str, Clock(timeline.read_monotonic_s, timeline.read_date, asyncio.sleep)
        ).create_subscriber(BODY)

    return Process(timeline, process_state).run(send())


@pytest.mark.parametrize("name", SWITCHES_BY_FAULT)
def test_the_simulated_network_and_real_sockets_return_the_same_answer(sandbox: SandboxProcess, name: str) -> None:
    simulated_answer, real_answer = (
        send_in_simulation(SWITCHES_BY_FAULT[name], NetworkFaults()),
        send_over_sockets(sandbox, SWITCHES_BY_FAULT[name]),
    )
    # A date in Retry-After has no fractions of a second, so the two times may differ by a second.
    if isinstance(real_answer, Refused) and isinstance(simulated_answer, Refused):
        assert abs((simulated_answer.retry_after_s or 0.0) - (real_answer.retry_after_s or 0.0)) <= 1
        simulated_answer = replace(simulated_answer, retry_after_s=real_answer.retry_after_s)
    assert simulated_answer == real_answer


def test_a_create_for_a_missing_service_counts_as_not_sent() -> None:
    """The messages of the two answers differ, because each message contains the host."""
    with SandboxProcess() as stopped_sandbox:
        service = Service(stopped_sandbox.base_url, Token("some-token"), timeout_s=TIMEOUT_S)

    async def send() -> Answer:
        async with open_client(service) as client:
            return await client.create_subscriber(BODY)

    real_answer, simulated_answer = asyncio.run(send()), send_in_simulation({}, NetworkFaults(refused_share=1.0))
    assert isinstance(real_answer, NotSent)
    assert isinstance(simulated_answer, NotSent)
