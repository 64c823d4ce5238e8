"""A YAML text as keys and text, with the line of each key.

Scalars stay the text that was written (`no` is a country, `007` a code): a key's own model gives it a type.
It knows nothing of jobs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

Keys = tuple[str | int, ...]
"""Where a value stands in a document: its keys from the outermost in, a list's items by number from 0."""

_NULL = "tag:yaml.org,2002:null"
_STANDARD = "tag:yaml.org,2002:"


@dataclass(frozen=True, slots=True)
class JobFault:
    """One thing wrong with a job file: where (`line` from 1, None when unknown), and what, for a person."""

    keys: Keys
    line: int | None
    message: str


@dataclass(frozen=True, slots=True)
class Document:
    """`values`: dicts, lists, text and None; `lines`: the line of every key and item; `faults`: what cannot be used."""

    values: dict[str, Any] = field(default_factory=dict, repr=False)  # may hold a URL with its password
    lines: dict[Keys, int] = field(default_factory=dict, repr=False)
    faults: tuple[JobFault, ...] = ()


def find_line(lines: Mapping[Keys, int], keys: Keys) -> int | None:
    """The line of `keys` or, if they are not in the file, of the nearest keys around them."""
    return next((lines[keys[:end]] for end in range(len(keys), 0, -1) if keys[:end] in lines), None)


def parse_document(text: str) -> Document:
    """Read one YAML document whose top is a group of keys; never raises, its faults are in the answer."""
    try:
        alias = _find_alias(text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        return Document(faults=(_translate_error(error, text),))
    except RecursionError:
        return Document(faults=(JobFault((), None, "keys are nested too deeply"),))
    if alias is not None:
        return Document(faults=(alias,))
    if root is None:
        return Document(faults=(JobFault((), None, "the file is empty"),))
    if not isinstance(root, yaml.MappingNode):
        return Document(faults=(JobFault((), 1, "the file must hold keys, such as `job: my-job`"),))
    lines: dict[Keys, int] = {}
    faults: list[JobFault] = []
    values = _read_mapping(root, (), lines, faults)
    return Document(values, lines, tuple(faults))


def _find_alias(text: str) -> JobFault | None:
    """An alias could stand for itself or multiply without end, and no job of forty lines needs one."""
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) and event.start_mark is not None:
            return JobFault((), event.start_mark.line + 1, "aliases (*name) are not read: write it out")
    return None


def _translate_error(error: yaml.YAMLError, text: str) -> JobFault:
    """The error's own words and line, without the excerpt of the file that PyYAML adds: it may hold a password."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return JobFault((), None, "this is no YAML: it holds a character that YAML does not allow")
    words = " ".join(part for part in (error.context, error.problem) if part)
    lines = text.splitlines()
    nearby = "".join(lines[max(mark.line - 1, 0) : mark.line + 1])
    hint = '; a ${NAME} inside { } or [ ] stands in quotes: "${NAME}"' if "${" in nearby else ""
    return JobFault((), mark.line + 1, f"this is no YAML: {words}{hint}")


def _read_node(node: yaml.Node, keys: Keys, lines: dict[Keys, int], faults: list[JobFault]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _read_mapping(node, keys, lines, faults)
    if not node.tag.startswith(_STANDARD):
        faults.append(JobFault(keys, node.start_mark.line + 1, f"the tag {node.tag} is not known"))
    if isinstance(node, yaml.SequenceNode):
        items = []
        for number, item in enumerate(node.value):
            lines[*keys, number] = item.start_mark.line + 1
            items.append(_read_node(item, (*keys, number), lines, faults))
        return items
    return None if node.tag == _NULL else node.value


def _read_mapping(node: yaml.MappingNode, keys: Keys, lines: dict[Keys, int], faults: list[JobFault]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for line, name, value in _read_pairs(node):
        if name is None:
            faults.append(JobFault(keys, line, "a key must be one word or text"))
        elif name in values:
            faults.append(JobFault((*keys, name), line, f"stands twice: first in line {lines[*keys, name]}"))
        else:
            lines[*keys, name] = line
            values[name] = _read_node(value, (*keys, name), lines, faults)
    return values


def _read_pairs(node: yaml.MappingNode) -> Iterator[tuple[int, str | None, yaml.Node]]:
    for key, value in node.value:
        yield key.start_mark.line + 1, key.value if isinstance(key, yaml.ScalarNode) else None, value
