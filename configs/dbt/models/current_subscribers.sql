select
    id,
    base_id,
    base_name,
    email,
    first_name,
    last_name,
    gender,
    is_active,
    tags,
    client_user_id,
    address_country,
    birthday,
    valid_from as changed_at
from {{ source('esp', 'subscribers') }}
where is_current
