from .build import (
    build_guard as build_guard,
    build_mapping as build_mapping,
    build_policy as build_policy,
    build_query as build_query,
    build_rules as build_rules,
    open_as as open_as,
    open_increment as open_increment,
    open_part as open_part,
    open_source as open_source,
)
from .draft import (
    GuessedField as GuessedField,
    draft_job as draft_job,
    guess_fields as guess_fields,
    propose_cursor as propose_cursor,
    write_rule as write_rule,
)
from .mail_models import (
    MOST_ATTACHED as MOST_ATTACHED,
    AttachedFile as AttachedFile,
    EmailText as EmailText,
    Mail as Mail,
    MessageFile as MessageFile,
    Notify as Notify,
    NotifyEmail as NotifyEmail,
    Webhook as Webhook,
    read_stated as read_stated,
)
from .models import (
    Filters as Filters,
    Job as Job,
    JobSubscriber as JobSubscriber,
    Load as Load,
)
from .reader import (
    check_format as check_format,
    check_message as check_message,
    fill_in as fill_in,
    find_line as find_line,
    load_job as load_job,
    load_model as load_model,
    override_load as override_load,
    parse_document as parse_document,
    read_bytes as read_bytes,
    read_text as read_text,
)
from .schema import (
    JobKey as JobKey,
    build_schema as build_schema,
    list_keys as list_keys,
)
from .settings import (
    read_account as read_account,
    read_settings as read_settings,
)
from .source_models import (
    Cursor as Cursor,
    FileSource as FileSource,
    JobSource as JobSource,
    SqlSource as SqlSource,
)
from .subscriber_models import (
    build_base as build_base,
)
