from __future__ import annotations

import gc
import threading
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hedgerow.errors import (
    EpochError,
    InvalidInput,
    MetadataBehind,
    NotOwned,
    StaleEpoch,
    UnknownPartition,
)
from hedgerow.ownership import (
    Epoch,
    GuardState,
    NodeId,
    Ownership,
    PartitionGuard,
    PartitionGuardSet,
    PartitionId,
    StaticAuthority,
)
from hedgerow.ownership.guard_set import DENSE_PARTITIONS_MAX

NODE, EPOCH = 4, 7
SPARSE = 4_000_000_000


def guards_of(*partitions: int, valid_for_s: float | None = None) -> PartitionGuardSet:
    guards = PartitionGuardSet(NODE)
    for partition in partitions:
        guards.insert(PartitionGuard(partition, EPOCH, NODE, lambda: 100.0, valid_for_s=valid_for_s))
    return guards


def held(guards: PartitionGuardSet, partition: int) -> PartitionGuard:
    guard = guards.get(partition)
    assert guard is not None
    return guard


class CountingAuthority(StaticAuthority):
    """Counts the reads, so that one per partition is noticed."""

    def __init__(self, epochs: dict[int, tuple[int, int]]) -> None:
        super().__init__({PartitionId(p): Ownership(NodeId(n), Epoch(e)) for p, (n, e) in epochs.items()})
        self.reads: list[list[int]] = []

    def ownership(self, partition: PartitionId) -> Ownership | None:
        raise AssertionError("a set reads once for all its guards")

    def ownerships(self, partitions: Sequence[PartitionId]) -> Sequence[Ownership | None]:
        self.reads.append(list(partitions))
        return super().ownerships(partitions)


@pytest.mark.parametrize("partition", [0, 3, 63, 64, DENSE_PARTITIONS_MAX - 1, DENSE_PARTITIONS_MAX, SPARSE])
def test_what_a_node_acquired_it_may_write(partition: int) -> None:
    guards = guards_of(partition)
    guards.check(partition)
    guards.check_many(np.array([partition, partition]))
    assert partition in guards
    assert len(guards) == 1
    assert guards.partition_ids() == [partition]


@pytest.mark.parametrize("partition", [0, 2, 5, 64, 70_000, SPARSE, -1, -62, 2**63 - 1])
def test_what_a_node_never_acquired_it_may_not_write(partition: int) -> None:
    guards = guards_of(3, 63)
    with pytest.raises(NotOwned, match=f"node 4 holds no guard for partition {partition},"):
        guards.check(partition)
    with pytest.raises(NotOwned, match=f"node 4 holds no guard for partition {partition},"):
        guards.check_many(np.array([3, partition, 63]))
    assert partition not in guards
    assert guards.get(partition) is None


@pytest.mark.parametrize("partition", [3, SPARSE])
def test_a_released_partition_is_written_no_more(partition: int) -> None:
    guards = guards_of(partition)
    released = guards.remove(partition)
    assert released is not None
    assert guards.remove(partition) is None
    with pytest.raises(NotOwned):
        guards.check(partition)
    with pytest.raises(NotOwned):
        guards.check_many(np.array([partition]))
    released.check()
    released.revoke(StaleEpoch("moved"))
    with pytest.raises(NotOwned):
        guards.check_many(np.array([partition]))
    assert len(guards) == 0


def test_a_set_takes_no_guard_of_another_node() -> None:
    guards = guards_of()
    with pytest.raises(InvalidInput, match="is of node 9, and this set of node 4"):
        guards.insert(PartitionGuard(3, EPOCH, 9))
    assert 3 not in guards


@pytest.mark.parametrize("epoch", [EPOCH - 1, EPOCH])
@pytest.mark.parametrize("partition", [3, SPARSE])
def test_a_slow_acquisition_does_not_replace_a_later_one(partition: int, epoch: int) -> None:
    guards = guards_of(partition)
    later = guards.get(partition)
    with pytest.raises(InvalidInput, match=f"guarded at epoch 7 already, so a guard of epoch {epoch}"):
        guards.insert(PartitionGuard(partition, epoch, NODE))
    assert guards.get(partition) is later
    guards.check(partition)


@pytest.mark.parametrize("partition", [3, SPARSE])
def test_acquiring_again_ends_the_earlier_guard_and_not_the_later(partition: int) -> None:
    guards = guards_of(partition)
    earlier = held(guards, partition)
    guards.insert(PartitionGuard(partition, EPOCH + 1, NODE))
    with pytest.raises(StaleEpoch, match="belongs to node 4 at epoch 8"):
        earlier.check()
    earlier.revoke(StaleEpoch("again"))
    guards.check(partition)
    guards.check_many(np.array([partition]))


def test_the_late_notice_of_an_earlier_guard_does_not_slow_the_batches_of_the_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guards = guards_of()
    earlier = PartitionGuard(3, EPOCH, NODE)

    def acquire_again(lost: PartitionGuard) -> None:
        if len(guards) and held(guards, 3) is lost:
            guards.insert(PartitionGuard(3, EPOCH + 1, NODE))

    earlier.watch(acquire_again)
    guards.insert(earlier)
    earlier.revoke(StaleEpoch("moved"))
    monkeypatch.delattr(PartitionGuardSet, "_check_each")
    guards.check_many(np.array([3, 3]))


def test_a_guard_that_left_a_set_does_not_keep_the_set_in_memory() -> None:
    guards = guards_of(3, 5)
    removed, replaced = held(guards, 3), held(guards, 5)
    guards.remove(3)
    guards.insert(PartitionGuard(5, EPOCH + 1, NODE))
    assert not any(guards in gc.get_referents(watcher) for watcher in removed._watchers + replaced._watchers)


@pytest.mark.parametrize("partition", [3, 500, SPARSE])
def test_a_guard_revoked_by_hand_stops_batches_too(partition: int) -> None:
    guards = guards_of(1, partition)
    held(guards, partition).revoke(StaleEpoch(f"partition {partition} has moved"))
    with pytest.raises(StaleEpoch, match=f"partition {partition} has moved"):
        guards.check(partition)
    with pytest.raises(StaleEpoch, match=f"partition {partition} has moved"):
        guards.check_many(np.array([1, 1, partition]))
    guards.check_many(np.array([1, 1]))


def test_a_guard_that_was_lost_before_it_came_into_the_set_is_refused_there() -> None:
    zombie = PartitionGuard(3, EPOCH, NODE)
    zombie.revoke(StaleEpoch("moved"))
    guards = guards_of()
    guards.insert(zombie)
    with pytest.raises(StaleEpoch):
        guards.check_many(np.array([3]))


@pytest.mark.parametrize("partition", [3, SPARSE])
def test_a_draining_partition_takes_no_new_batch(partition: int) -> None:
    guards = guards_of(partition)
    held(guards, partition).drain()
    with pytest.raises(EpochError, match="draining"):
        guards.check(partition)
    with pytest.raises(EpochError, match="draining"):
        guards.check_many(np.array([partition]))


def test_a_guard_in_two_sets_stops_both() -> None:
    shared = PartitionGuard(3, EPOCH, NODE)
    sets = [guards_of(), guards_of()]
    for guards in sets:
        guards.insert(shared)
    shared.revoke(StaleEpoch("moved"))
    for guards in sets:
        with pytest.raises(StaleEpoch):
            guards.check_many(np.array([3]))


def test_an_owner_learns_of_each_lost_partition_by_one_read_and_keeps_the_others() -> None:
    guards = guards_of(9, 5, 1, SPARSE, 3, 7)
    authority = CountingAuthority({1: (NODE, 7), 3: (9, 8), 5: (9, 7), 7: (NODE, 6), SPARSE: (NODE, 7)})
    problems = guards.validate_all(authority)
    assert [(partition, type(error)) for partition, error in problems] == [
        (3, StaleEpoch),
        (5, NotOwned),
        (7, MetadataBehind),
        (9, UnknownPartition),
    ]
    assert authority.reads == [[1, 3, 5, 7, 9, SPARSE]]
    guards.check_many(np.array([1, 7, SPARSE]))
    for partition, error in problems:
        if isinstance(error, EpochError):
            with pytest.raises(type(error)):
                guards.check_many(np.array([partition]))


def test_a_refresh_names_every_partition_it_could_not_confirm_by_one_read() -> None:
    guards = guards_of(9, 5, 1, 3, 7)
    authority = CountingAuthority({1: (NODE, 7), 3: (9, 8), 5: (9, 7), 7: (NODE, 6)})
    assert guards.refresh_all(authority) == [3, 5, 7, 9]
    assert len(authority.reads) == 1
    states = {partition: held(guards, partition).state for partition in guards.partition_ids()}
    assert [partition for partition, state in states.items() if state is GuardState.REVOKED] == [3, 5, 9]


def test_a_refresh_moves_the_deadlines_of_confirmed_partitions_only() -> None:
    guards = guards_of(1, 3, valid_for_s=5)
    guards.refresh_all(CountingAuthority({1: (NODE, 7), 3: (NODE, 6)}), asked_at_s=98.0)
    assert held(guards, 1).deadline_s == 105.0
    late = PartitionGuard(5, EPOCH, NODE, lambda: 100.0, valid_for_s=5, asked_at_s=90.0)
    guards.insert(late)
    guards.validate_all(CountingAuthority({1: (NODE, 7), 3: (NODE, 7), 5: (NODE, 7)}), asked_at_s=99.0)
    assert late.deadline_s == 104.0


@pytest.mark.parametrize("answers", [[], [None, None, None]])
def test_an_authority_that_answers_for_other_partitions_changes_no_guard(answers: list[None]) -> None:
    class Confused(StaticAuthority):
        def ownerships(self, partitions: Sequence[PartitionId]) -> Sequence[Ownership | None]:
            return answers

    guards = guards_of(1, 3)
    for ask in (guards.validate_all, guards.refresh_all):
        with pytest.raises(InvalidInput, match=f"{len(answers)} answers for 2 partitions"):
            ask(Confused({}))
    guards.check_many(np.array([1, 3]))


def test_a_node_cut_off_from_its_authority_loses_every_overdue_partition() -> None:
    guards = guards_of(5, 1, valid_for_s=5)
    guards.insert(PartitionGuard(3, EPOCH, NODE, lambda: 100.0, valid_for_s=50))
    assert guards.expire_if_due() == []
    assert guards.expire_if_due(105.0) == [1, 5]
    assert guards.expire_if_due(105.0) == []
    with pytest.raises(EpochError, match="nothing confirmed"):
        guards.check_many(np.array([3, 5]))
    guards.check_many(np.array([3]))


def test_an_empty_batch_is_refused_nothing() -> None:
    guards_of().check_many(np.array([], np.int64))
    guards_of().check_many(np.array([]))


@pytest.mark.parametrize("rows", [np.array([3.0]), np.array([True]), np.array(["3"]), np.array([None])])
def test_rows_that_are_not_partition_ids_are_not_rounded_into_some(rows: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="whole numbers"):
        guards_of(3, 1).check_many(rows)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_ids_of_every_width_are_checked_alike(dtype: type[np.integer]) -> None:
    guards = guards_of(3, 100)
    guards.check_many(np.array([3, 100], dtype))
    guards.check_many(np.array([[3, 100], [100, 3]], dtype))
    with pytest.raises(NotOwned, match="partition 4,"):
        guards.check_many(np.array([100, 4, 3], dtype))
    highest = int(np.iinfo(dtype).max)
    with pytest.raises(NotOwned, match=f"partition {highest},"):
        guards.check_many(np.array([100, highest, 4], dtype))


partitions = st.one_of(
    st.integers(0, 12), st.sampled_from([63, 64, 65, 65_535, 65_536, SPARSE]), st.integers(-3, 2**40)
)
acts = st.tuples(st.sampled_from(["insert", "remove", "revoke", "drain", "replace"]), partitions)


@given(st.lists(acts, max_size=25), st.lists(partitions, max_size=25))
def test_a_batch_is_refused_exactly_when_one_of_its_rows_is_and_for_the_first_ones_reason(
    history: list[tuple[str, int]], rows: list[int]
) -> None:
    guards = PartitionGuardSet(NODE)
    for act, partition in history:
        guard = guards.get(partition)
        if act == "insert" and guard is None and 0 <= partition < 2**32:
            guards.insert(PartitionGuard(partition, EPOCH, NODE))
        elif guard is not None and act == "replace":
            guards.insert(PartitionGuard(partition, guard.epoch + 1, NODE))
        elif guard is not None and act == "revoke":
            guard.revoke(StaleEpoch(f"partition {partition} has moved"))
        elif guard is not None and act == "drain":
            guard.drain()
        elif act == "remove":
            guards.remove(partition)
    one_by_one: EpochError | None = None
    try:
        for row in rows:
            guards.check(row)
    except EpochError as error:
        one_by_one = error
    together: EpochError | None = None
    try:
        guards.check_many(np.array(rows, np.int64))
    except EpochError as error:
        together = error
    assert (type(together), str(together)) == (type(one_by_one), str(one_by_one))


def test_no_revocation_is_lost_while_the_set_grows_in_another_thread() -> None:
    guards = guards_of(0)
    copied, revoker_moved = threading.Event(), threading.Event()

    class PausingWords:
        """Stands in for the array: lets the revocation come between copying the words and using the copy."""

        def __init__(self, words: np.ndarray) -> None:
            self.words = words
            self.size = words.size

        def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
            words = self.words.copy()
            copied.set()
            assert revoker_moved.wait(30)
            return words

        def __setitem__(self, index: int, word: int) -> None:
            self.words[index] = word

    class TellingLock:
        """Stands in for the lock: tells when the revoking thread comes to wait for it."""

        def __init__(self) -> None:
            self.lock = threading.RLock()

        def __enter__(self) -> None:
            if threading.current_thread() is not grower:
                revoker_moved.set()
            self.lock.acquire()

        def __exit__(self, *error: object) -> None:
            self.lock.release()

    grower = threading.Thread(target=lambda: guards.insert(PartitionGuard(5_000, EPOCH, NODE)), daemon=True)
    guards._words = PausingWords(guards._words)  # type: ignore[assignment]
    guards._lock = TellingLock()  # type: ignore[assignment]
    grower.start()
    assert copied.wait(30)
    held(guards, 0).revoke(StaleEpoch("moved"))
    revoker_moved.set()
    grower.join(30)
    with pytest.raises(StaleEpoch):
        guards.check_many(np.array([0, 5_000]))


def test_batches_stop_at_the_revocation_of_another_thread() -> None:
    guards = guards_of(*range(8))
    rows = np.tile(np.arange(8), 500)
    writing = threading.Event()
    told: list[BaseException] = []

    def write_until_refused() -> None:
        try:
            while True:
                guards.check_many(rows)
                guards.check(5)
                writing.set()
        except BaseException as error:
            told.append(error)

    writers = [threading.Thread(target=write_until_refused, daemon=True) for _ in range(3)]
    for writer in writers:
        writer.start()
    assert writing.wait(30)
    confirming = CountingAuthority(dict.fromkeys(range(8), (NODE, EPOCH)))
    for _ in range(50):
        assert guards.refresh_all(confirming) == []
    taking = CountingAuthority({partition: (NODE, EPOCH + (partition == 5)) for partition in range(8)})
    assert guards.refresh_all(taking) == [5]
    for writer in writers:
        writer.join(30)
    assert [type(error) for error in told] == [StaleEpoch] * 3
