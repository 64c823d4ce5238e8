from .headers import (
    WHOLE_NAMES as WHOLE_NAMES,
    find_whole_name as find_whole_name,
    guess_mapping as guess_mapping,
    normalise_header as normalise_header,
    override_mapping as override_mapping,
)
from .identity import (
    CAPITALS as CAPITALS,
    FINGERPRINT_BYTES as FINGERPRINT_BYTES,
    IDENTITY_BYTES as IDENTITY_BYTES,
    Digests as Digests,
    Mask as Mask,
    SeenIdentities as SeenIdentities,
    SpellingClass as SpellingClass,
    build_spellings as build_spellings,
    classify as classify,
    compute_fingerprints as compute_fingerprints,
    compute_identities as compute_identities,
    describe_spelling as describe_spelling,
    digest_identity as digest_identity,
    digest_text as digest_text,
    has_spellings_by_case_alone as has_spellings_by_case_alone,
    is_plain as is_plain,
    join_digests as join_digests,
    separate_digests as separate_digests,
    split_digests as split_digests,
)
from .mapping import (
    MappedChunk as MappedChunk,
    apply_mapping as apply_mapping,
)
from .preparation import (
    PreparedChunk as PreparedChunk,
    check_mapping as check_mapping,
    find_suppressed as find_suppressed,
    prepare_chunks as prepare_chunks,
)
from .row_bases import (
    BaseColumn as BaseColumn,
    RowBases as RowBases,
    list_columns as list_columns,
    parse_base as parse_base,
    read_bases as read_bases,
)
from .rules import (
    MAPPABLE as MAPPABLE,
    Case as Case,
    ColumnRule as ColumnRule,
    FieldMapping as FieldMapping,
    JoinRule as JoinRule,
    Part as Part,
    PhoneRule as PhoneRule,
    ValidationRules as ValidationRules,
    find_mapping_faults as find_mapping_faults,
    find_misfits as find_misfits,
    require_columns as require_columns,
)
from .suppression import (
    InactiveIdentities as InactiveIdentities,
    Suppression as Suppression,
)
from .validation import (
    ValidRows as ValidRows,
    build_listed_schema as build_listed_schema,
    build_sent_schema as build_sent_schema,
    validate_rows as validate_rows,
)
