with versions as (
    select
        id,
        base_id,
        base_name,
        is_active,
        valid_from at time zone 'UTC' as valid_from,
        valid_to at time zone 'UTC' as valid_to
    from {{ source('esp', 'subscribers') }}
),

bounds as (
    select
        cast(min(valid_from) as date) as first_day,
        (
            select cast(max(finished_at) at time zone 'UTC' as date)
            from {{ source('esp', '_connector_runs') }}
            where table_name = 'subscribers'
        ) as last_day
    from versions
),

days as (
    select cast(series.day as date) as day
    from bounds cross join lateral generate_series(first_day, last_day, interval '1 day') as series(day)
),

bases as (
    select base_id, max(base_name) as base_name from versions group by base_id
),

lives as ( -- a row for each subscriber: the day of the first version, and the day on which the last version ended
    select
        id,
        base_id,
        cast(min(valid_from) as date) as came_on,
        case when count(valid_to) = count(*) then cast(max(valid_to) as date) end as went_on
    from versions
    group by id, base_id
)

select
    days.day,
    bases.base_id,
    bases.base_name,
    count(versions.id) as subscribers,
    coalesce(sum(case when versions.is_active then 1 else 0 end), 0) as active,
    (select count(*) from lives where lives.base_id = bases.base_id and came_on = days.day) as came,
    (select count(*) from lives where lives.base_id = bases.base_id and went_on = days.day) as went
from days
cross join bases
left join versions
    on versions.base_id = bases.base_id
    and versions.valid_from < days.day + interval '1 day'
    and (versions.valid_to is null or versions.valid_to >= days.day + interval '1 day')
group by days.day, bases.base_id, bases.base_name
