"""The checker accepts what an atomic register can do, and rejects everything else."""

from __future__ import annotations

import doctest
import itertools
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hedgerow.errors import HedgerowError, InvalidInput
from hedgerow.testing import linearizability
from hedgerow.testing.linearizability import (
    History,
    Kind,
    Operation,
    Outcome,
    StateLimitReached,
    Violation,
    check_linearizable,
    check_prefix_reads,
)


def put(value: Any, invoked: float, completed: float | None, outcome: Outcome = "ok") -> Operation:
    return Operation("writer", "put", "k", value, invoked, completed, outcome)


def delete(invoked: float, completed: float | None, outcome: Outcome = "ok") -> Operation:
    return Operation("deleter", "delete", "k", None, invoked, completed, outcome)


def get(value: Any, invoked: float, completed: float | None, outcome: Outcome = "ok") -> Operation:
    return Operation("reader", "get", "k", value, invoked, completed, outcome)


def rejected(*operations: Operation) -> Violation:
    violation = check_linearizable(operations)
    assert violation is not None
    assert violation.key == "k"
    return violation


# --- Oracles: slow and plain --------------------------------------------------------------------------------


def is_certain(operation: Operation) -> bool:
    return operation.outcome == "ok" and operation.completed is not None


def is_open_write(operation: Operation) -> bool:
    return operation.kind != "get" and operation.outcome != "failed" and not is_certain(operation)


def precedes(one: Operation, other: Operation) -> bool:
    return is_certain(one) and one.completed is not None and one.completed < other.invoked


def runs(order: Sequence[Operation]) -> bool:
    """Whether a register that runs the operations in this order gives the answers that were seen."""
    value = None
    for operation in order:
        if operation.kind == "get":
            if operation.value != value:
                return False
        else:
            value = operation.value if operation.kind == "put" else None
    return True


def keeps_real_time(order: Sequence[Operation]) -> bool:
    return not any(precedes(later, earlier) for earlier, later in itertools.combinations(order, 2))


def subsets(operations: Sequence[Operation]) -> Iterator[tuple[Operation, ...]]:
    for count in range(len(operations) + 1):
        yield from itertools.combinations(operations, count)


def by_permutation(operations: Sequence[Operation]) -> bool:
    """Try every order of every choice of the writes whose outcome is unknown."""
    certain = [operation for operation in operations if is_certain(operation)]
    unknown = [operation for operation in operations if is_open_write(operation)]
    return any(
        runs(order) and keeps_real_time(order)
        for happened in subsets(unknown)
        for order in itertools.permutations((*certain, *happened))
    )


def by_plain_search(operations: Sequence[Operation]) -> bool:
    """Wing and Gong's search with none of the rules that make it small."""
    everything = [operation for operation in operations if is_certain(operation) or is_open_write(operation)]
    certain = sum(1 << index for index, operation in enumerate(everything) if is_certain(operation))
    before = [sum(1 << index for index, one in enumerate(everything) if precedes(one, other)) for other in everything]
    start = (0, None)
    seen: set[tuple[int, Any]] = {start}
    stack: list[tuple[int, Any]] = [start]
    while stack:
        placed, value = stack.pop()
        if placed & certain == certain:
            return True
        for index, operation in enumerate(everything):
            if placed >> index & 1 or before[index] & ~placed:
                continue
            if operation.kind == "get" and operation.value != value:
                continue
            following = operation.value if operation.kind != "delete" else None
            state = (placed | 1 << index, following)
            if state not in seen:
                seen.add(state)
                stack.append(state)
    return False


def check_violation(operations: Sequence[Operation], violation: Violation) -> None:
    """A violation's parts are what its description says."""
    assert keeps_real_time(violation.linearized)
    assert runs(violation.linearized)
    (culprit,) = violation.unplaced
    assert culprit.kind == "get"
    assert culprit.completed is not None
    placed = {id(operation) for operation in violation.linearized}
    for operation in operations:
        if is_certain(operation) and operation.completed is not None:
            assert operation.completed >= culprit.completed or id(operation) in placed
    assert str(culprit) in str(violation)


# --- Histories ----------------------------------------------------------------------------------------------


@st.composite
def arbitrary_histories(draw: st.DrawFn, most: int, instants: int = 8, values: str = "ab") -> list[Operation]:
    """Operations that know nothing of each other: some histories are possible, many are not."""
    operations = []
    for number in range(draw(st.integers(0, most))):
        kind: Kind = draw(st.sampled_from(("put", "put", "delete", "get", "get", "get")))
        value = draw(st.sampled_from((*values, None) if kind == "get" else tuple(values)))
        invoked = draw(st.integers(0, instants))
        outcome: Outcome = draw(st.sampled_from(("ok", "ok", "ok", "unknown", "failed")))
        completed = draw(st.integers(invoked, instants))
        operations.append(
            Operation(
                f"client {number}",
                kind,
                "k",
                None if kind == "delete" else value,
                invoked,
                None if outcome == "unknown" and draw(st.booleans()) else completed,
                outcome,
            )
        )
    return operations


def simulate(
    choose: Callable[[int, int], int],
    count: int,
    *,
    concurrency: int,
    unknown: int,
    value_of: Callable[[int], Any],
    deletes: int = 20,
    keys: int = 1,
) -> list[Operation]:
    """What clients see of atomic registers; ``choose(low, high)`` decides everything.

    Each operation takes effect at one instant between invocation and completion. A write whose client gave up
    takes effect within that time, or long after, or never. ``unknown`` and ``deletes`` are percentages.
    """
    free = [0] * concurrency
    planned: list[tuple[tuple[int, int], int]] = []
    operations: list[Operation] = []
    for number in range(count):
        client = min(range(concurrency), key=lambda index: free[index])
        kind: Kind = "get"
        if choose(0, 1):
            kind = "delete" if choose(1, 100) <= deletes else "put"
        invoked = free[client] + choose(1, 5)
        completed: int | None = invoked + choose(0, 30)
        assert completed is not None
        free[client] = completed
        effect: int | None = choose(invoked, completed)
        outcome: Outcome = "ok"
        if choose(1, 100) <= unknown:
            outcome = ("unknown", "unknown", "unknown", "failed")[choose(0, 3)]  # type: ignore[assignment]
            late = choose(0, 2)
            if outcome == "failed" or late == 0:
                effect = None
            elif late == 1:
                effect = completed + choose(0, 500)
            if outcome == "unknown" and choose(0, 1):
                completed = None
        value = value_of(number) if kind == "put" else None
        if effect is not None:
            planned.append(((effect, choose(0, 1000)), number))
        key = f"key {choose(1, keys)}"
        operations.append(Operation(f"client {client}", kind, key, value, invoked, completed, outcome))
    registers: dict[Any, Any] = {}
    for _, number in sorted(planned):
        operation = operations[number]
        if operation.kind == "get":
            operations[number] = msgspec.structs.replace(operation, value=registers.get(operation.key))
        else:
            registers[operation.key] = operation.value
    return operations


def seeded(seed: int) -> Callable[[int, int], int]:
    return random.Random(seed).randint


# --- Agreement with the oracles -----------------------------------------------------------------------------


@settings(max_examples=600, deadline=None)
@given(arbitrary_histories(most=6))
@example([delete(0, None, "unknown"), put("a", 0, 1), get(None, 2, 3), get("a", 4, 5)])
@example([put("a", 0, None, "unknown"), put("b", 1, 2), get("a", 3, 3), get("b", 3, 5), get("a", 4, 4)])
def test_agrees_with_every_permutation(operations: list[Operation]) -> None:
    violation = check_linearizable(operations)
    assert (violation is None) == by_permutation(operations)
    if violation is not None:
        check_violation(operations, violation)


@settings(max_examples=600, deadline=None)
@given(arbitrary_histories(most=11, instants=20, values="abc"))
def test_agrees_with_a_plain_search(operations: list[Operation]) -> None:
    violation = check_linearizable(operations)
    assert (violation is None) == by_plain_search(operations)
    if violation is not None:
        check_violation(operations, violation)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 60))
def test_agrees_with_a_plain_search_where_one_answer_is_wrong(seed: int, values: int, unknown: int) -> None:
    choose = seeded(seed)
    operations = simulate(
        choose, 12, concurrency=4, unknown=unknown, value_of=lambda number: number % values, deletes=30
    )
    reads = [index for index, operation in enumerate(operations) if operation.kind == "get"]
    if reads:
        index = reads[choose(0, len(reads) - 1)]
        wrong = (None, *range(values))[choose(0, values)]
        operations[index] = msgspec.structs.replace(operations[index], value=wrong)
    assert (check_linearizable(operations) is None) == by_plain_search(operations)


# --- What an atomic register can do -------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(0, 40), st.integers(1, 6), st.sampled_from((0, 30, 90)))
def test_accepts_what_an_atomic_register_does(data: st.DataObject, count: int, concurrency: int, unknown: int) -> None:
    repeated = data.draw(st.booleans())
    operations = simulate(
        lambda low, high: data.draw(st.integers(low, high)),
        count,
        concurrency=concurrency,
        unknown=unknown,
        value_of=lambda number: number % 3 if repeated else number,
        keys=2,
    )
    assert check_linearizable(operations) is None


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("distinct", [2, 10, 1000])
def test_accepts_long_histories(seed: int, distinct: int) -> None:
    operations = simulate(seeded(seed), 300, concurrency=8, unknown=15, value_of=lambda number: number % distinct)
    assert check_linearizable(operations) is None


@pytest.mark.parametrize("seed", range(20))
def test_finds_one_stale_read_in_a_long_history(seed: int) -> None:
    choose = seeded(seed)
    operations = simulate(choose, 300, concurrency=8, unknown=15, value_of=lambda number: number)
    writes = [operation for operation in operations if operation.kind == "put" and is_certain(operation)]
    newest = max(writes, key=lambda operation: operation.invoked)
    stale = next(write for write in writes if precedes(write, newest))
    end = max(operation.completed or operation.invoked for operation in operations)
    wrong = get(stale.value, end + 1, end + 2)
    operations.append(msgspec.structs.replace(wrong, key=stale.key))
    violation = check_linearizable(operations)
    assert violation is not None
    assert violation.unplaced == (operations[-1],)
    check_violation(operations, violation)


@pytest.mark.parametrize(
    "operations",
    [
        [],
        [get(None, 0, 1)],
        [put("a", 0, 5), get(None, 1, 2), get("a", 3, 4)],
        [put("a", 0, 1), delete(2, 3), get(None, 4, 5)],
        [put("a", 0, 1, "failed"), get(None, 2, 3)],
        [put("a", 0, None), get(None, 10, 11), get("a", 12, 13)],
        [put("a", 0, 1, "unknown"), put("b", 2, 3), get("b", 4, 5), get("a", 6, 7)],
        [put("a", 0, 1), delete(2, 3, "unknown"), get("a", 4, 5), put("b", 6, 7), get(None, 8, 9)],
        [put("a", 0, 1), get("b", 2, None, "unknown"), get("b", 3, 4, "failed")],
        [put("a", 0, 1), get("a", 1, 1), put("b", 1, 2)],
        [get("a", 0, 5), put("a", 5, None)],
        [put("a", 0, 1), get("b", 2, 5), put("b", 5, 6), get("b", 7, 8)],
        [put(None, 0, 1), get(None, 2, 3)],
    ],
)
def test_accepts(operations: list[Operation]) -> None:
    assert check_linearizable(operations) is None


def test_a_write_that_was_never_completed_may_land_only_once() -> None:
    late = put("a", 0, None, "unknown")
    seen_twice = [late, put("b", 1, 2), get("a", 3, 4), put("c", 5, 6), get("c", 7, 8), get("a", 9, 10)]
    assert rejected(*seen_twice).unplaced == (seen_twice[-1],)
    assert check_linearizable([*seen_twice, put("a", 0, None, "unknown")]) is None


# --- Planted violations -------------------------------------------------------------------------------------


def test_rejects_a_stale_read() -> None:
    violation = rejected(put("old", 0, 1), put("new", 2, 3), get("old", 4, 5))
    assert "put 'new' [2, 3] had completed before" in violation.reason
    assert violation.linearized == (put("old", 0, 1), put("new", 2, 3))


def test_rejects_a_lost_acknowledged_write() -> None:
    violation = rejected(put("a", 0, 1), get(None, 2, 3))
    assert violation.unplaced == (get(None, 2, 3),)
    assert "put 'a' [0, 1] had completed before" in violation.reason


def test_rejects_a_lost_overwrite_with_an_unknown_delete_about() -> None:
    rejected(delete(0, None), put("a", 1, 2), get(None, 3, 4), put("b", 5, 6), get(None, 7, 8))


def test_rejects_a_resurrected_delete() -> None:
    violation = rejected(put("a", 0, 1), delete(2, 3), get(None, 4, 5), get("a", 6, 7))
    assert "delete [2, 3] had completed before" in violation.reason


def test_rejects_a_failed_write_that_is_seen() -> None:
    assert "failed" in rejected(put("a", 0, 1, "failed"), get("a", 2, 3)).reason
    assert "failed" in rejected(put("a", 0, None, "failed"), get("a", 2, 3)).reason


def test_rejects_a_failed_delete_that_is_seen() -> None:
    rejected(put("a", 0, 1), delete(2, 3, "failed"), get(None, 4, 5))


def test_rejects_a_value_never_written() -> None:
    assert "nothing wrote" in rejected(put("a", 0, 1), get("b", 2, 3)).reason


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_rejects_new_then_old(outcome: Outcome) -> None:
    violation = rejected(put("old", 0, 1), put("new", 2, 20, outcome), get("new", 3, 4), get("old", 5, 6))
    assert "get -> 'new' [3, 4] had seen a newer value" in violation.reason


@pytest.mark.parametrize("outcome", ["ok", "unknown"])
def test_rejects_a_read_before_its_write(outcome: Outcome) -> None:
    violation = rejected(get("a", 0, 1), put("a", 2, 3, outcome))
    assert "came later" in violation.reason


def test_rejects_reads_that_disagree_about_the_order_of_two_writes() -> None:
    violation = rejected(put("a", 0, 10), put("b", 0, 10), get("a", 11, 12), get("b", 13, 14), get("a", 15, 16))
    assert violation.unplaced == (get("b", 13, 14),)


def test_one_key_does_not_excuse_another() -> None:
    fine = [put("a", 0, 1), get("a", 2, 3)]
    other = [msgspec.structs.replace(operation, key="other") for operation in (fine[0], get("b", 2, 3))]
    violation = check_linearizable([*fine, *other])
    assert violation is not None
    assert violation.key == "other"
    # A value written under one key is not written under the other.
    rejected(get("a", 2, 3), msgspec.structs.replace(fine[0], key="other"))


# --- Values -------------------------------------------------------------------------------------------------


def test_values_need_not_be_hashable() -> None:
    row = {"name": "hedge", "tags": ["a"]}
    assert check_linearizable([put(row, 0, 1), get(dict(row), 2, 3)]) is None
    rejected(put(row, 0, 1), get({**row, "tags": []}, 2, 3))


def test_equal_values_of_different_types_are_equal() -> None:
    assert check_linearizable([put(b"a", 0, 1), get(bytearray(b"a"), 2, 3), get(b"a", 2, 3)]) is None
    assert check_linearizable([put(bytearray(b"a"), 0, 1), get(b"a", 2, 3)]) is None


# --- Size ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("distinct", [1000, 20])
def test_dozens_of_unknown_outcomes_take_few_states(distinct: int) -> None:
    choose = seeded(7)
    operations = simulate(choose, 260, concurrency=10, unknown=0, value_of=lambda number: number % distinct)
    end = max(operation.completed or 0 for operation in operations)
    for number in range(40):
        value = f"never seen {number}" if distinct == 1000 else number % distinct
        invoked = choose(0, int(end))
        unknown = put(value, invoked, None) if number % 3 else delete(invoked, invoked + 1, "unknown")
        operations.append(msgspec.structs.replace(unknown, key="key 1"))
    assert len(operations) == 300
    assert check_linearizable(operations, state_limit=2_000) is None
    wrong = msgspec.structs.replace(get("nothing like it", end + 1, end + 2), key="key 1")
    assert check_linearizable([*operations, wrong], state_limit=2_000) is not None


def test_unique_values_never_take_a_choice() -> None:
    operations = simulate(seeded(3), 2_000, concurrency=10, unknown=20, value_of=lambda number: number)
    deletes = sum(operation.kind == "delete" for operation in operations)
    assert check_linearizable(operations, state_limit=deletes + 1) is None


def test_the_limit_on_states_is_an_error_and_not_an_answer() -> None:
    operations = simulate(seeded(1), 60, concurrency=8, unknown=20, value_of=lambda number: number % 2)
    with pytest.raises(StateLimitReached, match="gave up on its 60 operations after exploring 1 states") as error:
        check_linearizable(operations, state_limit=1)
    assert isinstance(error.value, HedgerowError)


def test_a_deep_search_does_not_recurse() -> None:
    operations = []
    for number in range(3_000):
        operations += [
            put(number % 2, 4 * number, 4 * number + 1),
            get(number % 2, 4 * number + 2, 4 * number + 3),
        ]
    assert check_linearizable(operations) is None


# --- Text ---------------------------------------------------------------------------------------------------


def test_the_text_shows_open_failed_and_instant_operations() -> None:
    text = str(
        rejected(
            put("a", 0, 1, "failed"),
            put("b", 1, None, "unknown"),
            get(None, 2, 2),
            get("x" * 100, 3, 4),
            put("c", 9, 10),
        )
    )
    assert "x [0, 1] failed" in " ".join(text.split())
    assert "> [1, ?] unknown" in text
    assert "| " in text
    assert "x" * 50 not in text
    assert "1 more, which were invoked later" in text


def test_the_text_of_a_long_history_is_short() -> None:
    operations = simulate(seeded(5), 400, concurrency=5, unknown=5, value_of=lambda number: number)
    end = max(operation.completed or 0 for operation in operations)
    operations.append(msgspec.structs.replace(get("nothing like it", end + 1, end + 2), key="key 1"))
    violation = check_linearizable(operations)
    assert violation is not None
    assert len(violation.linearized) > 300
    assert len(str(violation).splitlines()) < 70


def test_several_operations_are_named_where_the_limit_stops_the_explanation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = linearizability._Register.linearize

    def limited(register: Any, count: int) -> Any:
        if count < len(register.certain):
            raise StateLimitReached("enough")
        return plain(register, count)

    monkeypatch.setattr(linearizability._Register, "linearize", limited)
    violation = rejected(put("a", 0, 1), get("b", 2, 3))
    assert len(violation.unplaced) == 2
    assert violation.linearized == ()
    assert "2 operations" in str(violation)


def test_the_examples_in_the_docstrings_run() -> None:
    results = doctest.testmod(linearizability)
    assert results.attempted > 10
    assert results.failed == 0


# --- Recording ----------------------------------------------------------------------------------------------


def test_a_history_records_what_happened() -> None:
    history = History()
    first = history.invoke("alice", "put", "k", "a", 0)
    second = history.invoke("bob", "get", "k", None, 1)
    third = history.invoke("carol", "delete", "k", None, 2)
    history.complete(second, 3, "ok", "a")
    history.complete(first, 4, "unknown", "ignored")
    assert history.operations == (
        Operation("alice", "put", "k", "a", 0, 4, "unknown"),
        Operation("bob", "get", "k", "a", 1, 3, "ok"),
        Operation("carol", "delete", "k", None, 2, None, "unknown"),
    )
    assert check_linearizable(history.operations) is None
    with pytest.raises(InvalidInput, match="token"):
        history.complete(first, 5, "ok")
    with pytest.raises(InvalidInput, match="token"):
        history.complete(99, 5, "ok")
    history.complete(third, 6, "failed")
    assert history.operations[2].outcome == "failed"


def test_a_refused_completion_leaves_the_operation_under_way() -> None:
    history = History()
    token = history.invoke("alice", "put", "k", "a", 10)
    with pytest.raises(InvalidInput):
        history.complete(token, 9, "ok")
    history.complete(token, 11, "ok")
    assert history.operations[0].completed == 11


def test_a_history_takes_threads() -> None:
    history = History()
    clock = itertools.count()

    def work(client: str) -> None:
        for number in range(200):
            token = history.invoke(client, "put", client, number, next(clock))
            history.complete(token, next(clock), "ok")

    threads = [threading.Thread(target=work, args=(f"client {number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(history.operations) == 800
    assert all(operation.outcome == "ok" for operation in history.operations)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "scan"}, "scan"),
        ({"outcome": "maybe"}, "maybe"),
        ({"completed": -1.0}, "before that"),
        ({"invoked": float("nan")}, "not a number"),
        ({"completed": float("nan")}, "not a number"),
    ],
)
def test_an_impossible_operation_is_refused(changes: dict[str, Any], message: str) -> None:
    fields = msgspec.structs.asdict(put("a", 0, 1))
    with pytest.raises(InvalidInput, match=message):
        Operation(**{**fields, **changes})


def test_operations_survive_json() -> None:
    operations = [put("a", 0, 1), get("a", 2, 3), delete(4, None, "unknown")]
    assert msgspec.json.decode(msgspec.json.encode(operations), type=list[Operation]) == operations


# --- Prefix reads -------------------------------------------------------------------------------------------

WRITES = [("a", 1), ("b", 2), ("a", 3), ("b", None), ("a", 1)]


@pytest.mark.parametrize(
    "reads",
    [
        [],
        [{}],
        [{}, {}, {"a": 1}, {"a": 1, "b": 2}, {"a": 3, "b": 2}, {"a": 3}, {"a": 1}, {"a": 1}],
        [{"a": 1, "b": None}, {"a": 3}],
        # The state after five writes equals that after one.
        [{"a": 1}, {"a": 3}, {"a": 1}],
    ],
)
def test_accepts_reads_of_prefixes(reads: list[dict[str, Any]]) -> None:
    assert check_prefix_reads(WRITES, reads) is None


@pytest.mark.parametrize(
    ("reads", "key", "message"),
    [
        ([{"a": 3, "b": 2}, {"a": 1, "b": 2}], "a", "read 2 went back to the state after 2 of 5 writes"),
        ([{"a": 3}, {"a": 3, "b": 2}], "b", "read 2 went back to the state after 3 of 5 writes"),
        ([{"a": 1}, {}], "a", "read 2 went back to the state after 0 of 5 writes"),
        ([{"b": 2}], "a", "read 1 equals the state after no number of the 5 writes"),
        ([{"a": 1, "c": 1}], "c", "'c' is absent, not 1"),
        ([{"a": 7}], "a", "not 7"),
    ],
)
def test_rejects_reads_of_anything_else(reads: list[dict[str, Any]], key: str, message: str) -> None:
    violation = check_prefix_reads(WRITES, reads)
    assert violation is not None
    assert violation.key == key
    assert message in str(violation)


def prefix_reads_by_hand(writes: list[tuple[str, Any]], reads: list[dict[str, Any]]) -> bool:
    states = []
    for count in range(len(writes) + 1):
        last = dict(writes[:count])
        states.append({key: value for key, value in last.items() if value is not None})
    return any(
        all(states[position] == read for position, read in zip(positions, reads, strict=True))
        for positions in itertools.combinations_with_replacement(range(len(states)), len(reads))
    )


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_prefix_reads_agree_with_every_choice_of_prefixes(data: st.DataObject) -> None:
    pairs = st.tuples(st.sampled_from("ab"), st.sampled_from((1, 2, None)))
    writes = data.draw(st.lists(pairs, max_size=8))
    sources = st.one_of(
        st.integers(0, len(writes)).map(
            lambda count: {key: value for key, value in dict(writes[:count]).items() if value is not None}
        ),
        st.dictionaries(st.sampled_from("ab"), st.sampled_from((1, 2)), max_size=2),
    )
    reads = data.draw(st.lists(sources, max_size=4))
    assert (check_prefix_reads(writes, reads) is None) == prefix_reads_by_hand(writes, reads)


def test_the_text_of_many_writes_is_short() -> None:
    writes = [(f"key {number % 7}", number) for number in range(1_000)]
    state = dict(writes[:500])
    violation = check_prefix_reads(writes, [state, dict(writes[:400])])
    assert violation is not None
    assert "went back to the state after 400 of 1000 writes, but read 1 had seen 500" in str(violation)
    assert "more before these" in str(violation)
    assert "more after these" in str(violation)
    assert len(str(violation).splitlines()) < 50
