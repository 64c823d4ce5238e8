"""Messages of database drivers, as one line and without values of rows.

Drivers quote values of rows in many messages. A message is shown unchanged if the code of the error shows that the
message names only tables, columns and servers. In all other messages, quoted texts, addresses and long numbers are
masked.
"""

import re
from dataclasses import dataclass

_QUOTE_PATTERN = "[\"'“”„«»‘’]"
# The end of a known message, after its quoted value.
_MESSAGE_END_PATTERN = (
    r"to [A-Z][\w(),\[\] ]*(?: when casting from source column \w+)?|violates unique constraint\.|at line \d+"
    r"|for key '[^']*'|for column (?:'[^']*'|[\w`.$]+) at row \d+"
)
# The match is as long as possible, because a value may contain quotes.
_QUOTED_VALUE_PATTERN = re.compile(
    rf"(?<!\w){_QUOTE_PATTERN}(?:.*{_QUOTE_PATTERN}(?= (?:{_MESSAGE_END_PATTERN})\Z)|.*)"
)
_EMAIL_ADDRESS_PATTERN = re.compile(r"[^\s@'\"()<>,;:=]+@[^\s@'\"()<>,;]+")
_TEXT_IN_PARENTHESES_PATTERN = re.compile(r"\(.*\)")
_LONG_NUMBER_PATTERN = re.compile(r"(?<!\w)\+?\d[\d.:/-]{3,}(?!\w)")

# The codes and classes of errors whose messages contain no values of rows.
# The classes of SQLSTATE are from the SQL standard, and from appendix A of PostgreSQL's manual.
_VALUE_FREE_SQLSTATE_CLASSES = frozenset(
    ["08", "0A", "25", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"]
)
# The class of errors of constraints. PostgreSQL quotes the row only in the second line of the message, and this module
# shows only the first line. Other databases may quote the row in the first line.
_CONSTRAINT_SQLSTATE_CLASS = "23"
_VALUE_FREE_MYSQL_ERRORS = frozenset({  # errors of connections (2…), limits, locks, rights, names and columns
    1020, 1021, 1030, 1031, 1036, 1040, 1042, 1043, 1044, 1045, 1046, 1048, 1049, 1050, 1051, 1053, 1054, 1060, 1071,
    1072, 1091, 1103, 1114, 1118, 1129, 1130, 1136, 1142, 1143, 1146, 1153, 1158, 1159, 1160, 1161, 1193, 1203, 1205,
    1213, 1226, 1227, 1231, 1235, 1264, 1265, 1286, 1290, 1305, 1317, 1345, 1364, 1370, 1406, 1451, 1452, 1698, 1792,
    1836, 1969, 3024, 3819, 4025, *range(2000, 2100),
})  # fmt: skip
_VALUE_FREE_DUCKDB_ERRORS = frozenset(
    ["BinderException", "CatalogException", "ConnectionException", "IOException", "NotImplementedException",
     "OutOfMemoryException", "ParserException", "PermissionException", "SyntaxException"]
)  # fmt: skip
_VALUE_FREE_MESSAGE_PATTERN = re.compile(
    r'(?:Constraint Error: )?(?:CHECK|NOT NULL) constraint failed|near ".*": syntax error$'
)
_CONNECTION_ERRORS = frozenset(["OperationalError", "InterfaceError"])

# Errors with a message that a person has written in a trigger (RAISE, SIGNAL). The message may contain any value.
_USER_ERROR_SQLSTATE_CLASSES = ("P0", "45")
# The function in PostgreSQL's source that executes RAISE. An error of RAISE may have any SQLSTATE.
_POSTGRESQL_RAISE_FUNCTION = "exec_stmt_raise"
_MYSQL_SIGNAL_ERROR_NUMBER = 1644

_SQLSTATE_PATTERN = re.compile(r"[0-9A-Z]{5}")
_DRIVERS_WITH_QUOTED_VALUES = frozenset(["duckdb", "_duckdb", "pg8000", "psycopg", "pyarrow", "pymysql", "sqlite3"])
"""Drivers that write values in quotes, and not in parentheses."""

_SUBSTITUTE_MESSAGE = (
    "a rule of the database, such as a trigger, refused a row. The message of the rule is not shown here, because it "
    "may contain values of the row"
)


@dataclass(frozen=True, slots=True)
class _DriverMessage:
    """The text of an error, with its SQLSTATE and its MySQL number if the driver has them. `is_written_by_user` is true
    if a person has written the text, for example in a trigger."""

    text: str
    sqlstate: str | None = None
    error_number: int | None = None
    is_written_by_user: bool = False

    @property
    def code(self) -> str:
        """The number or the SQLSTATE of the error as a text for messages, or "" if the driver has neither."""
        if self.error_number is not None:
            return f" (error {self.error_number})"
        return f" (SQLSTATE {self.sqlstate})" if self.sqlstate else ""


def describe_error(error: BaseException) -> str:
    """Return the first line of a driver's message. Values are masked if the line may contain values of rows. The code
    of the error follows, unless the line has the code already."""
    error = getattr(error, "orig", None) or error
    message = _read_message(error)
    if message.is_written_by_user:
        return _SUBSTITUTE_MESSAGE + message.code
    line = (message.text.strip() or type(error).__name__).splitlines()[0]
    if _is_value_free(error, message, line):
        return line + (message.code if message.error_number is not None else "")
    return _mask_values(line, has_quotes=_find_package(error) in _DRIVERS_WITH_QUOTED_VALUES) + message.code


def _mask_values(line: str, *, has_quotes: bool) -> str:
    """Return the line with `'…'` for a quoted text, `@` for an address, and `#` for a number of four or more
    characters, such as a date. If `has_quotes` is false, texts in parentheses are also masked, because the driver may
    write values in parentheses."""
    if not has_quotes:
        line = _TEXT_IN_PARENTHESES_PATTERN.sub("(…)", line)
    return _LONG_NUMBER_PATTERN.sub(
        "#", _EMAIL_ADDRESS_PATTERN.sub("@", _QUOTED_VALUE_PATTERN.sub("'…'", line, count=1))
    )


def _read_message(error: BaseException) -> _DriverMessage:
    arguments = error.args
    first_argument = arguments[0] if arguments else None
    if isinstance(first_argument, dict) and "M" in first_argument:
        # An error of pg8000 has the fields of the server's message as its argument, with letters as keys.
        sqlstate = first_argument.get("C")
        return _DriverMessage(
            str(first_argument["M"]), sqlstate, None, _is_written_by_user(sqlstate, first_argument.get("R"))
        )
    if len(arguments) > 1 and type(first_argument) is int and not isinstance(error, OSError):
        # An error of a MySQL driver has the number and the text as arguments.
        is_written_by_user = first_argument == _MYSQL_SIGNAL_ERROR_NUMBER or _is_written_by_user(
            getattr(error, "sqlstate", None), None
        )
        return _DriverMessage(str(arguments[1]), None, first_argument, is_written_by_user)
    if len(arguments) > 1 and isinstance(first_argument, str) and _SQLSTATE_PATTERN.fullmatch(first_argument):
        # An error of an ODBC driver has the SQLSTATE and the text as arguments.
        return _DriverMessage(str(arguments[1]), first_argument, None, _is_written_by_user(first_argument, None))
    sqlstate, details = getattr(error, "sqlstate", None), getattr(error, "diag", None)  # attributes of psycopg's errors
    is_from_trigger = getattr(error, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_TRIGGER"
    is_written_by_user = is_from_trigger or _is_written_by_user(sqlstate, getattr(details, "source_function", None))
    return _DriverMessage(str(getattr(details, "message_primary", None) or error), sqlstate, None, is_written_by_user)


def _is_written_by_user(sqlstate: str | None, source_function: str | None) -> bool:
    """Return whether a person has written the message. `source_function` is the function in PostgreSQL's source that
    has raised the error (None: not known)."""
    return source_function == _POSTGRESQL_RAISE_FUNCTION or (sqlstate or "")[:2] in _USER_ERROR_SQLSTATE_CLASSES


def _is_value_free(error: BaseException, message: _DriverMessage, line: str) -> bool:
    """Return whether the line contains no values of rows."""
    class_name, package = type(error).__name__, _find_package(error)
    if message.error_number is not None:
        return message.error_number in _VALUE_FREE_MYSQL_ERRORS
    if message.sqlstate is not None:
        is_constraint_error = message.sqlstate[:2] == _CONSTRAINT_SQLSTATE_CLASS and package in ("psycopg", "pg8000")
        return is_constraint_error or message.sqlstate[:2] in _VALUE_FREE_SQLSTATE_CLASSES
    if package in ("duckdb", "_duckdb"):
        return class_name in _VALUE_FREE_DUCKDB_ERRORS or _VALUE_FREE_MESSAGE_PATTERN.match(line) is not None
    if package == "sqlite3":
        return _VALUE_FREE_MESSAGE_PATTERN.match(line) is not None
    return isinstance(error, OSError | UnicodeError) or class_name in _CONNECTION_ERRORS


def _find_package(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]
