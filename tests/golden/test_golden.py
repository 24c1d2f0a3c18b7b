"""What older Hedgerows wrote is read for ever: tables, entries, SSTs and keys of every format version."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

import hedgerow as hg
from hedgerow.engine import codec
from hedgerow.objects import log
from hedgerow.objects.log import decode_entry
from hedgerow.sst import format as sst_format
from hedgerow.sst import read_whole

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

import make  # noqa: E402

VERSIONS = sorted(HERE.glob("table-*"))


def test_there_is_a_golden_table_for_the_current_formats() -> None:
    current = max(codec.FORMAT_VERSION, log.FORMAT_VERSION, sst_format.FORMAT_VERSION)
    assert (HERE / f"table-{current}").is_dir(), "a format changed: add a golden table for it, and keep the old ones"


@pytest.mark.parametrize("golden", VERSIONS, ids=lambda path: path.name)
def test_a_table_that_was_written_then_is_read_and_written_now(golden: Path, tmp_path: Path) -> None:
    shutil.copytree(golden, tmp_path / "table")
    table = hg.open(f"file://{tmp_path}/table")
    assert table.schema == make.SCHEMA
    assert table.to_arrow().to_pylist() == make.expected()
    assert table.get(7)["name"] == "second"
    assert table.get(3) is None
    report = table.inspect()
    assert [partition.epoch for partition in report.partitions] == [2, 2, 2]
    assert all(partition.files == 1 and partition.state == "live" for partition in report.partitions)
    with table.writer() as writer:
        writer.put(make.row(100, "new"))
        assert writer.get(7)["name"] == "second"
    table.refresh()
    assert table.get(100)["name"] == "new"
    assert table.inspect().partitions[table._schema.locate(100)[0]].epoch == 3


@pytest.mark.parametrize("golden", VERSIONS, ids=lambda path: path.name)
def test_every_object_of_it_still_means_the_same(golden: Path) -> None:
    kinds = []
    manifest = None
    for path in sorted((golden / "manifest").iterdir()):
        entry = decode_entry(path.read_bytes(), path.name)
        manifest = codec.decode(entry, manifest, path.name)
        kinds.append(manifest.did.kind)
    assert kinds == ["create", "acquire", "seal", "compactor", "flush", "acquire"]
    assert manifest is not None and manifest.compactor_epoch == 1
    assert [p.wal_id_last_compacted for p in manifest.partitions] == [2, 2, 2]
    assert [p.max_parallel_writes for p in manifest.partitions] == [2, 2, 2]
    assert [p.fences for p in manifest.partitions] == [((1, 1),)] * 3
    files = {}
    for path in sorted(golden.rglob("*.sst")):
        meta, rows = read_whole(path.read_bytes(), path.name)
        files.setdefault(meta.kind, []).append(rows.num_rows)
        assert meta.table == manifest.table_id.hex()
    assert {kind: sum(counts) for kind, counts in files.items()} == {"fence": 0, "wal": 25, "level": 12}
    assert len(files["fence"]) == 3 + 6


@pytest.mark.parametrize("golden", sorted(HERE.glob("keys-*.json")), ids=lambda path: path.stem)
def test_keys_encode_and_hash_as_they_always_did(golden: Path) -> None:
    assert json.loads(golden.read_text()) == make.keys()
