"""The simulated network gives the same values as real sockets, for every fault of a request."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import pytest

from connector.clock import Clock
from connector.sandbox import SandboxProcess
from connector.service.client import Client, open_client
from connector.service.settings import Service, Token
from connector.service.wire import Ambiguous, Created, NotSent, Refused
from tests.simulation.calls import Call, Record
from tests.simulation.far_end import FarEnd
from tests.simulation.network import Network, Weather
from tests.simulation.people import People
from tests.simulation.process import Life, Process
from tests.simulation.timeline import Timeline

BODY = b'{"Subscriber":{"Base":{"Id":7},"Email":"ann1@x.org","FirstName":"Ann"}}'
TIMEOUT_S = 1.0  # half of it is for the connection
Answer = Created | Refused | Ambiguous | NotSent

BEFALLEN: dict[str, dict[str, object]] = {
    "nothing": {},
    "lost before storing": {"drop_before": 1},
    "lost after storing": {"drop_after": 1},
    "cut in the middle of the answer": {"cut_answer": 1},
    "hang": {"hang_after": 1},
    "500": {"error_after": 1, "error_shape": "nested"},
    "503 as a page": {"error_before": 1, "error_shape": "html", "server_error": 503},
    "429": {"refuse": 1, "refuse_retry_after_s": 3},
    "429 with a date": {"refuse": 1, "refuse_retry_after_s": 3, "retry_after": "date"},
    "422-but-created": {"created_422": 1, "error_shape": "empty"},
    "redirect": {"redirect_to": "https://elsewhere.example"},
    "a field that is missing": {"required": ["LastName"]},
}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[SandboxProcess]:
    with SandboxProcess() as running:
        yield running


def ask_real(sandbox: SandboxProcess, switches: dict[str, object]) -> Answer:
    async def ask() -> Answer:
        service = Service(sandbox.base_url, Token(sandbox.token), timeout_s=TIMEOUT_S)
        async with open_client(service) as client:
            return await client.create_subscriber(BODY)

    sandbox.reset()
    sandbox.switch(**switches)
    return asyncio.run(ask())


def ask_simulated(switches: dict[str, object], weather: Weather) -> Answer | None:
    timeline, life = Timeline(), Life()
    record = Record()
    far_end = FarEnd(timeline, switches, People("email"), record)
    call = Call(1, 1, "create", 0, "", timeline.now_s, record.tell)
    network = Network(timeline, far_end, life, lambda request: call, Random(1), TIMEOUT_S)
    network.weather = weather

    async def ask() -> Answer:
        return await Client(network, str, Clock(timeline.read, timeline.read_date, asyncio.sleep)).create_subscriber(
            BODY
        )

    return Process(timeline, life).run(ask())


@pytest.mark.parametrize("name", BEFALLEN)
def test_the_simulated_network_and_real_sockets_give_the_same_answer(sandbox: SandboxProcess, name: str) -> None:
    simulated, real = ask_simulated(BEFALLEN[name], Weather()), ask_real(sandbox, BEFALLEN[name])
    if isinstance(real, Refused) and isinstance(simulated, Refused):  # a date has no fractions of a second
        assert abs((simulated.retry_after_s or 0.0) - (real.retry_after_s or 0.0)) <= 1
        simulated = replace(simulated, retry_after_s=real.retry_after_s)
    assert simulated == real


def test_a_missing_service_is_not_sent_and_a_lost_answer_is_ambiguous() -> None:
    """The words name the host, which is another one here."""
    with SandboxProcess() as gone:
        service = Service(gone.base_url, Token("some-token"), timeout_s=TIMEOUT_S)

    async def ask() -> Answer:
        async with open_client(service) as client:
            return await client.create_subscriber(BODY)

    real, simulated = asyncio.run(ask()), ask_simulated({}, Weather(refused=1.0))
    assert isinstance(real, NotSent)
    assert isinstance(simulated, NotSent)
