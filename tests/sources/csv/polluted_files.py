"""Polluted CSV files, and the expected result of reading each file.

The kinds of pollution come from Pollock (Vitagliano et al., VLDB 2023), which found them in real files. The files are
our own. `test_malformed` tests stray quotes and records that are too large. `test_source` tests columns without a name.

An ambiguous row is rejected with its line, and an ambiguous file is refused, so that no value moves into another
column. If the source does not read a file as its author meant, `reason` has the reason."""

from dataclasses import dataclass

COLUMNS = ("email", "name", "city")
ANN, BEN, CEM = ["a@x.org", "Ann Lee", "Graz"], ["b@x.org", "Ben, Jr.", "Linz"], ["c@x.org", 'Cem "C"', "Wels"]
HEADER = "email,name,city"
A, B, C = "a@x.org,Ann Lee,Graz", 'b@x.org,"Ben, Jr.",Linz', 'c@x.org,"Cem ""C""",Wels'
PLAIN_CSV = f"{HEADER}\n{A}\n{B}\n{C}\n"
PEOPLE = [ANN, BEN, CEM]


@dataclass(frozen=True)
class Case:
    """A polluted file, and the expected result."""

    kind: str
    content: str | bytes
    rows: list[list[str]]
    rejected_rows: tuple[tuple[int, str], ...] = ()  # the line and the code of each rejected row
    columns: tuple[str, ...] = COLUMNS
    message: str = ""  # a part of the expected message, or empty if there is no message
    reason: str = ""


READABLE_FILES = [
    Case("no pollution", PLAIN_CSV, PEOPLE),
    # The file as a whole
    Case("encoding: UTF-8 with two BOMs", b"\xef\xbb\xbf" + PLAIN_CSV.encode("utf-8-sig"), PEOPLE),
    Case("encoding: UTF-32 with BOM", PLAIN_CSV.encode("utf-32"), PEOPLE),
    Case("no rows", f"{HEADER}\n", []),
    Case("one column", "email\na@x.org\nb@x.org\n", [["a@x.org"], ["b@x.org"]], columns=("email",)),
    Case("no line end at the end", PLAIN_CSV.removesuffix("\n"), PEOPLE),
    Case("line ends: different in each row", f"{HEADER}\r\n{A}\n{B}\r{C}\r\n", PEOPLE),
    Case("empty lines between rows", f"{HEADER}\n\n{A}\n\n\n{B}\n   \n{C}\n", PEOPLE),
    Case("empty rows: only delimiters", f"{HEADER}\n{A}\n,,\n{B}\n{C}\n,,\n", PEOPLE),
    # Lines above the header
    Case("preamble", f"Newsletter\nas of today\n{PLAIN_CSV}", PEOPLE, message="titles above its header were left out"),
    Case(
        "preamble filled up with delimiters", f"Newsletter,,\nas of today,,\n{PLAIN_CSV}", PEOPLE, message="(lines: 2)"
    ),
    Case(
        "preamble with a delimiter of another kind in it",
        "Members, all\n" + "email;name;city\na@x.org;Ann Lee;Graz\n",
        [ANN],
        message="(lines: 1)",
    ),
    Case(
        "preamble, and a row too short",
        f"Newsletter\n\n{HEADER}\n{A}\nd@x.org\n",
        [ANN],
        ((5, "ragged"),),
        message="(lines: 1)",
        reason="line numbers count from the first line of the file",
    ),
    Case(
        "preamble of two cells",
        f"As of,today\n{PLAIN_CSV}",
        [],
        ((2, "ragged"), (3, "ragged"), (4, "ragged"), (5, "ragged")),
        ("As of", "today"),
        reason="two cells may be a header, so no row is read, and the import ends because no column has addresses",
    ),
    Case(
        "preamble and no header",
        f"Newsletter\n{A}\n{B}\n",
        [],
        ((2, "ragged"), (3, "ragged")),
        ("Newsletter",),
        reason="a row with an address is never used as the header",
    ),
    Case(
        "header on two lines",
        f"{HEADER},since\n,,,(day)\n{A},1\n",
        [["", "", "", "(day)"], [*ANN, "1"]],
        columns=(*COLUMNS, "since"),
        reason="a second header line looks like a row; the validation rejects it later, because it has no address",
    ),
    # Lines below the rows, and between them
    Case(
        "footnote filled up with delimiters",
        f"{PLAIN_CSV}3 people,,\n",
        [*PEOPLE, ["3 people", "", ""]],
        reason="a footnote as wide as a row is rejected by the validation later, because it has no address",
    ),
    *[
        Case(f"delimiter: {name}", PLAIN_CSV.replace(",", delimiter).replace(f"{delimiter} Jr.", ", Jr."), PEOPLE)
        for name, delimiter in (("semicolon", ";"), ("tab", "\t"), ("pipe", "|"))
    ],
    Case(
        "delimiter: comma and space",
        f"{HEADER}\n{A}\n".replace(",", ", "),
        [["a@x.org", " Ann Lee", " Graz"]],
        reason="the source keeps spaces, and the mapping removes them",
    ),
    Case(
        "delimiter: space",
        "email name\na@x.org Ann\n",
        [["a@x.org Ann"]],
        columns=("email name",),
        reason="names contain spaces, so a space is never guessed; the option delimiter: ' ' reads the file",
    ),
    Case(
        "a delimiter in a cell without quotes",
        f"{HEADER}\n{A}\nd@x.org,Dan, Jr.,Enns\n{C}\n",
        [ANN, CEM],
        ((3, "ragged"),),
        reason="it is unclear which comma is the delimiter",
    ),
    # Quotes and escapes
    Case(
        "quote: single quotes in some rows",
        f"{HEADER}\n{A}\n'd@x.org','Dan','Enns'\n'e@x.org','Eve, Jr.','Enns'\n",
        [ANN, ["'d@x.org'", "'Dan'", "'Enns'"]],
        ((4, "ragged"),),
        reason="an apostrophe may be text; the validation rejects an address in apostrophes later",
    ),
    Case("a quote in a bare cell", f'{HEADER}\na@x.org,5" Ann,Graz\n', [["a@x.org", '5" Ann', "Graz"]]),
    # Rows
    Case(
        "a NUL",
        f"{HEADER}\n{A}\nd@x.org,D\0n,Enns\n{B}\n",
        [ANN, BEN],
        ((3, "nul"),),
        reason="a text cannot contain a NUL",
    ),
    # Columns
    Case("all columns but one without a name", f"email,,\n{A}\n", [ANN], columns=("email", "column 2", "column 3")),
]

FILES_REFUSED_AT_OPENING = [
    ("no content", "", "is empty"),
    ("only line ends", "\n\r\n\n", "is empty"),
    ("no header", f"{A}\n{B}\n", "has no header"),
    ("an address above the header", f"a@x.org\n{PLAIN_CSV}", "has no header"),
    ("a header without a name", ",,\n" + A, "names no column"),
    ("a name of 600,000 characters", f"{'name' * 150_000},email\n1,a@x.org\n", "does not end within"),
    ("a quote in the header that is never closed", f'"email,name,city\n{A}\n', "never closed"),
    ("a name in an encoding that is not certain", b"email,nom na\xeff\na@x.org,Ann\n", "its header is not utf-8"),
    ("quote: single", "\n'email','name','city'\n'b@x.org','Ben, Jr.','Linz'\n", "line 2: .* stand in single quotes"),
]
"""Files that are refused when they are opened, and a part of the error."""

FILES_REFUSED_AT_READING = [
    ("a quote with a space before it", f"{HEADER}\n{A}\n{B.replace(',', ', ')}\n", "line 3 has spaces between"),
    (
        "a quote too many, at the end of a cell",
        f'{HEADER}\n{A}\nd,"Dan"",Enns\n{B}\n{C}\n',
        "line 3 has a quote that is",
    ),
    (
        "a quote too many, at the beginning of a cell",
        f'{HEADER}\n{A}\nd,"Dan,Enns\n{A}\n',
        "line 3 has a quote that is never",
    ),
    ("a quote too many, without rows below", f'{HEADER}\n{A}\nd,"Dan,Enns\nand more\n', "includes the last 1 line"),
]
"""Files that are refused when they are read, and a part of the error."""
