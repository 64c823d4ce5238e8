"""Two rules have one word exactly when they are the same rule."""

from itertools import combinations

from connector.mapping import ColumnRule
from connector.mapping.rule_digests import digest_rule
from connector.mapping.rules import Join

RULES = [
    ColumnRule("name"),
    ColumnRule("Name"),
    ColumnRule(value="name"),
    ColumnRule(template="{{ name }}"),
    ColumnRule("name", is_trimmed=False),
    ColumnRule("name", case="lower"),
    ColumnRule("name", values={"M": "male"}),
    ColumnRule("name", values={"M": "male", "F": "female"}),
    ColumnRule("name", format=("%d/%m/%Y",)),
    ColumnRule("name", default="x"),
    ColumnRule(join=Join(("a", "b"))),
    ColumnRule(join=Join(("a", "b"), "-")),
]


def test_another_rule_has_another_word() -> None:
    assert all(digest_rule(one) != digest_rule(other) for one, other in combinations(RULES, 2))
    assert digest_rule(RULES[0]) != digest_rule(RULES[0], ["DE", "keep"])


def test_the_same_rule_has_the_same_word_wherever_it_was_read() -> None:
    one = ColumnRule("name", values={"M": "male", "F": "female"})
    other = ColumnRule("name", values={"F": "female", "M": "male"})
    assert digest_rule(one) == digest_rule(other)
    assert digest_rule(ColumnRule("name")) == "2dca76b60bfd"
