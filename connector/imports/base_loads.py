"""Selects the bases of a command, and loads the rows of a run: one load for each base of the rows."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import assert_never

from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.fields import BaseRef, fold_base_name
from connector.ledger.entries import Ledger, UnfinishedEntry
from connector.ledger.records import find_job_of_run, find_or_add_base, list_bases
from connector.ledger.store import Base
from connector.load.base_load import ClassifiedChunk, Loader
from connector.load.checks import describe_unlisted_create, find_unlisted_create
from connector.load.lookups import look_up_keys
from connector.load.presence import AccountPresence, BasePresence
from connector.load.session import RunMode, Session
from connector.pace.refusals import SERIES_LENGTH
from connector.rows import PlannedChunk
from connector.runs.frame import Run
from connector.states import State
from connector.subscribers.rules import BaseColumn, RowBases
from connector.texts import choose_form, count

_MAX_BASES = 1000  # largest number of bases in the cells of a column; a column with more texts probably names no bases

_MAX_BASES_IN_MESSAGE = 20
_LOOK_UP_COUNT = 3  # look-ups, with a quiet period between two look-ups; the third look-up can prove absence


def choose_bases(ledger: Ledger, account: str, base_id: int | None, base_name: str | None) -> list[Base]:
    """Return the account's bases with this id or name. Return all bases if neither the id nor the name is set. Raises
    ConfigurationError if the ledger does not know the base.

    Call this function inside a transaction.
    """
    known_bases = list_bases(ledger.connection, account)
    chosen_bases = [
        base
        for base in known_bases
        if (base_id is None or base.service_id == base_id)
        and (base_name is None or (base.name is not None and fold_base_name(base.name) == fold_base_name(base_name)))
    ]
    if not chosen_bases and (base_id is not None or base_name is not None):
        raise ConfigurationError(
            f"the ledger does not know this base in the account {account}. Bases in the ledger: "
            f"{describe_bases(known_bases) or 'none'}"
        )
    return chosen_bases


def describe_base(base: Base) -> str:
    """Return the name of the base for messages: `News (id 7)`, `News`, `base 7`."""
    if base.service_id is None:
        return str(base.name)
    return f"base {base.service_id}" if base.name is None else f"{base.name} (id {base.service_id})"


def describe_bases(bases: Sequence[Base]) -> str:
    """Return the names of the bases, separated by commas."""
    return ", ".join(map(describe_base, bases))


def refuse_too_many_bases(column: BaseColumn, base_count: int) -> None:
    """Raise RunAborted if the cells of a column without `values` name more than `_MAX_BASES` bases."""
    if column.values is None and base_count > _MAX_BASES:
        raise RunAborted(
            f"the column {column.column} names more than {_MAX_BASES:,} bases, so it may be the wrong column. Set "
            "another column in subscriber.base, or list the bases of its cells in subscriber.base.values"
        )


@dataclass(slots=True)
class _BaseLoad:
    session: Session
    loader: Loader

    @property
    def created_count(self) -> int:
        """The number of rows of the base that the run has created."""
        return self.session.ledger_writer.created_row_count

    @property
    def base(self) -> Base:
        return self.session.ledger_writer.base


class BaseLoads:
    """The loads of a run. Call `begin`, `load` for each chunk, and `settle`. Always call `close`, even after an error.

    If the run has planned all rows before it sends anything, `survey` is the BaseLoads of this planning, else None.
    """

    def __init__(
        self,
        run: Run,
        base: BaseRef | BaseColumn,
        mode: RunMode = RunMode.LOAD,
        survey: "BaseLoads | None" = None,
    ) -> None:
        self._run, self._base, self.mode = run, base, mode
        self._survey = survey
        self._account: AccountPresence = (
            AccountPresence(has_many_bases=isinstance(base, BaseColumn)) if survey is None else survey._account
        )
        self._base_loads: list[_BaseLoad] = []
        self._loads_by_reference: dict[BaseRef, _BaseLoad] = {}

    async def begin(self) -> None:
        """Begin the load if all rows are for one base. If rows have several bases, the load of each base begins with
        the first row of that base."""
        if isinstance(self._base, BaseRef):
            await self._begin_base_load(self._base)

    async def load(self, planned_chunk: PlannedChunk, bases: RowBases | None) -> None:
        """Load the rows of each base, in the order in which the bases first appear in the chunk.

        Return after every create has ended, because no look-up may run while a create is open (architecture 4.7).
        `bases` has the base of each row (None: all rows are for one base). Raises RunAborted if the run cannot
        continue. Then the rows that the run has not reached count as `unsent`.
        """
        if bases is not None and isinstance(self._base, BaseColumn) and self._base.values is None:
            chunk_bases = (base for base, _ in bases.split_by_base())
            refuse_too_many_bases(self._base, len({*self._loads_by_reference, *chunk_bases}))
        chunks = list[tuple[_BaseLoad, ClassifiedChunk]]()
        try:
            for base_ref, base_rows in self._split_by_base(planned_chunk, bases):
                if base_ref not in self._loads_by_reference and self._run.stop.is_stopping:
                    continue
                base_load = self._loads_by_reference.get(base_ref) or await self._begin_base_load(base_ref)
                with self._base_context(base_load):
                    chunk = await base_load.loader.classify_chunk(base_rows)
                # The planned chunk may name one base both by its id and by its name. Then this base has two classified
                # chunks, and the creates of the first chunk may change the entries of the second chunk.
                chunk.is_outdated = any(other_load is base_load for other_load, _ in chunks)
                chunks.append((base_load, chunk))
            lookup_tasks = [base_load.loader.plan_lookup(chunk) for base_load, chunk in chunks]
            await self._account.look_up([lookup_task for lookup_task in lookup_tasks if lookup_task is not None])
            for base_load, chunk in chunks:
                with self._base_context(base_load):
                    await base_load.loader.create_new_rows(chunk)
        finally:
            for base_load, chunk in chunks:
                base_load.loader.postpone_rows(chunk)

    async def settle(self) -> None:
        """Find out whether the unknown creates of each base took effect. If not, send the creates again or hold them.
        If a column gives the bases, also do this for the job's entries in bases without rows in this run.

        All bases wait for the quiet periods together. Raises the errors of `load`.
        """
        if isinstance(self._base, BaseColumn) and not self._run.stop.is_stopping:
            for base in await self._run.ledger_queue.execute(self._find_unsettled_bases):
                await self._begin_base_load(base)
        if len(self._base_loads) > 1 and self.mode is RunMode.LOAD:
            await self._look_up_all_bases()
        for base_load in self._base_loads:
            with self._base_context(base_load):
                await base_load.loader.settle()

    async def close(self) -> None:
        """Close every load, even if another load raises an error."""
        async with AsyncExitStack() as stack:
            # The stack calls its callbacks in reverse order, so the first load is closed first.
            for base_load in reversed(self._base_loads):
                stack.push_async_callback(self._close_base_load, base_load)

    @property
    def sessions(self) -> list[Session]:
        """The sessions of all bases with a load."""
        return [base_load.session for base_load in self._base_loads]

    def describe_created_bases(self) -> str | None:
        """Return a message with the number of created rows of each base. Return None if all rows are for one base, or
        if no row was created."""
        loads_with_creates = [base_load for base_load in self._base_loads if base_load.created_count]
        if isinstance(self._base, BaseRef) or not loads_with_creates:
            return None
        created_counts_text = ", ".join(
            f"{describe_base(base_load.base)}: {base_load.created_count}"
            for base_load in loads_with_creates[:_MAX_BASES_IN_MESSAGE]
        )
        other_loads = loads_with_creates[_MAX_BASES_IN_MESSAGE:]
        other_created_count = sum(base_load.created_count for base_load in other_loads)
        return f"created in {created_counts_text}" + (
            f", {len(other_loads)} other bases: {other_created_count}" if other_loads else ""
        )

    async def describe_newcomers(self) -> str | None:
        """Return a message about subscribers that another program has created in the bases after this run's listing, or
        None. Send a request only if this run has created a subscriber. Raises the errors of
        `load`."""
        if self.mode is not RunMode.LOAD or not any(base_load.created_count for base_load in self._base_loads):
            return None
        if not (newcomer_count := await self._account.count_newcomers()):
            return None
        return (
            f"{count(newcomer_count, 'subscriber')} appeared in the base during this run, and this run did not create "
            f"{choose_form(newcomer_count, 'the subscriber', 'these subscribers')}. If another ledger or program "
            "creates subscribers in this account at the same time, both may create the same person. Let one ledger "
            "create all subscribers"
        )

    async def describe_unlisted_create(self) -> tuple[str, bool] | None:
        """Return a message if the list lacks the last subscriber that this run has created. Also return whether a
        person must look at the service. Raises the errors of `load`."""
        loads_with_creates = [base_load for base_load in self._base_loads if base_load.created_count]
        if self.mode is not RunMode.LOAD or not loads_with_creates:
            return None
        confirmed_creates = loads_with_creates[0].session.list_access.confirmed_creates
        base_id = confirmed_creates[-1].base_id if confirmed_creates else None
        sessions_of_base = [
            base_load.session for base_load in loads_with_creates if base_load.base.service_id == base_id
        ]
        session = sessions_of_base[0] if sessions_of_base else loads_with_creates[-1].session
        unlisted_create = await find_unlisted_create(session)
        if unlisted_create is None:
            return None
        return describe_unlisted_create(
            session, unlisted_create, sum(base_load.created_count for base_load in loads_with_creates)
        )

    def describe_unlisted_entries(self) -> Iterator[str]:
        """Yield a message for each base if the complete list of this run lacks confirmed subscribers of the base."""
        job_path = self._run.setup.plan.job_path
        command = "run connector reconcile with a job file"
        if job_path is not None:
            command = f"run: connector reconcile {shlex.quote(str(job_path))}"
        for base_load in self._base_loads:
            if unlisted_count := base_load.loader.presence.unlisted_count:
                yield (
                    f"{describe_base(base_load.base)}: the list is complete and lacks "
                    f"{count(unlisted_count, 'subscriber')} that earlier runs have created or seen in the base. "
                    f"{choose_form(unlisted_count, 'Its row counts', 'Their rows count')} as existing. "
                    f"To list {choose_form(unlisted_count, 'the subscriber', 'the subscribers')}, {command}"
                )

    def _split_by_base(
        self, planned_chunk: PlannedChunk, bases: RowBases | None
    ) -> Iterator[tuple[BaseRef, PlannedChunk]]:
        if isinstance(self._base, BaseRef):
            yield self._base, planned_chunk
        elif bases is not None:
            for base, positions in bases.split_by_base():
                yield base, planned_chunk.select(positions)

    async def _begin_base_load(self, base_ref: BaseRef) -> _BaseLoad:
        """Begin and return the load of a base. If the run has planned all rows first, the load uses the look-ups of
        this planning."""
        account = self._run.setup.plan.settings.account
        base = await self._run.ledger_queue.execute(
            lambda ledger: find_or_add_base(ledger.connection, account, base_ref.service_id, base_ref.name)
        )
        if base.service_id is None and not self._run.setup.plan.shard.is_whole:
            raise ConfigurationError(
                f"the id of the base {base_ref.name} is not known yet, and a shard needs the id. Give the base by its "
                "id, or run connector sync --limit 1 without --shard once: a run without --shard learns the id"
            )
        for base_load in self._base_loads:
            if base_load.base.key == base.key:
                base_load.session.list_access.requested_base_name = (
                    base_load.session.list_access.requested_base_name or base_ref.name
                )
                self._loads_by_reference[base_ref] = base_load
                return base_load
        survey_load = self._survey._loads_by_reference.get(base_ref) if self._survey is not None else None
        session = self._run.open_session(base, base_ref.name) if survey_load is None else survey_load.session
        session.ledger_writer.base = base
        presence = BasePresence(session, self._account) if survey_load is None else survey_load.loader.presence
        base_load = _BaseLoad(session, Loader(session, self.mode, presence))
        self._loads_by_reference[base_ref] = base_load
        self._base_loads.append(base_load)
        with self._base_context(base_load):
            await base_load.loader.begin()
        return base_load

    @contextmanager
    def _base_context(self, base_load: _BaseLoad) -> Iterator[None]:
        """Add the name of the base to errors inside the context."""
        try:
            yield
        except ConnectorError as error:
            if isinstance(self._base, BaseRef):
                raise
            error_class = ConfigurationError if isinstance(error, ConfigurationError) else RunAborted
            raise error_class(f"{describe_base(base_load.base)}: {error}") from error

    async def _look_up_all_bases(self) -> None:
        """Look up the unknown creates of all bases together, with quiet periods between the look-ups. Each look-up
        reads the list once for all bases."""
        stop = self._base_loads[0].session.stop
        for look_up_index in range(_LOOK_UP_COUNT):
            if look_up_index and not await stop.sleep(self._run.setup.plan.policy.quiet_period_s):
                return
            loads_by_access = {id(base_load.session.list_access): base_load for base_load in self._base_loads}
            key_groups = [await base_load.loader.settler.begin_look_up() for base_load in self._base_loads]
            async for lookup_part in look_up_keys(key_groups):
                base_load = loads_by_access[id(lookup_part.list_access)]
                with self._base_context(base_load):
                    await base_load.loader.settler.record_look_up(lookup_part)
            for base_load in self._base_loads:
                with self._base_context(base_load):
                    await base_load.loader.settler.end_look_up()
            stop.raise_if_stop_requested()
            if not any(base_load.loader.settler.has_unsettled_entries for base_load in self._base_loads):
                return

    async def _close_base_load(self, base_load: _BaseLoad) -> None:
        with self._base_context(base_load):
            await base_load.loader.close()

    def _find_unsettled_bases(self, ledger: Ledger) -> list[BaseRef]:
        """Return the bases in which the job has unsettled entries. Leave out bases that have a row in this run.
        Unsettled entries are unknown creates, refused creates that may be sent again (architecture 4.8), and
        opt-outs."""
        opened_base_keys = {base_load.base.key for base_load in self._base_loads}
        account = self._run.setup.plan.settings.account
        bases = [base for base in list_bases(ledger.connection, account) if base.key not in opened_base_keys]
        unsettled_bases = [base for base in bases if self._has_unsettled_entries(ledger, base)]
        return [
            BaseRef(name=base.name) if base.service_id is None else BaseRef(service_id=base.service_id)
            for base in unsettled_bases
        ]

    def _has_unsettled_entries(self, ledger: Ledger, base: Base) -> bool:
        if ledger.find_opt_outs(base, self._run.setup.job):
            return True
        run_ids = {entry.run_id for state in State for entry in _find_entries_to_settle(ledger, base, state)}
        return any(find_job_of_run(ledger.connection, run_id) == self._run.setup.job for run_id in run_ids)


def _find_entries_to_settle(ledger: Ledger, base: Base, state: State) -> list[UnfinishedEntry]:
    """Return the entries of `base` in `state` that a load settles, even if the load does not read their rows."""
    match state:
        case State.UNKNOWN:
            return ledger.find_unfinished_entries(base, state)
        case State.REJECTED:
            entries = ledger.find_unfinished_entries(base, state)
            return [entry for entry in entries if not entry.has_final_refusal or len(entries) >= SERIES_LENGTH]
        case State.HELD | State.DROPPED | State.SENDING | State.CONFIRMED | State.NONE:
            # A person decides about HELD entries, and has decided about DROPPED entries. No entry in another state
            # waits for a run.
            return []
    assert_never(state)
