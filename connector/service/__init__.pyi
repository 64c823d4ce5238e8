from .answers import (
    ECHOES as ECHOES,
    MASKED as MASKED,
    build_mask as build_mask,
    extract_words as extract_words,
    parse_created as parse_created,
    parse_listed as parse_listed,
    parse_retry_after as parse_retry_after,
    parse_sent as parse_sent,
    parse_wire_page as parse_wire_page,
    read_whole_number as read_whole_number,
    refusal_kind as refusal_kind,
)
from .client import (
    LONGEST_PAUSE_S as LONGEST_PAUSE_S,
    Client as Client,
    ParseListed as ParseListed,
    RequestCounts as RequestCounts,
    open_client as open_client,
)
from .recording import (
    RequestSender as RequestSender,
)
from .retry import (
    Retrier as Retrier,
)
from .settings import (
    Service as Service,
    Token as Token,
    parse_base_url as parse_base_url,
)
from .timeline import (
    Timeline as Timeline,
)
from .transport import (
    LARGEST_ANSWER as LARGEST_ANSWER,
    open_transport as open_transport,
    post_webhook as post_webhook,
)
from .wire import (
    LARGEST_PAGE as LARGEST_PAGE,
    TOO_MANY_REQUESTS as TOO_MANY_REQUESTS,
    UNAUTHORISED as UNAUTHORISED,
    Accepted as Accepted,
    Ambiguous as Ambiguous,
    Created as Created,
    ListPage as ListPage,
    ListQuery as ListQuery,
    Mask as Mask,
    NotSent as NotSent,
    Operation as Operation,
    RawAnswer as RawAnswer,
    Refused as Refused,
    Request as Request,
    Rows as Rows,
    WireRows as WireRows,
    altered_fields as altered_fields,
    build_create as build_create,
    build_list as build_list,
    build_send as build_send,
    decode_subscriber as decode_subscriber,
    differing_fields as differing_fields,
    echoes as echoes,
    encode_subscriber as encode_subscriber,
    plan_encoding as plan_encoding,
    read_field as read_field,
    says_limit as says_limit,
)
