"""dlt's reverse ETL as its documentation has it: a custom destination that posts each item, in batches of one.

`python dlt_load.py FILE BASE_ID`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment, where dlt's own
settings may be, too. It sends by dlt's session of requests, which tries again and keeps its connections.
"""
# mypy: ignore-errors
# It runs in an environment of its own: dlt is not installed in the project's.

import os
import sys

import dlt
import pandas as pd
from dlt.sources.helpers import requests

URL = os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/create-subscriber/"
HEADERS = {"Authorization": os.environ["CONNECTOR_TOKEN"]}
BASE_ID = int(sys.argv[2])


@dlt.destination(batch_size=1, name="subscribers")
def create(items, table):
    """Post one item; an answer that is no success raises, and dlt repeats the batch."""
    for item in items:
        subscriber = {
            "Base": {"Id": BASE_ID},
            "IsActive": item["is_active"],
            "Email": item["email"],
            "FirstName": item["first_name"],
            "LastName": item["last_name"],
        }
        requests.post(URL, json={"Subscriber": subscriber}, headers=HEADERS)


def main():
    rows = pd.read_csv(sys.argv[1]).to_dict("records")
    pipeline = dlt.pipeline("people", destination=create)
    print(pipeline.run(rows, table_name="people"))


if __name__ == "__main__":
    main()
