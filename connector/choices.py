"""What a person may choose on the command line or in a job, by name: here so that its help needs nothing heavy."""

IDENTITIES = ("email", "client_user_id")

ZIP_FIELDS = ("custom_field1", "custom_field2", "custom_field3")
ZIP_POLICIES = ("omit", "reject", *ZIP_FIELDS)

FILE_FORMATS = ("csv", "tsv", "excel", "parquet", "jsonl")
"""What a source file may hold."""

EXPORT_FORMATS = ("csv", "jsonl", "parquet", "excel")
"""What an exported file may hold."""

CSV_DIALECTS = ("standard", "excel")
CSV_DELIMITERS = (",", ";", "|", "tab")
"""How an exported CSV file is written."""

DECIDE_HELD = "connector retry --held resend|accept|drop"
"""The commands by which a person decides about held entries."""
