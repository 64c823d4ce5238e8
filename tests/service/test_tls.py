"""TLS with a trusted certificate, in another process: Python reads its trusted certificates at its start."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.service import faults
from tests.service.faults import response, serve

ROOT = Path(__file__).parents[2]
CREATED = response(b'{"success": true, "Subscriber": {"Id": 5}}')

CHILD = """
import asyncio, sys
from connector.service.settings import Service, Token; from connector.service.client import open_client

async def create(base_url):
    async with open_client(Service(base_url, Token("s3cret-token"), timeout_s=5.0)) as client:
        answer = await client.create_subscriber(b"{}")
        print(type(answer).__name__, getattr(answer, "message", ""))

for base_url in sys.argv[1:]:
    asyncio.run(create(base_url))
"""


async def test_over_tls_a_trusted_certificate_counts_and_only_for_its_own_name(tmp_path: Path) -> None:
    trusted_by_child = tmp_path / "authority.pem"
    faults.make_authority().cert_pem.write_to_path(str(trusted_by_child))
    tls = faults.tls_server()
    async with serve(faults.answers(CREATED), tls=tls) as good, serve(faults.cut_before_answer, tls=tls) as cutting:
        urls = (good.base_url, good.base_url.replace("localhost", "127.0.0.1"), cutting.base_url)
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-c", CHILD, *urls),
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, "SSL_CERT_FILE": str(trusted_by_child)},
        )
        printed, _ = await asyncio.wait_for(child.communicate(), 30)
        trusted, misnamed, cut = printed.decode().splitlines()
        assert trusted.startswith("Created")
        assert misnamed.startswith("NotSent the certificate of 127.0.0.1 is not trusted: IP address mismatch")
        assert cut == "Ambiguous the connection was cut before the answer"
        assert (len(good.requests), len(cutting.requests)) == (1, 1)
