from .campaign import (
    Addressee as Addressee,
    CampaignSender as CampaignSender,
    Letter as Letter,
    MailPolicy as MailPolicy,
    SendVerdict as SendVerdict,
)
from .draft import (
    ATTACHMENTS as ATTACHMENTS,
    Draft as Draft,
    Stated as Stated,
    build_recipient as build_recipient,
    compose_draft as compose_draft,
    lay_over as lay_over,
    parse_recipient as parse_recipient,
    parse_send_at as parse_send_at,
    read_attachment as read_attachment,
)
from .eml import (
    read_eml as read_eml,
    write_eml as write_eml,
)
from .message import (
    Attachment as Attachment,
    Header as Header,
    Message as Message,
    MessageError as MessageError,
    Recipient as Recipient,
    encode_email as encode_email,
)
from .single import (
    run_send as run_send,
)
from .texts import (
    MailTexts as MailTexts,
    RowAttachment as RowAttachment,
)
