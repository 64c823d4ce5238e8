"""Kinds of pollution that Pollock (Vitagliano et al., VLDB 2023) found in real files, and their results.

The kinds are Pollock's; the files are our own. Stray quotes and records too large stand in `test_malformed`, columns
without a name of their own in `test_source`. Where a file is not read as it was meant, `why` says why not: a row that
cannot be told for sure is rejected by its line, and what cannot be told at all refuses the file. Nothing is shifted.
"""

from dataclasses import dataclass

COLUMNS = ("email", "name", "city")
ANN, BEN, CEM = ["a@x.org", "Ann Lee", "Graz"], ["b@x.org", "Ben, Jr.", "Linz"], ["c@x.org", 'Cem "C"', "Wels"]
HEADER = "email,name,city"
A, B, C = "a@x.org,Ann Lee,Graz", 'b@x.org,"Ben, Jr.",Linz', 'c@x.org,"Cem ""C""",Wels'
PLAIN = f"{HEADER}\n{A}\n{B}\n{C}\n"
PEOPLE = [ANN, BEN, CEM]


@dataclass(frozen=True)
class Case:
    """A polluted file, and what must come of it: rows, the lines and codes of those rejected, words of a message."""

    kind: str
    content: str | bytes
    rows: list[list[str]]
    rejected: tuple[tuple[int, str], ...] = ()
    columns: tuple[str, ...] = COLUMNS
    says: str = ""
    why: str = ""


READ = [
    Case("nothing", PLAIN, PEOPLE),
    # The file as a whole
    Case("encoding: UTF-8 with BOM", PLAIN.encode("utf-8-sig"), PEOPLE),
    Case("encoding: UTF-8 with two BOMs", b"\xef\xbb\xbf" + PLAIN.encode("utf-8-sig"), PEOPLE),
    Case("encoding: UTF-16 with BOM", PLAIN.encode("utf-16"), PEOPLE),
    Case("encoding: UTF-32 with BOM", PLAIN.encode("utf-32"), PEOPLE),
    Case("encoding: UTF-16 without BOM", PLAIN.encode("utf-16-le"), PEOPLE, says="read as utf-16-le"),
    Case("encoding: UTF-16, big end first, without BOM", PLAIN.encode("utf-16-be"), PEOPLE, says="read as utf-16-be"),
    Case(
        "encoding: Latin-1",
        f"{HEADER}\na@x.org,Jörg Müller,Köln\n".encode("latin-1"),
        [["a@x.org", "Jörg Müller", "Köln"]],
        says="read as cp1252",
    ),
    Case("no rows", f"{HEADER}\n", []),
    Case("one column", "email\na@x.org\nb@x.org\n", [["a@x.org"], ["b@x.org"]], columns=("email",)),
    Case("no line end at the end", PLAIN.removesuffix("\n"), PEOPLE),
    Case("line ends: CR LF", PLAIN.replace("\n", "\r\n"), PEOPLE),
    Case("line ends: CR", PLAIN.replace("\n", "\r"), PEOPLE),
    Case("line ends: of one row another", f"{HEADER}\r\n{A}\n{B}\r{C}\r\n", PEOPLE),
    Case("empty lines between rows", f"{HEADER}\n\n{A}\n\n\n{B}\n   \n{C}\n", PEOPLE),
    Case("empty rows: delimiters alone", f"{HEADER}\n{A}\n,,\n{B}\n{C}\n,,\n", PEOPLE),
    # What stands above
    Case("preamble", f"Newsletter\nas of today\n{PLAIN}", PEOPLE, says="titles above its header were left out"),
    Case("preamble filled up with delimiters", f"Newsletter,,\nas of today,,\n{PLAIN}", PEOPLE, says="(lines: 2)"),
    Case(
        "preamble with a delimiter of another kind in it",
        "Members, all\n" + "email;name;city\na@x.org;Ann Lee;Graz\n",
        [ANN],
        says="(lines: 1)",
    ),
    Case(
        "preamble, and a row too short",
        f"Newsletter\n\n{HEADER}\n{A}\nd@x.org\n",
        [ANN],
        ((5, "ragged"),),
        says="(lines: 1)",
        why="lines are counted from the file's first",
    ),
    Case(
        "preamble of two cells",
        f"As of,today\n{PLAIN}",
        [],
        ((2, "ragged"), (3, "ragged"), (4, "ragged"), (5, "ragged")),
        ("As of", "today"),
        why="two names might be a header: nothing is read, and the import ends for want of a column of addresses",
    ),
    Case(
        "preamble and no header",
        f"Newsletter\n{A}\n{B}\n",
        [],
        ((2, "ragged"), (3, "ragged")),
        ("Newsletter",),
        why="a row is never taken for a header",
    ),
    Case(
        "header on two lines",
        f"{HEADER},since\n,,,(day)\n{A},1\n",
        [["", "", "", "(day)"], [*ANN, "1"]],
        columns=(*COLUMNS, "since"),
        why="a second line of names looks like a row; having no address it is rejected later, as row 1",
    ),
    # What stands below, and between
    Case("footnote", f"{PLAIN}all rights reserved\n", PEOPLE, ((5, "ragged"),), why="by its line, as any short row"),
    Case(
        "footnote filled up with delimiters",
        f"{PLAIN}3 people,,\n",
        [*PEOPLE, ["3 people", "", ""]],
        why="it is as wide as a row; having no address it is rejected later",
    ),
    Case(
        "two tables, the second narrower",
        f"{PLAIN}\nitem,price\nlamp,9\n",
        PEOPLE,
        ((6, "ragged"), (7, "ragged")),
        why="only the first line names columns; rows of another width are nobody's",
    ),
    *[
        Case(f"delimiter: {name}", PLAIN.replace(",", sign).replace(f"{sign} Jr.", ", Jr."), PEOPLE)
        for name, sign in (("semicolon", ";"), ("tab", "\t"), ("pipe", "|"))
    ],
    Case(
        "delimiter: comma and space",
        f"{HEADER}\n{A}\n".replace(",", ", "),
        [["a@x.org", " Ann Lee", " Graz"]],
        why="kept here, and trimmed by the mapping",
    ),
    Case(
        "delimiter: space",
        "email name\na@x.org Ann\n",
        [["a@x.org Ann"]],
        columns=("email name",),
        why="names have spaces in them, so that it is never guessed; delimiter: ' ' reads it",
    ),
    Case(
        "delimiter: of one row another",
        f"{HEADER}\n{A}\nd@x.org;Dan;Enns\n{C}\n",
        [ANN, CEM],
        ((3, "ragged"),),
        why="one row by another rule is a fault in it",
    ),
    Case(
        "a delimiter in a cell without quotes",
        f"{HEADER}\n{A}\nd@x.org,Dan, Jr.,Enns\n{C}\n",
        [ANN, CEM],
        ((3, "ragged"),),
        why="which of its commas divides cannot be told",
    ),
    # Quotes and escapes
    Case(
        "quote: of one row single",
        f"{HEADER}\n{A}\n'd@x.org','Dan','Enns'\n'e@x.org','Eve, Jr.','Enns'\n",
        [ANN, ["'d@x.org'", "'Dan'", "'Enns'"]],
        ((4, "ragged"),),
        why="elsewhere an apostrophe is one; with them around it an address is none, and its row is rejected later",
    ),
    Case("a quote in a bare cell", f'{HEADER}\na@x.org,5" Ann,Graz\n', [["a@x.org", '5" Ann', "Graz"]]),
    # Rows
    Case("a row too short", f"{HEADER}\n{A}\nd@x.org,Dan\n{B}\n", [ANN, BEN], ((3, "ragged"),), why="never filled up"),
    Case("a row too long", f"{HEADER}\n{A}\nd@x.org,Dan,Enns,\n{B}\n", [ANN, BEN], ((3, "ragged"),), why="never cut"),
    Case(
        "an undecodable byte",
        f"{HEADER}\n{A}\n".encode() + b"d@x.org,D\xffn,Enns\n" + B.encode(),
        [ANN, BEN],
        ((3, "encoding"),),
        says="its encoding is not certain",
        why="one byte tells no encoding",
    ),
    Case("a NUL", f"{HEADER}\n{A}\nd@x.org,D\0n,Enns\n{B}\n", [ANN, BEN], ((3, "nul"),), why="no text holds a NUL"),
    # Columns
    Case("all columns but one without a name", f"email,,\n{A}\n", [ANN], columns=("email", "column 2", "column 3")),
    Case(
        "spaces around cells",
        f"{HEADER}\n a@x.org , Ann Lee\t,Graz \n",
        [[" a@x.org ", " Ann Lee\t", "Graz "]],
        why="kept here as they came; the mapping trims them",
    ),
]

OPENED = [
    ("no content", "", "is empty"),
    ("line ends alone", "\n\r\n\n", "is empty"),
    ("no header", f"{A}\n{B}\n", "has no header"),
    ("an address above the header", f"a@x.org\n{PLAIN}", "has no header"),
    ("a header without a name", ",,\n" + A, "names no column"),
    ("a name of 600,000 characters", f"{'name' * 150_000},email\n1,a@x.org\n", "does not end within"),
    ("a quote in the header that is never closed", f'"email,name,city\n{A}\n', "never closed"),
    ("a name in an encoding that is not certain", b"email,nom na\xeff\na@x.org,Ann\n", "its header is not utf-8"),
    ("quote: single", "\n'email','name','city'\n'b@x.org','Ben, Jr.','Linz'\n", "line 2: .* stand in single quotes"),
]
"""Files that are refused when they are opened, and words of the error."""

READING = [
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
    ("a quote too many, and below it no rows", f'{HEADER}\n{A}\nd,"Dan,Enns\nand more\n', "takes in all 1 lines below"),
]
"""Files that are refused when they are read."""
