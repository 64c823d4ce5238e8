"""Messages of database drivers, in one line and without values of rows.

Drivers quote values of rows in many messages. The codes of an error show whether its message names only tables, columns
and servers. Such a message is shown unchanged. In all other messages quoted texts, addresses and long numbers are
masked.
"""

import re
from dataclasses import dataclass

_QUOTE = "[\"'“”„«»‘’]"
_AFTER = (  # the ends of known messages after a quoted value
    r"to [A-Z][\w(),\[\] ]*(?: when casting from source column \w+)?|violates unique constraint\.|at line \d+"
    r"|for key '[^']*'|for column (?:'[^']*'|[\w`.$]+) at row \d+"
)
_VALUE = re.compile(rf"(?<!\w){_QUOTE}(?:.*{_QUOTE}(?= (?:{_AFTER})\Z)|.*)")  # greedy: a value may contain quotes
_ADDRESS = re.compile(r"[^\s@'\"()<>,;:=]+@[^\s@'\"()<>,;]+")
_IN_PARENTHESES = re.compile(r"\(.*\)")
_NUMBER = re.compile(r"(?<!\w)\+?\d[\d.:/-]{3,}(?!\w)")

# Errors whose messages contain no values of rows. Classes of SQLSTATE: the standard, and appendix A of the manual of
# PostgreSQL.
_HARMLESS_STATES = frozenset(["08", "0A", "25", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"])
_CONSTRAINT_STATE = "23"  # PostgreSQL shows the row in another line of its message, other databases in the same line
_HARMLESS_MYSQL = frozenset({  # connections (2…), limits, locks, rights, names, and columns without their values
    1020, 1021, 1030, 1031, 1036, 1040, 1042, 1043, 1044, 1045, 1046, 1048, 1049, 1050, 1051, 1053, 1054, 1060, 1071,
    1072, 1091, 1103, 1114, 1118, 1129, 1130, 1136, 1142, 1143, 1146, 1153, 1158, 1159, 1160, 1161, 1193, 1203, 1205,
    1213, 1226, 1227, 1231, 1235, 1264, 1265, 1286, 1290, 1305, 1317, 1345, 1364, 1370, 1406, 1451, 1452, 1698, 1792,
    1836, 1969, 3024, 3819, 4025, *range(2000, 2100),
})  # fmt: skip
_HARMLESS_DUCKDB = frozenset(
    ["BinderException", "CatalogException", "ConnectionException", "IOException", "NotImplementedException",
     "OutOfMemoryException", "ParserException", "PermissionException", "SyntaxException"]
)  # fmt: skip
_HARMLESS_TEXT = re.compile(r'(?:Constraint Error: )?(?:CHECK|NOT NULL) constraint failed|near ".*": syntax error$')
_CONNECTION_ERRORS = frozenset(["OperationalError", "InterfaceError"])

# Errors whose message a person wrote in a trigger (RAISE, SIGNAL): the message may contain any value.
_RULE_STATES = ("P0", "45")
_RAISE_OF_POSTGRESQL = "exec_stmt_raise"  # the routine in the source of PostgreSQL; the SQLSTATE may be any
_SIGNAL_OF_MYSQL = 1644

_STATE = re.compile(r"[0-9A-Z]{5}")
_QUOTING_DRIVERS = frozenset(["duckdb", "_duckdb", "pg8000", "psycopg", "pyarrow", "pymysql", "sqlite3"])
"""Drivers that put values into quotes, and not into parentheses."""

_WITHHELD = "a rule of the database, such as a trigger, refused a row. Its message may quote the row and is not shown"


@dataclass(frozen=True, slots=True)
class _DriverMessage:
    """The text of an error, with its SQLSTATE and the number of MySQL if the driver has them. `is_of_rule` is true if a
    person wrote the text, for example in a trigger."""

    text: str
    state: str | None = None
    number: int | None = None
    is_of_rule: bool = False

    @property
    def code(self) -> str:
        """The code for a message, or an empty text."""
        if self.number is not None:
            return f" (error {self.number})"
        return f" (SQLSTATE {self.state})" if self.state else ""


def describe_error(error: BaseException) -> str:
    """Return the first line of a driver's message, unchanged or masked, with the code if the text does not contain the
    code."""
    error = getattr(error, "orig", None) or error
    message = _read(error)
    if message.is_of_rule:
        return _WITHHELD + message.code
    line = (message.text.strip() or type(error).__name__).splitlines()[0]
    if _is_harmless(error, message, line):
        return line + (message.code if message.number is not None else "")
    return _mask_values(line, has_quotes=_find_package(error) in _QUOTING_DRIVERS) + message.code


def _mask_values(line: str, *, has_quotes: bool) -> str:
    """Return the line with a quoted text as `'…'`, an address as `@` and longer numbers as `#`. Without `has_quotes`,
    the driver may put values into parentheses, too."""
    if not has_quotes:
        line = _IN_PARENTHESES.sub("(…)", line)
    return _NUMBER.sub("#", _ADDRESS.sub("@", _VALUE.sub("'…'", line, count=1)))


def _read(error: BaseException) -> _DriverMessage:
    arguments = error.args
    first = arguments[0] if arguments else None
    if isinstance(first, dict) and "M" in first:  # pg8000 has the fields of the server's message, by letters
        state = first.get("C")
        return _DriverMessage(str(first["M"]), state, None, _is_of_rule(state, first.get("R")))
    if len(arguments) > 1 and type(first) is int and not isinstance(error, OSError):  # the drivers of MySQL
        is_of_rule = first == _SIGNAL_OF_MYSQL or _is_of_rule(getattr(error, "sqlstate", None), None)
        return _DriverMessage(str(arguments[1]), None, first, is_of_rule)
    if len(arguments) > 1 and isinstance(first, str) and _STATE.fullmatch(first):  # ODBC
        return _DriverMessage(str(arguments[1]), first, None, _is_of_rule(first, None))
    state, details = getattr(error, "sqlstate", None), getattr(error, "diag", None)  # psycopg
    is_of_trigger = getattr(error, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_TRIGGER"
    is_of_rule = is_of_trigger or _is_of_rule(state, getattr(details, "source_function", None))
    return _DriverMessage(str(getattr(details, "message_primary", None) or error), state, None, is_of_rule)


def _is_of_rule(state: str | None, routine: str | None) -> bool:
    return routine == _RAISE_OF_POSTGRESQL or (state or "")[:2] in _RULE_STATES


def _is_harmless(error: BaseException, message: _DriverMessage, line: str) -> bool:
    """Return whether the line contains no values of rows."""
    kind, package = type(error).__name__, _find_package(error)
    if message.number is not None:
        return message.number in _HARMLESS_MYSQL
    if message.state is not None:
        is_constraint = message.state[:2] == _CONSTRAINT_STATE and package in ("psycopg", "pg8000")
        return is_constraint or message.state[:2] in _HARMLESS_STATES
    if package in ("duckdb", "_duckdb"):
        return kind in _HARMLESS_DUCKDB or _HARMLESS_TEXT.match(line) is not None
    if package == "sqlite3":
        return _HARMLESS_TEXT.match(line) is not None
    return isinstance(error, OSError | UnicodeError) or kind in _CONNECTION_ERRORS


def _find_package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
