"""Looks at one page of the list: how long it is, and whom the controls of the filters can be made with."""

import math

from connector.listing import fetch_page
from connector.load.looks.lookout import Survey
from connector.load.session import Session
from connector.service import ListPage, ListQuery

_STEP_SHARE = 0.95  # a page repeats a twentieth of the one before it (connector.pages)


async def take_survey(session: Session) -> Survey:
    """What is known of the list, by one page of it if that is not fresh (`policy.fresh_s`). Raises ListFailed."""
    lookout, now = session.lookout, session.clock.monotonic()
    if lookout.survey is not None and now < lookout.survey.taken_at + session.policy.fresh_s:
        return lookout.survey
    listed = await session.until_stopped(fetch_page(session.client, session.retrier, ListQuery()))
    survey = Survey(now, listed.total_count, _count_pages(listed))
    survey.note(listed.subscribers)
    lookout.survey = survey
    return survey


def _count_pages(listed: ListPage) -> int | None:
    """The requests of a sweep in id order, the empty page past the end included."""
    if listed.total_count is None:
        return None
    rows = listed.limit if listed.limit is not None and listed.limit > 0 else max(1, len(listed.subscribers))
    return math.ceil(listed.total_count / (rows * _STEP_SHARE)) + 1
