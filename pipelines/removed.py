"""Commands, options and job keys that earlier versions had, and what replaces each of them.

An unknown command, option or key that is listed here gets its replacement in the error message. Each text is a complete
sentence or two: what replaces the removed thing, as an instruction.
"""

from fnmatch import fnmatchcase

REMOVED_COMMANDS: dict[str, str] = {
    "probe": "Use `connector check`. It shows page size, order, filters, and whether the list may be cut off.",
    "report": "Use `connector status --html PATH`.",
    "accept": "Correct the rows in the source, or leave them out by the query of the job's source.",
}
"""What replaces a command, by its name."""

_EXPORT_ENGINE = "One process exports the list and reads several pages at once. Leave out the options of the engine."
_IMPORT_ENGINE = "Write a job for the file with `connector init`, then use `connector sync JOB --engine dask`."
_ONE_FILE = (
    "Export one Parquet file. To divide it into a folder for each value of a column, use DuckDB: "
    "COPY (FROM 'subscribers.parquet') TO 'subscribers' (FORMAT parquet, PARTITION_BY (base_id))."
)

_MESSAGE_KEYS = {
    "--cc": "cc",
    "--bcc": "bcc",
    "--reply-to": "reply_to",
    "--inline": "inline",
    "--header": "headers",
    "--at": "at",
    "--track-links": "tracking.track_links",
    "--no-track-links": "tracking.track_links",
    "--track-plain-text-links": "tracking.track_plain_text_links",
    "--no-track-plain-text-links": "tracking.track_plain_text_links",
    "--track-open": "tracking.track_open",
    "--no-track-open": "tracking.track_open",
    "--track-unsubscribe": "tracking.track_unsubscribe",
    "--no-track-unsubscribe": "tracking.track_unsubscribe",
    "--inline-images": "settings.inline_images",
    "--no-inline-images": "settings.inline_images",
    "--dkim": "settings.use_dkim",
    "--no-dkim": "settings.use_dkim",
    "--dkim-selector": "settings.use_dkim_selector",
    "--max-attached": "max_attached",
}

_RECORD = "Use -vv. It logs method, path, status, duration and field names of each request, without values."

REMOVED_OPTIONS: dict[tuple[str, str], str] = {
    ("import", "--engine"): _IMPORT_ENGINE,
    ("import", "--scheduler"): _IMPORT_ENGINE,
    ("import", "--workers"): _IMPORT_ENGINE,
    ("sync", "--part"): "Use --shard I/N: it divides the work by identity, and needs no division of the source.",
    ("check", "--record"): _RECORD,
    ("import", "--record"): _RECORD,
    ("export", "--record"): _RECORD,
    ("export", "--engine"): _EXPORT_ENGINE,
    ("export", "--scheduler"): _EXPORT_ENGINE,
    ("export", "--workers"): _EXPORT_ENGINE,
    ("export", "--partition-by"): _ONE_FILE,
    **{
        ("send", option): f"Write the key `{key}` into a message file, and run: connector send FILE"
        for option, key in _MESSAGE_KEYS.items()
    },
}
"""What replaces an option, by the command's name and the option."""

_SPLIT = (
    "Use `template`: \"{{ name.partition(' ')[0] }}\" is the text before the first blank, "
    "\"{{ name.partition(' ')[2] }}\" after it, \"{{ name.rpartition(' ')[0] or name }}\" before the last blank, and "
    "\"{{ name.rpartition(' ')[2] if ' ' in name else '' }}\" after it."
)

REMOVED_KEYS: dict[str, str] = {
    "subscriber.fields.*.join": (
        "Use `template`, such as \"{{ [street, row['House No']] | select | join(' ') }}\"; `select` leaves out empty "
        "cells."
    ),
    "subscriber.fields.*.split_at": _SPLIT,
    "subscriber.fields.*.part": _SPLIT,
    "subscriber.fields.*.drop_apostrophe": "Remove this key: an apostrophe before a number is always dropped.",
    "notify.email": (
        "Use `notify.webhook` to send the report to a chat. For an email, run the command with --quiet from cron: cron "
        "mails the output of a run that has problems."
    ),
    "export.partition_by": _ONE_FILE,
    "source.sql.part_by": "Remove this key: sync --shard I/N divides the work by identity, and needs no column for it.",
}
"""What replaces a key of a job or message file, by its dotted name without list indexes (`source.file.quote`); `*`
stands for any field of the subscriber."""


def explain_removed_key(keys: tuple[str | int, ...]) -> str | None:
    """Return what replaces a key, given with the keys above it, or None if no version had the key."""
    dotted = ".".join(key for key in keys if isinstance(key, str))
    return next((text for key, text in REMOVED_KEYS.items() if fnmatchcase(dotted, key)), None)
