"""The setting CONNECTOR_LEDGER: accepted and refused URLs, and messages without passwords."""

from pathlib import Path

import pytest
from sqlalchemy import URL

from connector.databases import format_ledger_location, mask_secrets, parse_ledger_location
from connector.errors import ConfigurationError


def test_the_url_of_a_file_is_parsed_as_its_path() -> None:
    urls_and_paths: list[tuple[str, str]] = [
        ("sqlite:////var/lib/ledger.db", "/var/lib/ledger.db"),
        ("sqlite:///ledger.db", "ledger.db"),
        ("sqlite+pysqlite:////x/ledger.db", "/x/ledger.db"),
        ("sqlite:////home/a%40b/50%25%20off.db", "/home/a@b/50% off.db"),
        ("sqlite:////home/a@b/ledger.db", "/home/a@b/ledger.db"),
    ]
    for text, path in urls_and_paths:
        assert parse_ledger_location(text) == Path(path)
        assert format_ledger_location(parse_ledger_location(text)) == path


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_postgresql_url_uses_psycopg_and_is_shown_without_its_password(scheme: str) -> None:
    location = parse_ledger_location(f"{scheme}://me:hunter2@db.example.com:5433/ledger?sslpassword=hunter3")
    assert isinstance(location, URL)
    assert location.drivername == "postgresql+psycopg"
    assert (location.username, location.password, location.host, location.database) == (
        "me",
        "hunter2",
        "db.example.com",
        "ledger",
    )
    assert format_ledger_location(location) == "postgresql://me:***@db.example.com:5433/ledger"
    assert "hunter" not in repr(location)[: repr(location).index("?")]


def test_the_error_of_a_url_that_cannot_be_a_ledger_shows_no_password() -> None:
    for text in [
        "nonsense",
        "",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///x.db?mode=ro",
        "sqlite:///file:x.db",
        "sqlite+aiosqlite:///x.db",
        "mysql://u:secret@127.0.0.1/x",
        "postgresql+asyncpg://u:secret@h/x",
        "postgresql://u:secret@h:port/x",
        "postgresql://u:pa@secret@h/x",
        "postgresql://u:pa@secret/x@h/x",
        "postgresql://u/x:secret@h:1/db",
        "u:secret@h",
    ]:
        with pytest.raises(ConfigurationError, match=r"sqlite:////path|%40") as error_info:
            parse_ledger_location(text)
        assert "secret" not in str(error_info.value)
        assert error_info.value.__suppress_context__ or error_info.value.__context__ is None


def test_an_escaped_at_sign_in_a_password_is_read() -> None:
    location = parse_ledger_location("postgresql://u:p%40s%2Fw@h/db")
    assert isinstance(location, URL)
    assert (location.password, location.host) == ("p@s/w", "h")


def test_a_password_in_the_message_of_a_driver_is_masked() -> None:
    location = parse_ledger_location("postgresql://u:hunter2@h/x?sslpassword=hunter2more&user=u")
    assert isinstance(location, URL)
    assert mask_secrets("no hunter2more, no hunter2: u", location) == "no ***, no ***: u"
