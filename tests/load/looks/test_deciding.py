"""The table of `decide_lookup`: how subscribers are looked up next."""

from connector.load.lookups import KeysCost, LookupProgress, SweepCost, Way, decide_lookup

FILTER, SWEEP, AS_SENT, NONE = Way.FILTER, Way.SWEEP, Way.FILTER_AS_SENT, Way.NONE
SHORT, LONG, UNKNOWN = SweepCost(2), SweepCost(100), SweepCost(None)
USELESS = SweepCost(100, is_unusable=True)
FEW, MANY = KeysCost(10), KeysCost(300)
STRANGE = KeysCost(10, untellable=1)
SPELLED = KeysCost(10, has_other_spellings=True)
CAPITALS = KeysCost(10, untellable=10, has_other_spellings=True)


def test_decide_lookup_returns_the_next_way() -> None:
    cases: list[tuple[SweepCost, KeysCost, LookupProgress, Way]] = [
        # the cheaper way first
        (LONG, FEW, LookupProgress(), FILTER),
        (LONG, MANY, LookupProgress(), SWEEP),
        (SHORT, FEW, LookupProgress(), SWEEP),
        (SweepCost(10), FEW, LookupProgress(), SWEEP),
        (SweepCost(11), FEW, LookupProgress(), FILTER),
        (SweepCost(11), FEW, LookupProgress(spent=1), SWEEP),
        (UNKNOWN, FEW, LookupProgress(), SWEEP),
        # facts that only a sweep shows
        (LONG, STRANGE, LookupProgress(), SWEEP),
        (LONG, FEW, LookupProgress(needs_sweep=True), SWEEP),
        (USELESS, FEW, LookupProgress(needs_sweep=True), SWEEP),
        (LONG, FEW, LookupProgress(frozenset({SWEEP}), needs_sweep=True), FILTER),
        # the other way after an inconclusive one
        (LONG, FEW, LookupProgress(frozenset({FILTER})), SWEEP),
        (LONG, MANY, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG, STRANGE, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG, FEW, LookupProgress(frozenset({FILTER, SWEEP})), NONE),
        (LONG, SPELLED, LookupProgress(frozenset({FILTER, SWEEP})), NONE),
        # a list of which no sweep is reliable
        (USELESS, MANY, LookupProgress(), FILTER),
        (USELESS, CAPITALS, LookupProgress(), AS_SENT),
        (USELESS, STRANGE, LookupProgress(), FILTER),
        (USELESS, SPELLED, LookupProgress(frozenset({FILTER})), AS_SENT),
        (USELESS, SPELLED, LookupProgress(frozenset({FILTER, AS_SENT})), SWEEP),
        (USELESS, CAPITALS, LookupProgress(frozenset({AS_SENT})), SWEEP),
        (USELESS, CAPITALS, LookupProgress(frozenset({AS_SENT, SWEEP})), NONE),
        (USELESS, FEW, LookupProgress(frozenset({FILTER})), SWEEP),
        (USELESS, SPELLED, LookupProgress(frozenset({SWEEP})), FILTER),
        (USELESS, SPELLED, LookupProgress(frozenset({SWEEP, FILTER})), AS_SENT),
        (USELESS, SPELLED, LookupProgress(frozenset({SWEEP, FILTER, AS_SENT})), NONE),
    ]
    for sweep, keys, progress, way in cases:
        lookup = decide_lookup(sweep, keys, progress)
        assert lookup.way is way
        assert lookup.reason
