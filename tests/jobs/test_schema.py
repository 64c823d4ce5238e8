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
from tests.jobs.test_faults import RULE_FAULTS
from tests.jobs.test_loading import CRM_JOB, ENVIRON, EXPORT_JOB, FIELDS_JOB, SMALL_JOB

CONFIG_PATHS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
VALID_RULES = [
    "name", "{column: a, case: title, trim: false}", "{column: a, case: lower, default: 7}",
    "{template: '{{ a }}'}", "{value: 007}", "{column: a, values: {1: x, y: }}"
]  # fmt: skip
VALID_JOBS = [
    CRM_JOB, SMALL_JOB, EXPORT_JOB,
    *(f"{FIELDS_JOB}    first_name: {rule}\n" for rule in VALID_RULES),
    *(
        f"{FIELDS_JOB}    {field}\n"
        for field in (
            "phone: {column: tel, e164: DE}", "phone: {column: tel, e164: NO}",  # YAML reads NO as false
            "phone: 7", "phone: {column: tel, e164: {region: DE, otherwise: keep}}",
            "birthday: {column: b, format: '%d.%m.%Y'}", "birthday: {column: b, format: ['%Y-%m-%d']}",
        )
    ),
    SMALL_JOB.replace("{name: News}}", "{name: News}, fields: }"),
    CRM_JOB.replace("base: {id: 7}", "base: {column: list}"),
    CRM_JOB.replace("base: {id: 7}", "base: {column: list, values: {news: 7, shop: '9', 3: 9}}"),
    SMALL_JOB.replace("name: News", 'id: "${BASE}"') + 'load: {look: "${LOOK}", max_rate: "12.5", quiet_period: 1s}\n',
    EXPORT_JOB.replace("parquet}", "parquet, filters: {is_active: no, id: 3, gender: unspecified}}"),
]  # fmt: skip
FAULTY_JOBS = [
    CRM_JOB.replace("identity: email", "idnetity: email"),
    CRM_JOB.replace("first_name: fname", "frist_name: fname"),
    CRM_JOB.replace("zip: custom_field1", "zip: keep"),
    CRM_JOB.replace("[email, first_name]", "[email, mail]"),
    CRM_JOB.replace("base: {id: 7}", "base: {id: 0}"),
    CRM_JOB.replace("base: {id: 7}", "base: {id: {}}"),
    CRM_JOB.replace("base: {id: 7}", "base: {column: list, values: [7, 9]}"),
    CRM_JOB.replace("base: {id: 7}", "base: {column: list, value: {a: 7}}"),
    CRM_JOB.replace("job: crm-nightly\n", ""),
    CRM_JOB.replace("first_name: fname", "first_name: [a, b]"),
    *(
        f"{FIELDS_JOB}    first_name: {rule}\n"
        for rule, expected_text in RULE_FAULTS
        if "must be" in expected_text or "no such key" in expected_text
    ),
]


def parse_yaml(text: str) -> Any:
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    schema = build_schema()
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


@pytest.mark.parametrize("text", VALID_JOBS)
def test_a_job_that_can_be_loaded_is_valid(validator: Draft202012Validator, tmp_path: Path, text: str) -> None:
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    load_job(tmp_path / "job.yaml", {**ENVIRON, "BASE": "7", "LOOK": "auto"})
    assert list(validator.iter_errors(parse_yaml(text))) == []


@pytest.mark.parametrize("path", CONFIG_PATHS, ids=lambda path: path.name)
def test_the_job_files_of_configs_are_valid(validator: Draft202012Validator, path: Path) -> None:
    assert list(validator.iter_errors(parse_yaml(path.read_text(encoding="utf-8")))) == []


@pytest.mark.parametrize("text", FAULTY_JOBS)
def test_a_misspelt_job_is_invalid(validator: Draft202012Validator, text: str) -> None:
    assert list(validator.iter_errors(parse_yaml(text))) != []


def test_the_schema_has_every_field_and_the_description_of_every_key() -> None:
    definitions = build_schema()["$defs"]
    fields = definitions["JobSubscriber"]["properties"]["fields"]["properties"]
    assert list(fields) == [field.name for field in SENT_FIELDS]
    descriptions = {text for definition in definitions.values() for text in find_descriptions(definition)}
    descriptions |= set(find_descriptions(build_schema()))
    assert {key.description for key in list_keys()} <= descriptions


def find_descriptions(schema: dict[str, Any]) -> list[str]:
    return [
        property_schema["description"]
        for property_schema in schema["properties"].values()
        if "description" in property_schema
    ]


def test_the_command_prints_the_schema() -> None:
    result = subprocess.run([sys.executable, "-m", "pipelines", "schema"], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == build_schema()
