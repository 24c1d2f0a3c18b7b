from __future__ import annotations

import copy
import gc
import pickle
import threading
import traceback
import weakref

import pytest

from hedgerow.errors import (
    ConditionalPutFailed,
    EpochError,
    Fenced,
    InvalidInput,
    MetadataBehind,
    NotOwned,
    StaleEpoch,
    UnknownPartition,
)
from hedgerow.ownership import (
    UNASSIGNED,
    Epoch,
    GuardState,
    NodeId,
    Ownership,
    PartitionGuard,
    PartitionId,
    StaticAuthority,
)

PARTITION, EPOCH, NODE = 3, 7, 4


def guard(**options: object) -> PartitionGuard:
    return PartitionGuard(PARTITION, EPOCH, NODE, **options)  # type: ignore[arg-type]


def saying(epoch: int, node: int = NODE) -> StaticAuthority:
    return StaticAuthority({PartitionId(PARTITION): Ownership(NodeId(node), Epoch(epoch))})


KNOWS_NOTHING = StaticAuthority({})
OURS = saying(EPOCH)

LOST = [
    pytest.param(saying(EPOCH + 1, 9), StaleEpoch, id="another node at a later epoch"),
    pytest.param(saying(EPOCH + 1, NODE), StaleEpoch, id="this node, started anew, at a later epoch"),
    pytest.param(saying(EPOCH + 1, UNASSIGNED), StaleEpoch, id="nobody at a later epoch"),
    pytest.param(saying(EPOCH, 9), NotOwned, id="another node at this epoch"),
    pytest.param(saying(EPOCH, UNASSIGNED), NotOwned, id="nobody at this epoch"),
    pytest.param(KNOWS_NOTHING, UnknownPartition, id="no such partition"),
]


def test_an_owner_just_granted_its_partition_may_write() -> None:
    fresh = guard()
    fresh.check()
    fresh.check_flush()
    assert fresh.state is GuardState.VALID
    assert fresh.reason is None


def test_an_owner_that_the_authority_confirms_may_go_on() -> None:
    owner = guard()
    owner.validate(OURS)
    assert owner.refresh(OURS) is True
    owner.check()


@pytest.mark.parametrize(("authority", "error"), LOST)
def test_who_lost_the_partition_is_told_why_by_validate_and_writes_no_more(
    authority: StaticAuthority, error: type[EpochError]
) -> None:
    zombie = guard()
    with pytest.raises(error) as told:
        zombie.validate(authority)
    assert type(told.value) is error
    for refusing in (zombie.check, zombie.check_flush):
        with pytest.raises(error) as again:
            refusing()
        assert str(again.value) == str(told.value)


@pytest.mark.parametrize(("authority", "error"), LOST)
def test_a_background_refresh_stops_the_writes_just_as_validate_does(
    authority: StaticAuthority, error: type[EpochError]
) -> None:
    zombie = guard()
    assert zombie.refresh(authority) is False
    with pytest.raises(error):
        zombie.check()
    assert zombie.state is GuardState.REVOKED


@pytest.mark.parametrize("later", [OURS, saying(EPOCH - 1), saying(EPOCH - 1, 9), saying(EPOCH)])
@pytest.mark.parametrize(("authority", "error"), LOST)
def test_a_late_answer_from_before_the_takeover_does_not_revive_a_zombie(
    authority: StaticAuthority, error: type[EpochError], later: StaticAuthority
) -> None:
    zombie = guard()
    zombie.refresh(authority)
    known_epoch = zombie.known_epoch
    assert zombie.refresh(later) is False
    with pytest.raises(error):
        zombie.validate(later)
    with pytest.raises(error):
        zombie.check()
    assert zombie.known_epoch == known_epoch


def test_the_takeover_is_remembered_even_when_it_was_learnt_by_a_failed_validation() -> None:
    zombie = guard()
    with pytest.raises(StaleEpoch) as told:
        zombie.validate(saying(EPOCH + 5, 9))
    assert (told.value.partition, told.value.epoch, told.value.current_epoch) == (PARTITION, EPOCH, EPOCH + 5)
    assert zombie.known_epoch == EPOCH + 5
    zombie.refresh(saying(EPOCH + 2, 8))
    assert zombie.known_epoch == EPOCH + 5


@pytest.mark.parametrize("node", [NODE, 9, UNASSIGNED])
@pytest.mark.parametrize("epoch", [0, EPOCH - 1])
def test_an_authority_that_lags_neither_confirms_an_owner_nor_takes_its_partition(epoch: int, node: int) -> None:
    owner = guard()
    with pytest.raises(MetadataBehind, match=f"epoch {epoch} for partition 3.* epoch 7"):
        owner.validate(saying(epoch, node))
    assert owner.refresh(saying(epoch, node)) is False
    assert owner.state is GuardState.VALID
    assert owner.known_epoch == EPOCH
    owner.check()


def test_whoever_loses_a_write_to_a_successor_accepts_no_further_one() -> None:
    zombie = guard()
    zombie.revoke(zombie.conditional_put().refused_by(EPOCH + 1))
    with pytest.raises(ConditionalPutFailed):
        zombie.check()
    assert zombie.refresh(OURS) is False
    assert zombie.known_epoch == EPOCH + 1


def test_the_first_reason_for_a_loss_is_the_one_that_is_reported() -> None:
    zombie = guard()
    zombie.refresh(KNOWS_NOTHING)
    zombie.revoke(StaleEpoch("later"))
    zombie.refresh(saying(EPOCH + 1, 9))
    with pytest.raises(UnknownPartition):
        zombie.check()


def test_a_guard_is_not_revoked_by_an_error_that_callers_would_not_take_for_a_fence() -> None:
    with pytest.raises(InvalidInput, match="EpochError"):
        guard().revoke(ValueError("no"))  # type: ignore[arg-type]


def test_a_partition_being_handed_over_takes_no_new_write_and_finishes_the_accepted_ones() -> None:
    leaving = guard()
    leaving.drain()
    assert leaving.state is GuardState.DRAINING
    with pytest.raises(EpochError, match="partition 3 is draining") as told:
        leaving.check()
    assert type(told.value) is EpochError
    leaving.check_flush()
    leaving.validate(OURS)
    assert leaving.refresh(OURS) is True
    assert leaving.state is GuardState.DRAINING


def test_a_partition_lost_while_being_handed_over_flushes_nothing_more() -> None:
    leaving = guard()
    leaving.drain()
    leaving.refresh(saying(EPOCH + 1, 9))
    with pytest.raises(StaleEpoch):
        leaving.check_flush()
    with pytest.raises(StaleEpoch):
        leaving.check()


def test_draining_a_lost_partition_does_not_give_its_last_writes_another_chance() -> None:
    zombie = guard()
    zombie.refresh(saying(EPOCH + 1, 9))
    zombie.drain()
    assert zombie.state is GuardState.REVOKED
    with pytest.raises(StaleEpoch):
        zombie.check_flush()


def test_an_object_says_who_wrote_it() -> None:
    put = guard().conditional_put()
    assert put.as_metadata() == {
        "x-hedgerow-partition": "3",
        "x-hedgerow-epoch": "7",
        "x-hedgerow-node": "4",
    }
    with pytest.raises(AttributeError):
        put.epoch = Epoch(8)  # type: ignore[misc]


def test_a_write_refused_by_the_store_names_both_epochs() -> None:
    error = guard().conditional_put().refused_by(9)
    assert isinstance(error, ConditionalPutFailed)
    assert (error.partition, error.epoch, error.current_epoch) == (3, 7, 9)
    assert "epoch 7" in str(error)
    assert "epoch 9" in str(error)


@pytest.mark.parametrize(("authority", "error"), LOST)
def test_every_refusal_says_which_partition_which_epoch_and_what_to_do(
    authority: StaticAuthority, error: type[EpochError]
) -> None:
    zombie = guard()
    zombie.refresh(authority)
    reason = zombie.reason
    assert isinstance(reason, Fenced)
    assert (reason.partition, reason.epoch) == (PARTITION, EPOCH)
    for words in ("partition 3", "epoch 7", "node 4", "Stop writing; "):
        assert words in str(reason)


def test_refusing_a_million_writes_does_not_gather_a_million_tracebacks() -> None:
    zombie = guard()
    given = StaleEpoch("moved", epoch=EPOCH)
    try:
        raise given
    except StaleEpoch as error:
        zombie.revoke(error)
    depths = set()
    for _ in range(5):
        with pytest.raises(StaleEpoch) as told:
            zombie.check()
        assert told.value is not given
        depths.add(len(traceback.extract_tb(told.value.__traceback__)))
    assert len(depths) == 1
    assert zombie.reason is not None
    assert zombie.reason.__traceback__ is None


def test_a_lost_partition_does_not_keep_the_rows_of_the_write_that_noticed_it() -> None:
    zombie = guard()

    class Rows:
        pass

    def write() -> weakref.ref[Rows]:
        rows = Rows()
        try:
            raise StaleEpoch("moved")
        except StaleEpoch as error:
            zombie.revoke(error)
        return weakref.ref(rows)

    rows = write()
    gc.collect()
    assert rows() is None


def test_no_error_class_can_make_a_revocation_fail() -> None:
    class Demanding(EpochError):
        def __init__(self, message: str, *, certificate: bytes) -> None:
            super().__init__(message, epoch=EPOCH)
            self.certificate = certificate

    zombie = guard()
    zombie.revoke(Demanding("moved", certificate=b"signed"))
    with pytest.raises(Demanding, match="moved") as told:
        zombie.check()
    assert told.value.certificate == b"signed"


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copy_of_a_guard_escapes_its_revocation(duplicate: object) -> None:
    with pytest.raises(TypeError, match="cannot be copied"):
        duplicate(guard())  # type: ignore[operator]


def test_a_watcher_hears_of_each_change_with_the_state_already_changed() -> None:
    heard: list[GuardState] = []
    watched = guard()

    def watcher(changed: PartitionGuard) -> None:
        heard.append(changed.state)

    watched.watch(watcher)
    watched.drain()
    watched.refresh(KNOWS_NOTHING)
    watched.unwatch(watcher)
    watched.revoke(StaleEpoch("again"))
    assert heard == [GuardState.DRAINING, GuardState.REVOKED]


def test_a_writer_checking_all_the_time_sees_the_revocation_of_another_thread_with_its_reason() -> None:
    owner = guard()
    checking = threading.Event()
    told: list[BaseException] = []

    def write_until_refused() -> None:
        checks = 0
        try:
            while True:
                owner.check()
                checks += 1
                if checks == 1000:
                    checking.set()
        except BaseException as error:
            told.append(error)

    writers = [threading.Thread(target=write_until_refused, daemon=True) for _ in range(4)]
    for writer in writers:
        writer.start()
    assert checking.wait(30)
    for _ in range(100):
        assert owner.refresh(OURS)
    owner.refresh(saying(EPOCH + 1, 9))
    for writer in writers:
        writer.join(30)
    assert [type(error) for error in told] == [StaleEpoch] * 4


def test_a_signal_handler_may_drain_while_its_thread_is_changing_the_same_guard() -> None:
    owner = guard()
    finished = threading.Event()

    def interrupted() -> None:
        with owner._lock:
            owner.drain()
        finished.set()

    threading.Thread(target=interrupted, daemon=True).start()
    assert finished.wait(30)
    assert owner.state is GuardState.DRAINING
