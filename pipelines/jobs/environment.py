"""`${NAME}` in a job's values, from the environment; `$${` stands for `${` itself. It knows nothing of jobs."""

import re
from collections.abc import Mapping
from typing import Any

from pipelines.jobs.document import Document, JobFault, Keys, find_line

_REFERENCE = re.compile(r"\$(?P<escaped>\$\{)|\$\{(?P<name>[^}]*)(?P<end>\}?)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def fill_in(document: Document, environ: Mapping[str, str]) -> Document:
    """The document with each `${NAME}` of its values replaced; a name that is not set is a fault of the answer.

    What is filled in is a value and nothing else: it cannot bring keys along, nor another `${NAME}`.
    """
    faults = list(document.faults)

    def fill(value: Any, keys: Keys) -> Any:
        if isinstance(value, dict):
            return {name: fill(item, (*keys, name)) for name, item in value.items()}
        if isinstance(value, list):
            return [fill(item, (*keys, number)) for number, item in enumerate(value)]
        if isinstance(value, str):
            text, problems = _fill_text(value, environ)
            faults.extend(JobFault(keys, find_line(document.lines, keys), problem) for problem in problems)
            return text
        return value

    values = {name: fill(value, (name,)) for name, value in document.values.items()}
    return Document(values, document.lines, tuple(faults))


def _fill_text(text: str, environ: Mapping[str, str]) -> tuple[str, list[str]]:
    problems: list[str] = []

    def replace(found: re.Match[str]) -> str:
        name = found["name"]
        if found["escaped"]:
            return found["escaped"]
        if not found["end"] or not _NAME.fullmatch(name):
            problems.append(
                "`${` begins the name of an environment variable, as in ${NAME}; for the text itself write $${"
            )
        elif name not in environ:
            problems.append(f"${{{name}}} is not set in the environment; set {name} and run again")
        else:
            return environ[name]
        return ""

    return _REFERENCE.sub(replace, text), problems
