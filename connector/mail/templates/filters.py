"""The filters of emails' templates: Jinja's, each bounded in what it makes; beforehand where that may be much."""

import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from jinja2 import filters as jinja
from jinja2 import pass_context, pass_eval_context
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, Undefined
from jinja2.runtime import markup_join as join_escaped
from jinja2.runtime import str_join as join_plain

from connector.mail.templates.bounds import Steps, check_length, to_text

STEPS = " steps"
"""Under which a rendering's count of steps is found; no template can name it."""

COUNTED, JOINED = " counted", " joined"
"""Filters that no template can name: a loop's items, and the texts that `~` joins."""

_PLAIN = frozenset(
    {"abs", "capitalize", "default", "e", "escape", "first", "float", "int", "last", "length", "lower", "safe",
     "string", "title", "trim", "truncate", "upper", "urlencode", "wordcount"}
)  # fmt: skip
_WIDE = re.compile(r"\d{3,}|\*")
_MOST_DIGITS = 20
_LONGEST_ESCAPE = len("&quot;")


def build_filters() -> dict[str, Callable[..., Any]]:
    """All filters by name, those of COUNTED and JOINED among them."""
    ours: dict[str, Callable[..., Any]] = {"format": _format, "join": _join, "replace": _replace, "round": _round}
    made = {name: jinja.FILTERS[name] for name in _PLAIN} | ours
    return {name: _bound(each) for name, each in made.items()} | {COUNTED: _count, JOINED: _join_all}


FILTERS = _PLAIN | {"format", "join", "replace", "round"}


def write(value: Any) -> Any:
    """As `to_text`; what is undefined stays so, for Jinja to raise its error."""
    return value if isinstance(value, Undefined) else to_text(value)


@pass_eval_context
def finalize(_: EvalContext, value: Any) -> Any:
    """As `write`, for what is written out. That it asks for a context keeps Jinja from writing constants beforehand,
    where it would escape None first."""
    return write(value)


def _bound(plain: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose result is at most a few times as long as what it is given: checked when it is there."""

    @wraps(plain)  # with it goes Jinja's mark of what else the filter is to be given
    def bounded(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        if isinstance(made, str):
            check_length(len(made))
        return made

    return bounded


@pass_context
def _count(context: Context, items: Iterable[Any]) -> list[Any]:
    """A loop's items, its steps counted."""
    listed = list(items)
    steps = context.resolve(STEPS)
    assert isinstance(steps, Steps)  # noqa: S101 - every rendering brings its own
    steps.take(len(listed))
    return listed


@pass_eval_context
def _join_all(eval_ctx: EvalContext, items: Iterable[Any]) -> str:
    """What `~` makes: escaped where the template is."""
    texts = [write(item) for item in items]
    check_length(sum(len(str(text)) for text in texts))
    return join_escaped(texts) if eval_ctx.autoescape else join_plain(texts)


@pass_eval_context
def _join(eval_ctx: EvalContext, value: Iterable[Any], d: str = "") -> Any:
    """Jinja's `join`; empty values are empty texts."""
    texts = [write(item) for item in value]
    check_length(sum(len(str(text)) for text in texts) + len(d) * len(texts))
    return jinja.do_join(eval_ctx, texts, d)


@pass_eval_context
def _replace(eval_ctx: EvalContext, s: Any, old: Any, new: Any) -> Any:
    """Jinja's `replace`, every time that it occurs."""
    plain, what, by = str(write(s)), str(old), str(new)
    check_length(len(plain) + plain.count(what) * len(by) * (_LONGEST_ESCAPE if eval_ctx.autoescape else 1))
    return jinja.do_replace(eval_ctx, write(s), what, new)


def _format(value: Any, *args: Any, **kwargs: Any) -> str:
    """Jinja's `format`, as in `"%.2f"|format(price)`; no width of three digits and more."""
    if _WIDE.search(str(value)):
        raise ValueError("a width of more than two digits")
    longest = max((len(str(write(each))) for each in (*args, *kwargs.values())), default=0)
    check_length(len(str(value)) + str(value).count("%") * max(longest, 500))  # 500: a float has at most 309 + 99
    return jinja.do_format(
        value, *(write(each) for each in args), **{name: write(each) for name, each in kwargs.items()}
    )


def _round(value: Any, precision: int = 0, method: Any = "common") -> float:
    """Jinja's `round`, to at most twenty digits: to a great many, Python would reckon for ever."""
    if not -_MOST_DIGITS <= precision <= _MOST_DIGITS:
        raise ValueError("more than twenty digits")
    return jinja.do_round(value, precision, method)
