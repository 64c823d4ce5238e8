"""Removed keys of job and message files, each with an instruction that names its replacement."""

from fnmatch import fnmatchcase

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
    "notify.when": "Use `notify.on`: change (the default), problem or always.",
    "notify.email": (
        "Use `notify.webhook` to send the report to a chat. For an email, run the command with --quiet from cron: cron "
        "mails the output of a run that has problems."
    ),
    "load.accept_cut_off_possible": "Use `load.allow_truncated`.",
    "export.accept_cut_off_possible": "Use `export.allow_truncated`.",
    "source.sql.part_by": "Remove this key: sync --shard I/N divides the work by identity, and needs no column for it.",
}
"""The instruction for each removed key, by its dotted name without list indexes (`source.file.quote`). `*` stands for
any field of the subscriber."""


def explain_removed_key(keys: tuple[str | int, ...]) -> str | None:
    """Return the instruction for a removed key, or None if no version had the key. `keys` is its path from the top."""
    dotted = ".".join(key for key in keys if isinstance(key, str))
    return next((text for key, text in REMOVED_KEYS.items() if fnmatchcase(dotted, key)), None)
