"""The fixtures of the pages' makers."""

from tests.pipelines.conftest import connector as connector
from tests.sandbox.conftest import calls as calls
