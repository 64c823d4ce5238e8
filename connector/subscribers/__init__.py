"""From the rows of a source to valid subscribers with an identity: headers, mapping, validation, suppression. Pure.

The face is lazy: a job file is checked by `rules` alone, without pandas, Arrow and pandera.
"""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.subscribers.headers import (
        WHOLE_NAMES,
        HeaderGuess,
        find_whole_name,
        guess_mapping,
        normalise_header,
        override_mapping,
    )
    from connector.subscribers.identity import (
        CAPITALS,
        FINGERPRINT_BYTES,
        IDENTITY_BYTES,
        Digests,
        Mask,
        SeenIdentities,
        SpellingClass,
        build_spellings,
        classify,
        compute_fingerprints,
        compute_identities,
        describe_spelling,
        digest_identity,
        digest_text,
        has_spellings_by_case_alone,
        is_plain,
        join_digests,
        separate_digests,
        split_digests,
    )
    from connector.subscribers.mapping import MappedChunk, apply_mapping
    from connector.subscribers.preparation import PreparedChunk, find_suppressed, prepare_chunks
    from connector.subscribers.row_bases import BaseColumn, RowBases, list_columns, parse_base, read_bases, refuse_mixed
    from connector.subscribers.rules import (
        MAPPABLE,
        Case,
        ColumnRule,
        FieldMapping,
        JoinRule,
        Part,
        PhoneRule,
        ValidationRules,
        find_misfits,
        require_columns,
    )
    from connector.subscribers.suppression import InactiveIdentities, Suppression
    from connector.subscribers.validation import ValidRows, build_listed_schema, build_sent_schema, validate_rows

__all__ = [
    "CAPITALS", "FINGERPRINT_BYTES", "IDENTITY_BYTES", "MAPPABLE", "WHOLE_NAMES", "BaseColumn", "Case", "ColumnRule",
    "Digests", "FieldMapping", "HeaderGuess", "InactiveIdentities", "JoinRule", "MappedChunk", "Mask", "Part",
    "PhoneRule", "PreparedChunk", "RowBases", "SeenIdentities", "SpellingClass", "Suppression", "ValidRows",
    "ValidationRules", "apply_mapping", "build_listed_schema", "build_sent_schema", "build_spellings", "classify",
    "compute_fingerprints", "compute_identities", "describe_spelling", "digest_identity", "digest_text",
    "find_misfits", "find_suppressed", "find_whole_name", "guess_mapping", "has_spellings_by_case_alone", "is_plain",
    "join_digests", "list_columns", "normalise_header", "override_mapping", "parse_base", "prepare_chunks",
    "read_bases", "refuse_mixed", "require_columns", "separate_digests", "split_digests", "validate_rows",
]  # fmt: skip

__getattr__ = open_face(
    __name__,
    {
        "headers": (
            "WHOLE_NAMES", "HeaderGuess", "find_whole_name", "guess_mapping", "normalise_header", "override_mapping",
        ),
        "identity": (
            "CAPITALS", "FINGERPRINT_BYTES", "IDENTITY_BYTES", "Digests", "Mask", "SeenIdentities", "SpellingClass",
            "build_spellings", "classify", "compute_fingerprints", "compute_identities", "describe_spelling",
            "digest_identity", "digest_text", "has_spellings_by_case_alone", "is_plain", "join_digests",
            "separate_digests", "split_digests",
        ),
        "mapping": ("MappedChunk", "apply_mapping"),
        "preparation": ("PreparedChunk", "find_suppressed", "prepare_chunks"),
        "row_bases": ("BaseColumn", "RowBases", "list_columns", "parse_base", "read_bases", "refuse_mixed"),
        "rules": (
            "MAPPABLE", "Case", "ColumnRule", "FieldMapping", "JoinRule", "Part", "PhoneRule", "ValidationRules",
            "find_misfits", "require_columns",
        ),
        "suppression": ("InactiveIdentities", "Suppression"),
        "validation": ("ValidRows", "build_listed_schema", "build_sent_schema", "validate_rows"),
    },
)  # fmt: skip
