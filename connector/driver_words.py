"""What a database's driver says, in one line for messages, without the values of rows that it quotes.

Which messages name nothing but tables, columns and servers is known by their codes, and those are shown whole. Of all
others the quoted text is masked, and so is what looks like an address or a number of a person's.
"""

import re
from dataclasses import dataclass

_QUOTE = "[\"'“”„«»‘’]"
_AFTER = (  # what known messages go on with, to their very end
    r"to [A-Z][\w(),\[\] ]*(?: when casting from source column \w+)?|violates unique constraint\.|at line \d+"
    r"|for key '[^']*'|for column (?:'[^']*'|[\w`.$]+) at row \d+"
)
_VALUE = re.compile(rf"(?<!\w){_QUOTE}(?:.*{_QUOTE}(?= (?:{_AFTER})\Z)|.*)")  # greedy: a value may hold quotes itself
_ADDRESS = re.compile(r"[^\s@'\"()<>,;:=]+@[^\s@'\"()<>,;]+")
_IN_PARENTHESES = re.compile(r"\(.*\)")
_NUMBER = re.compile(r"(?<!\w)\+?\d[\d.:/-]{3,}(?!\w)")

_STATES_OF_NAMES = frozenset(  # classes of SQLSTATE, as in the standard and PostgreSQL's manual, appendix A
    ["08", "0A", "25", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"]
)
_STATES_OF_CONSTRAINTS = "23"  # PostgreSQL has the row in a line of its own; others in the same
_STATES_OF_RULES = ("P0", "45")  # RAISE and SIGNAL: the words of the trigger's author
_RAISE_OF_POSTGRESQL = "exec_stmt_raise"  # where in its source; the SQLSTATE may be any
_STATE = re.compile(r"[0-9A-Z]{5}")
_MYSQL_OF_NAMES = frozenset({  # connections (2…), limits, locks, rights, names, and columns without their values
    1020, 1021, 1030, 1031, 1036, 1040, 1042, 1043, 1044, 1045, 1046, 1048, 1049, 1050, 1051, 1053, 1054, 1060, 1071,
    1072, 1091, 1103, 1114, 1118, 1129, 1130, 1136, 1142, 1143, 1146, 1153, 1158, 1159, 1160, 1161, 1193, 1203, 1205,
    1213, 1226, 1227, 1231, 1235, 1264, 1265, 1286, 1290, 1305, 1317, 1345, 1364, 1370, 1406, 1451, 1452, 1698, 1792,
    1836, 1969, 3024, 3819, 4025, *range(2000, 2100),
})  # fmt: skip
_SIGNAL_OF_MYSQL = 1644
_DUCKDB_OF_NAMES = frozenset(
    ["BinderException", "CatalogException", "ConnectionException", "IOException", "NotImplementedException",
     "OutOfMemoryException", "ParserException", "PermissionException", "SyntaxException"]
)  # fmt: skip
_CONNECTIONS = frozenset(["OperationalError", "InterfaceError"])
_KNOWN = frozenset(["duckdb", "_duckdb", "pg8000", "psycopg", "pyarrow", "pymysql", "sqlite3"])
_OF_NAMES = re.compile(r'(?:Constraint Error: )?(?:CHECK|NOT NULL) constraint failed|near ".*": syntax error$')

_WITHHELD = (
    "a rule of the database's own, such as a trigger, refused a row; its words are not shown, since they may quote it"
)


def say_safely(error: BaseException) -> str:
    """Return the first line of what the driver said, whole or masked, with its code where the driver gives one
    apart."""
    error = getattr(error, "orig", None) or error
    said = _read(error)
    line = (said.text.strip() or type(error).__name__).splitlines()[0]
    if said.is_raised:
        return _WITHHELD + said.shown_code
    if _names_only(error, said, line):
        return line + (said.shown_code if said.number is not None else "")
    return mask_values(line, is_known=_find_home(error) in _KNOWN) + said.shown_code


def mask_values(line: str, *, is_known: bool = True) -> str:
    """Return the line with quoted text as `'…'`, an address as `@` and longer numbers as `#`; `is_known`: whose line it
    is puts values into quotes, and not into parentheses."""
    if not is_known:
        line = _IN_PARENTHESES.sub("(…)", line)
    return _NUMBER.sub("#", _ADDRESS.sub("@", _VALUE.sub("'…'", line, count=1)))


@dataclass(frozen=True, slots=True)
class _Said:
    """The message, its SQLSTATE and MySQL's number, as far as the driver gives them, and whether a person wrote it."""

    text: str
    state: str | None = None
    number: int | None = None
    is_raised: bool = False

    @property
    def shown_code(self) -> str:
        if self.number is not None:
            return f" (error {self.number})"
        return f" (SQLSTATE {self.state})" if self.state else ""


def _read(error: BaseException) -> _Said:
    given = error.args
    if (
        given and isinstance(given[0], dict) and "M" in given[0]
    ):  # pg8000 gives all fields of the server's error, by letters
        fields = given[0]
        return _Said(str(fields["M"]), fields.get("C"), None, _is_raised(fields.get("C"), fields.get("R")))
    if len(given) > 1 and type(given[0]) is int and not isinstance(error, OSError):  # the drivers of MySQL
        is_signal = given[0] == _SIGNAL_OF_MYSQL or _is_raised(getattr(error, "sqlstate", None), None)
        return _Said(str(given[1]), None, given[0], is_signal)
    if len(given) > 1 and isinstance(given[0], str) and _STATE.fullmatch(given[0]):  # ODBC's
        return _Said(str(given[1]), given[0], None, _is_raised(given[0], None))
    state, more = getattr(error, "sqlstate", None), getattr(error, "diag", None)  # psycopg's
    is_of_trigger = getattr(error, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_TRIGGER"
    is_raised = is_of_trigger or _is_raised(state, getattr(more, "source_function", None))
    return _Said(str(getattr(more, "message_primary", None) or error), state, None, is_raised)


def _is_raised(state: str | None, routine: str | None) -> bool:
    return routine == _RAISE_OF_POSTGRESQL or (state or "")[:2] in _STATES_OF_RULES


def _names_only(error: BaseException, said: _Said, line: str) -> bool:
    kind, home = type(error).__name__, _find_home(error)
    if said.number is not None:
        return said.number in _MYSQL_OF_NAMES
    if said.state is not None:
        is_constraint = said.state[:2] == _STATES_OF_CONSTRAINTS and home in ("psycopg", "pg8000")
        return is_constraint or said.state[:2] in _STATES_OF_NAMES
    if home in ("duckdb", "_duckdb"):
        return kind in _DUCKDB_OF_NAMES or _OF_NAMES.match(line) is not None
    if home == "sqlite3":
        return _OF_NAMES.match(line) is not None
    return isinstance(error, OSError | UnicodeError) or kind in _CONNECTIONS


def _find_home(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
