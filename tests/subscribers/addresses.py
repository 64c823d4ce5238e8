"""The addresses that email-validator's own tests judge, by verdict; its options are at their defaults, without DNS.

Addresses and verdicts are facts; the order and the words beside them are ours. The second half of them comes from the
suite of isemail, which email-validator takes over.
"""

_TENS = "1111111111222222222233333333334444444444555555555"
_SIXES = "6666666666777777777788888888889999999999000000000"
_LONG = f"{_TENS}.{_SIXES}.{_TENS}.{_SIXES}."
_ALPHABET = "abcdefghijklmnopqrstuvwxyz"
_AZ62 = f"{_ALPHABET * 2}abcdefghikl"[:63]  # a label of the longest length
_AZ64 = f"{_ALPHABET * 2}abcdefghiklm"

VALID: tuple[str, ...] = (
    # plain ones, and every sign that a local part may have
    "Abc@example.tld", "Abc.123@test-example.com", "user+mailbox/department=shipping@example.tld",
    "!#$%&'*+-/=?^_`.{|}~@example.tld",
    "test@iana.org", "test@nominet.org.uk", "test@about.museum", "a@iana.org", "test.test@iana.org",
    "!#$%&`*+/=?^`{|}~@iana.org", "123@iana.org", "test@123.com", f"{_AZ64}@iana.org", "test@mason-dixon.com",
    "test@g--a.com", "test@xn--hxajbheg2az3al.xn--jxalpdlp", "xn--test@iana.org",
    # international domains
    "jeff@臺網中心.tw",
    # international local parts
    "伊昭傑@郵件.商務", "राम@मोहन.ईन्फो", "юзер@екзампл.ком", "θσερ@εχαμπλε.ψομ", "葉士豪@臺網中心.tw",
    "葉士豪@臺網中心.台灣", "jeff葉@臺網中心.tw", "ñoñó@example.tld", "我買@example.tld", "甲斐黒川日本@example.tld",
    "чебурашкаящик-с-апельсинами.рф@example.tld", "उदाहरण.परीक्ष@domain.with.idn.tld", "ιωάννης@εεττ.gr",
)  # fmt: skip

INVALID: tuple[str, ...] = (
    # quoted local parts
    '"unnecessarily.quoted.local.part"@example.com', '"quoted..local.part"@example.com',
    '"quoted.with.at@"@example.com', '"quoted with space"@example.com', '"quoted.with.dquote\\""@example.com',
    '"unnecessarily.quoted.with.unicode.λ"@example.com', '"quoted.with..unicode.λ"@example.com',
    '"quoted.with.extraneous.\\escape"@example.com', 'bad"quotes"@example.com', 'obsolete."quoted".atom@example.com',
    '"test"@iana.org', '""@iana.org', '"""@iana.org', '"\\a"@iana.org', '"\\""@iana.org', '"\\"@iana.org',
    '"\\\\"@iana.org', 'test"@iana.org', '"test@iana.org', '"test"test@iana.org', 'test"text"@iana.org',
    '"test""test"@iana.org', '"test"."test"@iana.org', '"test\\ test"@iana.org', '"test".test@iana.org',
    '"test\x00"@iana.org', '"test\\\x00"@iana.org', '"test\\"@iana.org', '"test\\©"@iana.org',
    f'"{_ALPHABET} {_ALPHABET} abcdefghj"@iana.org', f'"{_ALPHABET} {_ALPHABET} abcdefg\\h"@iana.org',
    # addresses of machines in place of a domain
    "me@[127.0.0.1]", "me@[127.0.0.999]", "me@[IPv6:::1]", "me@[IPv6:0000:0000:0000:0000:0000:0000:0000:0001]",
    "me@[IPv6:::G]", "me@[tag:text]", "me@[untaggedtext]", "me@[tag:invalid space]",
    "test@[255.255.255.255]", "test@a[255.255.255.255]", "test@[255.255.255]", "test@[255.255.255.255.255]",
    "test@[255.255.255.256]", "test@[1111:2222:3333:4444:5555:6666:7777:8888]", "test@[1.2.3.4",
    *(
        f"test@[IPv6:{number}]"
        for number in (
            "1111:2222:3333:4444:5555:6666:7777", "1111:2222:3333:4444:5555:6666:7777:8888",
            "1111:2222:3333:4444:5555:6666:7777:8888:9999", "1111:2222:3333:4444:5555:6666:7777:888G",
            "1111:2222:3333:4444:5555:6666::8888", "1111:2222:3333:4444:5555::8888",
            "1111:2222:3333:4444:5555:6666::7777:8888", ":3333:4444:5555:6666:7777:8888",
            "::3333:4444:5555:6666:7777:8888", "1111::4444:5555::8888", "::",
            "1111:2222:3333:4444:5555:255.255.255.255", "1111:2222:3333:4444:5555:6666:255.255.255.255",
            "1111:2222:3333:4444:5555:6666:7777:255.255.255.255", "1111:2222:3333:4444::255.255.255.255",
            "1111:2222:3333:4444:5555:6666::255.255.255.255", "1111:2222:3333:4444:::255.255.255.255",
            ":255.255.255.255", "1::2:",
        )
    ),
    "test@[RFC-5322-domain-literal]", "test@[RFC-5322]-domain-literal]", "test@[RFC-5322-[domain-literal]",
    "test@[RFC-5322-\\\x07-domain-literal]", "test@[RFC-5322-\\\t-domain-literal]",
    "test@[RFC-5322-\\]-domain-literal]", "test@[RFC-5322-domain-literal\\]", "test@[RFC-5322-domain-literal\\",
    "test@[RFC 5322 domain literal]", "test@[RFC-5322-domain-literal] (comment)",
    # dots and hyphens out of place; full-width ones are the same
    "my@.leadingdot.com", "my@．leadingfwdot.com", "my@twodots..com", "my@twofwdots．．.com", "my@trailingdot.com.",
    "my@trailingfwdot.com．", "me@-leadingdash", "me@－leadingdashfw", "me@trailingdash-", "me@trailingdashfw－",
    "my@baddash.-.com", "my@baddash.-a.com", "my@baddash.b-.com", "my@baddashfw.－.com", "my@baddashfw.－a.com",
    "my@baddashfw.b－.com", ".leadingdot@domain.com", "twodots..here@domain.com", "trailingdot.@domain.email",
    ".test@iana.org", "test.@iana.org", "test..iana.org", "test@-iana.org", "test@iana-.com", "test@.iana.org",
    "test@iana.org.", "test@iana..com", "test@iana.org-", "me@yy--0.tld", "me@yy－－0.tld",
    # no local part, no domain, no dot, no such top level, no such name
    "test", "@", "test@", "@io", "@iana.org", "@example.com", "test_exa-mple.com", "my@localhost", "test@io",
    "me@bad-tld-1", "me@bad.tld-2", "me@xn--0.tld", "me@⒈wouldbeinvalid.com", "test\\@test@iana.org", "me@x!",
    "test@iana/icann.org",
    # too long, in characters, in bytes or as an A-label
    f"test@{_AZ64}.com", f"me@{_LONG}{_TENS}6.com", f"me@{_LONG}{_TENS}566.com", f"me@中{_LONG}{_TENS}566.com",
    f"my.long.address@{_LONG}11111111112222222222333333333344444.info",
    f"my.long.address@λ{_LONG}11111111112222222222333333.info",
    f"my.long.address@λ{_LONG}1111111111222222222233333333334444.info",
    f"my.λong.address@{_LONG}111111111122222222223333333333444.info",
    f"my.λong.address@{_LONG}1111111111222222222233333333334444.info",
    f"{_AZ64}@{_AZ62}.{_AZ62}.{_AZ62[:61]}hij",
    f"a@{_AZ62}.{_AZ62}.{_AZ62}.{_AZ62[:59]}.hij", f"a@{_AZ62}.{_AZ62}.{_AZ62}.{_AZ62[:59]}.hijk",
    # blanks, line ends and controls, wherever they are
    "my@example.com\n", "my@example\n.com", "me@x ", "white space@test", "test@white space", "\nmy@example.com",
    "m\ny@example.com", "my\n@example.com", "test@\n", " test @iana.org", "test@ iana .com", "test . test@iana.org",
    "\r\n test@iana.org", "\r\n \r\n test@iana.org", "test@iana.org\n", "\x7f@iana.org", "test@\x7f.org",
    '"\x7f"@iana.org', '"\\\x7f"@iana.org', "(\x7f)test@iana.org", "test@iana.org\r", "\rtest@iana.org",
    '"\rtest"@iana.org', "(\r)test@iana.org", "test@iana.org(\r)", "\ntest@iana.org", '"\n"@iana.org',
    '"\\\n"@iana.org', "(\n)test@iana.org", "\x07@iana.org", "test@\x07.org", '"\x07"@iana.org', '"\\\x07"@iana.org',
    "(\x07)test@iana.org", "\r\ntest@iana.org", "\r\n \r\ntest@iana.org", " \r\ntest@iana.org", " \r\n test@iana.org",
    " \r\n \r\ntest@iana.org", " \r\n\r\ntest@iana.org", " \r\n\r\n test@iana.org", "test@iana.org\r\n ",
    "test@iana.org\r\n \r\n ", "test@iana.org\r\n", "test@iana.org\r\n \r\n", "test@iana.org \r\n",
    "test@iana.org \r\n ", "test@iana.org \r\n \r\n", "test@iana.org \r\n\r\n", "test@iana.org \r\n\r\n ",
    " test@iana.org", "test@iana.org ",
    # comments
    "(comment)test@iana.org", "((comment)test@iana.org", "(comment(comment))test@iana.org", "test@(comment)iana.org",
    "test(comment)test@iana.org", "test@(comment)[255.255.255.255]", f"(comment){_AZ64}@iana.org",
    f"test@(comment){_AZ62}.com", f"(comment)test@{_AZ62[:62]}.{_AZ62[:62]}.{_AZ62[:63]}.{_AZ62[:37]}.{_AZ62[:47]}",
    "(test@iana.org", "test@(iana.org", "(comment\\)test@iana.org", "test@iana.org(comment\\)",
    "test@iana.org(comment\\", "test.(comment)test@iana.org",
    # names that are for special use
    "me@anything.arpa", "me@valid.invalid", "me@link.local", "me@host.localhost", "me@onion.onion.onion",
    # characters that are not safe to show or that mean nothing
    *(
        address
        for sign in (
            "\u2005", "\u2028", "\u2029", "\u0300", "\u009c", "\u200b", "\u202dforward-\u202ereversed", "\ue000",
            "\U0010fdef", "\ufdef",
        )
        for address in (f"{sign}@test", f"test@{sign}")
    ),
    # names beside the address
    "Ann Lee <me@example.tld>", '"Ann Lee" <me@example.tld>', "<me@example.tld>", "me@example.tld (Ann)",
)  # fmt: skip

VALID_HERE_ALONE: tuple[str, ...] = (
    "me@test.test.test", "anything@test", "anything@mycompany.test", "POSTMASTER@test", "NOT-POSTMASTER@test",
    "λambdaツ@test",
)  # fmt: skip

INVALID_HERE_ALONE: tuple[str, ...] = (
    f"{_TENS}5666666666677777@example.com", f"{_TENS}56666666666777777@example.com", f"{_AZ64}n@iana.org",
)  # fmt: skip
"""Longer before the @ than a server need take: invalid there, too, when it is asked to be strict."""
