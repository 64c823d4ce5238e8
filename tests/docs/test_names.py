"""Each option, key, column and outcome that a page names is in the code, and each of the code's is on its page."""

import re
import tomllib
from collections.abc import Iterator

import click
import yaml

from connector.jobs.mail_models import MessageFile
from connector.jobs.reader import load_job
from connector.jobs.schema import list_keys
from connector.runs.row_files import ADDED_COLUMNS
from pipelines.cli import cli
from tests.docs.test_pages import PAGES, ROOT, read_blocks

_OF_OTHER_PROGRAMS = {
    *("--help", "--clear", "--rm", "--now"),
    *("--chance",),
    *("--vars", "--project-dir", "--profiles-dir"),
    *("--nthreads", "--nworkers"),
    *("--config", "--catalog"),
}
_WITH_OTHER_NAMES = (
    "architecture.md",
    "dependencies.md",
    "report.md",
)  # `service.wire` is a module, `receipts.rows` a report key
_NAMED_BY_USERS = ("values", "headers")  # keys below these are the user's words
KEYS = {key.key.replace("<field>", "*") for key in [*list_keys(), *list_keys(MessageFile)]}
SECTIONS = {key for key in KEYS if any(other.startswith(f"{key}.") for other in KEYS)} | {"subscriber.fields.*"}
TEXTS = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}


def list_options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Each long option of a command and of those in it."""
    for parameter in command.params:
        yield from (option for option in (*parameter.opts, *parameter.secondary_opts) if option.startswith("--"))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from list_options(inner, context)


def list_paths(value: object, *above: str) -> Iterator[tuple[str, ...]]:
    """Each key of a YAML mapping with those above it."""
    value = value[0] if isinstance(value, list) and value else value
    for key, inner in value.items() if isinstance(value, dict) else ():
        yield (*above, str(key))
        if key not in _NAMED_BY_USERS:
            yield from list_paths(inner, *above, str(key))


def is_key(*path: str) -> bool:
    """Whether a job, or a part of one, may have this; below a key of which the reference lists no parts, anything."""
    return any(_ends(key, path) or (key not in SECTIONS and _ends(key, path[:-1])) for key in KEYS | SECTIONS)


def _ends(key: str, path: tuple[str, ...]) -> bool:
    known = key.split(".")[-len(path) :] if path else []
    return len(known) == len(path) > 0 and all(mine in ("*", theirs) for mine, theirs in zip(known, path, strict=True))


def test_options_on_pages_are_those_of_the_commands() -> None:
    options = set(list_options(cli, click.Context(cli)))
    named = {option for text in TEXTS.values() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)}
    assert named - options == _OF_OTHER_PROGRAMS
    reference = TEXTS["docs/reference/commands.md"]
    assert [option for option in sorted(options) if not re.search(rf"{option}\b", reference)] == []


def test_keys_of_a_job_on_pages_are_those_of_the_code() -> None:
    tops = "|".join(sorted({key.partition(".")[0] for key in SECTIONS}))
    for page in PAGES:
        blocks = [block for block in read_blocks(page) if block.language == "yaml"]
        paths = [path for block in blocks for path in list_paths(yaml.load(block.text, Loader=yaml.BaseLoader))]
        if page.name not in _WITH_OTHER_NAMES:
            named = re.findall(rf"`((?:{tops})\.[a-z_.]+[a-z])`", page.read_text("utf-8"))
            paths += [tuple(key.split(".")) for key in named]
        assert [path for path in paths if not is_key(*path)] == [], page


def test_the_annotated_job_has_each_key_of_the_code_and_its_plain_lines_are_a_job() -> None:
    path = ROOT / "configs" / "annotated.yaml"
    text = path.read_text("utf-8")
    complete = re.sub(r"^( *)#(?=[a-z])", r"\1", text, flags=re.MULTILINE)
    paths = list_paths(yaml.load(complete, Loader=yaml.BaseLoader))
    named = {".".join(("*" if path[:2] == ("subscriber", "fields") and index == 2 else key)
             for index, key in enumerate(path)) for path in paths}  # fmt: skip
    assert sorted({key.key.replace("<field>", "*") for key in list_keys()} - named) == []
    assert load_job(path, {}).name == "annotated"


def test_columns_of_rejects_on_the_page_are_those_of_the_code() -> None:
    rejects = re.findall(r"^\| (`_.*?`) \|", TEXTS["docs/how-to/rejects.md"], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rejects))) == sorted(ADDED_COLUMNS)


def test_the_readme_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    install = TEXTS["README.md"].partition("| extra | for |")[2].partition("\n\n")[0]
    named = [cell for line in install.splitlines() for cell in re.findall(r"`(\w+)`", line.split(" | ")[0])]
    assert sorted(named) == sorted(extras)


def test_lines_that_a_page_shows_of_a_file_are_in_it() -> None:
    shown = re.findall(
        r"From\s`(configs/[\w.-]+)`:\n\n```text\n(.*?)```", TEXTS["docs/how-to/unattended.md"], re.DOTALL
    )
    assert len(shown) == 4
    files = {file: (ROOT / file).read_text("utf-8").splitlines() for file, _ in shown}
    assert [line for file, text in shown for line in text.splitlines() if line not in files[file]] == []
