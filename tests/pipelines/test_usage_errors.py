"""Each usage error names the next step. The command sends and writes nothing, and shows no value of a row."""

import json
import shlex
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from connector.sandbox import SandboxProcess
from tests.pipelines.conftest import Connector, build_job
from tests.pipelines.planned import read_file_states

DATE = "2026-11-20"


def build_cursor_job(start: str) -> str:
    cursor = f"{{column: updated_at, start: {start}}}"
    return build_job(source=f"sql: {{url: 'sqlite:///crm.db', table: people, cursor: {cursor}}}")


def build_mail_job(**mail_keys: object) -> str:
    mail = {"campaign": "x", "to": "email", "from": "a@example.com", "subject": "Hi", "html": "hi.html"} | mail_keys
    return json.dumps({"job": "x", "source": {"file": {"path": "people.csv"}}, "mail": mail})


MESSAGE_KEYS = "from: a@x.org\nto: b@x.org\nsubject: s\ntext: {content: t}\n"

CONTENT_BY_FILE_NAME: dict[str, str | bytes] = {
    "people.csv": "email,name\na@secret.org,A\nb@secret.org,B\n",
    "empty.csv": "",
    "header.csv": "email\n",
    "plans.csv": "Plan\ngold\n",
    "taken.prom": "node_time 1\n",
    "job.yaml": build_job(),
    "part-1.csv": "email\na@secret.org\n",
    "part-2.csv": "mail\nb@secret.org\n",
    "parts.yaml": build_job(source="file: {path: 'part-*.csv'}"),
    "export.yaml": "job: x\nexport: {to: a.csv}\n",
    "fail-on.yaml": "job: x\nexport: {to: a.csv}\nfail_on: new\n",
    "mail.yaml": "job: m\nsource: {file: {path: people.csv}}\nmail: {campaign: c, to: {email: email}, "
    "from: a@example.com, subject: Hi, text: {content: Hi}}\n",
    "cursor.yaml": build_cursor_job("2000-01-01T00:00:00"),
    "number.yaml": build_cursor_job("0"),
    "lists.yaml": build_job(base="column: nmae"),
    "no-list.yaml": build_job("suppress: {file: {path: nowhere.csv, column: email}}"),
    "other-list.yaml": build_job("suppress: {file: {path: people.csv, column: emial}}"),
    "notify-http.yaml": build_job("notify: {webhook: {url: 'http://example.com/hook/hunter2'}}"),
    "notify-secret.yaml": build_job("notify: {webhook: {url: 'https://example.com/hook', secret: hunter2}}"),
    "no-file.yaml": build_job(source="file: {path: p.csv}"),
    "no-database.yaml": build_job(source="sql: {url: 'sqlite:///none.db', table: t}"),
    "left.db-journal": b"left over",
    "gone.db.wal": b"left over",
    "hi.html": "Hello",
    "message.txt": "Hello",
    "size.yaml": f"{MESSAGE_KEYS}max_attached: many\n",
    "misspelt.json": '{"subjekt": "a"}',
    "mail-word.yaml": build_mail_job(subject="Hello {{ naem }}"),
    "mail-to.yaml": build_mail_job(to="adress"),
    "mail-row-file.yaml": build_mail_job(attach=["bills/{{ name }}.pdf"]),
    "mail-inline.yaml": build_mail_job(inline=["people.csv"]),
    "mail-html.yaml": build_mail_job(html="<p>Hello</p>" + "x" * 5000),
    "mail-attach.yaml": build_mail_job(attach="bill.pdf"),
    "mail-guard.yaml": build_mail_job()[:-1] + ', "guard": {"max_rejected": "1%"}}',
    "unmapped.yaml": build_job(fields="email: mail"),
}
BASE_ID_7, BASE_NAME_NEWS = "--base-id 7", "--base-name News"

SEND_COMMAND = "send --from a@example.com --subject Hi --text message.txt"

CASES: list[tuple[str, str] | tuple[str, str, Mapping[str, str | None]]] = [
    ("export out.csv --max-shrink 0.5", "percentage"),
    ("export nowhere.yaml", "nowhere.yaml"),
    ("export out.csv --columns email,surname", "'surname'"),
    ("export out.csv --report ./out.csv", "out.csv"),
    ("export fail-on.yaml", "fail_on"),
    ("export sqlite:///left.db", "left.db-journal"),
    ("export duckdb:///gone.db", "gone.db.wal"),
    ("export s3://me:hunter2@bucket/a.csv", "cannot contain credentials"),
    (SEND_COMMAND, "Email.To"),
    (f"{SEND_COMMAND} --to b@example.net --to nobody", "--to"),
    (f"{SEND_COMMAND} --to b@example.net --attach nowhere.pdf", "nowhere.pdf"),
    (f"{SEND_COMMAND} --to b@example.net --html ''", "--html"),
    (f"{SEND_COMMAND} --to b@example.net --subject ''", "must not be empty"),
    ("send message.txt", "message.txt"),
    ("send size.yaml", "max_attached"),
    ("send misspelt.json", "subject"),
    ("mail mail-word.yaml", "did you mean name"),
    ("mail mail-to.yaml", "adress"),
    ("mail mail-row-file.yaml", "bills/{{ name }}.pdf' does not exist"),
    ("mail mail-inline.yaml", "ContentId"),
    ("mail mail-html.yaml", "use the key `content`, as in `html: {content:"),
    ("mail mail-attach.yaml", "must be a list in brackets, such as [a, b], not 'bill.pdf'"),
    ("export sqlite:///out.db --table ''", "must not be empty"),
    ("mail mail-guard.yaml", "guard.max_rejected"),
    ("mail mail.yaml --test nobody", "--test"),
    ("mail mail.yaml --test me@example.com --preview 1", "--preview"),
    ("improt people.csv", "Did you mean: import?"),
    ("ledger bakup", "Did you mean"),
    ("import people.csv --bse-id 3", "--base-id"),
    (f"import nowhere.csv {BASE_ID_7}", "nowhere.csv"),
    (f"import empty.csv {BASE_ID_7}", "empty"),
    (f"import plans.csv {BASE_ID_7}", "email"),
    (f"import job.yaml {BASE_ID_7}", "loads subscribers. Run: connector sync /"),
    ("retry --job mail.yaml", "sends emails. Run: connector mail /"),
    ("import people.csv", "--base-id"),
    ("import people.csv --base-name 'two\nlines'", "--base-name"),
    (f"import people.csv {BASE_ID_7} --map email=Mail", "Mail"),
    (f"import people.csv {BASE_ID_7} --map email", "FIELD=COLUMN"),
    (f"import people.csv {BASE_ID_7} --report nowhere/report.json", "report"),
    (f"import people.csv {BASE_ID_7} --report people.csv", "name another file"),
    (f"import people.csv {BASE_ID_7} --metrics people.csv", "metrics"),
    (f"import people.csv {BASE_ID_7} --metrics taken.prom", "metrics"),
    ("sync no-file.yaml", "p.csv"),
    ("sync parts.yaml", "part-2.csv: has no column email, which other files of"),
    ("sync no-database.yaml", "none.db"),
    ("sync unmapped.yaml", "mail"),
    (f"sync cursor.yaml --since {DATE} --full", "Use one of the two"),
    ("sync cursor.yaml --since yesterday", "--since must be a timestamp"),
    (f"sync number.yaml --since {DATE}", "--since must be a whole number"),
    ("sync job.yaml --since 1", "has no source.sql.cursor"),
    ("sync lists.yaml", "the base is mapped to the column nmae, which does not exist (did you mean name?)"),
    ("sync no-list.yaml", "the suppression list cannot be read"),
    ("sync other-list.yaml", "no column emial (did you mean email?)"),
    ("sync notify-http.yaml", "https"),
    ("sync notify-secret.yaml", "notify.webhook.secret: must be whsec_ followed by 24 to 64 random bytes in base64"),
    ("sync job.yaml --shard 4/3", "is not a shard"),
    ("sync job.yaml --shard 1/2", "set CONNECTOR_LEDGER=postgresql://"),
    ("sync job.yaml --engine dask", "set CONNECTOR_LEDGER=postgresql://"),
    ("sync job.yaml --shard 1/3 --dry-run", "leave out --shard"),
    ("sync job.yaml --shard 1/3 --engine dask", "Use one of the two"),
    ("sync job.yaml --workers 2", "need --engine dask"),
    ("sync job.yaml --engine dask --workers 2 --scheduler tcp://127.0.0.1:9", "Use one of the two"),
    ("plan people.csv", "--base-id"),
    (f"plan people.csv {BASE_ID_7} --full", "cursor"),
    (f"plan job.yaml {BASE_ID_7}", "Leave out --base-id"),
    ("plan job.yaml --job job.yaml", "a job file"),
    ("plan job.yaml --encoding cp1252", "Leave out --encoding"),
    ("plan job.yaml --since 7", "no source.sql.cursor"),
    (f"plan people.csv {BASE_NAME_NEWS} --rows people.csv", "--rows"),
    (f"plan people.csv {BASE_NAME_NEWS} --rows new.csv --report new.csv", "--rows new.csv"),
    ("validate nowhere.csv", "nowhere.csv"),
    ("validate people.csv --map emial=email", "--map: there is no such field; did you mean email?"),
    ("validate people.csv --map email=", "no column is mapped to the field email"),
    ("validate people.csv --rejects people.csv", "name a new file"),
    ("validate job.yaml --identity email", "Leave out --identity"),
    ("validate job.yaml --delimiter tab", "Leave out --delimiter"),
    ("sync job.yaml mail.yaml", "unexpected extra argument (mail.yaml)"),
    ("sync mail.yaml", "sends emails. Run: connector mail /"),
    ("plan mail.yaml", "sends emails. Run: connector mail /"),
    ("mail export.yaml", "exports the list. Run: connector export /"),
    ("mail job.yaml", "loads subscribers. Run: connector sync /"),
    ("validate no-list.yaml", "nowhere.csv: there is no such file"),
    ("reconcile export.yaml", "export"),
    ("reconcile unmapped.yaml", "email is mapped to the column mail, which does not exist"),
    ("reconcile job.yaml --to people.csv", "the connector did not write this file"),
    ("reconcile job.yaml --time-limit 0s", "time-limit"),
    ("retry --base-name Nowhere", "does not know this base"),
    ("retry --base-id 99", "News"),
    ("retry --held resend --on-unknown hold", "--held resend"),
    ("forget a@x.org --base-name Nowhere", "Bases in the ledger: News (id 1)"),
    ("forget a@x.org --identity phone", "--identity"),
    ("forget a@x.org --job none.yaml", "none.yaml"),
    ("forget '  '", "IDENTITY must be one"),
    ("explain '  '", "IDENTITY must be one"),
    ("status none-such", "none-such"),
    ("status --html -", "- is not the name of a file"),
    (f"plan people.csv {BASE_NAME_NEWS} --rows -", "- is not the name of a file"),
    (f"plan people.csv {BASE_NAME_NEWS} --report -", "- is not the name of a file"),
    ("ledger backup copy.db --report ./copy.db", "a file of the backup"),
    ("init people.csv", "No base given"),
    ("init people.csv --base-id 7 --base-name News", "Two bases given"),
    (f"init nowhere.csv {BASE_ID_7}", "nowhere.csv"),
    (f"init people.csv {BASE_ID_7} -o people.csv", "overwrites no file"),
    (f"init people.csv {BASE_ID_7} -o no/job.yaml", "in a folder that exists"),
    (f"init people.csv {BASE_ID_7} -o job.txt", "ends in .yaml"),
    (f"init people.csv {BASE_ID_7} --table people", "--table is for a database"),
    (f"init header.csv {BASE_ID_7}", "has no rows"),
    (f"init plans.csv {BASE_ID_7}", "no column seems to contain email addresses"),
    (f"init sqlite:///crm.db {BASE_ID_7}", "--table NAME"),
    (f"init '${{NOWHERE}}' --table t {BASE_ID_7}", "set NOWHERE and run again"),
    (f"init mysql://ann:hunter2@db/crm --table t {BASE_ID_7}", "SOURCE contains a password"),
    ("sandbox --port 0 --set ordre=id", "'order'"),
    (f"import people.csv {BASE_ID_7}", "CONNECTOR_TOKEN", {"CONNECTOR_TOKEN": None}),
    ("import people.csv --base-id 7 --active", "write the full path", {"CONNECTOR_STATE_DIR": "~/state"}),
    ("import people.csv --base-id 7 --active", "/path/to/ledger.db", {"CONNECTOR_LEDGER": "sqlite:///~/ledger.db"}),
    ("ledger restore copy.db", "pg_restore", {"CONNECTOR_LEDGER": "postgresql://nobody@127.0.0.1:1/none"}),
]


@pytest.fixture(scope="module")
def folder(session_sandbox: SandboxProcess, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with files, a database, and a ledger with the base News. No test changes the folder."""
    folder = tmp_path_factory.mktemp("usage")
    for name, content in CONTENT_BY_FILE_NAME.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with closing(sqlite3.connect(folder / "crm.db")) as database, database:
        database.execute("create table people (email, updated_at)")
        database.execute(f"insert into people values ('a@secret.org', '{DATE} 09:00:00')")
    session_sandbox.reset()
    assert Connector(session_sandbox, folder).sync().exit_code == 0
    return folder


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_a_command_with_a_usage_error_changes_nothing_and_names_the_next_step(
    session_sandbox: SandboxProcess, folder: Path, case: tuple[str, str] | tuple[str, str, Mapping[str, str | None]]
) -> None:
    arguments, expected_text, *environs = case

    def read_files() -> dict[str, bytes]:
        # Files in state/ may change: a refused command may open the ledger, for example to look for a base.
        ignored_prefix = "no file" if "ledger" in arguments else "state/"
        files = {name: content for name, (content, _) in read_file_states(folder).items() if not name.endswith(".lock")}
        return {name: content for name, content in files.items() if not name.startswith(ignored_prefix)}

    files_before, requests_before = read_files(), session_sandbox.stats()["requests"]
    result = Connector(session_sandbox, folder).run(*shlex.split(arguments), environ=environs[0] if environs else {})
    assert result.is_refused, (result.exit_code, result.stdout, result.stderr)
    assert expected_text in result.stderr
    assert not any(secret in result.stderr for secret in ("secret.org", "hunter2"))
    assert (read_files(), session_sandbox.stats()["requests"]) == (files_before, requests_before)


@pytest.mark.parametrize(
    ("line", "completion"),
    [("connector rec", "plain,reconcile"), ("connector sync --ti", "plain,--time-limit"), ("connector sync ", "file,"),
     ("connector ledger ba", "plain,backup")],
)  # fmt: skip
def test_the_shell_completes_commands_options_and_files(connector: Connector, line: str, completion: str) -> None:
    completion_environ = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    result = connector.run(environ={"_CONNECTOR_COMPLETE": "bash_complete", **completion_environ})
    assert result.stdout.splitlines() == [completion]
