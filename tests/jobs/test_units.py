"""Durations and percentages in a job."""

import pytest

from connector.units import format_share, parse_duration, parse_share


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("1.5h", 5400.0),
        (" 1 s ", 1.0),
        ("0s", 0.0),
        (2, 2.0),
    ],
)
def test_a_duration_is_parsed_as_seconds(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["30", "", "s", "-1s", "1w", "1h30m", "٣s", "1e3s", "nan s", "inf", None, [], True, "9" * 40 + "h"]
)
def test_the_error_of_an_invalid_duration_shows_valid_examples(text: object) -> None:
    with pytest.raises(ValueError, match="500ms, 30s, 10m, 2h or 90d"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.5%", 0.005), (" 50 % ", 0.5), ("0%", 0.0), ("100%", 1.0)]
)
def test_a_share_is_parsed_as_a_number_from_0_to_1(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-5%", "five%", "%", "", 5, 0.05, True, None, "١%"])
def test_an_invalid_share_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as 5%"):
        parse_share(text)


def test_a_share_is_shown_in_percent() -> None:
    assert [format_share(share) for share in (0.05, 0.1053, 1)] == ["5 %", "10.5 %", "100 %"]
