"""Seeded worlds for the simulation: any order, any changes and any wrong answers, in any mixture."""

from random import Random

from tests.paging.simulated import ORDERS, SimulatedList


def build_small_world(seed: int) -> SimulatedList:
    """Few rows, tiny pages, every misbehaviour: here chance comes closest to looking like proof."""
    random = Random(seed)
    limit = random.choice((1, 2, 5, 16, 20, 40, 100))
    churn = random.choice((0, 0, 0.05, 0.3, 1.0)) if limit > 4 else random.choice((0, 0.05))
    burst = limit // 10 if limit >= 20 else 0  # slower than it is read, or there is no end
    count = random.choice((0, 1, 2, 5, 15, 19, 20, 21, 40, 80, 200))
    return _build(random, count, limit, churn, burst, ("honest",) * 5 + ("aligned", "stuck", "clamped", "silent"))


def build_large_world(seed: int) -> SimulatedList:
    """Pages long enough for the proof by id order, and a list that mostly tells the truth while it changes."""
    random = Random(seed)
    limit, churn = random.choice((40, 100)), random.choice((0, 0.05, 0.3, 1.0))
    count = random.choice((90, 200, 400, 900))
    return _build(random, count, limit, churn, limit // 12, ("honest",) * 9 + ("silent",))


def _build(random: Random, count: int, limit: int, churn: float, burst: int, pagings: tuple[str, ...]) -> SimulatedList:
    world = SimulatedList(
        random,
        count,
        random.choice(ORDERS),
        limit,
        inserts=churn * random.random(),
        deletes=churn * random.random(),
        touches=churn * random.random(),
        burst=random.choice((1, 1, 3, burst)) if burst else 1,
        late=random.choice((0, 0, 0.5)),
        total=random.choice(("honest",) * 5 + ("cap", "page_cap", "wrong", "apart", "none")),
        paging=random.choice(pagings),
        echoes=random.random() < 0.8,
        filters=random.choice(("work", "work", "ignored", "lossy")),
    )
    # A list that lies about Limit and at random about TotalCount, in one answer, leaves nothing to check either by.
    if world.paging == "silent" and world.total == "apart":
        world.total = "honest"
    return world


def build_long_world(seed: int) -> SimulatedList:
    """An honest list of many pages, so that some are asked for ahead: in any order, with churn at any of its places."""
    random = Random(seed)
    churn = random.choice((0, 0.01, 0.03, 0.1, 0.3, 1.0))
    return SimulatedList(
        random,
        random.choice((500, 900, 1500)),
        random.choice((*ORDERS, "grouped")),
        limit := random.choice((20, 40, 60)),
        inserts=churn * random.choice((0, 0.5, 1)),
        deletes=churn * random.choice((0, 0.5, 1)),
        touches=churn * random.choice((0, 0, 0.5, 1)),
        burst=random.choice((1, 1, 3, limit // 12)),
        late=random.choice((0, 0, 0.5)),
        where=random.choice(("anywhere", "head", "middle", "end")),
        filters=random.choice(("work", "work", "ignored", "lossy")),
    )
