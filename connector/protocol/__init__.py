"""The service's interface document as pure functions: values to bytes, bytes to values, and no connection."""

from connector.protocol.answers import (
    Accepted,
    Ambiguous,
    Created,
    Listed,
    Mask,
    NotSent,
    Refused,
    parse_created,
    parse_listed,
    parse_sent,
    refusal_kind,
)
from connector.protocol.email import (
    Attachment,
    EmailSettings,
    Header,
    Message,
    Recipient,
    TrackingSettings,
    encode_email,
)
from connector.protocol.email_rules import MessageError
from connector.protocol.requests import (
    LARGEST_PAGE,
    OPERATIONS,
    TOO_MANY_REQUESTS,
    ListQuery,
    Operation,
    Request,
    build_create,
    build_list,
    build_send,
)
from connector.protocol.retry_after import parse_retry_after
from connector.protocol.wire import altered_fields, decode_subscriber, encode_subscriber
from connector.protocol.words import extract_words

__all__ = [
    "LARGEST_PAGE",
    "OPERATIONS",
    "TOO_MANY_REQUESTS",
    "Accepted",
    "Ambiguous",
    "Attachment",
    "Created",
    "EmailSettings",
    "Header",
    "ListQuery",
    "Listed",
    "Mask",
    "Message",
    "MessageError",
    "NotSent",
    "Operation",
    "Recipient",
    "Refused",
    "Request",
    "TrackingSettings",
    "altered_fields",
    "build_create",
    "build_list",
    "build_send",
    "decode_subscriber",
    "encode_email",
    "encode_subscriber",
    "extract_words",
    "parse_created",
    "parse_listed",
    "parse_retry_after",
    "parse_sent",
    "refusal_kind",
]
