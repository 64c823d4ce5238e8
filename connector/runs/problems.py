"""Compares the problems of a run with the known problems of its job in the ledger (connector.ledger.problems).

Only a finished run changes the ledger. A problem ends in these cases:

- A finished run reads the row of the problem without a fault, or with another kind of problem.
- A finished run reads the whole source, and does not see the problem.
- A finished run does not see an opt-out. Each run looks for all opt-outs.
- The corrected row is imported from a rejects file.
- The problem is a refused, held or unknown create, and the ledger confirms the subscriber.
"""

from collections import Counter
from dataclasses import dataclass
from datetime import date

import numpy as np
import pandas as pd

from connector.ledger.entries import Ledger
from connector.ledger.problems import (
    ProblemKey,
    SeenProblem,
    end_problems,
    end_row_problems,
    end_settled_problems,
    find_problems,
    record_problems,
)
from connector.outcomes import Outcome, ProblemKind, find_problem_kind
from connector.rows import Row
from connector.subscribers.identity import IDENTITY_BYTES, digest_text, join_digests, split_digests
from connector.subscribers.preparation import PreparedChunk, digest_rows
from connector.subscribers.rules import FieldMapping
from connector.tally import OptOut, Problem

MAX_STORED_PROBLEMS = 100_000  # problems of one run, about 50 MB in memory; each further unknown problem counts as new
_ROWS_READ_TOGETHER = 1_000  # rows whose identities are read in one call, because each call takes milliseconds
_ROW_POSITION_COLUMNS = ("_run_id", "_file", "_row")  # the columns in a rejects file that identify a row


@dataclass(frozen=True, slots=True)
class ProblemScope:
    """The settings by which a load identifies its problems. `job` is "" for an import without a job, whose problems are
    not stored. `reads_complete_source`: the run reads the complete source of the job. `fails_only_on_new_problems`:
    known problems do not make the run partial."""

    account: str
    job: str
    mapping: FieldMapping
    identity_field: str
    base_column: str | None = None
    reads_complete_source: bool = False
    fails_only_on_new_problems: bool = False


class ProblemLog:
    """The problems of one run, and the known problems of its job, which `load_known_problems` reads. Without a scope,
    no problem is stored."""

    def __init__(self, scope: ProblemScope | None = None, run_id: str = "") -> None:
        self._scope, self._run_id = scope, run_id
        self._known_keys: set[ProblemKey] = set()
        self._known_digests = join_digests((), IDENTITY_BYTES)
        self.forget_problems()

    def forget_problems(self) -> None:
        """Forget the problems of the run, because all rows are read again."""
        self._problems: dict[ProblemKey, SeenProblem] = {}
        # The row, kind and field of each problem whose identity is not read yet.
        self._pending_problems: list[tuple[Row, str, str]] = []
        self._unstored_counts: Counter[str] = Counter()  # the number of problems beyond MAX_STORED_PROBLEMS, by kind
        # The identity (a digest) and the base of each valid row whose subscriber has a known problem.
        # If the source is a rejects file: the identity and the base of each valid row.
        self._valid_identities_and_bases: set[tuple[bytes, str]] = set()
        self._corrected_rows: dict[bytes, tuple[bytes, str]] = {}
        """For each valid row in a rejects file: the identity (a digest) and the base. The key is a digest of the row's
        cells `_run_id`, `_file` and `_row`."""

    @property
    def fails_only_on_new_problems(self) -> bool:
        """Whether only new problems make the run partial."""
        return self._scope is not None and self._scope.fails_only_on_new_problems

    def load_known_problems(self, ledger: Ledger) -> None:
        """Read the known problems of the job. Call this method inside a transaction."""
        if self._scope is None or not self._scope.job:
            return
        self._known_keys = find_problems(ledger, self._scope.account, self._scope.job)
        self._known_digests = join_digests({key.identity_or_row_digest for key in self._known_keys}, IDENTITY_BYTES)

    def add_problem(self, problem: Problem) -> None:
        """Add a row that a person must see."""
        if self._scope is None or problem.outcome is Outcome.DUPLICATE:
            return
        kind = find_problem_kind(problem.outcome, problem.code).value
        if problem.raw_record is not None:
            key = ProblemKey(digest_text(problem.raw_record), "", kind)
            self._store_problem(key, SeenProblem(False, "", self._digest_position(problem.row)))
            return
        self._pending_problems.append((problem.row, kind, problem.field))
        if len(self._pending_problems) >= _ROWS_READ_TOGETHER:
            self._read_identities()

    def add_opt_out(self, opt_out: OptOut) -> None:
        """Add a subscriber whose row says inactive while the service shows the subscriber as active."""
        if self._scope is not None:
            row_position_digest = b"" if opt_out.row is None else self._digest_position(opt_out.row)
            self._store_problem(
                ProblemKey(opt_out.digest, "", ProblemKind.OPTED_OUT.value),
                SeenProblem(True, "is_active", row_position_digest),
            )

    def record_valid_rows(self, prepared_chunk: PreparedChunk) -> None:
        """Record the valid rows of a chunk, because a known problem of a valid row may have ended."""
        scope, frame = self._scope, prepared_chunk.chunk.frame
        if scope is None:
            return
        valid_rows = prepared_chunk.valid_chunk
        is_rejects_file = set(_ROW_POSITION_COLUMNS) <= set(frame.columns)
        if is_rejects_file:
            indices = np.arange(len(valid_rows.identities))
        elif len(self._known_digests):
            indices = np.flatnonzero(np.isin(valid_rows.identities, self._known_digests))
        else:
            return
        positions = valid_rows.subscribers.index.to_numpy()[indices]
        bases = [""] * len(indices)
        if scope.base_column is not None:
            bases = ["" if pd.isna(cell) else str(cell) for cell in frame[scope.base_column].iloc[positions]]
        digests_and_bases = list(zip(split_digests(valid_rows.identities[indices]), bases, strict=True))
        self._valid_identities_and_bases.update(digests_and_bases)
        if is_rejects_file:
            row_positions = frame[[*_ROW_POSITION_COLUMNS]].iloc[positions].itertuples(index=False, name=None)
            row_position_digests = [_digest_row_position(*map(str, row_position)) for row_position in row_positions]
            self._corrected_rows.update(zip(row_position_digests, digests_and_bases, strict=True))

    def count_new_problems(self) -> Counter[str]:
        """Return the number of new problems by kind. A problem is new if no finished run of the job has seen the
        problem before."""
        self._read_identities()
        return self._unstored_counts + Counter(key.kind for key in self._problems if key not in self._known_keys)

    def record_in_ledger(self, ledger: Ledger, recorded_at: float) -> None:
        """Record in the ledger which problems are open at the end of a finished run. `recorded_at` is the time of the
        end (Unix seconds). Call this method inside the transaction that records the end of the run."""
        self._read_identities()
        seen_identities = {(key.identity_or_row_digest, key.base) for key in self._problems}
        corrected_row_position_digests = {
            row_position_digest
            for row_position_digest, identity_and_base in self._corrected_rows.items()
            if identity_and_base not in seen_identities
        }
        end_row_problems(ledger, corrected_row_position_digests)
        if self._scope is not None and self._scope.job:
            unseen_keys = self._known_keys - self._problems.keys()
            keys_of_ended_problems = [key for key in unseen_keys if self._is_problem_ended(key, seen_identities)]
            end_problems(ledger, self._scope.account, self._scope.job, keys_of_ended_problems)
            record_problems(ledger, self._scope.account, self._scope.job, self._problems, self._run_id, recorded_at)
        end_settled_problems(ledger.connection)

    def describe(self, ledger: Ledger) -> dict[str, object]:
        """Return the report's `problems`. Call this method inside a transaction."""
        new_problem_counts = self.count_new_problems()
        open_problem_counts = Counter(new_problem_counts)
        if self._scope is not None and self._scope.job:
            open_keys = find_problems(ledger, self._scope.account, self._scope.job)
            open_problem_counts = self._unstored_counts + Counter(key.kind for key in open_keys)
        counts_by_kind = {
            kind: {"new": new_problem_counts[kind], "open": open_problem_counts[kind]}
            for kind in sorted({*new_problem_counts, *open_problem_counts})
        }
        return {"new": new_problem_counts.total(), "open": open_problem_counts.total(), "kinds": counts_by_kind}

    def _is_problem_ended(self, key: ProblemKey, seen_identities: set[tuple[bytes, str]]) -> bool:
        """Return whether a known problem has ended. Call this method only for a problem that the run has not seen. An
        unseen opt-out has always ended, because each run looks for all opt-outs."""
        reads_complete_source = self._scope is not None and self._scope.reads_complete_source
        identity_and_base = (key.identity_or_row_digest, key.base)
        return (
            reads_complete_source
            or key.kind == ProblemKind.OPTED_OUT
            or identity_and_base in self._valid_identities_and_bases
            or identity_and_base in seen_identities
        )

    def _read_identities(self) -> None:
        pending_problems, self._pending_problems, scope = self._pending_problems, [], self._scope
        if scope is None:
            return
        problems_by_columns: dict[tuple[str, ...], list[tuple[Row, str, str]]] = {}
        for problem in pending_problems:
            problems_by_columns.setdefault(problem[0].columns, []).append(problem)
        for columns, problems_of_columns in problems_by_columns.items():
            frame = pd.DataFrame([row.cells for row, _, _ in problems_of_columns], columns=list(columns), dtype="str")
            digests, identity_mask = digest_rows(frame, scope.mapping, scope.identity_field, today=date.max)
            bases = ["" if scope.base_column is None else cell for cell in frame.get(scope.base_column, digests)]
            for digest, has_identity, base, (row, kind, field) in zip(
                digests, identity_mask, bases, problems_of_columns, strict=True
            ):
                key = ProblemKey(digest, "" if pd.isna(base) else str(base), kind)
                self._store_problem(key, SeenProblem(has_identity, field, self._digest_position(row)))

    def _digest_position(self, row: Row) -> bytes:
        return _digest_row_position(self._run_id, row.file, row.number)

    def _store_problem(self, key: ProblemKey, problem: SeenProblem) -> None:
        if key in self._problems or len(self._problems) < MAX_STORED_PROBLEMS:
            self._problems.setdefault(key, problem)
        elif key not in self._known_keys:
            self._unstored_counts[key.kind] += 1


def _digest_row_position(run_id: str, file: str, row_number: object) -> bytes:
    """Return the digest of the place of a row: its run, file and number. A rejects file has these values in columns."""
    return digest_text(f"{run_id}\0{file}\0{row_number}")
