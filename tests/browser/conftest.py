"""The fixtures that make the pages for the browser."""

from tests.pipelines.conftest import connector as connector
from tests.sandbox.conftest import client as client
