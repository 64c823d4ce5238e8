"""The JSON Schema of job files: it accepts each file that can be loaded, and refuses misspelt keys."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from connector.fields import SENT_FIELDS
from connector.jobs.reader import load_job
from connector.jobs.schema import build_schema, list_keys
from tests.jobs.test_field_rules import JOB, TEXT_FAULTS
from tests.jobs.test_loading import CRM, ENVIRON, EXPORT, SMALL

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
RULES = [
    "name", "{column: a, case: title, trim: false}", "{column: a, case: lower, default: 7}",
    "{template: '{{ a }}'}", "{value: 007}", "{column: a, values: {1: x, y: }}"
]  # fmt: skip
GOOD = [
    CRM, SMALL, EXPORT,
    *(f"{JOB}    first_name: {rule}\n" for rule in RULES),
    JOB + "    phone: {column: tel, e164: DE}\n", JOB + "    phone: {column: tel, e164: NO}\n",  # no, to an editor
    JOB + "    phone: 7\n", SMALL.replace("{name: News}}", "{name: News}, fields: }"),
    JOB + "    phone: {column: tel, e164: {region: DE, otherwise: keep}}\n",
    JOB + "    birthday: {column: b, format: '%d.%m.%Y'}\n", JOB + "    birthday: {column: b, format: ['%Y-%m-%d']}\n",
    CRM.replace("base: {id: 7}", "base: {column: list}"),
    CRM.replace("base: {id: 7}", "base: {column: list, values: {news: 7, shop: '9', 3: 9}}"),
    SMALL.replace("name: News", 'id: "${BASE}"') + 'load: {look: "${LOOK}", max_rate: "12.5", quiet_period: 1s}\n',
    EXPORT.replace("parquet}", "parquet, filters: {is_active: no, id: 3, gender: unspecified}}"),
]  # fmt: skip
BAD = [
    CRM.replace("identity: email", "idnetity: email"),
    CRM.replace("first_name: fname", "frist_name: fname"),
    CRM.replace("zip: custom_field1", "zip: keep"),
    CRM.replace("[email, first_name]", "[email, mail]"),
    CRM.replace("base: {id: 7}", "base: {id: 0}"),
    CRM.replace("base: {id: 7}", "base: {id: {}}"),
    CRM.replace("base: {id: 7}", "base: {column: list, values: [7, 9]}"),
    CRM.replace("base: {id: 7}", "base: {column: list, value: {a: 7}}"),
    CRM.replace("job: crm-nightly\n", ""),
    CRM.replace("first_name: fname", "first_name: [a, b]"),
    *(f"{JOB}    first_name: {rule}\n" for rule, words in TEXT_FAULTS if "must be" in words or "no such key" in words),
]


def read_as_an_editor(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = build_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("text", GOOD)
def test_a_job_that_can_be_loaded_is_valid(validator: Draft202012Validator, tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    load_job(tmp_path / "job.yaml", {**ENVIRON, "BASE": "7", "LOOK": "auto"})
    assert list(validator.iter_errors(read_as_an_editor(text))) == []


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_the_job_files_of_configs_are_valid(validator: Draft202012Validator, path: Path) -> None:
    assert list(validator.iter_errors(read_as_an_editor(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("text", BAD)
def test_a_misspelt_job_is_invalid(validator: Draft202012Validator, text: str) -> None:
    assert list(validator.iter_errors(read_as_an_editor(text))) != []


def test_every_key_is_described_and_every_field_named() -> None:
    definitions = build_schema()["$defs"]
    fields = definitions["JobSubscriber"]["properties"]["fields"]["properties"]
    assert list(fields) == [field.name for field in SENT_FIELDS]
    described = {text for definition in definitions.values() for text in find_descriptions(definition)}
    described |= set(find_descriptions(build_schema()))
    assert {key.description for key in list_keys()} <= described


def find_descriptions(schema: dict[str, Any]) -> list[str]:
    return [each["description"] for each in schema["properties"].values() if "description" in each]


def test_the_command_prints_the_schema() -> None:
    ended = subprocess.run([sys.executable, "-m", "pipelines", "schema"], capture_output=True, text=True, check=True)
    assert json.loads(ended.stdout) == build_schema()
