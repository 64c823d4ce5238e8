"""TLS with a trusted certificate. The test needs another process, because Python reads the trusted certificates at its
start."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.service import faults
from tests.service.attempts import CREATED_ANSWER
from tests.service.faults import serve

ROOT = Path(__file__).parents[2]

CHILD_SCRIPT = """
import asyncio, sys
from connector.service.settings import Service, Token; from connector.service.client import open_client

async def create(base_url):
    async with open_client(Service(base_url, Token("s3cret-token"), timeout_s=5.0)) as client:
        answer = await client.create_subscriber(b"{}")
        print(type(answer).__name__, getattr(answer, "message", ""))

for base_url in sys.argv[1:]:
    asyncio.run(create(base_url))
"""


async def test_a_trusted_certificate_is_accepted_only_for_its_own_host_name(tmp_path: Path) -> None:
    authority_path = tmp_path / "authority.pem"
    faults.make_authority().cert_pem.write_to_path(str(authority_path))
    tls_context = faults.build_tls_context()
    async with (
        serve(faults.answer_with(CREATED_ANSWER), tls_context=tls_context) as trusted_server,
        serve(faults.cut_before_answer, tls_context=tls_context) as cutting_server,
    ):
        urls = (
            trusted_server.base_url,
            trusted_server.base_url.replace("localhost", "127.0.0.1"),
            cutting_server.base_url,
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", CHILD_SCRIPT, *urls),
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "SSL_CERT_FILE": str(authority_path)},
        )
        stdout, _ = await asyncio.wait_for(process.communicate(), 30)
        trusted_line, wrong_host_line, cut_connection_line = stdout.decode().splitlines()
        assert trusted_line.startswith("CreatedAnswer ")
        assert wrong_host_line.startswith("NotSent the certificate of 127.0.0.1 is not trusted: IP address mismatch")
        assert cut_connection_line == "AmbiguousResult the connection was cut before the answer"
        assert (len(trusted_server.requests), len(cutting_server.requests)) == (1, 1)
