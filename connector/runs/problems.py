"""The problems that a run sees, compared with the problems of its job in the ledger (connector.ledger.problems).

Only a run that finishes changes the ledger. A problem ends when a finished run reads its row in order, when a finished
run over the whole source does not read its row any more, or when a corrected row of a rejects file is imported.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from connector.ledger.entries import Ledger
from connector.ledger.problems import (
    OPT_OUT_KIND,
    ProblemKey,
    SeenProblem,
    count_problems,
    end_problems,
    end_problems_at,
    end_settled_problems,
    find_problems,
    record_problems,
)
from connector.load.session import OptOut, Problem
from connector.outcomes import Outcome
from connector.rows import Row
from connector.subscribers.identity import IDENTITY_BYTES, digest_text, join_digests, split_digests
from connector.subscribers.preparation import PreparedChunk, digest_rows
from connector.subscribers.rules import FieldMapping

MAX_REMEMBERED = 100_000  # problems of one run, about 50 MB in memory; each further problem counts as new
_RESOLVED_AT_ONCE = 1_000  # rows whose identities are read together, because reading them costs milliseconds a call
_PLACE_COLUMNS = ("_run_id", "_file", "_row")  # the columns in a rejects file that identify a row


@dataclass(frozen=True, slots=True)
class ProblemScope:
    """How a load knows its problems. `job` is "" for an import without a job, which remembers nothing. `is_whole`: the
    run reads the whole source of the job. `fails_on_new_only`: known problems do not make the run partial."""

    account: str
    job: str
    mapping: FieldMapping
    identity: str
    base_column: str | None = None
    is_whole: bool = False
    fails_on_new_only: bool = False


class ProblemLog:
    """The problems of one run; `load` reads the known problems of its job. Without a scope, nothing is remembered."""

    def __init__(self, scope: ProblemScope | None = None, run_id: str = "") -> None:
        self._scope, self._run_id = scope, run_id
        self._known: set[ProblemKey] = set()
        self._known_digests = join_digests((), IDENTITY_BYTES)
        self._reset()

    def _reset(self) -> None:
        self._seen: dict[ProblemKey, SeenProblem] = {}
        self._unresolved: list[tuple[Row, str, str]] = []  # row, kind and field; the identity is not read yet
        self._forgotten: Counter[str] = Counter()  # problems beyond MAX_REMEMBERED, by kind
        self._read: set[tuple[bytes, str]] = set()  # digests and bases of known problems whose rows are valid now
        self._corrected: dict[bytes, tuple[bytes, str]] = {}  # place to digest and base, of rows of a rejects file

    @property
    def fails_on_new_only(self) -> bool:
        """Whether known problems do not make the run partial."""
        return self._scope is not None and self._scope.fails_on_new_only

    def load(self, ledger: Ledger) -> None:
        """Read the known problems of the job. Call this method inside a transaction."""
        if self._scope is None or not self._scope.job:
            return
        self._known = find_problems(ledger, self._scope.account, self._scope.job)
        self._known_digests = join_digests({key.digest for key in self._known}, IDENTITY_BYTES)

    def restart(self) -> None:
        """Forget what the run has seen, because all rows are read again."""
        self._reset()

    def add(self, problem: Problem) -> None:
        """Add a row that a person must see."""
        if self._scope is None or problem.outcome is Outcome.DUPLICATE:
            return
        kind = problem.code if problem.code == "held" else str(problem.outcome)
        if problem.raw is not None:
            digest = digest_text(problem.raw)
            place = _digest_place(self._run_id, problem.row.file, problem.row.number)
            self._remember(ProblemKey(digest, "", kind), SeenProblem(False, "", place))
            return
        self._unresolved.append((problem.row, kind, problem.field))
        if len(self._unresolved) >= _RESOLVED_AT_ONCE:
            self._resolve()

    def add_opt_out(self, opt_out: OptOut) -> None:
        """Add a subscriber whose row says inactive while the service shows the subscriber as active."""
        if self._scope is not None:
            place = b"" if opt_out.row is None else _digest_place(self._run_id, opt_out.row.file, opt_out.row.number)
            self._remember(ProblemKey(opt_out.digest, "", OPT_OUT_KIND), SeenProblem(True, "is_active", place))

    def add_read(self, prepared: PreparedChunk) -> None:
        """Add the valid rows of a chunk: a known problem of such a row may have ended."""
        scope, frame = self._scope, prepared.chunk.frame
        if scope is None:
            return
        valid = prepared.valid
        is_rejects_file = set(_PLACE_COLUMNS) <= set(frame.columns)
        if is_rejects_file:
            indices = np.arange(len(valid.identities))
        elif len(self._known_digests):
            indices = np.flatnonzero(np.isin(valid.identities, self._known_digests))
        else:
            return
        positions = valid.subscribers.index.to_numpy()[indices]
        bases = [""] * len(indices)
        if scope.base_column is not None:
            bases = ["" if pd.isna(cell) else str(cell) for cell in frame[scope.base_column].iloc[positions]]
        rows = list(zip(split_digests(valid.identities[indices]), bases, strict=True))
        self._read.update(rows)
        if is_rejects_file:
            cells = frame[[*_PLACE_COLUMNS]].iloc[positions].itertuples(index=False, name=None)
            places = [_digest_place(*map(str, row)) for row in cells]
            self._corrected.update(zip(places, rows, strict=True))

    def count_new(self) -> Counter[str]:
        """Return the number of problems by kind that no finished run of the job has seen before."""
        self._resolve()
        return self._forgotten + Counter(key.kind for key in self._seen if key not in self._known)

    def write(self, ledger: Ledger, at: float) -> None:
        """Record at the end of a finished run, at `at` (Unix seconds), which problems are open now. Call this method
        inside the transaction that records the end of the run."""
        self._resolve()
        seen = {(key.digest, key.base) for key in self._seen}
        corrected_places = {place for place, row in self._corrected.items() if row not in seen}
        end_problems_at(ledger, corrected_places)
        if self._scope is not None and self._scope.job:
            ended_keys = [key for key in self._known if key not in self._seen and self._has_ended(key, seen)]
            end_problems(ledger, self._scope.account, self._scope.job, ended_keys)
            record_problems(ledger, self._scope.account, self._scope.job, self._seen, self._run_id, at)
        end_settled_problems(ledger.connection)

    def describe(self, ledger: Ledger) -> dict[str, object]:
        """Return the report's `problems`. Call this method inside a transaction."""
        new = self.count_new()
        open_problems = Counter(new)
        if self._scope is not None and self._scope.job:
            open_problems = self._forgotten + Counter(count_problems(ledger, self._scope.account, self._scope.job))
        kinds = {kind: {"new": new[kind], "open": open_problems[kind]} for kind in sorted({*new, *open_problems})}
        return {"new": new.total(), "open": open_problems.total(), "kinds": kinds}

    def _has_ended(self, key: ProblemKey, seen: set[tuple[bytes, str]]) -> bool:
        """Return whether a known problem that the run has not seen has ended. Each run looks for every opt-out."""
        is_whole = self._scope is not None and self._scope.is_whole
        row = (key.digest, key.base)
        return is_whole or key.kind == OPT_OUT_KIND or row in self._read or row in seen

    def _resolve(self) -> None:
        """Read the identities of the rows that were added."""
        waiting, self._unresolved, scope = self._unresolved, [], self._scope
        if scope is None:
            return
        by_columns: dict[tuple[str, ...], list[tuple[Row, str, str]]] = {}
        for problem in waiting:
            by_columns.setdefault(problem[0].columns, []).append(problem)
        for columns, problems in by_columns.items():
            frame = pd.DataFrame([row.cells for row, _, _ in problems], columns=list(columns), dtype="str")
            digests, is_identity = digest_rows(frame, scope.mapping, scope.identity, today=date.max)
            bases = ["" if scope.base_column is None else cell for cell in frame.get(scope.base_column, digests)]
            for digest, is_known, base, (row, kind, field) in zip(digests, is_identity, bases, problems, strict=True):
                key = ProblemKey(digest, "" if pd.isna(base) else str(base), kind)
                self._remember(key, SeenProblem(is_known, field, _digest_place(self._run_id, row.file, row.number)))

    def _remember(self, key: ProblemKey, problem: SeenProblem) -> None:
        if key in self._seen or len(self._seen) < MAX_REMEMBERED:
            self._seen.setdefault(key, problem)
        elif key not in self._known:
            self._forgotten[key.kind] += 1


def _digest_place(run_id: str, file: str, number: object) -> bytes:
    """Return the digest of a row's place, as the columns of a rejects file name it."""
    return digest_text(f"{run_id}\0{file}\0{number}")
