"""Objects on a store: the store protocol, own-write recognition, the numbered log, two-phase writes, the self-test."""

from hedgerow.objects.create import RetryPolicy, create_or_read, with_retries
from hedgerow.objects.environment import Environment
from hedgerow.objects.files import FileStore
from hedgerow.objects.locate import open_store
from hedgerow.objects.log import Entry, LogConflict, NumberedLog
from hedgerow.objects.memory import MemoryStore
from hedgerow.objects.records import RecordStore, open_records
from hedgerow.objects.remote import RemoteStore
from hedgerow.objects.selftest import self_test
from hedgerow.objects.store import ObjectMeta, ObjectStore, PlainStore
from hedgerow.objects.twophase import TwoPhaseStore

__all__ = [
    "Entry",
    "Environment",
    "FileStore",
    "LogConflict",
    "MemoryStore",
    "NumberedLog",
    "ObjectMeta",
    "ObjectStore",
    "PlainStore",
    "RecordStore",
    "RemoteStore",
    "RetryPolicy",
    "TwoPhaseStore",
    "create_or_read",
    "open_records",
    "open_store",
    "self_test",
    "with_retries",
]
