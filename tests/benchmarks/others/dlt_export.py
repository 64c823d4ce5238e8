"""dlt's rest_api source as its documentation has it: one resource, the offset paginator, into DuckDB or Parquet.

`python dlt_export.py PLACE`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment; PLACE is a path ending in
.parquet (the files come to stand beside it) or .duckdb.
"""
# mypy: ignore-errors
# It runs in an environment of its own: dlt is not installed in the project's.

import os
import sys
from pathlib import Path

import dlt
from dlt.sources.rest_api import rest_api_source

CONFIG = {
    "client": {
        "base_url": os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/",
        "headers": {"Authorization": os.environ["CONNECTOR_TOKEN"]},
        "paginator": {
            "type": "offset",
            "limit": 1000,
            "offset_param": "offset",
            "limit_param": "limit",
            "total_path": "SubscribersList.TotalCount",
        },
    },
    "resources": [
        {
            "name": "subscribers",
            "endpoint": {"path": "subscribers-list/", "data_selector": "SubscribersList.Subscribers"},
            "write_disposition": "replace",
        }
    ],
}


def main():
    place = Path(sys.argv[1])
    is_file = place.suffix == ".parquet"
    destination = (
        dlt.destinations.filesystem(bucket_url=str(place.parent)) if is_file else dlt.destinations.duckdb(str(place))
    )
    pipeline = dlt.pipeline("subscribers", destination=destination, dataset_name="crm")
    print(pipeline.run(rest_api_source(CONFIG), loader_file_format="parquet" if is_file else None))


if __name__ == "__main__":
    main()
