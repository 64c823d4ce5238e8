"""The bases that a command is about, and the loads of one run, a load for each base that its rows are for."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

from connector.errors import ConfigurationError, ConnectorError, RunAborted
from connector.fields import BaseRef, fold_base_name
from connector.ledger.entries import Ledger
from connector.ledger.records import find_or_add_base, find_run, list_bases
from connector.ledger.store import Base
from connector.load.base_load import Loader, SortedChunk
from connector.load.finishing import RunMode
from connector.load.lookups import KeyLookup
from connector.load.presence import AccountPresence, BasePresence
from connector.load.session import Session
from connector.load.sightings import describe_unseen, find_unseen
from connector.outcomes import Outcome
from connector.pace.refusals import LEAST_ALIKE
from connector.plurals import agree, count
from connector.rows import Planned
from connector.run import Run
from connector.states import State
from connector.subscribers.row_bases import BaseColumn, RowBases

_MOST_BASES = 1000  # that cells name by themselves: a column of something else names another in nearly every row

_BASES_NAMED = 20  # in one message
_LOOKS_TOGETHER = 3  # with a quiet period between them: the third can prove absence


def choose_bases(ledger: Ledger, account: str, base_id: int | None, base_name: str | None) -> list[Base]:
    """Return those of the account with this id, or this name, or all; raises ConfigurationError if a named one is not
    known.

    To be called inside a transaction.
    """
    known = list_bases(ledger.connection, account)
    chosen = [
        base
        for base in known
        if (base_id is None or base.service_id == base_id)
        and (base_name is None or (base.name is not None and fold_base_name(base.name) == fold_base_name(base_name)))
    ]
    if not chosen and (base_id is not None or base_name is not None):
        raise ConfigurationError(
            f"the ledger knows no such base of the account {account}; it knows: {describe_bases(known) or 'none'}"
        )
    return chosen


def describe_base(base: Base) -> str:
    """Return the base in words: `News (id 7)`, `News`, `base 7`."""
    if base.service_id is None:
        return str(base.name)
    return f"base {base.service_id}" if base.name is None else f"{base.name} (id {base.service_id})"


def describe_bases(bases: Sequence[Base]) -> str:
    """Several, with commas between."""
    return ", ".join(map(describe_base, bases))


def refuse_too_many(column: BaseColumn, number: int) -> None:
    """Raise RunAborted if the cells of a column have named so many bases by themselves that they are none."""
    if column.values is None and number > _MOST_BASES:
        raise RunAborted(
            f"the column {column.column} names more than {_MOST_BASES:,} bases: is it the one that says the base? If "
            "it is, list what its cells mean under subscriber.base.values"
        )


@dataclass(slots=True)
class _BaseLoad:
    """One base's load; `created` is how many rows it has created."""

    session: Session
    load: Loader
    created: int = 0

    @property
    def base(self) -> Base:
        return self.session.journal.base


class BaseLoads:
    """`begin`; `take` each chunk, then `settle`; `close` however it ends.

    `survey` are the run's loads that planned it all before (None: no survey),
    and `make` makes each base's load.
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
        """Begin the one base that all rows are for; where a column says it, each begins with its first row."""
        if isinstance(self._base, BaseRef):
            await self._open(self._base)

    async def take(self, planned: Planned, bases: RowBases | None) -> None:
        """Give each base's load its part of the chunk, in the order in which the bases first appear in it.

        `bases` are those of the rows; None: all are for the one base. Raises RunAborted when the run cannot go on;
        rows that it did not reach are `unsent`.
        """
        self._refuse_too_many(bases)
        chunks = list[tuple[_BaseLoad, SortedChunk]]()
        try:
            for asked, part in self._split(planned, bases):
                if asked not in self._loads and self._run.stop.is_stopping:
                    continue
                each = self._loads.get(asked) or await self._open(asked)
                with self._turn(each):
                    chunk = await each.load.sort(part)
                chunk.is_unsure = any(other is each for other, _ in chunks)  # two names of one base
                chunks.append((each, chunk))
            wants = [each.load.want(chunk) for each, chunk in chunks]
            await self._account.learn([want for want in wants if want is not None])
            for each, chunk in chunks:
                with self._turn(each):
                    await each.load.create(chunk)
        finally:
            for each, chunk in chunks:
                each.load.keep(chunk)

    async def settle(self) -> None:
        """Settle what is unknown in each base; and in others what runs of this job left there. Raises as `take` does.

        The quiet periods are waited for together.
        """
        if isinstance(self._base, BaseColumn) and not self._run.stop.is_stopping:
            await self._open_left()
        if len(self._begun) > 1 and self.mode is RunMode.LOAD:
            await self._look_together()
        for each in self._begun:
            await self._settle(each)

    async def close(self) -> None:
        """Close every load, whatever becomes of the others."""
        async with AsyncExitStack() as stack:
            for each in reversed(self._begun):  # the last one in is the first one out
                stack.push_async_callback(self._close, each)

    @property
    def sessions(self) -> list[Session]:
        """Of the bases that had a load."""
        return [each.session for each in self._begun]

    def describe_created(self) -> str | None:
        """Return how many were created in which base, where a column says the base and any were."""
        created = [each for each in self._begun if each.created]
        if isinstance(self._base, BaseRef) or not created:
            return None
        named = ", ".join(f"{describe_base(each.base)}: {each.created}" for each in created[:_BASES_NAMED])
        rest = created[_BASES_NAMED:]
        more = f", {len(rest)} other bases: {sum(each.created for each in rest)}" if rest else ""
        return f"created in {named}{more}"

    async def describe_newcomers(self) -> str | None:
        """Return a message on subscribers that another program has created in the bases since this run's listing. Ask
        only if this run has created a subscriber. Raises as `take` does."""
        if self.mode is not RunMode.LOAD or not any(each.created for each in self._begun):
            return None
        if not (number := await self._account.count_newcomers()):
            return None
        return (
            f"{count(number, 'subscriber')} came into the base during this run that this run did not send. If another "
            "ledger or program creates subscribers in this account at the same time, both may create the same person: "
            "let one ledger create them all"
        )

    async def describe_unseen(self) -> tuple[str, bool] | None:
        """Return a message if this run has created subscribers and the list does not show the last one, and whether a
        person must look at the service. Raises as `take` does."""
        created = [each for each in self._begun if each.created]
        if self.mode is not RunMode.LOAD or not created:
            return None
        sentinels = created[0].session.access.sentinels
        base_id = sentinels[-1].base_id if sentinels else None
        owners = [each.session for each in created if each.base.service_id == base_id]
        session = owners[0] if owners else created[-1].session
        last = await find_unseen(session)
        if last is None:
            return None
        return describe_unseen(session, last, sum(each.created for each in created))

    def describe_lacking(self) -> Iterator[str]:
        """Yield a message for each base whose confirmed subscribers are missing on the complete list of this run."""
        for each in self._begun:
            if number := each.load.presence.lacking:
                yield (
                    f"{describe_base(each.base)}: the list is complete and lacks {count(number, 'subscriber')} that "
                    "earlier runs have created or seen in the base. "
                    f"{agree(number, 'Its row counts', 'Their rows count')} as existing. "
                    f"Name {agree(number, 'it', 'them')} by: connector reconcile"
                )

    def _split(self, planned: Planned, bases: RowBases | None) -> Iterator[tuple[BaseRef, Planned]]:
        if isinstance(self._base, BaseRef):
            yield self._base, planned
        elif bases is not None:
            for asked, places in bases.split():
                yield asked, planned.select(places)

    async def _open(self, asked: BaseRef) -> _BaseLoad:
        """The load of one more base, begun; it goes by what a survey has learned of who is there."""
        account = self._run.frame.account
        base = await self._run.commits.ask(
            lambda ledger: find_or_add_base(ledger.connection, account, asked.service_id, asked.name)
        )
        if base.service_id is None and not self._run.frame.shard.is_whole:
            raise ConfigurationError(
                f"the id of the base {asked.name} is not known yet, and a shard needs the id. Give the base by its id, "
                "or run connector sync --limit 1 without --shard once: that run learns the id"
            )
        for each in self._begun:
            if each.base.key == base.key:
                each.session.access.asked_name = each.session.access.asked_name or asked.name
                self._loads[asked] = each
                return each
        surveyed = self._survey._loads.get(asked) if self._survey is not None else None
        session = self._run.open_session(base, asked.name) if surveyed is None else surveyed.session
        session.limits, session.journal.base = self._run.limits, base
        presence = BasePresence(session, self._account) if surveyed is None else surveyed.load.presence
        each = self._loads[asked] = _BaseLoad(session, self._make(session, self.mode, presence))
        self._begun.append(each)
        with self._turn(each):
            await each.load.begin()
        return each

    def _refuse_too_many(self, bases: RowBases | None) -> None:
        """Before anything of the chunk is sent: each of its rows would make a base."""
        if bases is None or not isinstance(self._base, BaseColumn) or self._base.values is not None:
            return
        refuse_too_many(self._base, len({*self._loads, *(asked for asked, _ in bases.split())}))

    @contextmanager
    def _turn(self, each: _BaseLoad) -> Iterator[None]:
        """It is this one's turn: what it creates counts as created there, and what ends the run names its base."""
        self._run.session = each.session
        created_before = self._run.tally.outcomes[Outcome.CREATED]
        try:
            yield
        except ConnectorError as error:
            if isinstance(self._base, BaseRef):
                raise
            kind = ConfigurationError if isinstance(error, ConfigurationError) else RunAborted
            raise kind(f"{describe_base(each.base)}: {error}") from error
        finally:
            each.created += self._run.tally.outcomes[Outcome.CREATED] - created_before

    async def _look_together(self) -> None:
        """Give every base the looks that prove absence, each of them one look-up for all bases, so that the list is
        read once and the quiet periods pass for all at once."""
        control = self._begun[0].session.control
        for number in range(_LOOKS_TOGETHER):
            if number and not await control.rest(self._run.frame.policy.quiet_period_s):
                return
            loads = {id(each.session.access): each for each in self._begun}
            lookup = KeyLookup([await each.load.finisher.settler.begin_look() for each in self._begun])
            while (part := await lookup.read_next()) is not None:
                each = loads[id(part.access)]
                with self._turn(each):
                    await each.load.finisher.settler.take(part)
            for each in self._begun:
                with self._turn(each):
                    await each.load.finisher.settler.end_look()
            control.check()
            if not any(each.load.finisher.settler.has_unsettled for each in self._begun):
                return

    async def _settle(self, each: _BaseLoad) -> None:
        with self._turn(each):
            await each.load.settle()

    async def _close(self, each: _BaseLoad) -> None:
        with self._turn(each):
            await each.load.close()

    async def _open_left(self) -> None:
        for asked in await self._run.commits.ask(self._find_left):
            await self._open(asked)

    def _find_left(self, ledger: Ledger) -> list[BaseRef]:
        """The bases that had no row in this run yet, and in which another run of the job left something to settle:
        unknown creates, refused ones that may be sent again (architecture 4.8), and opt-outs."""
        opened = {each.base.key for each in self._begun}
        account = self._run.frame.account
        bases = [base for base in list_bases(ledger.connection, account) if base.key not in opened]
        left = [base for base in bases if self._has_left(ledger, base)]
        return [
            BaseRef(name=base.name) if base.service_id is None else BaseRef(service_id=base.service_id) for base in left
        ]

    def _has_left(self, ledger: Ledger, base: Base) -> bool:
        refused = ledger.find_unfinished(base, State.REJECTED)
        again = [each for each in refused if not each.is_final or len(refused) >= LEAST_ALIKE]
        if ledger.find_opt_outs(base, self._run.frame.job):
            return True
        runs = {entry.run_id for entry in [*ledger.find_unfinished(base, State.UNKNOWN), *again]}
        records = [find_run(ledger.connection, run_id) for run_id in runs]
        return any(record is not None and record.job == self._run.frame.job for record in records)
