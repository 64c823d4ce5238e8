"""The guard section of a job: shares, and what is said of a wrong one."""

from pathlib import Path

import pytest

from connector.errors import ConfigurationError
from connector.units import parse_share, show_share
from pipelines.jobs import Guard, load_job

LOADS = "job: x\nsource: {file: {path: p.csv}}\nsubscriber: {base: {id: 7}}\n"


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.5%", 0.005), (" 50 % ", 0.5), ("0%", 0.0), ("100%", 1.0)]
)
def test_a_share_is_read_as_it_is_written(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "0.05", "101%", "-5%", "five%", "%", "", 5, 0.05, True, None, "١%"])
def test_what_is_no_share_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match=r"such as 5%"):
        parse_share(text)


def test_a_share_is_shown_with_its_sign() -> None:
    assert [show_share(share) for share in (0.05, 0.1053, 1)] == ["5 %", "10.5 %", "100 %"]


def load(folder: Path, text: str) -> Guard | None:
    path = folder / "job.yaml"
    path.write_text(text, encoding="utf-8")
    return load_job(path, {}).guard


def test_a_job_says_its_guards_and_half_is_the_default_of_shrinking(tmp_path: Path) -> None:
    guard = load(tmp_path, LOADS + "guard: {max_invalid: 5%, max_rejected: 2.5%, max_creates: 100000}\n")
    assert guard == Guard(max_invalid="5%", max_rejected="2.5%", max_creates=100_000)  # type: ignore[arg-type] # as written
    assert guard is not None
    assert (guard.max_invalid, guard.max_shrink) == (0.05, 0.5)
    assert load(tmp_path, LOADS) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (LOADS + "guard: {max_invalid: 5}\n", "guard.max_invalid: must be a share with its sign, such as 5%"),
        (LOADS + "guard: {max_create: 5}\n", "max_creates"),
        (LOADS + "guard: {max_creates: 5%}\n", "guard.max_creates"),
        ("job: x\nexport: {to: p.csv}\nguard: {max_invalid: 5%}\n", "not both"),
    ],
)
def test_a_wrong_guard_is_told_by_its_key(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, text)
    assert words in str(caught.value)
