"""Each entry of the reference has a type, a default and a meaning, and the reports of commands have the keys of the
reference."""

import json
import re
import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import click
import pytest

from connector.fields import FIELDS, find_wire_name
from connector.jobs.mail_models import MessageFile
from connector.jobs.models import Receipts
from connector.jobs.schema import list_keys
from connector.ledger.receipts import RECEIPT_OUTCOMES
from connector.runs.explanations import ExplainedEntry
from connector.runs.report import Report
from connector.runs.report_keys import CheckedRowCounts, ExportRowCounts, LoadRowCounts, MailRowCounts
from connector.runs.row_files import DRIFT_COLUMNS
from connector.sandbox import SandboxProcess
from connector.states import State
from connector.warehouse.columns import RUN_COLUMN_DESCRIPTIONS, SCHEMA
from connector.warehouse.destination import find_format_traits
from connector.warehouse.receipts import RECEIPT_COLUMNS
from connector.warehouse.statements import MODE_COLUMNS, RUN_COLUMNS
from pipelines.cli.exports import export_command
from pipelines.cli.options import receipts_option
from pipelines.report.differences import DIFFERENCE_COLUMNS, DifferencesReport
from tests.export.warehouses import FILE_FORMATS
from tests.pipelines.conftest import Connector, write_csv
from tests.pipelines.reconciled import create_in_service, erase_oldest

ROOT = Path(__file__).parents[2]
GENERATOR_GLOBALS = runpy.run_path(str(ROOT / "docs" / "generate_reference.py"))
MODEL_BY_REPORT = {title: model for title, (model, _) in GENERATOR_GLOBALS["REPORTS"].items()}
ROW_COUNT_MODEL_BY_COMMAND = {
    **dict.fromkeys(("import", "sync", "plan", "retry"), LoadRowCounts),
    **dict.fromkeys(("mail", "send"), MailRowCounts),
    **dict.fromkeys(("validate", "reconcile"), CheckedRowCounts),
    "export": ExportRowCounts,
}
PEOPLE_LINES = (
    "email,first_name,is_active,company",
    "ann@example.com,Ann,true,Acme",
    "bob@example.com,Bob,false,Acme",
    "eve@example.com,Eva,true,Acme",
    "max@example,Max,true,Acme",
    "bob@example.com,Rob,false,Acme",
)
TEXT_BY_FILE = {
    "crm.yaml": """\
job: crm
source: {file: {path: people.csv}}
subscriber: {base: {name: News}}
load: {quiet_period: 200ms, on_unknown: hold}
receipts: {to: receipts.csv}
""",
    "mail.yaml": """\
job: mail
source: {file: {path: people.csv}}
mail: {campaign: w, to: email, from: hello@example.com, subject: Hi, text: {content: Hello}}
""",
    "hello.txt": "Hello\n",
}
SEND_COMMAND = (
    "send", "--to", "ann@example.com", "--from", "hello@example.com", "--subject", "Hi", "--text", "hello.txt",
)  # fmt: skip


def test_each_key_of_a_job_has_a_type_a_default_and_a_meaning() -> None:
    keys = [(key, *GENERATOR_GLOBALS["describe_default"](key)) for key in [*list_keys(), *list_keys(MessageFile)]]
    assert [
        key for key, default, description in keys if "" in (key.type, default) or not is_sentence(description)
    ] == []


@pytest.mark.parametrize(
    "model",
    [*MODEL_BY_REPORT.values(), *GENERATOR_GLOBALS["COUNTS_MODEL_BY_COMMANDS"].values()],
    ids=lambda model: model.__name__,
)
def test_each_key_of_a_report_has_a_type_a_default_and_a_meaning(model: type) -> None:
    keys = list(GENERATOR_GLOBALS["list_report_keys"](model))
    assert [key for key in keys if "" in (key.type, key.default) or not is_sentence(key.description)] == []


def test_the_page_of_the_interface_has_exactly_the_fields_of_the_connector() -> None:
    page = (ROOT / "docs" / "service-api.md").read_text(encoding="utf-8")
    section = page.partition("### 2.1 ")[2].partition("### ")[0]
    first_cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    assert re.findall(r"`([\w.]+)`", " ".join(first_cells)) == [find_wire_name(field) for field in FIELDS]


def test_the_reference_names_each_state_of_the_ledger() -> None:
    descriptions = [
        DIFFERENCE_COLUMNS["ledger"],
        get_type_hints(DifferencesReport, include_extras=True)["missing_by_ledger"].__metadata__[0],
        get_type_hints(ExplainedEntry, include_extras=True)["state"].__metadata__[0] + " none",
    ]
    for text in descriptions:
        assert [state.name for state in State if state.report_name not in text] == [], text


def test_each_column_of_a_table_or_file_has_a_type_and_a_meaning() -> None:
    page_text = GENERATOR_GLOBALS["build_pages"]()["tables.md"]
    rows = [line.split(" | ") for line in page_text.splitlines() if line.startswith("| `")]
    assert [row for row in rows if "" in map(str.strip, row) or not is_sentence(row[-1].removesuffix(" |"))] == []
    column_names = {row[0].strip("|` ") for row in rows}
    added_columns = [*MODE_COLUMNS.values(), RUN_COLUMNS, RECEIPT_COLUMNS]
    assert column_names == {
        *SCHEMA.names,
        *RUN_COLUMN_DESCRIPTIONS,
        *(name for columns in added_columns for name in columns),
    }
    descriptions = DRIFT_COLUMNS | DIFFERENCE_COLUMNS
    assert [name for name, description in descriptions.items() if not is_sentence(description)] == []


def is_sentence(text: str) -> bool:
    return len(text) > 3 and text.endswith(".")


def test_the_texts_about_exports_and_receipts_name_each_file_format() -> None:
    page_text = (ROOT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
    receipts_texts = (find_help_text(receipts_option), Receipts.model_fields["to"].description or "")
    for format_traits in map(find_format_traits, FILE_FORMATS):
        for text in (page_text, export_command.help or ""):
            assert format_traits.suffix in text
            assert (f"{format_traits.suffix}.gz" in text) is not format_traits.is_compressed
        for text in receipts_texts:
            assert (format_traits.suffix in text) is format_traits.can_hold_receipts


def test_the_description_of_the_outcome_of_a_receipt_names_each_outcome() -> None:
    description = RECEIPT_COLUMNS["outcome"].description
    assert [outcome for outcome in RECEIPT_OUTCOMES if f"`{outcome}`" not in description] == []


def find_help_text(option: Callable[[Callable[[], None]], Callable[[], None]]) -> str:
    """Return the help text of an option of the command line."""
    (parameter,) = click.command()(option(lambda: None)).params
    assert isinstance(parameter, click.Option)
    return parameter.help or ""


def test_each_report_has_the_keys_of_the_reference(sandbox: SandboxProcess, tmp_path: Path) -> None:
    connector = Connector(sandbox, tmp_path)
    write_csv(tmp_path / "people.csv", *PEOPLE_LINES)
    for name, text in TEXT_BY_FILE.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    create_in_service(connector.sandbox, "eve@example.com", FirstName="Eve", IsActive=True)
    create_in_service(connector.sandbox, "ann@example.com", FirstName="Ann", IsActive=True)
    check_run(connector, "plan", "crm.yaml")
    check_run(connector, "import", "people.csv", "--base-name", "News", "--quiet-period", "200ms", "--dry-run")
    check_run(connector, "sync", "crm.yaml")
    connector.sandbox.switch(drop_before=1)
    write_csv(tmp_path / "people.csv", *PEOPLE_LINES, "new@example.com,New,true,Acme")
    check_run(connector, "sync", "crm.yaml")
    connector.sandbox.switch(drop_before=0)
    check_report(connector, "explain", "new@example.com", model_title="`explain`")
    check_run(connector, "retry", "--quiet-period", "200ms")
    check_run(connector, "export", "people.parquet", "--active")
    erase_oldest(connector.sandbox)
    check_run(connector, "reconcile", "crm.yaml", extra_model_title="Further keys of `reconcile`")
    check_run(connector, "mail", "mail.yaml", "--preview", "2")
    check_run(connector, "mail", "mail.yaml")
    check_run(connector, *SEND_COMMAND)
    check_report(
        connector, "validate", "crm.yaml", model_title="`validate`", run_keys=GENERATOR_GLOBALS["VALIDATION_KEYS"]
    )
    check_report(connector, "check", "crm.yaml", model_title="`check`")
    check_report(connector, "status", model_title="`status`")
    check_report(connector, "explain", "ann@example.com", model_title="`explain`")
    check_report(connector, "forget", "bob@example.com", model_title="`forget`")
    ledger_model_title = "`ledger backup`, `ledger copy` and `ledger restore`"
    check_report(connector, "ledger", "backup", "copy.db", model_title=ledger_model_title)
    check_report(connector, "prune", "--older-than", "1ms", model_title="`prune`")
    check_report(connector, "export", "nowhere/people.csv", model_title="Errors")
    connector.environ["CONNECTOR_STATE_DIR"] = str(tmp_path / "restored")
    check_report(connector, "ledger", "restore", "copy.db", model_title=ledger_model_title)


def check_run(connector: Connector, *arguments: str, extra_model_title: str | None = None) -> None:
    """Run a command whose JSON is the report of a run, and compare the keys of this JSON with the reference."""
    report = connector.run_json(*arguments).report
    extra_keys = list(MODEL_BY_REPORT[extra_model_title].__annotations__) if extra_model_title else []
    check_keys({name: value for name, value in report.items() if name not in extra_keys}, Report, arguments)
    if extra_model_title:
        check_keys({name: report[name] for name in extra_keys}, MODEL_BY_REPORT[extra_model_title], arguments)
    row_count_keys = [
        key.key for key in GENERATOR_GLOBALS["list_report_keys"](ROW_COUNT_MODEL_BY_COMMAND[arguments[0]])
    ]
    assert sorted(report["rows"]) == sorted(row_count_keys), arguments


def check_report(connector: Connector, *arguments: str, model_title: str, run_keys: tuple[str, ...] = ()) -> None:
    """Run a command, and compare the keys of its JSON with the reference. The JSON also has the `run_keys`, which are
    keys of the report of a run."""
    report = connector.run_json(*arguments).report
    assert set(run_keys) <= set(report)
    check_keys(
        {name: value for name, value in report.items() if name not in run_keys}, MODEL_BY_REPORT[model_title], arguments
    )


def check_keys(report: Mapping[str, Any], model: type, arguments: tuple[str, ...]) -> None:
    keys = {key.key: key for key in GENERATOR_GLOBALS["list_report_keys"](model)}
    assert list(find_faults(report, keys)) == [], arguments


def find_faults(json_value: Any, keys: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Yield each key of a JSON value that the reference lacks or that has another type, and each key of the reference
    that the JSON lacks."""
    if isinstance(json_value, list):
        for item in json_value:
            yield from find_faults(item, keys, f"{path}[]")
    if not isinstance(json_value, dict):
        return
    prefix = f"{path}." if path else ""
    inner_names = {key.removeprefix(prefix) for key in keys if key.startswith(prefix)}
    key_names = {name for name in inner_names if re.fullmatch(r"\w+", name)}
    if not key_names:
        for inner_json_value in json_value.values() if inner_names else ():
            yield from find_faults(inner_json_value, keys, f"{prefix}*")
        return
    for name in {*json_value, *key_names}:
        key = keys.get(f"{prefix}{name}")
        if key is None:
            yield f"{prefix}{name} is not in the reference"
        elif name not in json_value:
            yield from [f"{key.key} is not in the report"] if key.default != "left out" else []
        elif not has_type(json_value[name], key.type):
            yield f"{key.key} is {json_value[name]!r}, and not {key.type}"
        else:
            yield from find_faults(json_value[name], keys, key.key)


def has_type(json_value: object, type_description: str) -> bool:
    """Return whether a JSON value has the type that the reference describes."""
    if json_value is None:
        return type_description.endswith(", or null")
    if type_description.startswith("`"):
        return f"`{json.dumps(json_value)}`".replace('"', "") in type_description
    return isinstance(json_value, _PYTHON_TYPE_BY_NAME[type_description.removesuffix(", or null").partition(" of ")[0]])


_PYTHON_TYPE_BY_NAME: Mapping[str, type] = {
    "text": str, "ISO 8601 time": str, "whole number": int, "number": float, "list": list, "object": dict,
}  # fmt: skip
