"""A Singer tap that reads the list, and a Singer target that creates subscribers by a job's mapping.

The service, the token and the ledger come from the environment, as for the commands. See docs/how-to/singer.md.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, ClassVar, assert_never

from singer_sdk import BatchSink, Stream, Tap, Target, typing as singer

from connector import Connector
from connector.records import load_records
from connector.warehouse.columns import RUN_COLUMN_DESCRIPTIONS, SCHEMA
from connector.warehouse.database import ColumnKind
from connector.warehouse.statements import read_kinds

_STREAM_NAME = "subscribers"


class SubscriberStream(Stream):
    """The list as one stream. Each sync reads the whole list, and checks whether the list is complete. The STATE
    contains the certificate."""

    name = _STREAM_NAME
    primary_keys: ClassVar[Sequence[str]] = ("id",)

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of a record: the fields of a subscriber, and the columns of the run."""
        properties = [
            singer.Property(
                name, _find_singer_type(kind), required=name == "id", description=RUN_COLUMN_DESCRIPTIONS.get(name)
            )
            for name, kind in read_kinds(SCHEMA).items()
        ]
        schema: dict[str, Any] = singer.PropertiesList(*properties).to_dict()
        return schema

    def get_records(self, context: Mapping[str, Any] | None) -> Iterable[dict[str, Any]]:
        """Yield the subscribers of the list. Raises IncompleteList if nothing proves that the list is complete."""
        filters = {name: self.config[name] for name in ("base_id", "is_active") if name in self.config}
        reader = Connector().read_batches(**filters)
        for batch in reader:
            for row in batch.to_pylist():
                yield {
                    name: value.isoformat() if isinstance(value, date | datetime) else value
                    for name, value in row.items()
                }
        self.stream_state["certificate"] = json.loads(reader.schema.metadata[b"certificate"])


class TapSubscribers(Tap):
    """`tap-subscribers`: the service's list as Singer records."""

    name = "tap-subscribers"
    package_name = "subscriber-connector"
    config_jsonschema = singer.PropertiesList(
        singer.Property("base_id", singer.IntegerType, description="Read only subscribers of the base with this id."),
        singer.Property(
            "is_active",
            singer.BooleanType,
            description="`true`: read only active subscribers. `false`: read only inactive subscribers.",
        ),
    ).to_dict()

    def discover_streams(self) -> Sequence[Stream]:
        """Return the only stream of the tap, `subscribers`."""
        return [SubscriberStream(self)]


class SubscriberSink(BatchSink):
    """A sink that loads batches of records by the mapping of a job.

    Each batch is one run of the connector. If the run ends early, an error is raised, and the target emits no STATE for
    the records. A rejected or invalid record has an outcome, and is in the rejects file of the run.
    """

    include_sdc_metadata_properties = False

    def process_batch(self, context: dict[str, Any]) -> None:
        """Create the subscribers of a batch. Raises ConnectorError if a record has no outcome."""
        report = load_records(context["records"], self.config["job"], self.stream_name)
        counts_text = ", ".join(f"{row_count} {outcome}" for outcome, row_count in report.rows.items() if row_count)
        self.logger.info("run %s: %s, %s", report.run_id, report.status, counts_text)
        for message in report.messages:
            self.logger.warning("%s", message)


class TargetSubscribers(Target):
    """`target-subscribers`: creates a subscriber for each record of a stream."""

    name = "target-subscribers"
    package_name = "subscriber-connector"
    default_sink_class = SubscriberSink
    config_jsonschema = singer.PropertiesList(
        singer.Property(
            "job",
            singer.StringType,
            required=True,
            description="Path of a job file with a base and a mapping, but without a source.",
        ),
        singer.Property(
            "stream",
            singer.StringType,
            description="Name of the stream to load. [default: the only stream of the tap]",
        ),
    ).to_dict()

    def get_sink_class(self, stream_name: str) -> type[SubscriberSink]:
        """Return the class of the sink. Raises ValueError for a second stream, because the job maps the records of only
        one stream."""
        expected_stream = self.config.get("stream") or next(iter(self._sinks_active), stream_name)
        if stream_name != expected_stream:
            raise ValueError(
                f"The job maps the records of the stream {expected_stream}, and the tap also sends {stream_name}. "
                "Select one stream in the catalog of the tap."
            )
        return SubscriberSink


def _find_singer_type(kind: ColumnKind) -> Any:
    match kind:
        case ColumnKind.TEXT | ColumnKind.NAME:
            return singer.StringType
        case ColumnKind.WHOLE_NUMBER:
            return singer.IntegerType
        case ColumnKind.FLAG:
            return singer.BooleanType
        case ColumnKind.DATE:
            return singer.DateType
        case ColumnKind.TIME:
            return singer.DateTimeType
        case ColumnKind.TAGS:
            return singer.ArrayType(singer.StringType)
    assert_never(kind)
