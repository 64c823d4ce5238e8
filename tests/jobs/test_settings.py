"""Settings from the environment and the job: their precedence, refused values, and messages without secrets."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.jobs.models import Job
from connector.jobs.reader import read_settings
from connector.settings import build_service, read_state_location, read_token

SECRET_TOKEN = "s3cr3t-token"


def make_job(service: dict[str, object]) -> Job:
    return Job.model_validate({"job": "x", "service": service, "export": {"to": "a.csv"}})


def make_environ(folder: Path, **variables: str) -> dict[str, str]:
    return {
        "CONNECTOR_BASE_URL": "https://env.example.com/",
        "CONNECTOR_TOKEN": SECRET_TOKEN,
        "CONNECTOR_STATE_DIR": str(folder / "state"),
    } | variables


def test_all_settings_can_come_from_the_environment(tmp_path: Path) -> None:
    settings = read_settings(make_environ(tmp_path), None)
    assert settings.service.base_url == "https://env.example.com"
    assert settings.service.token.reveal() == SECRET_TOKEN
    assert (settings.service.authorization, settings.service.timeout_s) == ("{token}", 30.0)
    assert settings.account == "https://env.example.com"
    assert settings.state_dir == tmp_path / "state"
    assert settings.ledger_url == f"sqlite:///{tmp_path}/state/ledger.db"


def test_the_environment_overrides_the_job(tmp_path: Path) -> None:
    job = make_job({"base_url": "https://job.example.com", "account": "main"})
    environ = make_environ(tmp_path)
    assert read_settings(environ, job).service.base_url == "https://env.example.com"
    del environ["CONNECTOR_BASE_URL"]
    assert read_settings(environ, job).service.base_url == "https://job.example.com"
    assert read_settings(environ, job).account == "main"


def test_the_service_has_the_settings_of_the_job(tmp_path: Path) -> None:
    job = make_job({"authorization": "Bearer {token}", "timeout": "5s"})
    service = build_service(read_settings(make_environ(tmp_path), job), max_concurrency=10)
    assert service.reveal_authorization() == f"Bearer {SECRET_TOKEN}"
    assert (service.timeout_s, service.max_connections, service.proxy) == (5.0, 74, None)


@pytest.mark.parametrize("base_url", ["", None])
def test_the_error_of_a_missing_base_url_shows_the_next_step(tmp_path: Path, base_url: str | None) -> None:
    environ = make_environ(tmp_path, CONNECTOR_BASE_URL=base_url or "")
    with pytest.raises(ConfigurationError, match="set CONNECTOR_BASE_URL"):
        read_settings(environ, None)


@pytest.mark.parametrize(
    "content", [b"s3cr3t-token", b"s3cr3t-token\n", b"s3cr3t-token\r\n", b"\xef\xbb\xbfs3cr3t-token "]
)
def test_a_token_is_read_from_a_file_and_a_second_token_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "token").write_bytes(content)
    environ = {"CONNECTOR_TOKEN": "", "CONNECTOR_TOKEN_FILE": str(tmp_path / "token")}
    assert read_token(environ).reveal() == SECRET_TOKEN
    with pytest.raises(ConfigurationError, match="unset one of them"):
        read_token(environ | {"CONNECTOR_TOKEN": SECRET_TOKEN})


@pytest.mark.parametrize("environ", [{}, {"CONNECTOR_TOKEN": ""}, {"CONNECTOR_TOKEN_FILE": ""}])
def test_the_error_of_a_missing_token_shows_the_next_step(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="set CONNECTOR_TOKEN, or CONNECTOR_TOKEN_FILE"):
        read_token(environ)


def test_the_error_of_a_token_with_an_invalid_character_hides_the_token() -> None:
    for character in "\n\x00\x7f\u2028“\udcff\xa0":
        with pytest.raises(ConfigurationError) as error_info:
            read_token({"CONNECTOR_TOKEN": f"s3cr3t{character}token"})
        assert "s3cr3t" not in str(error_info.value)
        assert "CONNECTOR_TOKEN" in str(error_info.value)


@pytest.mark.parametrize(
    ("content", "expected_text"),
    [
        (None, "cannot be read: No such file"),
        ("a folder", "cannot be read: Is a directory"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"s3cr3t\nsecond line\n", "a line break or another control character"),
        (b"s3cr3t\xff", "a character that a token cannot have"),
        (b"s3cr3t" * 4096, "so the file does not hold a token"),
    ],
)
def test_the_error_of_an_invalid_token_file_shows_the_path_and_the_problem(
    tmp_path: Path, content: bytes | str | None, expected_text: str
) -> None:
    path = tmp_path / "token"
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        path.mkdir()
    with pytest.raises(ConfigurationError) as error_info:
        read_token({"CONNECTOR_TOKEN_FILE": str(path)})
    assert expected_text in str(error_info.value)
    assert str(path) in str(error_info.value)
    assert "s3cr3t" not in str(error_info.value)


def test_the_repr_of_settings_hides_the_token_and_the_password(tmp_path: Path) -> None:
    environ = make_environ(tmp_path, CONNECTOR_LEDGER="postgresql://u:hunter2@h/ledger")
    settings = read_settings(environ, None)
    assert settings.ledger_url == "postgresql://u:hunter2@h/ledger"
    text = repr(settings) + repr(read_state_location(environ))
    assert SECRET_TOKEN not in text
    assert "hunter2" not in text


def test_only_the_owner_may_read_a_new_state_folder(tmp_path: Path) -> None:
    location = read_state_location({"CONNECTOR_STATE_DIR": str(tmp_path / "deep" / "state")})
    assert stat.S_IMODE(location.state_dir.stat().st_mode) == 0o700
    location.state_dir.chmod(0o750)
    read_state_location({"CONNECTOR_STATE_DIR": str(location.state_dir)})
    assert stat.S_IMODE(location.state_dir.stat().st_mode) == 0o750, "an existing folder keeps its permissions"


def test_a_state_folder_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "state"):
        with pytest.raises(ConfigurationError, match="set CONNECTOR_STATE_DIR to another"):
            read_state_location({"CONNECTOR_STATE_DIR": str(folder)})


def test_the_default_ledger_can_be_in_a_folder_with_any_name(tmp_path: Path) -> None:
    from sqlalchemy.engine import make_url

    folder = tmp_path / "50%25 off? it's #1 é @home:x"
    location = read_state_location({"CONNECTOR_STATE_DIR": str(folder)})
    assert make_url(location.ledger_url).database == str(folder / "ledger.db")


def test_the_default_state_folder_is_in_the_state_directory_of_the_user(tmp_path: Path) -> None:
    program = "from connector.settings import *; print(read_state_location({}).state_dir)"
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", program], env=environ, cwd=root, capture_output=True, text=True, check=True
    )
    folder = Path(result.stdout.strip())
    assert folder.is_relative_to(tmp_path)
    assert folder.name == "subscriber-connector"
    assert folder.is_dir()
