"""How long a limiter's window is, learnt from when everything was refused and when no longer."""

import pytest

from connector.pace.windows import USUAL_S, Windows

_LAST_S = USUAL_S[-1]


@pytest.mark.parametrize(
    ("blocks", "told_s", "length_s"),
    [
        ([], [], 1.0),
        ([(0.4, 1.1)], [None], 1.0),  # too short to tell
        ([(3.0, 4.4)], [None], 1.0),
        ([(3.0, 5.2)], [5.2], 5.0),  # from the first request to the end of the block
        ([(2.0, 10.3)], [10.3], 10.0),
        ([(2.0, 9.2)], [9.2], 10.0),  # measured short by the gaps between probes
        ([(2.0, 8.9)], [8.9], 5.0),
        ([(11.0, 61.0)], [61.0], 60.0),
        ([(2.0, 10.0), (12.0, 20.1)], [10.0, 10.1], 10.0),
        ([(2.0, 10.0), (13.0, 40.0)], [10.0, 30.0], 30.0),  # longer than thought
        ([(2.0, 62.0), (64.0, 67.1)], [62.0, 5.1], 5.0),  # shorter than thought
        ([(2.0, 10.0), (10.5, 11.0)], [10.0, None], 10.0),  # a short one takes nothing back
        ([(1000.0, 1006.0)], [12.0], 10.0),  # windows went by unnoticed: twice the block
        ([(2.0, 10.0), (500.0, 503.0)], [10.0, 10.0], 10.0),  # the same, and what is known is longer
        ([(0.0, 5000.0)], [5000.0], _LAST_S),  # longer than any usual one
    ],
)
def test_a_window_lasts_from_one_opening_to_the_next(
    blocks: list[tuple[float, float]], told_s: list[float | None], length_s: float
) -> None:
    windows = Windows()
    windows.begin(0.0)

    told = [windows.open(blocked_at, now) for blocked_at, now in blocks]

    assert told == [None if each is None else pytest.approx(each) for each in told_s]
    assert windows.length_s == length_s
    assert windows.is_long is (length_s > USUAL_S[0])


def test_time_before_the_first_request_is_no_window() -> None:
    windows = Windows()
    windows.begin(1000.0)

    assert windows.open(1002.0, 1010.3) == pytest.approx(10.3)
    assert windows.length_s == 10.0
