"""CSV files, and the expected result of reading each file.

The kinds of pollution come from Pollock (Vitagliano et al., VLDB 2023), which found them in real files. The cases
are not copies of these files. An ambiguous row is rejected with its line, and an ambiguous file is refused, so that no
value moves into another column. If the source does not read a file as its author meant, a comment has the reason."""

import gzip
from dataclasses import dataclass, field

COLUMNS = ("email", "name", "city")
ANN, BEN, CEM = ["a@x.org", "Ann Lee", "Graz"], ["b@x.org", "Ben, Jr.", "Linz"], ["c@x.org", 'Cem "C"', "Wels"]
HEADER = "email,name,city"
A, B, C = "a@x.org,Ann Lee,Graz", 'b@x.org,"Ben, Jr.",Linz', 'c@x.org,"Cem ""C""",Wels'
PLAIN_CSV = f"{HEADER}\n{A}\n{B}\n{C}\n"
PEOPLE = [ANN, BEN, CEM]
AB = ("a", "b")


@dataclass(frozen=True)
class Case:
    """A CSV file, and the expected result of reading the file."""

    kind: str
    content: str | bytes
    rows: list[list[str]]
    rejected_rows: tuple[tuple[int, str, str], ...] = ()  # the line, the code and the text of each rejected row
    columns: tuple[str, ...] = COLUMNS
    row_numbers: tuple[int, ...] | None = None  # the numbers of the rows that are read, or None to skip this check
    message: str = ""  # a part of the expected message about the file, or empty if there is no message
    fault_text: str = ""  # a part of the message of each rejected row
    options: dict[str, str] = field(default_factory=dict)


def build_case_with_quotes_around_a_delimiter(row: str) -> Case:
    """The row fits the header if its quotes are text, and has fewer cells if its quotes enclose cells."""
    width = row.count(",") + 1
    columns, good_cells = tuple(f"c{index}" for index in range(width)), ["x"] * width
    content = "\n".join([",".join(columns), ",".join(good_cells), row, ",".join(good_cells), ""])
    return Case(
        f"quotes that enclose a delimiter inside a bare cell: {row}", content, [good_cells] * 2,
        ((3, "ambiguous_quote", row),), columns, options={"delimiter": ","},
    )  # fmt: skip


def build_case_with_text_after_a_quote(row: str) -> Case:
    content = f'email,name\n"1@x.com","one\nline"\n{row}\n2@x.com,"a ""b"""\n{row}\n3@x.com,c'
    rejected_rows = ((4, "stray_quote", row), (6 + row.count("\n"), "stray_quote", row))
    rows = [["1@x.com", "one\nline"], ["2@x.com", 'a "b"'], ["3@x.com", "c"]]
    return Case(
        f"text after a closing quote: {row}", content, rows, rejected_rows, ("email", "name"), None, "", "twice"
    )


READABLE_FILES = [
    Case("no pollution", PLAIN_CSV, PEOPLE),
    # The file as a whole
    Case("encoding: UTF-8 with two BOMs", b"\xef\xbb\xbf" + PLAIN_CSV.encode("utf-8-sig"), PEOPLE),
    Case("encoding: UTF-32 with BOM", PLAIN_CSV.encode("utf-32"), PEOPLE),
    Case("a byte order mark after the first bytes is text", "abc,\ufeffd\n1,2\n", [["1", "2"]], (), ("abc", "\ufeffd")),
    Case("no rows", f"{HEADER}\n", []),
    Case("only malformed rows", "a,b\n1\n2\n", [], ((2, "ragged", "1"), (3, "ragged", "2")), AB),
    Case("one column", "email\na@x.org\nb@x.org\n", [["a@x.org"], ["b@x.org"]], columns=("email",)),
    Case("no line end at the end", PLAIN_CSV.removesuffix("\n"), PEOPLE),
    Case("line ends: different in each row", f"{HEADER}\r\n{A}\n{B}\r{C}\r\n", PEOPLE),
    Case("empty lines between rows", f"{HEADER}\n\n{A}\n\n\n{B}\n   \n{C}\n", PEOPLE),
    Case("empty rows: only delimiters", f"{HEADER}\n{A}\n,,\n{B}\n{C}\n,,\n", PEOPLE),
    *[
        Case(f"lines with only blanks, and the delimiter {delimiter!r}",
             "  \na,b,c\n \n1,2,3\n   \n\nragged \n,,\n4,5, \n  \r".replace(",", delimiter),
             [["1", "2", "3"], ["4", "5", " "]], ((7, "ragged", "ragged "),), ("a", "b", "c"), (4, 9))
        for delimiter in (",", ";", "\t")
    ],
    Case("a tab is not a blank if the delimiter is a tab", "a\tb\tc\n1\t2\t3\n\t\n\t\t\n", [["1", "2", "3"]],
         ((3, "ragged", "\t"),), ("a", "b", "c"), (2,)),
    Case("a tab is a blank if the delimiter is a comma", "a,b\n1,2\n\t \t\n", [["1", "2"]], (), AB),
    # Lines above the header
    Case("titles above the header", f"Newsletter\nas of today\n{PLAIN_CSV}", PEOPLE,
         message="titles above its header were left out"),
    Case("titles filled up with delimiters", f"Newsletter,,\nas of today,,\n{PLAIN_CSV}", PEOPLE,
         message="(lines: 2)"),
    Case("a title that contains another delimiter", "Members, all\nemail;name;city\na@x.org;Ann Lee;Graz\n",
         [ANN], message="(lines: 1)"),
    # Line numbers count from the first line of the file.
    Case("a title, and a row with too few cells", f"Newsletter\n\n{HEADER}\n{A}\nd@x.org\n", [ANN],
         ((5, "ragged", "d@x.org"),), message="(lines: 1)"),
    # The source uses the line of two cells as the header, and rejects the rows, because the rows have three cells. Then
    # the import ends, because no column has addresses.
    Case("a title of two cells", f"As of,today\n{PLAIN_CSV}", [],
         ((2, "ragged", HEADER), (3, "ragged", A), (4, "ragged", B), (5, "ragged", C)), ("As of", "today")),
    # A row with an address is never used as the header.
    Case("a title and no header", f"Newsletter\n{A}\n{B}\n", [], ((2, "ragged", A), (3, "ragged", B)),
         ("Newsletter",)),
    Case("the delimiter line of Excel", "sep=;\r\nemail;name\r\na@x.com;Ann\r\nragged\r\n", [["a@x.com", "Ann"]],
         ((4, "ragged", "ragged"),), ("email", "name")),
    # A second header line counts as a row. The validation rejects this row, because the row has no address.
    Case("header on two lines", f"{HEADER},since\n,,,(day)\n{A},1\n", [["", "", "", "(day)"], [*ANN, "1"]],
         columns=(*COLUMNS, "since")),
    # Lines below the rows, and delimiters

    # A footnote with as many cells as a row counts as a row. The validation rejects this row, because the row has no
    # address.
    Case("footnote filled up with delimiters", f"{PLAIN_CSV}3 people,,\n", [*PEOPLE, ["3 people", "", ""]]),
    *[
        Case(f"delimiter: {name}", PLAIN_CSV.replace(",", delimiter).replace(f"{delimiter} Jr.", ", Jr."), PEOPLE)
        for name, delimiter in (("semicolon", ";"), ("tab", "\t"), ("pipe", "|"))
    ],
    Case("the delimiter follows from the cells, not from the number of commas",
         "email;name\n" + "a@x.com;Doe, Ann, Dr\n" * 50, [["a@x.com", "Doe, Ann, Dr"]] * 50, (), ("email", "name")),
    Case("two delimiters: the more frequent delimiter is used", "a|b|c;d\n1|2|3;4\n", [["1", "2", "3;4"]], (),
         ("a", "b", "c;d")),
    Case("a tab as the delimiter of the job", "a\tb\n1\t2\n", [["1", "2"]], (), AB, options={"delimiter": "tab"}),
    # The source keeps spaces, and the mapping removes them.
    Case("delimiter: comma and space", f"{HEADER}\n{A}\n".replace(",", ", "), [["a@x.org", " Ann Lee", " Graz"]]),
    # Names contain spaces, so the source never guesses that a space is the delimiter. The job can set `delimiter: ' '`.
    Case("delimiter: space", "email name\na@x.org Ann\n", [["a@x.org Ann"]], columns=("email name",)),
    # It is unclear which comma is the delimiter.
    Case("a delimiter in a cell without quotes", f"{HEADER}\n{A}\nd@x.org,Dan, Jr.,Enns\n{C}\n", [ANN, CEM],
         ((3, "ragged", "d@x.org,Dan, Jr.,Enns"),)),
    # Quotes and escapes

    # An apostrophe may be text. The validation rejects an address in apostrophes later.
    Case("quote: single quotes in some rows", f"{HEADER}\n{A}\n'd@x.org','Dan','Enns'\n'e@x.org','Eve, Jr.','Enns'\n",
         [ANN, ["'d@x.org'", "'Dan'", "'Enns'"]], ((4, "ragged", "'e@x.org','Eve, Jr.','Enns'"),)),
    Case("quotes in bare cells", 'size,name\n5" pipe,Ann\nx,Bob "the" Lee\n12" screen,"a, b"\n"x ""y""",z\n',
         [['5" pipe', "Ann"], ["x", 'Bob "the" Lee'], ['12" screen', "a, b"], ['x "y"', "z"]], (), ("size", "name")),
    *map(build_case_with_quotes_around_a_delimiter, (
        'Ann"Lee, Jr",Graz', 'Ann "Lee, Jr"', '5",6",7', 'Ann ""Lee, Jr"",Graz', 'a,Ann \\"Lee, Jr\\"',
        'a"b"c"d,e"f,g',
    )),
    *map(build_case_with_text_after_a_quote, (
        '"q1@ex.com"garbage,A', 'q2@ex.com,"Jo "the man" Doe"', r'q3@ex.com,"A\"b\""', '"q4@ex.com" ,A', '"a""b"c,A',
        'q5@ex.com,"a"""b', '"a\nb"c,"d"', '"a"b,ragged,too',
    )),
    *[
        Case(f"the lines of a faulty cell are not rows: {row}", f"a,b\n1,2\n{row}\n5,6\n", [["1", "2"], ["5", "6"]],
             ((3, "stray_quote", row),), AB, None, "", "includes 1 more line, which was not read as a row")
        for row in ('3,"as I said\nyesterday"s mail', '3,"one\ntwo" x', '"3\n"x,y')
    ],
    Case("a quote that is open at the end of the last line", 'a,b\n1,2\n3,"Ann', [["1", "2"]],
         ((3, "unclosed_quote", '3,"Ann'),), AB),
    # Rows and cells
    Case("cells stay texts", "id,phone,note\n007,+31612345678, 1.50 \nNULL,NA,nan\n",
         [["007", "+31612345678", " 1.50 "], ["NULL", "NA", "nan"]], (), ("id", "phone", "note"), (2, 3)),
    Case("rows with too few and too many cells", 'a,b\n1,"x\ny"\n\nshort\n3,4\n5,6,7\n8,9\n',
         [["1", "x\ny"], ["3", "4"], ["8", "9"]], ((5, "ragged", "short"), (7, "ragged", "5,6,7")), AB, (2, 5, 7), "",
         " cells where the header has 2"),
    Case("a NUL", f"{HEADER}\n{A}\nd@x.org,D\0n,Enns\n{B}\n", [ANN, BEN], ((3, "nul", r"d@x.org,D\x00n,Enns"),)),
    Case("bytes that are not UTF-8", b"a,b\nM\xc3\xbcller,1\nM\xfcller,2\nragged\xff,1,2\n\xce\xa9,3\n",
         [["Müller", "1"], ["Ω", "3"]], ((3, "encoding", r"M\xfcller,2"), (4, "encoding", r"ragged\xff,1,2")), AB,
         (2, 5), "", "--encoding cp1252, or source.file.encoding in a job"),
    Case("a byte that the encoding of the job does not have", b"a,b\n1,\x81\n2,\xe9\n", [["2", "é"]],
         ((2, "encoding", "1,\ufffd"),), AB, None, "", "source.file.encoding in a job", {"encoding": "cp1252"}),
    # Columns
    Case("only the first column has a name", f"email,,\n{A}\n", [ANN], columns=("email", "column 2", "column 3")),
    Case("names of columns: with blanks, empty, repeated, on two lines",
         '\ufeff"Email", Name ,,Email,Email (2),"two\nlines"\n1,2,3,4,5,6\n', [list("123456")], (),
         ("Email", "Name", "column 3", "Email (3)", "Email (2)", "two\nlines")),
]  # fmt: skip

FILES_REFUSED_AT_OPENING: list[tuple[str, str | bytes, str]] = [
    ("no content", "", "is empty"),
    ("only a BOM", b"\xef\xbb\xbf", "is empty"),
    ("only line ends", "\n\r\n\n", "is empty"),
    ("no header", f"{A}\n{B}\n", "has no header"),
    ("only numbers", "1,2\n3,4\n", "no header"),
    ("an address above the header", f"a@x.org\n{PLAIN_CSV}", "has no header"),
    ("a header without a name", ",,\n" + A, "names no column"),
    ("a name of 600,000 characters", f"{'name' * 150_000},email\n1,a@x.org\n", "does not end within"),
    ("a quote in the header that is never closed", f'"email,name,city\n{A}\n', "never closed"),
    ("text after the closing quote of a header", '"Email"x,Name\n1,2\n', "header cannot be read"),
    ("spaces before a quote in the header", '\n"a", "b"\n1,2\n', "line 2 of its header has spaces"),
    ("a name in an encoding that is not certain", b"email,nom na\xef\na@x.org,Ann\n", "its header is not utf-8"),
    ("a name in cp1252", b"No\xebl,Zo\xeb\n1,2\n", "--encoding cp1252, or source.file.encoding in a job"),
    ("UTF-32 without BOM", "a,b\n1,2\n".encode("utf-32-le"), "--encoding utf-16-le, or source.file.encoding in a job"),
    ("quote: single", "\n'email','name','city'\n'b@x.org','Ben, Jr.','Linz'\n", "line 2: .* stand in single quotes"),
    ("a damaged ZIP archive", b"PK\x03\x04....", "cut off or damaged"),
    ("compressed twice", gzip.compress(gzip.compress(b"a,b\n1,2\n", mtime=0), mtime=0), "gzip"),
    ("any bytes", bytes(range(256)) * 20, "binary file"),
]
"""Files that are refused when they are opened: a description, the content, and a part of the error."""

FILES_REFUSED_AT_READING: list[tuple[str, str, str]] = [
    ("a quote with a space before it", f"{HEADER}\n{A}\n{B.replace(',', ', ')}\n", "line 3 has spaces between"),
    *[
        (f"spaces before a quote: {row}", f'a,b\n1,2\n"x, ""y"" ",2\n{row}\n5, 6\n',
         "line 4 has spaces between the beginning of a cell and its quote")
        for row in ('3, "Ann"', '  "3",Ann', '3,   "Ann, Jr."', '3, "Ann')
    ],
    ("a quote too many, at the end of a cell", f'{HEADER}\n{A}\nd,"Dan"",Enns\n{B}\n{C}\n',
     "line 3 has a quote that is"),
    ("a quote too many, at the beginning of a cell", f'{HEADER}\n{A}\nd,"Dan,Enns\n{A}\n',
     "line 3 has a quote that is never"),
    ("a quote too many, without rows below", f'{HEADER}\n{A}\nd,"Dan,Enns\nand more\n', "includes the last 1 line"),
    *[
        (f"a quote that encloses other rows: {rows!r}"[:60], f"a,b\n1,2\n\n{rows}", "line 4 has a quote that is ")
        for rows in ('3,"Ann\n5,6\n', '3,"Ann\n5,6\n9,"Dan"\n7,8', '"3","Ann\n"5","Ben"\n"7","8"\n',
                     '3,"Ann\n' + "5,6\n" * 30 + '4,"Ben\n7,8')
    ],
]  # fmt: skip
"""Files that are refused when they are read: a description, the content, and a part of the error."""
