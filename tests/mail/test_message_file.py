"""The keys of a message file: the time to send."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError

from pipelines.jobs.mail_models import MessageFile


@pytest.mark.parametrize(
    ("text", "in_utc"),
    [
        ("2026-12-24T09:00+01:00", "2026-12-24T08:00"),
        ("2026-12-24T09:00:30Z", "2026-12-24T09:00:30"),
        ("2026-12-24 09:00+01:00", "2026-12-24T08:00"),
        ("1798099200", "2026-12-24T08:00"),
    ],
)
def test_a_time_has_an_offset_or_is_a_unix_timestamp(text: str, in_utc: str) -> None:
    assert MessageFile.model_validate({"at": text}).at == datetime.fromisoformat(in_utc).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "2026-12-24T09:00",
        "2026-12-24",
        "tomorrow",
        "",
        "2026-12-24T09:00 Europe/Berlin",
        "1798099200000",
        "9" * 40,
        "-1",
    ],
)
def test_a_time_without_an_offset_is_refused(text: str) -> None:
    with pytest.raises(ValidationError, match=r"must be a time with an offset, .* time zone is not"):
        MessageFile.model_validate({"at": text})
