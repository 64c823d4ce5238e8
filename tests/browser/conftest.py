"""The fixtures that make the pages for the browser."""

from tests.pipelines.conftest import connector as connector
from tests.pipelines.emails.test_mail_command import mailer as mailer
from tests.sandbox.conftest import calls as calls
