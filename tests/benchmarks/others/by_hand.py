"""A simple handwritten script: pandas reads the file, `requests` posts the rows from 32 threads, and urllib3 retries.

`python by_hand.py FILE BASE_ID`, with CONNECTOR_BASE_URL and CONNECTOR_TOKEN in the environment, prints the numbers of
creates that succeeded and failed. urllib3 obeys Retry-After by default.
"""
# mypy: ignore-errors
# The script runs in its own environment, because the project does not install the package `requests`.

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

THREAD_COUNT = 32


def open_session(base_url, token):
    """Return a session with one connection for each thread. The session retries failed requests after a pause."""
    retry = Retry(total=5, backoff_factor=0.5, status_forcelist=[429, 500, 502, 503, 504], allowed_methods=["POST"])
    session = requests.Session()
    session.mount(base_url, HTTPAdapter(pool_maxsize=THREAD_COUNT, max_retries=retry))
    session.headers["Authorization"] = token
    return session


def main():
    path, base_id = sys.argv[1], int(sys.argv[2])
    base_url = os.environ["CONNECTOR_BASE_URL"]
    url = base_url + "/api/subscribers/create-subscriber/"
    session = open_session(base_url, os.environ["CONNECTOR_TOKEN"])

    def create_subscriber(row):
        subscriber = {
            "Base": {"Id": base_id},
            "IsActive": row["is_active"],
            "Email": row["email"],
            "FirstName": row["first_name"],
            "LastName": row["last_name"],
        }
        try:
            answer = session.post(url, json={"Subscriber": subscriber}, timeout=30)
            answer.raise_for_status()
        except requests.RequestException:
            return False
        return answer.json()["success"]

    rows = pd.read_csv(path).to_dict("records")
    with ThreadPoolExecutor(THREAD_COUNT) as pool:
        created_count = sum(pool.map(create_subscriber, rows))
    print(f"{created_count} created, {len(rows) - created_count} failed")


if __name__ == "__main__":
    main()
