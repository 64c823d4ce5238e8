import pytest

from connector.sandbox.faults import Bucket, FixedWindow, SlidingWindow, Unlimited, build_limiter


def test_a_bucket_lets_its_burst_in_and_then_its_rate() -> None:
    bucket = Bucket(rate=10, burst=3)
    assert [bucket.admit(5.0) for _ in range(3)] == [0, 0, 0]
    assert bucket.admit(5.0) == pytest.approx(0.1)
    assert [bucket.admit(5.0 + n / 10) for n in range(1, 200)] == [0] * 199


def test_a_bucket_without_burst_holds_one_second() -> None:
    bucket = Bucket(rate=5, burst=0)
    assert sum(bucket.admit(0.0) == 0 for _ in range(20)) == 5


def test_a_slow_bucket_holds_one_request() -> None:
    bucket = Bucket(rate=0.5, burst=0)
    assert [bucket.admit(0.0), bucket.admit(0.0), bucket.admit(2.0)] == pytest.approx([0, 2, 0])


def test_a_fixed_window_begins_anew_with_the_clock() -> None:
    window = FixedWindow(rate=2, window_s=1.0)
    assert [window.admit(t) for t in (0.9, 0.95)] == [0, 0]
    assert window.admit(0.96) == pytest.approx(0.04)
    assert [window.admit(t) for t in (1.0, 1.01)] == [0, 0]


def test_a_sliding_window_looks_back_a_whole_window() -> None:
    window = SlidingWindow(rate=2, window_s=1.0)
    assert [window.admit(t) for t in (0.9, 0.95)] == [0, 0]
    assert window.admit(1.0) == pytest.approx(0.9)
    assert [window.admit(1.9), window.admit(1.91)] == pytest.approx([0, 0.04])


def test_refused_requests_do_not_count() -> None:
    for limiter in (Bucket(1, 1), FixedWindow(1, 1), SlidingWindow(1, 1)):
        limiter.admit(0.0)
        for n in range(10):
            limiter.admit(0.1 + n / 100)
        assert limiter.admit(1.0) == 0


def test_the_switches_choose_the_limiter() -> None:
    kinds = [type(build_limiter(kind, 5, 0, 1.0)) for kind in ("bucket", "fixed_window", "sliding_window")]
    assert kinds == [Bucket, FixedWindow, SlidingWindow]
    assert isinstance(build_limiter("bucket", 0, 5, 1.0), Unlimited)
