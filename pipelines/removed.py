"""Commands and options that earlier versions had, and what replaces each of them.

An unknown command or option that is listed here gets its replacement in the error message. Each text is a complete
sentence or two: what replaces the removed thing, as an instruction.
"""

REMOVED_COMMANDS: dict[str, str] = {
    "probe": "Use `connector check`. It shows page size, order, filters, and whether the list may be cut off.",
    "report": "Use `connector status --html PATH`.",
    "accept": "Correct the rows in the source, or leave them out by the query of the job's source.",
}
"""What replaces a command, by its name."""

_EXPORT_ENGINE = "One process exports the list and reads several pages at once. Leave out the options of the engine."
_IMPORT_ENGINE = "Write a job for the file with `connector init`, then use `connector sync JOB --engine dask`."

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
    **{
        (command, "--accept-cut-off-possible"): "Use --allow-truncated."
        for command in ("import", "export", "reconcile")
    },
    ("retry", "--resend-held"): "Use --held resend.",
    ("retry", "--accept-held"): "Use --held accept.",
    ("retry", "--drop-held"): "Use --held drop.",
    ("init", "--write"): "Use -o FILE.",
    **{
        ("send", option): f"Write the key `{key}` into a message file, and run: connector send FILE"
        for option, key in _MESSAGE_KEYS.items()
    },
}
"""What replaces an option, by the command's name and the option."""
