"""Each safeguard behind a promise, as a switch that removes it. A test shows for each that something then breaks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import msgspec

from hedgerow.engine import acquire, collector, reader, transitions, wal, writer
from hedgerow.errors import ObjectNotFound
from hedgerow.objects import create, log


@contextlib.contextmanager
def patched(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    with mock.patch.object(owner, name, replacement):
        yield


def without_own_write_recognition() -> Any:
    """An "already exists" is believed, even where it is our own object."""
    real = create.create_or_read

    async def believe(store: Any, path: str, data: bytes, environment: Any, policy: Any) -> bytes | None:
        from hedgerow.errors import ObjectExists, StoreUnavailable

        try:
            await store.create(path, data)
        except ObjectExists:
            with contextlib.suppress(ObjectNotFound, StoreUnavailable):
                return await store.get(path)
        except StoreUnavailable:
            pass
        else:
            return None
        return await real(store, path, data, environment, policy)

    stack = contextlib.ExitStack()
    stack.enter_context(patched(wal, "create_or_read", believe))
    return stack


def without_the_listing_after_a_create() -> Any:
    async def trust(self: Any, entry: Any) -> None:
        return

    return patched(log.NumberedLog, "_confirm", trust)


def probing_for_the_newest_entry() -> Any:
    """The newest entry is taken to be the last one before a free number."""

    async def probe(self: Any, known: int = 0) -> int:
        if not known:
            numbers = await self.numbers()
            return numbers[-1] if numbers else 0
        number = known
        while True:
            try:
                await self.read(number + 1)
            except ObjectNotFound:
                return number
            number += 1

    stack = contextlib.ExitStack()
    stack.enter_context(patched(log.NumberedLog, "newest_number", probe))
    return stack


def collecting_fences() -> Any:
    class Needed(collector._Needed):
        def __init__(self, revoked: Any, retained: Any) -> None:
            super().__init__(revoked, retained)
            partitions = tuple(msgspec.structs.replace(p, fences=()) for p in revoked.partitions)
            self._revoked = msgspec.structs.replace(revoked, partitions=partitions)

    return patched(collector, "_Needed", Needed)


def counting_fences_below_the_replay_point() -> Any:
    real = acquire._judge

    def judge(newest: Any, index: int, epoch: int, identity: Any, last: Any, before: Any) -> Any:
        outcome = real(newest, index, epoch, identity, last, before)
        return acquire.Held(index, epoch, last, before.max_parallel_writes) if outcome is None else outcome

    return patched(acquire, "_judge", judge)


def without_reading_the_epoch_again() -> Any:
    def judge(newest: Any, index: int, epoch: int, identity: Any, last: Any, before: Any) -> Any:
        return acquire.Held(index, epoch, last, before.max_parallel_writes) if isinstance(last, int) else last

    return patched(acquire, "_judge", judge)


def with_a_single_fence() -> Any:
    real = acquire._walk

    async def walk(log_: Any, index: int, epoch: int, slot: int, needed: int, placed: Any) -> int:
        return await real(log_, index, epoch, slot, 1, placed)

    return patched(acquire, "_walk", walk)


def acknowledging_out_of_order() -> Any:
    def acknowledge(self: Any, owned: Any) -> None:
        for slot in list(owned.flights):
            flight = owned.flights[slot]
            if flight.created:
                run = flight.memtable.to_run(self._schema)
                self._remember(owned, slot, writer.Run(run.rows, slot, slot))
                del owned.flights[slot]
                owned.acknowledged = max(owned.acknowledged, slot)
                self._buffered_bytes -= flight.memtable.size_bytes
                for ack in flight.memtable.acknowledgements:
                    writer._tell(ack, None)

    return patched(writer.Writer, "_acknowledge", acknowledge)


def without_looking_at_the_manifest_after_the_tail() -> Any:
    return patched(reader, "_holds", lambda view, used, newest: True)


def reading_beyond_a_gap() -> Any:
    """A reader takes whatever slots there are, instead of the prefix without a gap."""
    from hedgerow.engine.layout import parse_wal, wal_folder, wal_path
    from hedgerow.objects import with_retries

    async def every(self: Any, partition: int, after: int) -> list[int]:
        lines = await with_retries(
            lambda: self._store.list(wal_folder(partition), after=wal_path(partition, after)),
            self._environment,
            self._policy,
        )
        return [parsed[1] for line in lines if (parsed := parse_wal(line.path)) and parsed[1] > after]

    return patched(wal.Wal, "contiguous", every)


def publishing_over_a_moved_replay_point() -> Any:
    real = transitions.publish_flush

    def publish(manifest: Any, flushes: Any, *, compactor_epoch: int, base: int) -> Any:
        moved = [
            msgspec.structs.replace(flush, after=manifest.partitions[flush.partition].wal_id_last_compacted)
            for flush in flushes
        ]
        return real(manifest, moved, compactor_epoch=manifest.compactor_epoch, base=manifest.number)

    return patched(transitions, "publish_flush", publish)


def without_the_staging_floor() -> Any:
    """Staged files are judged only by whether a manifest names them, and publishing does not look at the floor."""
    real_publish = transitions.publish_flush

    class Needed(collector._Needed):
        def __init__(self, revoked: Any, retained: Any) -> None:
            super().__init__(revoked, retained)
            self._revoked = msgspec.structs.replace(revoked, staging_floor=1 << 60)

    def publish(manifest: Any, flushes: Any, *, compactor_epoch: int, base: int) -> Any:
        return real_publish(manifest, flushes, compactor_epoch=compactor_epoch, base=1 << 60)

    stack = contextlib.ExitStack()
    stack.enter_context(patched(collector, "_Needed", Needed))
    stack.enter_context(patched(transitions, "publish_flush", publish))
    return stack


def keeping_no_lost_answers_apart() -> Any:
    """Rows that were sent, and whose fate is unknown, are reported as not stored."""
    return patched(writer, "_uncertain", lambda error: error)


SWITCHES: dict[str, Callable[[], Any]] = {
    name: value
    for name, value in list(globals().items())
    if callable(value) and getattr(value, "__module__", "") == __name__ and name not in ("patched",)
}
