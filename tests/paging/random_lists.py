"""Random simulated lists: any order, any changes and any wrong answers, in any combination."""

from random import Random

from tests.paging.simulated import ORDERS, SimulatedList


def build_small_list(seed: int) -> SimulatedList:
    """Build a list with few rows, tiny pages and every fault. A false proof by chance is most likely for a small
    list."""
    random = Random(seed)
    limit = random.choice((1, 2, 5, 16, 20, 40, 100))
    change_rate = random.choice((0, 0, 0.05, 0.3, 1.0)) if limit > 4 else random.choice((0, 0.05))
    # If a list grew faster than it is read, the reading would never end.
    max_changes_per_request = limit // 10 if limit >= 20 else 0
    subscriber_count = random.choice((0, 1, 2, 5, 15, 19, 20, 21, 40, 80, 200))
    return _build_simulated_list(
        random,
        subscriber_count,
        limit,
        change_rate,
        max_changes_per_request,
        ("correct",) * 5 + ("offset_rounded_down", "offset_ignored", "offset_limited", "half_pages"),
    )


def build_large_list(seed: int) -> SimulatedList:
    """Build a list that changes, with mostly correct answers. Its pages are long enough for the proof by id order."""
    random = Random(seed)
    limit, change_rate = random.choice((40, 100)), random.choice((0, 0.05, 0.3, 1.0))
    subscriber_count = random.choice((90, 200, 400, 900))
    return _build_simulated_list(
        random, subscriber_count, limit, change_rate, limit // 12, ("correct",) * 9 + ("half_pages",)
    )


def _build_simulated_list(
    random: Random,
    subscriber_count: int,
    limit: int,
    change_rate: float,
    max_changes_per_request: int,
    paging_modes: tuple[str, ...],
) -> SimulatedList:
    simulated_list = SimulatedList(
        random,
        subscriber_count,
        random.choice(ORDERS),
        limit,
        insert_chance=change_rate * random.random(),
        delete_chance=change_rate * random.random(),
        activity_change_chance=change_rate * random.random(),
        max_changes_per_request=random.choice((1, 1, 3, max_changes_per_request)) if max_changes_per_request else 1,
        middle_insert_share=random.choice((0, 0, 0.5)),
        total_mode=random.choice(("correct",) * 5 + ("cap", "page_cap", "wrong", "sometimes_wrong", "none")),
        paging_mode=random.choice(paging_modes),
        has_echoes=random.random() < 0.8,
        filter_mode=random.choice(("work", "work", "ignored", "incomplete")),
    )
    # If both Limit and TotalCount are wrong in one answer, nothing can show that either is wrong.
    if simulated_list.paging_mode == "half_pages" and simulated_list.total_mode == "sometimes_wrong":
        simulated_list.total_mode = "correct"
    return simulated_list


def build_long_list(seed: int) -> SimulatedList:
    """Build a list of many pages, so that pages are requested ahead. The rows have any order and change at any place,
    and all answers are correct."""
    random = Random(seed)
    change_rate = random.choice((0, 0.01, 0.03, 0.1, 0.3, 1.0))
    return SimulatedList(
        random,
        random.choice((500, 900, 1500)),
        random.choice((*ORDERS, "grouped")),
        limit := random.choice((20, 40, 60)),
        insert_chance=change_rate * random.choice((0, 0.5, 1)),
        delete_chance=change_rate * random.choice((0, 0.5, 1)),
        activity_change_chance=change_rate * random.choice((0, 0, 0.5, 1)),
        max_changes_per_request=random.choice((1, 1, 3, limit // 12)),
        middle_insert_share=random.choice((0, 0, 0.5)),
        change_position=random.choice(("anywhere", "head", "middle", "end")),
        filter_mode=random.choice(("work", "work", "ignored", "incomplete")),
    )
