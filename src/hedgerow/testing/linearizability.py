"""Is a recorded history of a keyed store linearizable?

A history is what clients saw: when each operation was invoked, when it returned, and with what. It is
linearizable if every operation can be given one instant between its invocation and its return such that the
operations, run one at a time in the order of those instants, give exactly the answers that were seen.

Theory of operation. Keys are independent of each other (linearizability is local), so each key is checked
alone, as one register that starts out absent. The search is that of Wing and Gong: keep the set of operations
placed so far as a bit mask, place next any operation that no unplaced operation precedes in real time, and
remember the sets that led nowhere. Five rules keep it small. Each is an exchange argument: for every order
that a rule leaves out there is one as good that it keeps, so the answer remains exact.

* *A read that fits is placed at once.* It changes nothing, and placing it can only free others. Hence what
  comes next is always a write, and the current value need not be remembered with the mask.
* *A write of unknown outcome is placed only together with a read that needs it.* It has no deadline, and one
  that nobody reads from might as well never have happened. Among those of one value the first invoked goes
  first, so a count for each value takes the place of a choice among subsets.
* *A write that lets every remaining read of its value be placed is placed at once.* So is a write whose value
  no remaining read returned. Where written values are unique, this rule leaves nothing to choose from.
* *Of several possible writes of one value, the one that returned first goes first*, and one that is known to
  have happened goes before one of unknown outcome.
* *A value that a remaining read has yet to see is left behind only if another write can bring it back.*

What remains is a choice among values that were written more than once. There the problem is NP-complete, and
a limit on the number of explored states keeps the search from running for ever.

A violation is explained by the shortest part of the history that shows it. A history cut off at an instant is
linearizable if the whole is, so bisection finds the return of the one read that made the history impossible.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from hedgerow.errors import HedgerowError, InvalidInput

__all__ = [
    "History",
    "Kind",
    "Operation",
    "Outcome",
    "StateLimitReached",
    "Violation",
    "check_linearizable",
    "check_prefix_reads",
]

Kind: TypeAlias = Literal["put", "delete", "get"]
Outcome: TypeAlias = Literal["ok", "failed", "unknown"]

_KINDS = frozenset(get_args(Kind))
_OUTCOMES = frozenset(get_args(Outcome))
_ABSENT = 0
_STATE_LIMIT = 1_000_000
_SHOWN_OPERATIONS = 40
_SHOWN_ORDER = 12
_SHOWN_WIDTH = 60
_VALUE_WIDTH = 40


class StateLimitReached(HedgerowError, RuntimeError):
    """The search gave up: it can say neither that the history is linearizable nor that it is not.

    >>> issubclass(StateLimitReached, HedgerowError)
    True
    """


class Operation(msgspec.Struct, frozen=True):
    """One operation of one client on one key, as the client saw it.

    ``value`` is what a put wrote, or what a get returned, where ``None`` means absent; for a delete it has no
    meaning. Values are compared with ``==``. A write with the outcome ``"unknown"``, or ``"ok"`` and
    ``completed=None``, may take effect at any time after it was invoked, also long after its client gave up,
    or never. One with the outcome ``"failed"`` never took effect. A get counts only if its outcome is
    ``"ok"`` and it was completed.

    One operation precedes another if it completed at a strictly smaller time than the other was invoked at:
    the clock should tick between an answer and the next request.

    >>> Operation("alice", "put", "k", 1, invoked=0.0, completed=1.5, outcome="ok").kind
    'put'
    >>> Operation("alice", "put", "k", 1, invoked=2.0, completed=1.5, outcome="ok")
    Traceback (most recent call last):
        ...
    hedgerow.errors.InvalidInput: an operation of 'alice' was invoked at 2 and completed before that, at 1.5
    """

    client: str
    kind: Kind
    key: Hashable
    value: Any
    invoked: float
    completed: float | None
    outcome: Outcome

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidInput(f"an operation is one of {sorted(_KINDS)}, not {self.kind!r}")
        if self.outcome not in _OUTCOMES:
            raise InvalidInput(f"an outcome is one of {sorted(_OUTCOMES)}, not {self.outcome!r}")
        if math.isnan(self.invoked) or (self.completed is not None and math.isnan(self.completed)):
            raise InvalidInput(f"an operation of {self.client!r} has a time that is not a number")
        if self.completed is not None and self.completed < self.invoked:
            raise InvalidInput(
                f"an operation of {self.client!r} was invoked at {_time(self.invoked)} and completed before "
                f"that, at {_time(self.completed)}"
            )

    def __str__(self) -> str:
        return f"{self.client}: {_what(self)} {_when(self)}"


class Violation(msgspec.Struct, frozen=True):
    """Why a history is not possible; ``str()`` gives it as text for people.

    ``linearized`` is the longest part of the key's history that is possible, in one order that explains it:
    everything that had completed by an instant, and those unfinished writes that were seen by then.
    ``unplaced`` is what completed next and fits nowhere: one get, or several operations where the search for
    that one met the limit on states. Both are empty in a violation that ``check_prefix_reads`` found.

    >>> history = [
    ...     Operation("alice", "put", "k", "new", invoked=0, completed=1, outcome="ok"),
    ...     Operation("bob", "get", "k", None, invoked=2, completed=3, outcome="ok"),
    ... ]
    >>> print(check_linearizable(history))
    key 'k': bob: get -> absent [2, 3] fits nowhere: alice: put 'new' [0, 1] had completed before
    An order of everything that had completed by then:
      1. alice: put 'new' [0, 1]
    Time-line (numbers: place in that order, !: fits nowhere):
        1 alice put 'new'     [---]          [0, 1]
        ! bob   get -> absent         [---]  [2, 3]
    """

    key: Any
    reason: str
    linearized: tuple[Operation, ...]
    unplaced: tuple[Operation, ...]
    timeline: str

    def __str__(self) -> str:
        return f"{self.reason}\n{self.timeline}"


class History:
    """Records operations while they happen; any thread may call it.

    An operation that was never completed is one of unknown outcome.

    >>> history = History()
    >>> token = history.invoke("alice", "put", "k", "v", at=0)
    >>> history.complete(token, at=1, outcome="ok")
    >>> token = history.invoke("bob", "get", "k", None, at=2)
    >>> history.complete(token, at=3, outcome="ok", value="v")
    >>> [str(operation) for operation in history.operations]
    ["alice: put 'v' [0, 1]", "bob: get -> 'v' [2, 3]"]
    >>> check_linearizable(history.operations) is None
    True
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._operations: list[Operation] = []
        self._running: set[int] = set()

    def invoke(self, client: str, kind: Kind, key: Hashable, value: Any, at: float) -> int:
        """Note that an operation is about to be sent; the token returned is for ``complete``.

        >>> History().invoke("alice", "delete", "k", None, at=0)
        0
        """
        operation = Operation(client, kind, key, value, at, None, "unknown")
        with self._lock:
            token = len(self._operations)
            self._operations.append(operation)
            self._running.add(token)
        return token

    def complete(self, token: int, at: float, outcome: Outcome, value: Any = None) -> None:
        """Note how an operation ended; ``value`` is what a get returned, and is ignored for writes.

        >>> history = History()
        >>> history.complete(history.invoke("alice", "put", "k", 1, at=0), at=9, outcome="unknown")
        >>> history.operations[0].outcome
        'unknown'
        """
        with self._lock:
            if token not in self._running:
                raise InvalidInput(f"no operation with the token {token!r} is under way")
            before = self._operations[token]
            self._operations[token] = Operation(
                before.client,
                before.kind,
                before.key,
                value if before.kind == "get" else before.value,
                before.invoked,
                at,
                outcome,
            )
            self._running.remove(token)

    @property
    def operations(self) -> tuple[Operation, ...]:
        """What was recorded until now, in the order of the calls to ``invoke``."""
        with self._lock:
            return tuple(self._operations)


def check_linearizable(operations: Iterable[Operation], *, state_limit: int = _STATE_LIMIT) -> Violation | None:
    """The first violation found, or ``None`` for a history that is linearizable.

    Every key starts out absent. Written values need not be unique, but unique ones make the check both
    sharper and fast: then it never has to choose, whatever the number of unknown outcomes and of deletes.
    With repeated values it may raise ``StateLimitReached``, after exploring ``state_limit`` states of a key.

    >>> put = Operation("alice", "put", "k", 1, invoked=0, completed=None, outcome="unknown")
    >>> def get(value, at):
    ...     return Operation("bob", "get", "k", value, invoked=at, completed=at, outcome="ok")
    >>> check_linearizable([put, get(None, at=5), get(1, at=9)]) is None
    True
    >>> check_linearizable([put, get(1, at=5), get(None, at=9)]).unplaced == (get(None, at=9),)
    True
    """
    by_key: dict[Hashable, list[Operation]] = {}
    for operation in operations:
        by_key.setdefault(operation.key, []).append(operation)
    for key, group in by_key.items():
        violation = _Register(key, group, state_limit).check()
        if violation is not None:
            return violation
    return None


def check_prefix_reads(
    operations_by_writer_order: Sequence[tuple[Hashable, Any]], reads: Sequence[Mapping[Any, Any]]
) -> Violation | None:
    """Whether one reader's whole scans of a partition each saw a prefix of its writes, and never went back.

    The writes are pairs of a key and its new value, ``None`` for a delete, in the order in which they took
    effect. Each read is everything one scan returned. It must equal the state after some number of writes,
    and that number must not shrink from one read to the next. Call it once for each reader.

    >>> writes = [("a", 1), ("b", 2), ("a", None)]
    >>> check_prefix_reads(writes, [{}, {"a": 1}, {"b": 2}]) is None
    True
    >>> print(check_prefix_reads(writes, [{"a": 1, "b": 2}, {"a": 1}]))
    read 2 went back to the state after 1 of 3 writes, but read 1 had seen 2 of them: key 'b' was absent
    Writes (>: what the read before had seen at least, !: of the key in question):
      >   1 put 'a' 1
      > ! 2 put 'b' 2
          3 delete 'a'
    """
    state: dict[Any, Any] = {}
    position = 0
    for number, read in enumerate(reads, 1):
        wanted = {key: value for key, value in read.items() if value is not None}
        seen = position
        differing = _differing(state, wanted)
        while differing and position < len(operations_by_writer_order):
            _apply(operations_by_writer_order[position], state, wanted, differing)
            position += 1
        if differing:
            return _prefix_violation(operations_by_writer_order, number, wanted, seen)
    return None


# --- One key ------------------------------------------------------------------------------------------------

# The way to a state, newest first: a write (none at the start), and the mask of the reads placed after it.
_Trail: TypeAlias = "tuple[_Trail | None, Operation | None, int]"
# How many open writes of each value were used on the way to a state, without zeros. Never changed in place.
_Used: TypeAlias = dict[int, int]


class _Register:
    """The history of one key, ready to be searched.

    ``certain`` are the operations that have to be placed, in the order of their completion; the position in
    it is the operation's bit in every mask. So the lowest bit that is not set in a mask is the operation with
    the nearest deadline, and an operation can be placed next exactly if it was invoked no later than that
    deadline. ``open`` are the writes that may be placed or not. Both hold positions in ``operations``.
    """

    def __init__(self, key: Hashable, operations: list[Operation], state_limit: int) -> None:
        self.key = key
        self.state_limit = state_limit
        self.operations = sorted(operations, key=lambda operation: operation.invoked)
        self.numbers = _value_numbers(self.operations)
        self.value_count = max(self.numbers, default=_ABSENT) + 1
        completions: list[tuple[float, int]] = []
        self.open: list[int] = []
        for position, operation in enumerate(self.operations):
            if operation.outcome == "ok" and operation.completed is not None:
                completions.append((operation.completed, position))
            elif operation.outcome != "failed" and operation.kind != "get":
                self.open.append(position)
        completions.sort()
        self.certain = [position for _, position in completions]
        self.deadlines = [deadline for deadline, _ in completions]

    def check(self) -> Violation | None:
        """The violation of this key, with the shortest history that shows it."""
        if self.linearize(len(self.certain)) is not None:
            return None
        possible, impossible = 0, len(self.certain)
        order: tuple[Operation, ...] = ()
        while impossible - possible > 1:
            middle = (possible + impossible) // 2
            try:
                found = self.linearize(middle)
            except StateLimitReached:
                break
            if found is None:
                impossible = middle
            else:
                possible, order = middle, found
        unplaced = tuple(self.operations[position] for position in self.certain[possible:impossible])
        return Violation(
            key=self.key,
            reason=f"key {self.key!r}: {self._reason(unplaced)}",
            linearized=order,
            unplaced=unplaced,
            timeline=self._timeline(order, unplaced),
        )

    def linearize(self, count: int) -> tuple[Operation, ...] | None:
        """An order of the history up to its ``count``-th completion, or ``None``.

        Writes that complete later are of unknown outcome in that history, and gets that do were not answered.
        """
        everything = (1 << count) - 1
        deadlines = self.deadlines
        value_of = [self.numbers[position] for position in self.certain[:count]]
        reads_of = [0] * self.value_count
        writes_of = [0] * self.value_count
        all_reads = 0
        for index, position in enumerate(self.certain[:count]):
            if self.operations[position].kind == "get":
                reads_of[value_of[index]] |= 1 << index
                all_reads |= 1 << index
            else:
                writes_of[value_of[index]] |= 1 << index
        open_of: list[list[Operation]] = [[] for _ in range(self.value_count)]
        for position in sorted((*self.open, *self.certain[count:])):
            if self.operations[position].kind != "get":
                open_of[self.numbers[position]].append(self.operations[position])
        invoked_by = self._invoked_by(count)

        def settle(mask: int, value: int) -> int:
            """Place every read of the current value that can be placed."""
            while remaining := everything & ~mask:
                ready = invoked_by[_lowest(remaining)] & reads_of[value] & remaining
                if not ready:
                    break
                mask |= ready
            return mask

        def can_return(mask: int, value: int, used: _Used) -> bool:
            """Whether the next read of a value that is left behind still has a write to read from."""
            remaining = reads_of[value] & ~mask
            if not remaining:
                return True
            index = _lowest(remaining)
            if invoked_by[index] & writes_of[value] & ~mask:
                return True
            count_used = used.get(value, 0)
            spare = open_of[value]
            return count_used < len(spare) and spare[count_used].invoked <= deadlines[index]

        used: _Used = {}
        mask = settle(0, _ABSENT)
        if not all(can_return(mask, value, used) for value in range(self.value_count)):
            return None
        trail: _Trail = (None, None, mask)
        # For each mask the counts with which it was reached, without those that others make superfluous.
        known: dict[int, list[_Used]] = {}
        stack = [(mask, used, trail)]
        explored = 0
        while stack:
            mask, used, trail = stack.pop()
            explored += 1
            if explored > self.state_limit:
                raise StateLimitReached(
                    f"key {self.key!r}: gave up on its {len(self.operations)} operations after exploring "
                    f"{self.state_limit} states, without an answer; repeated values make the search long: "
                    "write unique values or fewer operations for each key, or raise state_limit"
                )
            moved = False
            while True:
                remaining = everything & ~mask
                if not remaining:
                    return self._order(trail)
                first = _lowest(remaining)
                ready = invoked_by[first] & remaining
                # One way to each value that can be written next: by a certain write, or else by an open one.
                choices: list[tuple[int, int, Operation]] = []
                writes, reads = ready & ~all_reads, ready & all_reads
                while writes:
                    index = _lowest(writes)
                    value = value_of[index]
                    writes &= ~writes_of[value]
                    reads &= ~reads_of[value]
                    choices.append((value, 1 << index, self.operations[self.certain[index]]))
                while reads:
                    value = value_of[_lowest(reads)]
                    reads &= ~reads_of[value]
                    count_used = used.get(value, 0)
                    if count_used < len(open_of[value]):
                        operation = open_of[value][count_used]
                        if operation.invoked <= deadlines[first]:
                            choices.append((value, 0, operation))
                branches: list[tuple[int, _Used, _Trail]] = []
                for value, bit, operation in choices:
                    after = settle(mask | bit, value)
                    following: _Trail = (trail, operation, after & ~mask & ~bit)
                    if not reads_of[value] & ~after:
                        # Every read of the value is placed: nothing is lost by going this way only.
                        mask, trail, moved = after, following, True
                        if value in used:
                            used = {other: number for other, number in used.items() if other != value}
                        break
                    counts = used if bit else {**used, value: used.get(value, 0) + 1}
                    if can_return(after, value, counts):
                        branches.append((after, counts, following))
                else:
                    break
            if moved and not _is_news(known, mask, used):
                continue
            stack.extend(branch for branch in reversed(branches) if _is_news(known, branch[0], branch[1]))
        return None

    def _invoked_by(self, count: int) -> list[int]:
        """For the deadline of each certain operation the mask of those invoked until then."""
        by_invocation = sorted(range(count), key=lambda index: self.operations[self.certain[index]].invoked)
        masks: list[int] = []
        mask = taken = 0
        for deadline in self.deadlines[:count]:
            while taken < count and self.operations[self.certain[by_invocation[taken]]].invoked <= deadline:
                mask |= 1 << by_invocation[taken]
                taken += 1
            masks.append(mask)
        return masks

    def _order(self, trail: _Trail | None) -> tuple[Operation, ...]:
        """The operations along a trail, oldest first."""
        steps: list[tuple[Operation | None, int]] = []
        while trail is not None:
            trail, operation, reads = trail
            steps.append((operation, reads))
        order: list[Operation] = []
        for operation, reads in reversed(steps):
            if operation is not None:
                order.append(operation)
            while reads:
                order.append(self.operations[self.certain[_lowest(reads)]])
                reads &= reads - 1
        return tuple(order)

    def _reason(self, unplaced: tuple[Operation, ...]) -> str:
        """What stands in the way of the operations that fit nowhere, in one sentence."""
        if len(unplaced) > 1:
            return f"{len(unplaced)} operations that completed one after the other do not all fit"
        (get,) = unplaced
        number = next(
            number for number, operation in zip(self.numbers, self.operations, strict=True) if operation is get
        )
        prefix = f"{get} fits nowhere: "
        deadline = math.inf if get.completed is None else get.completed
        others: list[Operation] = []
        writers: list[Operation] = []
        for position, operation in enumerate(self.operations):
            if self.numbers[position] != number:
                if operation.outcome == "ok" and operation.completed is not None:
                    others.append(operation)
            elif operation.kind != "get":
                writers.append(operation)
        possible = [write for write in writers if write.outcome != "failed"]
        if number != _ABSENT:
            if not writers:
                return f"{prefix}nothing wrote that value"
            if not possible:
                return f"{prefix}only a write that failed had that value, {writers[0]}"
            if all(write.invoked > deadline for write in possible):
                return f"{prefix}the first write of that value came later, {possible[0]}"
        # The last instant at which the value can have been written: any other value seen later is newer.
        last = max((_until(write) for write in possible if write.invoked <= deadline), default=-math.inf)
        newer = [operation for operation in others if operation.invoked > last and _until(operation) < get.invoked]
        for operation in newer:
            if operation.kind != "get":
                return f"{prefix}{operation} had completed before"
        if newer:
            return f"{prefix}{newer[0]} had seen a newer value before"
        return f"{prefix}no order of the writes gives that value and what was seen before"

    def _timeline(self, order: tuple[Operation, ...], unplaced: tuple[Operation, ...]) -> str:
        """The order of what fits, and a line for each operation that matters."""
        lines = ["An order of everything that had completed by then:"]
        if len(order) > _SHOWN_ORDER:
            lines.append(f"  ... {len(order) - _SHOWN_ORDER} more before these")
        for place, operation in list(enumerate(order, 1))[-_SHOWN_ORDER:]:
            lines.append(f"{place:>3}. {operation}")
        if not order:
            lines.append("  (nothing)")
        end = max(_until(operation) for operation in unplaced)
        relevant = [operation for operation in self.operations if operation.invoked <= end]
        important = {id(operation) for operation in (*relevant[-_SHOWN_OPERATIONS:], *unplaced)}
        shown = [operation for operation in relevant if id(operation) in important]
        lines.append("Time-line (numbers: place in that order, !: fits nowhere):")
        if len(relevant) > len(shown):
            lines.append(f"  ... {len(relevant) - len(shown)} more, which were invoked earlier")
        marks = {id(operation): str(place) for place, operation in enumerate(order, 1)}
        marks.update((id(operation), "!") for operation in unplaced)
        lines.extend(_bars(shown, marks))
        if len(self.operations) > len(relevant):
            lines.append(f"  ... {len(self.operations) - len(relevant)} more, which were invoked later")
        return "\n".join(lines)


def _lowest(mask: int) -> int:
    """The position of the lowest bit that is set."""
    return (mask & -mask).bit_length() - 1


def _is_news(known: dict[int, list[_Used]], mask: int, used: _Used) -> bool:
    """Note a state, unless it is known with counts that are all as low or lower."""
    alternatives = known.setdefault(mask, [])
    if any(_covers(other, used) for other in alternatives):
        return False
    alternatives[:] = [other for other in alternatives if not _covers(used, other)]
    alternatives.append(used)
    return True


def _covers(one: _Used, other: _Used) -> bool:
    """Whether no count of the one is above that of the other."""
    return all(count <= other.get(value, 0) for value, count in one.items())


def _value_numbers(operations: Sequence[Operation]) -> list[int]:
    """A number for the value of each operation, the same for equal values; values need not be hashable."""
    hashable: dict[Any, int] = {None: _ABSENT}
    unhashable: list[tuple[Any, int]] = []
    numbers: list[int] = []
    count = 1
    for operation in operations:
        value = None if operation.kind == "delete" else operation.value
        number: int | None
        try:
            number = hashable.get(value)
            candidates: Iterable[tuple[Any, int]] = unhashable
            is_hashable = True
        except TypeError:
            number = None
            candidates = (*hashable.items(), *unhashable)
            is_hashable = False
        if number is None:
            number = next((known for other, known in candidates if _same(other, value)), None)
        if number is None:
            number = count
            count += 1
            if is_hashable:
                hashable[value] = number
            else:
                unhashable.append((value, number))
        numbers.append(number)
    return numbers


# --- Prefix reads -------------------------------------------------------------------------------------------


def _same(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def _differing(state: Mapping[Any, Any], wanted: Mapping[Any, Any]) -> set[Any]:
    """The keys with another value in the one than in the other."""
    return {key for key in (*state, *wanted) if not _same(state.get(key), wanted.get(key))}


def _apply(write: tuple[Hashable, Any], state: dict[Any, Any], wanted: Mapping[Any, Any], differing: set[Any]) -> None:
    """Apply one write to the state, and to the set of keys in which it differs from what is wanted."""
    key, value = write
    if value is None:
        state.pop(key, None)
    else:
        state[key] = value
    if _same(value, wanted.get(key)):
        differing.discard(key)
    else:
        differing.add(key)


def _prefix_violation(
    writes: Sequence[tuple[Hashable, Any]], number: int, wanted: Mapping[Any, Any], seen: int
) -> Violation:
    """Explain a read that equals no state after ``seen`` or more writes."""
    state: dict[Any, Any] = {}
    differing = _differing(state, wanted)
    nearest, distance = 0, len(differing)
    for position, write in enumerate(writes, 1):
        _apply(write, state, wanted, differing)
        if len(differing) <= distance:
            nearest, distance = position, len(differing)
    went_back = not distance
    expected = _state_after(writes, seen if went_back else nearest)
    touched = (*dict.fromkeys(key for key, _ in writes), *wanted)
    key = next(key for key in touched if not _same(expected.get(key), wanted.get(key)))
    if went_back:
        reason = (
            f"read {number} went back to the state after {nearest} of {len(writes)} writes, but "
            f"read {number - 1} had seen {seen} of them: key {key!r} was {_shown(wanted.get(key))}"
        )
    else:
        reason = (
            f"read {number} equals the state after no number of the {len(writes)} writes: nearest is that "
            f"after {nearest}, where {key!r} is {_shown(expected.get(key))}, not {_shown(wanted.get(key))}"
        )
    lines = ["Writes (>: what the read before had seen at least, !: of the key in question):"]
    start = max(0, min(seen, nearest) - _SHOWN_OPERATIONS // 2)
    stop = min(len(writes), start + _SHOWN_OPERATIONS)
    if start:
        lines.append(f"      ... {start} more before these")
    width = len(str(stop))
    for position in range(start, stop):
        name, value = writes[position]
        marks = f"{'>' if position < seen else ' '} {'!' if name == key else ' '}"
        what = f"delete {name!r}" if value is None else f"put {name!r} {_shown(value)}"
        lines.append(f"  {marks} {position + 1:>{width}} {what}")
    if stop < len(writes):
        lines.append(f"      ... {len(writes) - stop} more after these")
    return Violation(key=key, reason=reason, linearized=(), unplaced=(), timeline="\n".join(lines))


def _state_after(writes: Sequence[tuple[Hashable, Any]], count: int) -> dict[Any, Any]:
    last = dict(writes[:count])
    return {key: value for key, value in last.items() if value is not None}


# --- Text ---------------------------------------------------------------------------------------------------


def _time(at: float) -> str:
    text = f"{at:.6f}"
    return text.rstrip("0").rstrip(".")


def _shown(value: Any) -> str:
    if value is None:
        return "absent"
    text = repr(value)
    return text if len(text) <= _VALUE_WIDTH else f"{text[: _VALUE_WIDTH - 3]}..."


def _what(operation: Operation) -> str:
    if operation.kind == "delete":
        return "delete"
    return f"{operation.kind} {'-> ' if operation.kind == 'get' else ''}{_shown(operation.value)}"


def _when(operation: Operation) -> str:
    until = "?" if operation.completed is None else _time(operation.completed)
    outcome = "" if operation.outcome == "ok" else f" {operation.outcome}"
    return f"[{_time(operation.invoked)}, {until}]{outcome}"


def _until(operation: Operation) -> float:
    """The last instant at which an operation can have taken effect."""
    return math.inf if operation.completed is None or operation.outcome == "unknown" else operation.completed


def _bars(operations: Sequence[Operation], marks: Mapping[int, str]) -> list[str]:
    """A line for each operation, with a bar; its scale shows the order of instants, not their distance."""
    instants = {operation.invoked for operation in operations}
    instants.update(operation.completed for operation in operations if operation.completed is not None)
    step = min(4.0, _SHOWN_WIDTH / len(instants))
    column = {instant: int(rank * step) for rank, instant in enumerate(sorted(instants))}
    width = max(column.values()) + 1
    names = max(len(operation.client) for operation in operations)
    whats = max(len(_what(operation)) for operation in operations)
    lines: list[str] = []
    for operation in operations:
        start = column[operation.invoked]
        if operation.completed is None or _until(operation) == math.inf:
            bar = "[".ljust(width - start, "-") + ">"
        else:
            length = column[operation.completed] - start
            end = "x" if operation.outcome == "failed" else "]"
            bar = "[" + "-" * (length - 1) + end if length else "|"
        lines.append(
            f"{marks.get(id(operation), ''):>5} {operation.client:<{names}} {_what(operation):<{whats}} "
            f"{' ' * start + bar:<{width + 1}} {_when(operation)}"
        )
    return lines
