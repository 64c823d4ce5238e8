"""The service over HTTP: its requests and answers as values, one client with its three operations, and what may be sent
again.

The face is lazy: what needs only the values (`ListQuery`, `encode_subscriber`) does not pay for aiohttp.
"""

from typing import TYPE_CHECKING

from connector.faces import open_face

if TYPE_CHECKING:
    from connector.service.answers import (
        ECHOES,
        MASKED,
        build_mask,
        extract_words,
        parse_created,
        parse_listed,
        parse_retry_after,
        parse_sent,
        parse_wire_page,
        read_whole_number,
        refusal_kind,
    )
    from connector.service.client import (
        LONGEST_PAUSE_S,
        Client,
        ParseListed,
        RequestCounts,
        RequestSender,
        open_client,
    )
    from connector.service.retry import Retrier
    from connector.service.settings import Service, Token, parse_base_url
    from connector.service.transport import LARGEST_ANSWER, RawAnswer, open_transport, post_webhook
    from connector.service.wire import (
        LARGEST_PAGE,
        OPERATIONS,
        TOO_MANY_REQUESTS,
        Accepted,
        Ambiguous,
        Created,
        ListPage,
        ListQuery,
        Mask,
        NotSent,
        Operation,
        Refused,
        Request,
        Rows,
        WireRows,
        altered_fields,
        build_create,
        build_list,
        build_send,
        decode_subscriber,
        differing_fields,
        echoes,
        encode_subscriber,
        plan_encoding,
        read_field,
        says_limit,
    )

__all__ = [
    "ECHOES", "LARGEST_ANSWER", "LARGEST_PAGE", "LONGEST_PAUSE_S", "MASKED", "OPERATIONS", "TOO_MANY_REQUESTS",
    "Accepted", "Ambiguous", "Client", "Created", "ListPage", "ListQuery", "Mask", "NotSent", "Operation",
    "ParseListed", "RawAnswer", "Refused", "Request", "RequestCounts", "RequestSender", "Retrier", "Rows", "Service",
    "Token", "WireRows", "altered_fields", "build_create", "build_list", "build_mask", "build_send",
    "decode_subscriber", "differing_fields", "echoes", "encode_subscriber", "extract_words", "open_client",
    "open_transport", "parse_base_url", "parse_created", "parse_listed", "parse_retry_after", "parse_sent",
    "parse_wire_page", "plan_encoding", "post_webhook", "read_field", "read_whole_number", "refusal_kind",
    "says_limit",
]  # fmt: skip

__getattr__ = open_face(
    __name__,
    {
        "answers": (
            "ECHOES", "MASKED", "build_mask", "extract_words", "parse_created", "parse_listed", "parse_retry_after",
            "parse_sent", "parse_wire_page", "read_whole_number", "refusal_kind",
        ),
        "client": ("LONGEST_PAUSE_S", "Client", "ParseListed", "RequestCounts", "RequestSender", "open_client"),
        "retry": ("Retrier",),
        "settings": ("Service", "Token", "parse_base_url"),
        "transport": ("LARGEST_ANSWER", "RawAnswer", "open_transport", "post_webhook"),
        "wire": (
            "LARGEST_PAGE", "OPERATIONS", "TOO_MANY_REQUESTS", "Accepted", "Ambiguous", "Created", "ListPage",
            "ListQuery", "Mask", "NotSent", "Operation", "Refused", "Request", "Rows", "WireRows", "altered_fields",
            "build_create", "build_list", "build_send", "decode_subscriber", "differing_fields", "echoes",
            "encode_subscriber", "plan_encoding", "read_field", "says_limit",
        ),
    },
)  # fmt: skip
