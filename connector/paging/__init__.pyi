from .certificate import (
    SMALLEST_WINDOW as SMALLEST_WINDOW,
    Certificate as Certificate,
    Counts as Counts,
    CutOff as CutOff,
    Finding as Finding,
    Order as Order,
    Reason as Reason,
    Says as Says,
    TotalCount as TotalCount,
    Verdict as Verdict,
    decide_counts as decide_counts,
    decide_cut_off as decide_cut_off,
    decide_totals as decide_totals,
    may_be_cut_off as may_be_cut_off,
)
from .overlap import (
    NO_IDS as NO_IDS,
    IdArray as IdArray,
    Mask as Mask,
    Measures as Measures,
    PageAnswer as PageAnswer,
    PageRequest as PageRequest,
    contained as contained,
)
from .pager import (
    DIMENSIONS as DIMENSIONS,
    Pager as Pager,
)
from .ranges import (
    SURVEYED as SURVEYED,
    ListDivision as ListDivision,
    RangeReader as RangeReader,
    RangeReading as RangeReading,
    certify_ranges as certify_ranges,
    choose_looks as choose_looks,
    choose_survey as choose_survey,
    divide_list as divide_list,
    join_ids as join_ids,
)
from .sweep import (
    IdRange as IdRange,
)
