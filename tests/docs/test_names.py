"""The pages have exactly the options, keys and columns of the code."""

import re
import tomllib
from collections.abc import Iterator

import click
import yaml

from connector.jobs.mail_models import MessageFile
from connector.jobs.reader import load_job
from connector.jobs.schema import list_keys
from connector.runs.rejects import ADDED_COLUMNS
from pipelines.cli import cli
from tests.docs.test_pages import PAGES, ROOT, read_blocks

_OPTIONS_OF_OTHER_PROGRAMS = {
    *("--help", "--clear", "--rm", "--user", "--now", "--no-deps"),
    *("--chance",),
    *("--vars", "--project-dir", "--profiles-dir"),
    *("--nthreads", "--nworkers"),
    *("--config", "--catalog"),
}
# These pages have names that look like keys of a job: the module `service.wire`, the key `receipts.rows` of a report.
_PAGES_WITH_NAMES_LIKE_JOB_KEYS = ("architecture.md", "dependencies.md", "report.md")
_KEYS_WITH_USER_KEYS = ("values", "headers")  # users choose the keys inside these two keys
JOB_KEYS = {key.key.replace("<field>", "*") for key in [*list_keys(), *list_keys(MessageFile)]}
JOB_SECTIONS = {key for key in JOB_KEYS if any(other_key.startswith(f"{key}.") for other_key in JOB_KEYS)} | {
    "subscriber.fields.*"
}
TEXT_BY_PAGE = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in PAGES}


def list_options(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield each long option of a command and of its subcommands."""
    for parameter in command.params:
        yield from (option for option in (*parameter.opts, *parameter.secondary_opts) if option.startswith("--"))
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from list_options(subcommand, context)


def list_paths(yaml_value: object, *parent_keys: str) -> Iterator[tuple[str, ...]]:
    """Yield the path of each key of a YAML mapping. `parent_keys` is the path of the mapping."""
    yaml_value = yaml_value[0] if isinstance(yaml_value, list) and yaml_value else yaml_value
    for key, inner_yaml_value in yaml_value.items() if isinstance(yaml_value, dict) else ():
        yield (*parent_keys, str(key))
        if key not in _KEYS_WITH_USER_KEYS:
            yield from list_paths(inner_yaml_value, *parent_keys, str(key))


def is_job_key(*path: str) -> bool:
    """Return whether a job or a part of a job may have the key at this path. If the reference lists no inner keys
    of a key, the key may have any inner keys."""
    return any(
        _has_suffix(key, path) or (key not in JOB_SECTIONS and _has_suffix(key, path[:-1]))
        for key in JOB_KEYS | JOB_SECTIONS
    )


def _has_suffix(key: str, path: tuple[str, ...]) -> bool:
    last_parts = key.split(".")[-len(path) :] if path else []
    return len(last_parts) == len(path) > 0 and all(
        known_part in ("*", path_part) for known_part, path_part in zip(last_parts, path, strict=True)
    )


def test_the_pages_have_exactly_the_options_of_the_commands() -> None:
    options = set(list_options(cli, click.Context(cli)))
    options_on_pages = {
        option for text in TEXT_BY_PAGE.values() for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
    }
    assert options_on_pages - options == _OPTIONS_OF_OTHER_PROGRAMS
    reference_text = TEXT_BY_PAGE["docs/reference/commands.md"]
    assert [option for option in sorted(options) if not re.search(rf"{option}\b", reference_text)] == []


def test_each_key_of_a_job_on_a_page_is_in_the_code() -> None:
    section_pattern = "|".join(sorted({key.partition(".")[0] for key in JOB_SECTIONS}))
    for page in PAGES:
        blocks = [block for block in read_blocks(page) if block.language == "yaml"]
        paths = [path for block in blocks for path in list_paths(yaml.load(block.text, Loader=yaml.BaseLoader))]
        if page.name not in _PAGES_WITH_NAMES_LIKE_JOB_KEYS:
            keys_in_text = re.findall(rf"`((?:{section_pattern})\.[a-z_.]+[a-z])`", page.read_text("utf-8"))
            paths += [tuple(key.split(".")) for key in keys_in_text]
        assert [path for path in paths if not is_job_key(*path)] == [], page


def test_the_annotated_job_is_valid_and_has_every_key() -> None:
    path = ROOT / "configs" / "annotated.yaml"
    text = path.read_text("utf-8")
    uncommented_text = re.sub(r"^( *)#(?=[a-z])", r"\1", text, flags=re.MULTILINE)
    paths = list_paths(yaml.load(uncommented_text, Loader=yaml.BaseLoader))
    annotated_keys = {".".join(("*" if path[:2] == ("subscriber", "fields") and index == 2 else key)
             for index, key in enumerate(path)) for path in paths}  # fmt: skip
    assert sorted({key.key.replace("<field>", "*") for key in list_keys()} - annotated_keys) == []
    assert load_job(path, {}).name == "annotated"


def test_the_page_on_rejects_has_exactly_the_columns_of_the_code() -> None:
    column_cells = re.findall(r"^\| (`_.*?`) \|", TEXT_BY_PAGE["docs/how-to/rejects.md"], re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(column_cells))) == sorted(ADDED_COLUMNS)


def test_the_readme_has_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    extras_table = TEXT_BY_PAGE["README.md"].partition("| extra | for |")[2].partition("\n\n")[0]
    extras_in_readme = [
        cell for line in extras_table.splitlines() for cell in re.findall(r"`(\w+)`", line.split(" | ")[0])
    ]
    assert sorted(extras_in_readme) == sorted(extras)


def test_the_page_on_nightly_runs_quotes_only_lines_of_the_files_in_configs() -> None:
    quoted_lines = re.findall(
        r"From\s`(configs/[\w.-]+)`:\n\n```text\n(.*?)```", TEXT_BY_PAGE["docs/how-to/unattended.md"], re.DOTALL
    )
    assert len(quoted_lines) == 3
    lines_by_file = {file: (ROOT / file).read_text("utf-8").splitlines() for file, _ in quoted_lines}
    assert [line for file, text in quoted_lines for line in text.splitlines() if line not in lines_by_file[file]] == []
