"""How identities are spelt when they are asked for, and which texts a filter is taken to treat alike."""

import pytest
from hypothesis import given, strategies as st

from connector.fields import normalise_identity
from connector.subscribers import build_spellings, classify, has_spellings_by_case_alone, is_plain


@pytest.mark.parametrize(
    ("field", "value", "texts"),
    [
        ("email", "ann@x.org", ("ann@x.org",)),
        ("email", "ann+b@x.org", ("ann+b@x.org",)),
        ("email", "Ann@x.org", ("Ann@x.org", "ann@x.org")),
        ("email", "ann@X.org", ("ann@X.org", "ann@x.org")),
        ("email", "Ann@X.org", ("Ann@X.org", "Ann@x.org", "ann@x.org")),
        ("email", "ann@bücher.de", ("ann@bücher.de", "ann@xn--bcher-kva.de")),
        ("email", "Jörg@Bücher.de", ("Jörg@Bücher.de", "Jörg@xn--bcher-kva.de", "jörg@xn--bcher-kva.de")),
        ("email", " ann@x.org", (" ann@x.org", "ann@x.org")),
        ("email", "No address", ("No address", "no address")),
        ("client_user_id", "A-7", ("A-7",)),
        ("client_user_id", " A-7 ", (" A-7 ", "A-7")),
    ],
)
def test_an_identity_is_asked_for_as_sent_with_its_domain_normalised_and_as_normalised(
    field: str, value: str, texts: tuple[str, ...]
) -> None:
    assert build_spellings(field, value) == texts


@given(st.sampled_from(["email", "client_user_id"]), st.text(min_size=1))
def test_every_spelling_is_of_the_same_identity_and_the_normal_form_is_among_them(field: str, value: str) -> None:
    spellings, normal = build_spellings(field, value), normalise_identity(field, value)
    assert spellings[0] == value
    assert normal in spellings
    assert all(normalise_identity(field, text) == normal for text in spellings)


@pytest.mark.parametrize(
    ("field", "text", "traits"),
    [
        ("email", "ann.lee-1_2@x-y.org", set()),
        ("email", "Ann@x.org", {"local: capitals"}),
        ("email", "ann@X.org", {"domain: capitals"}),
        ("email", "a+b@x.org", {"local: +"}),
        ("email", "O'Neil+b@x.org", {"local: capitals", "local: '", "local: +"}),
        ("email", "a%b@x.org", {"local: %"}),
        ("email", "a&b=c/d@x.org", {"local: &", "local: =", "local: /"}),
        ("email", '"a b"@x.org', {'local: "', "local:  "}),
        ("email", '"a@b"@x.org', {'local: "', "local: @"}),
        ("email", "jörg@x.org", {"local: beyond ASCII"}),
        ("email", "JÖRG@x.org", {"local: beyond ASCII", "local: capitals"}),
        ("email", "jo\u0308rg@x.org", {"local: beyond ASCII", "local: not composed"}),
        ("email", "😀@x.org", {"local: beyond ASCII", "local: beyond 16 bits"}),
        ("email", "ann@bücher.de", {"domain: beyond ASCII"}),
        ("email", "ann@xn--bcher-kva.de", {"domain: A-label"}),
        ("email", "ann@x.XN--P1AI", {"domain: A-label", "domain: capitals"}),
        ("email", "ann@[1.2.3.4]", {"domain: [", "domain: ]"}),
        ("email", "nobody", {"no @"}),
        ("client_user_id", "a-7", set()),
        ("client_user_id", "7a", set()),
        ("client_user_id", "A7", {"capitals"}),
        ("client_user_id", "77", {"digits only"}),
        ("client_user_id", "007", {"digits only", "leading zero"}),
        ("client_user_id", "0a", {"leading zero"}),
        ("client_user_id", "a/7 b", {"/", " "}),
        ("client_user_id", "é7", {"beyond ASCII"}),
    ],
)
def test_a_class_is_what_sets_a_text_apart_from_the_plain_ones(field: str, text: str, traits: set[str]) -> None:
    assert classify(field, text).traits == traits


@given(
    st.sampled_from(["email", "client_user_id"]),
    st.one_of(st.text(), st.text("aZ0._-+@é", max_size=8), st.from_regex(r"[a-z0-9._-]{1,9}@(xn--)?[a-z0-9.-]{1,9}")),
)
def test_a_text_that_is_told_plain_at_once_has_nothing_that_sets_it_apart(field: str, text: str) -> None:
    if not is_plain(field, text):
        return
    assert set(text) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-@")
    if field == "email":
        assert text.count("@") == 1
        assert not any(label.startswith("xn--") for label in text.partition("@")[2].split("."))
    else:
        assert "@" not in text
        assert not text.isdigit()
        assert not text.startswith("0")


def test_classes_of_different_fields_are_different() -> None:
    assert classify("email", "ann@x.org") != classify("client_user_id", "ann")
    assert classify("email", "ann@x.org") == classify("email", "bob.2@y.net")


@pytest.mark.parametrize(
    ("field", "value", "is_so"),
    [
        ("email", "Ann+b@X.org", True),
        ("email", "jörg@x.org", False),
        ("email", "ann@bücher.de", False),
        ("email", "ann@xn--bcher-kva.de", False),
        ("client_user_id", "É7", True),
    ],
)
def test_only_letters_beyond_ascii_can_be_spelt_otherwise_than_by_case(field: str, value: str, is_so: bool) -> None:
    assert has_spellings_by_case_alone(field, value) is is_so
