"""The export that one writes by hand: requests, a loop over offsets until TotalCount, pandas, and then its to_parquet
or to_sql, or DuckDB's own reading of a frame.

`python by_hand_export.py PLACE`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment; PLACE is a path ending
in .parquet or .duckdb, or a URL of SQLAlchemy.
"""
# mypy: ignore-errors
# It runs in an environment of its own: requests is not installed in the project's.

import os
import sys

import pandas as pd
import requests

LIMIT = 1000


def fetch():
    session = requests.Session()
    session.headers["Authorization"] = os.environ["CONNECTOR_TOKEN"]
    url = os.environ["CONNECTOR_BASE_URL"] + "/api/subscribers/subscribers-list/"
    rows, total = [], 1
    while len(rows) < total:
        answer = session.get(url, params={"offset": len(rows), "limit": LIMIT}, timeout=30)
        answer.raise_for_status()
        page = answer.json()["SubscribersList"]
        rows += page["Subscribers"]
        total = page["TotalCount"]
    return rows


def main():
    place = sys.argv[1]
    frame = pd.json_normalize(fetch())
    frame.columns = [name.replace(".", "_").lower() for name in frame.columns]
    frame["birthday"] = pd.to_datetime(frame["birthday"], errors="coerce")
    if place.endswith(".parquet"):
        frame.to_parquet(place, index=False)
    elif place.endswith(".duckdb"):
        import duckdb

        with duckdb.connect(place) as connection:
            connection.register("people", frame)
            connection.execute("create table subscribers as select * from people")
    else:
        import sqlalchemy as sa

        frame["tags"] = frame["tags"].map(",".join)
        frame.to_sql("subscribers", sa.create_engine(place), if_exists="replace", index=False, chunksize=10_000)
    print(len(frame))


if __name__ == "__main__":
    main()
