"""Selects the bases of a command, and runs the loads of one run: a load for each base of its rows."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.fields import BaseRef, fold_base_name
from connector.ledger.entries import Ledger
from connector.ledger.records import find_or_add_base, find_run, list_bases
from connector.ledger.store import Base
from connector.load.base_load import Loader, SortedChunk
from connector.load.checks import describe_unseen, find_unseen
from connector.load.lookups import look_up_keys
from connector.load.presence import AccountPresence, BasePresence
from connector.load.session import RunMode, Session
from connector.outcomes import Outcome
from connector.pace.refusals import LEAST_ALIKE
from connector.rows import PlannedChunk
from connector.runs.frame import Run
from connector.states import State
from connector.subscribers.rules import BaseColumn, RowBases
from connector.texts import agree, count

_MAX_BASES = 1000  # named by the cells of a column; a wrong column has another text in nearly every row

_MAX_BASES_NAMED = 20  # in one message
_JOINT_LOOKS = 3  # with a quiet period between two of them; the third can prove absence


def choose_bases(ledger: Ledger, account: str, base_id: int | None, base_name: str | None) -> list[Base]:
    """Return the account's bases with this id or name; all bases if neither is set. Raises ConfigurationError if the
    ledger knows no such base.

    Call this function inside a transaction.
    """
    known_bases = list_bases(ledger.connection, account)
    chosen = [
        base
        for base in known_bases
        if (base_id is None or base.service_id == base_id)
        and (base_name is None or (base.name is not None and fold_base_name(base.name) == fold_base_name(base_name)))
    ]
    if not chosen and (base_id is not None or base_name is not None):
        raise ConfigurationError(
            f"the ledger knows no such base of the account {account}; it knows: {describe_bases(known_bases) or 'none'}"
        )
    return chosen


def describe_base(base: Base) -> str:
    """Return the name of the base for messages: `News (id 7)`, `News`, `base 7`."""
    if base.service_id is None:
        return str(base.name)
    return f"base {base.service_id}" if base.name is None else f"{base.name} (id {base.service_id})"


def describe_bases(bases: Sequence[Base]) -> str:
    """Return the names of the bases, separated by commas."""
    return ", ".join(map(describe_base, bases))


def refuse_too_many(column: BaseColumn, base_count: int) -> None:
    """Raise RunAborted if the cells of a column without `values` name more than `_MAX_BASES` bases."""
    if column.values is None and base_count > _MAX_BASES:
        raise RunAborted(
            f"the column {column.column} names more than {_MAX_BASES:,} bases, so it may be the wrong column. Set "
            "another column in subscriber.base, or list the bases of its cells in subscriber.base.values"
        )


@dataclass(slots=True)
class _BaseLoad:
    """The load of one base; `created` is the number of rows that the load has created."""

    session: Session
    loader: Loader
    created: int = 0

    @property
    def base(self) -> Base:
        return self.session.journal.base


class BaseLoads:
    """The loads of a run: `begin`, `load` each chunk, then `settle`. Call `close` in any case.

    `survey` are the loads of the run's survey, which has planned all rows (None: no survey). `make` builds the load of
    a base.
    """

    def __init__(
        self,
        run: Run,
        base: BaseRef | BaseColumn,
        mode: RunMode = RunMode.LOAD,
        survey: "BaseLoads | None" = None,
        make: Callable[[Session, RunMode, BasePresence], Loader] = Loader,
    ) -> None:
        self._run, self._base, self.mode, self._survey, self._make = run, base, mode, survey, make
        self._account: AccountPresence = (
            AccountPresence(has_many_bases=isinstance(base, BaseColumn)) if survey is None else survey._account
        )
        self._begun: list[_BaseLoad] = []
        self._loads: dict[BaseRef, _BaseLoad] = {}

    async def begin(self) -> None:
        """Begin the load if all rows are for one base. Otherwise each load begins with its first row."""
        if isinstance(self._base, BaseRef):
            await self._open(self._base)

    async def load(self, planned: PlannedChunk, bases: RowBases | None) -> None:
        """Load the rows of each base, in the order in which the bases first appear in the chunk.

        `bases` are the bases of the rows; None if all rows are for one base. Raises RunAborted if the run cannot go on;
        the rows that the run did not reach are `unsent`.
        """
        if bases is not None and isinstance(self._base, BaseColumn) and self._base.values is None:
            refuse_too_many(self._base, len({*self._loads, *(base for base, _ in bases.split())}))
        chunks = list[tuple[_BaseLoad, SortedChunk]]()
        try:
            for base_ref, part in self._split(planned, bases):
                if base_ref not in self._loads and self._run.stop.is_stopping:
                    continue
                base_load = self._loads.get(base_ref) or await self._open(base_ref)
                with self._use(base_load):
                    chunk = await base_load.loader.sort(part)
                chunk.is_unsure = any(other is base_load for other, _ in chunks)  # the chunk has two names of one base
                chunks.append((base_load, chunk))
            wants = [base_load.loader.want(chunk) for base_load, chunk in chunks]
            await self._account.learn([want for want in wants if want is not None])
            for base_load, chunk in chunks:
                with self._use(base_load):
                    await base_load.loader.create_new(chunk)
        finally:
            for base_load, chunk in chunks:
                base_load.loader.hold(chunk)

    async def settle(self) -> None:
        """Settle the unknown creates of each base, also of bases without rows in which the job has unsettled entries.

        All bases wait for the quiet periods together. Raises like `load`.
        """
        if isinstance(self._base, BaseColumn) and not self._run.stop.is_stopping:
            await self._open_unsettled()
        if len(self._begun) > 1 and self.mode is RunMode.LOAD:
            await self._look_up_jointly()
        for base_load in self._begun:
            await self._settle(base_load)

    async def close(self) -> None:
        """Close every load, even if another load raises an error."""
        async with AsyncExitStack() as stack:
            for base_load in reversed(self._begun):  # the stack closes the first load first
                stack.push_async_callback(self._close, base_load)

    @property
    def sessions(self) -> list[Session]:
        """The sessions of all bases with a load."""
        return [base_load.session for base_load in self._begun]

    def describe_created(self) -> str | None:
        """Return a message with the number of created rows of each base. Return None if no column names the base, or if
        no row was created."""
        created = [base_load for base_load in self._begun if base_load.created]
        if isinstance(self._base, BaseRef) or not created:
            return None
        named = ", ".join(
            f"{describe_base(base_load.base)}: {base_load.created}" for base_load in created[:_MAX_BASES_NAMED]
        )
        unnamed = created[_MAX_BASES_NAMED:]
        more = f", {len(unnamed)} other bases: {sum(base_load.created for base_load in unnamed)}" if unnamed else ""
        return f"created in {named}{more}"

    async def describe_newcomers(self) -> str | None:
        """Return a message about subscribers that another program has created in the bases since this run's listing, or
        None. A request is sent only if this run has created a subscriber. Raises like `load`."""
        if self.mode is not RunMode.LOAD or not any(base_load.created for base_load in self._begun):
            return None
        if not (newcomer_count := await self._account.count_newcomers()):
            return None
        return (
            f"{count(newcomer_count, 'subscriber')} came into the base during this run that this run did "
            "not send. If another ledger or program creates subscribers in this account at the same time, both may "
            "create the same person: let one ledger create them all"
        )

    async def describe_unseen(self) -> tuple[str, bool] | None:
        """Return a message if this run has created subscribers and the list does not show the last one, and whether a
        person must look at the service. Raises like `load`."""
        created = [base_load for base_load in self._begun if base_load.created]
        if self.mode is not RunMode.LOAD or not created:
            return None
        sentinels = created[0].session.access.sentinels
        base_id = sentinels[-1].base_id if sentinels else None
        owners = [base_load.session for base_load in created if base_load.base.service_id == base_id]
        session = owners[0] if owners else created[-1].session
        last = await find_unseen(session)
        if last is None:
            return None
        return describe_unseen(session, last, sum(base_load.created for base_load in created))

    def describe_lacking(self) -> Iterator[str]:
        """Yield a message for each base whose confirmed subscribers are missing on the complete list of this run."""
        for base_load in self._begun:
            if lacking_count := base_load.loader.presence.lacking:
                yield (
                    f"{describe_base(base_load.base)}: the list is complete and lacks "
                    f"{count(lacking_count, 'subscriber')} that earlier runs have created or seen in the base. "
                    f"{agree(lacking_count, 'Its row counts', 'Their rows count')} as existing. "
                    f"Name {agree(lacking_count, 'it', 'them')} by: connector reconcile"
                )

    def _split(self, planned: PlannedChunk, bases: RowBases | None) -> Iterator[tuple[BaseRef, PlannedChunk]]:
        if isinstance(self._base, BaseRef):
            yield self._base, planned
        elif bases is not None:
            for base, indices in bases.split():
                yield base, planned.select(indices)

    async def _open(self, base_ref: BaseRef) -> _BaseLoad:
        """Begin and return the load of another base. After a survey, the load uses the survey's presence."""
        account = self._run.frame.account
        base = await self._run.commits.ask(
            lambda ledger: find_or_add_base(ledger.connection, account, base_ref.service_id, base_ref.name)
        )
        if base.service_id is None and not self._run.frame.shard.is_whole:
            raise ConfigurationError(
                f"the id of the base {base_ref.name} is not known yet, and a shard needs the id. Name the base by its "
                "id, or run connector sync --limit 1 without --shard once: that run learns the id"
            )
        for base_load in self._begun:
            if base_load.base.key == base.key:
                base_load.session.access.asked_name = base_load.session.access.asked_name or base_ref.name
                self._loads[base_ref] = base_load
                return base_load
        surveyed = self._survey._loads.get(base_ref) if self._survey is not None else None
        session = self._run.open_session(base, base_ref.name) if surveyed is None else surveyed.session
        session.limits, session.journal.base = self._run.limits, base
        presence = BasePresence(session, self._account) if surveyed is None else surveyed.loader.presence
        base_load = self._loads[base_ref] = _BaseLoad(session, self._make(session, self.mode, presence))
        self._begun.append(base_load)
        with self._use(base_load):
            await base_load.loader.begin()
        return base_load

    @contextmanager
    def _use(self, base_load: _BaseLoad) -> Iterator[None]:
        """Count the rows that the body creates for this load, and add the name of the base to errors."""
        self._run.session = base_load.session
        created_before = self._run.tally.outcomes[Outcome.CREATED]
        try:
            yield
        except ConnectorError as error:
            if isinstance(self._base, BaseRef):
                raise
            kind = ConfigurationError if isinstance(error, ConfigurationError) else RunAborted
            raise kind(f"{describe_base(base_load.base)}: {error}") from error
        finally:
            base_load.created += self._run.tally.outcomes[Outcome.CREATED] - created_before

    async def _look_up_jointly(self) -> None:
        """Look up the unknown creates of all bases, with the quiet periods that can prove absence between the looks.

        All bases share each look, so the list is read once, and the quiet periods pass for all bases together.
        """
        control = self._begun[0].session.control
        for look_index in range(_JOINT_LOOKS):
            if look_index and not await control.rest(self._run.frame.policy.quiet_period_s):
                return
            loads = {id(base_load.session.access): base_load for base_load in self._begun}
            groups = [await base_load.loader.settler.begin_look() for base_load in self._begun]
            async for part in look_up_keys(groups):
                base_load = loads[id(part.access)]
                with self._use(base_load):
                    await base_load.loader.settler.record_look(part)
            for base_load in self._begun:
                with self._use(base_load):
                    await base_load.loader.settler.end_look()
            control.check()
            if not any(base_load.loader.settler.has_unsettled for base_load in self._begun):
                return

    async def _settle(self, base_load: _BaseLoad) -> None:
        with self._use(base_load):
            await base_load.loader.settle()

    async def _close(self, base_load: _BaseLoad) -> None:
        with self._use(base_load):
            await base_load.loader.close()

    async def _open_unsettled(self) -> None:
        for base in await self._run.commits.ask(self._find_unsettled):
            await self._open(base)

    def _find_unsettled(self, ledger: Ledger) -> list[BaseRef]:
        """Return the bases without a row in this run in which earlier runs of the job left unsettled entries: unknown
        creates, refused creates that may be sent again (architecture 4.8), and opt-outs."""
        opened = {base_load.base.key for base_load in self._begun}
        account = self._run.frame.account
        bases = [base for base in list_bases(ledger.connection, account) if base.key not in opened]
        unsettled = [base for base in bases if self._has_unsettled(ledger, base)]
        return [
            BaseRef(name=base.name) if base.service_id is None else BaseRef(service_id=base.service_id)
            for base in unsettled
        ]

    def _has_unsettled(self, ledger: Ledger, base: Base) -> bool:
        refused = ledger.find_unfinished_entries(base, State.REJECTED)
        to_send_again = [entry for entry in refused if not entry.is_final or len(refused) >= LEAST_ALIKE]
        if ledger.find_opt_outs(base, self._run.frame.job):
            return True
        runs = {entry.run_id for entry in [*ledger.find_unfinished_entries(base, State.UNKNOWN), *to_send_again]}
        records = [find_run(ledger.connection, run_id) for run_id in runs]
        return any(record is not None and record.job == self._run.frame.job for record in records)
