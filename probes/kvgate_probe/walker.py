"""Walks one node through the sweep: meets each partner in one total order, tests, and tells what came of it.

Every walker visits its tests in the order (round, pair, step). At each it waits for a partner that is behind, and
leaves to a make-up pass a test whose partner is ahead, silent or not yet known. The walker that is furthest
behind never waits for one behind it, so there is always one that moves: no barrier, no deadlock. Where the schedule
is in order, a test also waits for those of the round before it, which are behind it too.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from kvgate_probe import host
from kvgate_probe.budget import Allowance, Budget
from kvgate_probe.control import Channel, Question, Standing, State, TcpChannel
from kvgate_probe.order import Order
from kvgate_probe.partners import Partner, Patience
from kvgate_probe.peers import Address, Peers
from kvgate_probe.records import Records, Trip, is_source
from kvgate_probe.summary import Summary
from kvgate_probe.tool import Ran, Serving, Tool
from kvgate_probe.wire import Result, Role, Test, Trouble

FAREWELL_SECONDS = 1.0
SERVERS_PER_TEST = 8


class Walker:
    """One walk; `tools` are those of the schedule's steps, `tell` receives each result as it comes."""

    def __init__(
        self,
        trip: Trip,
        peers: Peers,
        tools: Sequence[Tool],
        tell: Callable[[Result], None],
        channel: Channel | None = None,
    ) -> None:
        self._channel = channel or TcpChannel()
        self._trip, self._peers, self._tools = trip, peers, tools
        self._records = Records(trip, tell)
        self._tests = trip.schedule.tests_of(trip.node)
        own = sum(is_source(test, trip.node) for test in self._tests)
        self._budget = Budget(trip.schedule.share_of(trip.node), own)
        self._turns = trip.schedule.count
        self._partners = {name: Partner(name) for name in {t.partner_of(trip.node) for t in self._tests}}
        self._order = Order(trip.schedule, trip.node)
        before = {name for test in self._tests for name in self._order.before(test)}
        self._others = {name: Partner(name) for name in before - self._partners.keys()}
        self._position, self._round, self._state = -1, 0, State.WALKING
        self._began = 0.0
        self._port: int | None = None
        self._offer: Allowance | None = None

    async def walk(self) -> Summary:
        """Raises OSError where the control port is taken; a cancelled walk ends with its summary."""
        started, self._began = self._trip.clock(), self._now()
        control = await self._channel.open(self._answer, self._trip.bind, self._trip.control_port)
        watchers = [asyncio.ensure_future(self._watch(walker)) for walker in self._walkers()]
        interrupted = False
        try:
            await self._walk_all()
        except asyncio.CancelledError:
            interrupted = True
            self._interrupt()
        finally:
            for watcher in watchers:
                watcher.cancel()
            await asyncio.gather(*watchers, return_exceptions=True)
            await self._say_farewell()
            control.close()
        return self._summary(started, interrupted=interrupted)

    async def _walk_all(self) -> None:
        later = [test for test in self._tests if not await self._turn(test, test.index, last=False)]
        for test in later:
            await self._turn(test, self._turns + test.index, last=True)
        self._position, self._state = 2 * self._turns, State.DONE
        await self._linger()

    async def _turn(self, test: Test, position: int, *, last: bool) -> bool:
        """False where the test must wait for the make-up pass."""
        self._position, self._round = position, test.round
        if not last:
            await self._wait_for_turn(test)
        self._records.begin(test)
        partner = self._partners[test.partner_of(self._trip.node)]
        problem = self._tools[test.step].problem() or self._too_much(test)
        if problem is None:
            problem = await self._meet(test, partner)
        if problem is not None and problem.trouble in _MAY_CHANGE and not last:
            self._records.drop()
            return False
        if problem is None:
            problem = await (self._start(test, partner) if self._starts(test) else self._serve(test, partner))
        if is_source(test, self._trip.node):
            self._budget.ended()
        self._record(problem, partner)
        return True

    async def _wait_for_turn(self, test: Test) -> None:
        """Until the round before is over, as far as the walkers of it are heard; the silent ones hold nobody up."""
        waiting = [self._known(name) for name in self._order.before(test)]
        while waiting:
            await asyncio.gather(*(self._ask(walker) for walker in waiting))
            waiting = [walker for walker in waiting if not self._through(walker, test)]
            if waiting:
                await asyncio.sleep(max(self._trip.patience.poll_seconds, self._order.pause_seconds(test)))

    def _through(self, walker: Partner, test: Test) -> bool:
        patience, waited = self._trip.patience, self._now() - self._began
        lost = self._peers.find(walker.node) is None and waited >= patience.address_seconds
        past = walker.position >= self._order.begins_at(test)
        return past or lost or walker.gone or walker.silent(self._now(), patience)

    def _known(self, name: str) -> Partner:
        return self._partners.get(name) or self._others[name]

    def _walkers(self) -> tuple[Partner, ...]:
        return (*self._partners.values(), *self._others.values())

    def _too_much(self, test: Test) -> Ran | None:
        why = self._budget.spent() if is_source(test, self._trip.node) else ""
        return Ran(trouble=Trouble.BYTE_BUDGET_SPENT, message=why, attempts=0) if why else None

    def _starts(self, test: Test) -> bool:
        return (self._tools[test.step].starter is Role.SOURCE) == is_source(test, self._trip.node)

    async def _meet(self, test: Test, partner: Partner) -> Ran | None:
        """None once the partner stands at the same test; for the end that starts it, once the server listens too."""
        partner.settled = None
        while True:
            await self._ask(partner, test.index)
            problem = self._why_not(test, partner)
            if problem is not None:
                return problem
            if partner.position == self._position and (not self._starts(test) or self._can_start(partner)):
                return None
            await asyncio.sleep(self._trip.patience.poll_seconds)

    def _why_not(self, test: Test, partner: Partner) -> Ran | None:
        patience = self._trip.patience
        if partner.state is State.LEAVING:
            return Ran(trouble=Trouble.INTERRUPTED, message="the partner was told to end", attempts=0)
        if partner.settled is not None:
            return Ran(trouble=partner.settled, message="the partner's end could not test", attempts=0)
        if partner.position > self._position:
            return Ran(trouble=Trouble.PARTNER_LOST, message="the partner has left this test", attempts=0)
        if partner.silent(self._now(), patience):
            return _silence(partner, patience)
        heard = bool(partner.run) and not self._starts(test)
        known = heard or self._peers.find(partner.node) is not None
        if not known and self._now() - self._began >= patience.address_seconds:
            message = f"no address for the partner within {patience.address_seconds:g} s"
            return Ran(trouble=Trouble.ADDRESS_UNKNOWN, message=message, attempts=0)
        return None

    def _can_start(self, partner: Partner) -> bool:
        """A partner that asked first may be heard of before its address is known here."""
        return partner.port is not None and self._peers.find(partner.node) is not None

    async def _start(self, test: Test, partner: Partner) -> Ran:
        address = self._peers.find(partner.node)
        if address is None or partner.port is None:
            return Ran(trouble=Trouble.PARTNER_LOST, message="the partner's address is gone", attempts=0)
        server = Address(address.host, partner.port)
        self._records.took(await self._channel.round_trip(address))
        self._records.start(host.local_address_towards(address.host))
        pushes = is_source(test, self._trip.node)
        allowance = self._allowance(test) if pushes else self._offered(test, partner)
        ran = await self._tools[test.step].run(server, allowance)
        if pushes:
            self._budget.charge(ran.sent_bytes or 0, ran.sent_seconds)
        hung = ran.trouble is Trouble.TOOL_FAILED and partner.silent(self._now(), self._trip.patience)
        return replace(ran, trouble=Trouble.PARTNER_LOST, message=_FELL_SILENT) if hung else ran

    def _allowance(self, test: Test) -> Allowance:
        planned, speed = self._trip.schedule.steps[test.step].seconds, host.speed_of(self._records.interface)
        return self._budget.allowance(planned, speed)

    def _offered(self, test: Test, partner: Partner) -> Allowance:
        """What the source lets be read; its word never makes a test longer than planned."""
        planned = self._trip.schedule.steps[test.step].seconds
        return Allowance(min(planned, partner.seconds or planned), partner.most_bytes)

    async def _serve(self, test: Test, partner: Partner) -> Ran:
        """Serves until the partner has gone on; a server that a stranger used up is started anew."""
        address = self._peers.find(partner.node)
        self._records.start("" if address is None else host.local_address_towards(address.host))
        began, gives = self._now(), is_source(test, self._trip.node)
        self._offer = self._allowance(test) if gives else None
        ran = await self._serve_all(test, partner)
        if not gives or self._offer is None:
            return ran
        sent, self._offer = self._given(ran, self._offer), None
        self._budget.charge(sent, self._now() - began)
        return replace(ran, seconds=ran.seconds or self._trip.schedule.steps[test.step].seconds)

    def _given(self, ran: Ran, offer: Allowance) -> int:
        """What a server let be read: by its interface's count, which is no less than the payload; else all it could."""
        if ran.trouble is not None and ran.attempts == 0:
            return 0
        moved = self._records.moved
        return moved if moved is not None else offer.most_bytes or 0

    async def _serve_all(self, test: Test, partner: Partner) -> Ran:
        ran = Ran(trouble=Trouble.PARTNER_LOST, message="no test reached this end's server")
        for _ in range(SERVERS_PER_TEST):
            allowance = self._offer or Allowance(self._trip.schedule.steps[test.step].seconds)
            local = self._records.local_address
            serving = await self._tools[test.step].serve(self._trip.control_port, allowance, local)
            if isinstance(serving, Ran):
                return serving
            latest = await self._serve_once(serving, test, partner)
            ran = latest if latest.good or not ran.good else ran
            if self._parted(partner):
                break
        return ran

    async def _serve_once(self, serving: Serving, test: Test, partner: Partner) -> Ran:
        poll = self._trip.patience.poll_seconds
        self._port = serving.port
        try:
            while not self._parted(partner) and not await serving.ended(poll):
                await self._ask(partner, test.index)
        finally:
            self._port = None
            ran = await serving.stop()
        for _ in range(10):
            await self._ask(partner, test.index)
            if self._parted(partner):
                break
            await asyncio.sleep(poll)
        return ran

    def _parted(self, partner: Partner) -> bool:
        ahead = partner.position > self._position or partner.gone
        return ahead or partner.silent(self._now(), self._trip.patience)

    async def _linger(self) -> None:
        """Answers until every partner is done or gone, so that none takes an ended walk for silence."""
        while not all(p.gone or p.silent(self._now(), self._trip.patience) for p in self._partners.values()):
            if not any(self._peers.find(p.node) or p.run for p in self._partners.values() if not p.gone):
                return
            await asyncio.sleep(self._trip.patience.poll_seconds)

    async def _watch(self, partner: Partner) -> None:
        """Asks from time to time, so that a death is known everywhere at once and costs its silence once."""
        pause = max(self._trip.patience.watch_seconds, self._trip.patience.poll_seconds * len(self._walkers()))
        while not partner.gone:
            began = self._now()
            await self._ask(partner)
            await asyncio.sleep(max(0.0, pause - (self._now() - began)))

    async def _ask(self, partner: Partner, test: int | None = None) -> None:
        if partner.state is State.LEAVING or (partner.gone and test is None):
            return
        address = self._peers.find(partner.node)
        if address is None:
            partner.miss_unasked(self._now(), self._trip.patience)
            return
        asked_at = self._now()
        standing = await self._channel.ask(address, Question(self._standing(), test), self._trip.patience.ask_seconds)
        if standing is None:
            partner.miss(asked_at)
        elif standing.run != self._trip.schedule.run_id:
            partner.miss(asked_at, Trouble.WRONG_RUN)
        elif standing.node != partner.node:
            partner.miss(asked_at, Trouble.WRONG_HOST)
        else:
            partner.hear(standing, self._now())

    def _answer(self, question: Question) -> Standing:
        name = question.standing.node
        asker = self._partners.get(name) or self._others.get(name)
        if asker is not None and question.standing.run == self._trip.schedule.run_id:
            asker.hear(question.standing, self._now())
        settled = None if question.test is None else self._records.troubles.get(question.test)
        return self._standing(settled)

    def _standing(self, settled: Trouble | None = None) -> Standing:
        return Standing(
            run=self._trip.schedule.run_id,
            node=self._trip.node,
            round=self._round,
            state=self._state,
            position=self._position,
            port=self._port,
            settled=settled,
            seconds=None if self._offer is None else self._offer.seconds,
            most_bytes=None if self._offer is None else self._offer.most_bytes,
        )

    def _record(self, ran: Ran, partner: Partner) -> None:
        self._records.end(ran, partner.run, self._peers.find(partner.node))

    def _interrupt(self) -> None:
        """The test in flight becomes an error, never a number."""
        self._state, self._port = State.LEAVING, None
        test = self._records.in_flight
        if test is not None:
            partner = self._partners[test.partner_of(self._trip.node)]
            self._record(Ran(trouble=Trouble.INTERRUPTED, message="this walker was told to end"), partner)

    async def _say_farewell(self) -> None:
        gone = {walker.node for walker in self._walkers() if walker.state is State.LEAVING}
        told = self._partners.keys() | self._order.followers()
        living = [address for name in sorted(told - gone) if (address := self._peers.find(name)) is not None]
        words = (self._channel.ask(address, Question(self._standing()), FAREWELL_SECONDS) for address in living)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*words)

    def _summary(self, started: float, *, interrupted: bool) -> Summary:
        return Summary(
            run_id=self._trip.schedule.run_id,
            node=self._trip.node,
            planned=len(self._tests),
            measured=self._records.measured,
            troubled=self._records.troubled,
            interrupted=interrupted,
            seconds=self._trip.clock() - started,
            message=", ".join(sorted({kind.value for kind in self._records.troubles.values()})),
        )

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()


_MAY_CHANGE = frozenset(
    {
        Trouble.PARTNER_SILENT,
        Trouble.PARTNER_LOST,
        Trouble.ADDRESS_UNKNOWN,
        Trouble.WRONG_RUN,
        Trouble.WRONG_HOST,
    }
)


_FELL_SILENT = "the partner fell silent during the test, and the tool waited for it in vain"


def _silence(partner: Partner, patience: Patience) -> Ran:
    if partner.stranger is not None:
        message = "the partner's address is answered by a walker of another run or node"
        return Ran(trouble=partner.stranger, message=message, attempts=0)
    message = f"no answer on the control port for {patience.silence_seconds:g} s"
    return Ran(trouble=Trouble.PARTNER_SILENT, message=message, attempts=0)
