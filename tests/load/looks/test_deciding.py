"""The decisions of `choose_lookup`: the next method to look subscribers up."""

from connector.load.lookups import KeysCost, LookupMethod, LookupProgress, SweepCost, choose_lookup

FILTER, SWEEP, FILTER_AS_SENT, NO_METHOD = (
    LookupMethod.FILTER,
    LookupMethod.SWEEP,
    LookupMethod.FILTER_AS_SENT,
    LookupMethod.NONE,
)
SHORT_LIST, LONG_LIST, UNKNOWN_LIST = SweepCost(2), SweepCost(100), SweepCost(None)
UNUSABLE_LIST = SweepCost(100, is_unusable=True)
FEW_KEYS, MANY_KEYS = KeysCost(10), KeysCost(300)
KEYS_WITHOUT_FILTER = KeysCost(10, unprovable_count=1)
KEYS_IN_CAPITALS = KeysCost(10, has_other_spellings=True)
KEYS_WITHOUT_CASE_FILTER = KeysCost(10, unprovable_count=10, has_other_spellings=True)


def test_decide_lookup_returns_the_next_method_for_each_cost_and_progress() -> None:
    cases: list[tuple[SweepCost, KeysCost, LookupProgress, LookupMethod]] = [
        # The cheaper method is used first.
        (LONG_LIST, FEW_KEYS, LookupProgress(), FILTER),
        (LONG_LIST, MANY_KEYS, LookupProgress(), SWEEP),
        (SHORT_LIST, FEW_KEYS, LookupProgress(), SWEEP),
        (SweepCost(10), FEW_KEYS, LookupProgress(), SWEEP),
        (SweepCost(11), FEW_KEYS, LookupProgress(), FILTER),
        (SweepCost(11), FEW_KEYS, LookupProgress(request_count=1), SWEEP),
        (UNKNOWN_LIST, FEW_KEYS, LookupProgress(), SWEEP),
        # Only a sweep can verify the base, or find these keys.
        (LONG_LIST, KEYS_WITHOUT_FILTER, LookupProgress(), SWEEP),
        (LONG_LIST, FEW_KEYS, LookupProgress(needs_sweep=True), SWEEP),
        (UNUSABLE_LIST, FEW_KEYS, LookupProgress(needs_sweep=True), SWEEP),
        (LONG_LIST, FEW_KEYS, LookupProgress(frozenset({SWEEP}), needs_sweep=True), FILTER),
        # If a method was inconclusive, the other method follows.
        (LONG_LIST, FEW_KEYS, LookupProgress(frozenset({FILTER})), SWEEP),
        (LONG_LIST, MANY_KEYS, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG_LIST, KEYS_WITHOUT_FILTER, LookupProgress(frozenset({SWEEP})), FILTER),
        (LONG_LIST, FEW_KEYS, LookupProgress(frozenset({FILTER, SWEEP})), NO_METHOD),
        (LONG_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({FILTER, SWEEP})), NO_METHOD),
        # No sweep of the list can be relied on.
        (UNUSABLE_LIST, MANY_KEYS, LookupProgress(), FILTER),
        (UNUSABLE_LIST, KEYS_WITHOUT_CASE_FILTER, LookupProgress(), FILTER_AS_SENT),
        (UNUSABLE_LIST, KEYS_WITHOUT_FILTER, LookupProgress(), FILTER),
        (UNUSABLE_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({FILTER})), FILTER_AS_SENT),
        (UNUSABLE_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({FILTER, FILTER_AS_SENT})), SWEEP),
        (UNUSABLE_LIST, KEYS_WITHOUT_CASE_FILTER, LookupProgress(frozenset({FILTER_AS_SENT})), SWEEP),
        (UNUSABLE_LIST, KEYS_WITHOUT_CASE_FILTER, LookupProgress(frozenset({FILTER_AS_SENT, SWEEP})), NO_METHOD),
        (UNUSABLE_LIST, FEW_KEYS, LookupProgress(frozenset({FILTER})), SWEEP),
        (UNUSABLE_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({SWEEP})), FILTER),
        (UNUSABLE_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({SWEEP, FILTER})), FILTER_AS_SENT),
        (UNUSABLE_LIST, KEYS_IN_CAPITALS, LookupProgress(frozenset({SWEEP, FILTER, FILTER_AS_SENT})), NO_METHOD),
    ]
    for sweep_cost, keys_cost, progress, method in cases:
        lookup = choose_lookup(sweep_cost, keys_cost, progress)
        assert lookup.method is method
        assert lookup.reason
