"""Every key of a job file, for people: the reference in the README derives from this list."""

from dataclasses import dataclass

from pydantic import BaseModel

from pipelines.jobs.faults import find_model
from pipelines.jobs.models import Job


@dataclass(frozen=True, slots=True)
class JobKey:
    """One key: dotted as in an error message (`<field>` stands for a field's name), and what it says."""

    key: str
    is_required: bool
    description: str


def list_keys(model: type[BaseModel] = Job, prefix: str = "") -> list[JobKey]:
    """All keys that a job may hold, in the order of the models; a group comes before the keys in it."""
    keys = []
    for name, info in model.model_fields.items():
        key = f"{prefix}{info.alias or name}"
        keys.append(JobKey(key, info.is_required(), info.description or ""))
        inner = find_model(info.annotation)
        if inner is not None:
            keys += list_keys(inner, f"{key}.<field>." if name == "fields_" else f"{key}.")
    return keys
