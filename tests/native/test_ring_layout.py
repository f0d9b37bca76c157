"""The header that C writes and the layout that Python writes are the same one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector.calls import rings
from pacehound.instrument import layout
from pacehound.instrument.ring import affordable_capacity

NATIVE = Path(__file__).resolve().parents[2] / "collector" / "native"
COMPILER = shutil.which("cc") or shutil.which("gcc")

PROBE = r"""
#include <stddef.h>
#include <stdio.h>
#include "ring.h"
#define AT(name, type, field) printf(name "=%zu\n", offsetof(struct type, field))
int main(void) {
    printf("magic=%llu\nversion=%u\nheader=%zu\nrecord=%zu\n", (unsigned long long)PH_RING_MAGIC, PH_RING_VERSION,
           sizeof(struct ph_ring_header), sizeof(struct ph_record));
    AT("written", ph_ring_header, written); AT("closed", ph_ring_header, closed);
    AT("measured_calls", ph_ring_header, measured_calls); AT("measured_ns", ph_ring_header, measured_ns);
    AT("created_ns", ph_ring_header, created_ns); AT("rank", ph_ring_header, rank);
    AT("kind", ph_record, kind); AT("record.rank", ph_record, rank); AT("handle", ph_record, handle);
    AT("op", ph_record, call.op); AT("flags", ph_record, call.flags); AT("peer", ph_record, call.peer);
    AT("seq", ph_record, call.seq); AT("count", ph_record, call.count); AT("launch_ns", ph_record, call.launch_ns);
    AT("end_ns", ph_record, call.end_ns); AT("recv_count", ph_record, call.recv_count);
    AT("timeout_ms", ph_record, group.timeout_ms); AT("name", ph_record, group.name);
    AT("is_world", ph_record, group.is_world); AT("members", ph_record, members.members);
    AT("place", ph_record, place.index);
    AT("edge.index", ph_record, edge.index); AT("edge.peer", ph_record, edge.peer);
    AT("edge.algorithm", ph_record, edge.algorithm); AT("edge.channel", ph_record, edge.channel);
    AT("edge.direction", ph_record, edge.direction); printf("PH_EDGE=%d\n", PH_EDGE);
    AT("step", ph_record, marker.step); AT("ordinal", ph_record, marker.ordinal);
    AT("operation.start_ns", ph_record, operation.start_ns); AT("operation.step", ph_record, operation.step);
    AT("operation.optype", ph_record, operation.optype); AT("operation.pipeline", ph_record, operation.pipeline);
    AT("operation.seq", ph_record, operation.seq); printf("PH_OPERATION=%d\n", PH_OPERATION);
    AT("failed", ph_record, exit.failed); AT("text", ph_record, exit.text);
    printf("sizeof name=%zu\nsizeof text=%zu\n", sizeof(((struct ph_record *)0)->group.name),
           sizeof(((struct ph_record *)0)->exit.text));
    return 0;
}
"""


@pytest.fixture(scope="module")
def from_c(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    if COMPILER is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("layout")
    (folder / "probe.c").write_text(PROBE)
    subprocess.run(
        [COMPILER, "-std=c11", "-Wall", "-Werror", f"-I{NATIVE}", "probe.c", "-o", "probe"], cwd=folder, check=True
    )
    printed = subprocess.run([folder / "probe"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, _, value in (line.partition("=") for line in printed.splitlines())}


def offset(packed: bytes, mark: bytes) -> int:
    """Where `mark` stands in a record, of which Python packs what follows the stamp."""
    assert packed.count(mark) == 1
    return packed.index(mark) + 8


def test_header_constants_agree(from_c: dict[str, int]) -> None:
    assert from_c["magic"] == layout.MAGIC
    assert from_c["version"] == layout.VERSION
    assert from_c["header"] == layout.HEADER_BYTES
    assert from_c["record"] == layout.RECORD_BYTES
    assert from_c["written"] == layout.WRITTEN_OFFSET
    assert from_c["closed"] == layout.CLOSED_OFFSET
    assert (from_c["measured_calls"], from_c["measured_ns"]) == (rings.MEASURED_OFFSET, rings.MEASURED_OFFSET + 8)
    header = layout.HEADER.pack(0, 0, 0, 0, 0, 0, 0, 0, 0x11223344, 0, 0, 0, 0x5566778899AABBCC)
    assert header.index(bytes.fromhex("44332211")) == from_c["rank"]
    assert header.index(bytes.fromhex("ccbbaa9988776655")) == from_c["created_ns"]


def test_records_agree_field_by_field(from_c: dict[str, int]) -> None:
    handle = bytes(range(0xE0, 0xF0))
    call = layout.CALL_RECORD.pack(
        0xA1, 0xA2A2A2A2, handle, 0xA3, 0, 0, 0, 0xA4, 0, 0, 0x25252525, 0, 0x26, 0x27, 0x28, 0, 0x29, 0, 0, 0, 0x2A
    )
    assert offset(call, b"\xa1") == from_c["kind"]
    assert offset(call, b"\xa2" * 4) == from_c["record.rank"]
    assert offset(call, handle) == from_c["handle"]
    assert offset(call, b"\xa3") == from_c["op"]
    assert offset(call, b"\xa4") == from_c["flags"]
    assert offset(call, b"\x25" * 4) == from_c["peer"]
    for mark, field in (
        (b"\x26", "seq"),
        (b"\x27", "count"),
        (b"\x28", "launch_ns"),
        (b"\x29", "end_ns"),
        (b"\x2a", "recv_count"),
    ):
        assert offset(call, mark) == from_c[field], field
    group = layout.GROUP_RECORD.pack(1, 2, handle, 0, 0, 0, 0, 0xA1, 0, 0, 0xA2A2A2A2, b"N" * 68)
    assert offset(group, b"\xa1") == from_c["is_world"]
    assert offset(group, b"\xa2" * 4) == from_c["timeout_ms"]
    assert group.index(b"N") + 8 == from_c["name"]
    assert from_c["sizeof name"] == layout.NAME_BYTES
    members = layout.MEMBERS_RECORD.pack(2, 0, handle, 1, 0x51515151, *[0] * 22)
    assert offset(members, b"\x51" * 4) == from_c["members"]
    place = layout.PLACE_RECORD.pack(8, 0, handle, 1, 0x51515151)
    assert offset(place, b"\x51" * 4) == from_c["place"]
    marker = layout.MARKER_RECORD.pack(5, 0, handle, 0, 0x61, 0, 0x71)
    assert offset(marker, b"\x61") == from_c["step"]
    assert offset(marker, b"\x71") == from_c["ordinal"]
    leaving = layout.EXIT_RECORD.pack(6, 0, handle, 0, 0xA1A1A1A1, b"T" * 84)
    assert offset(leaving, b"\xa1" * 4) == from_c["failed"]
    assert leaving.index(b"T") + 8 == from_c["text"]
    assert from_c["sizeof text"] == layout.EXIT_TEXT_BYTES


def test_the_edges_of_the_plugin_stand_where_the_agent_looks(from_c: dict[str, int]) -> None:
    assert from_c["PH_EDGE"] == rings.EDGE
    assert rings.EDGE_BODY.fields is not None
    for name in ("index", "peer", "algorithm", "channel", "direction"):
        assert from_c[f"edge.{name}"] == rings.EDGE_BODY.fields[name][1]


def test_record_kinds_and_flags_have_the_numbers_of_the_header() -> None:
    header = (NATIVE / "ring.h").read_text()
    named = {name: int(value) for name, value in re.findall(r"\bPH_([A-Z_]+) = (\d+)", header)}
    names = "GROUP MEMBERS LAUNCH COMPLETE MARKER EXIT DESTROY CAPTURED FAILED ASYNC END_BOUND NONE SEND RECV"
    names += " PLACE LOCAL_PEER"
    markers = "OPTIMIZER_STEP CHECKPOINT_BEGIN CHECKPOINT_END EVALUATION_BEGIN EVALUATION_END"
    for name in f"{names} {markers}".split():
        assert getattr(layout, name) == named[name], name
    assert named["TIMED"] == rings.TIMED


def test_operations_agree_field_by_field(from_c: dict[str, int]) -> None:
    operation = layout.OPERATION_RECORD.pack(
        layout.OPERATION, 0, bytes(16), 0x31313131, 0, 0x32323232, 0x33333333, 0, 0, 0, 0x34343434, 0x35353535
    )
    assert from_c["PH_OPERATION"] == layout.OPERATION
    assert offset(operation, b"\x31" * 4) == from_c["operation.start_ns"]
    assert offset(operation, b"\x32" * 4) == from_c["operation.step"]
    assert offset(operation, b"\x33" * 4) == from_c["operation.optype"]
    assert offset(operation, b"\x34" * 4) == from_c["operation.pipeline"]
    assert offset(operation, b"\x35" * 4) == from_c["operation.seq"]


ROOM_PROBE = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include "ring_room.h"
static unsigned long blocks, available;
int statvfs(const char *path, struct statvfs *where) {
    (void)path;
    where->f_blocks = blocks; where->f_bavail = available; where->f_frsize = 4096;
    return 0;
}
int main(int argc, char **argv) {
    (void)argc;
    blocks = strtoul(argv[2], NULL, 10); available = strtoul(argv[3], NULL, 10);
    printf("%u\n", ph_ring_room(argv[1], (uint32_t)strtoul(argv[4], NULL, 10)));
    return 0;
}
"""
MIB_BLOCKS = 256  # of 4,096 bytes


def test_rings_take_a_quarter_of_the_shared_memory_however_many_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writers in C, C++ and Python agree; in a container's 64 MiB the job keeps 48 for its DataLoaders."""
    if COMPILER is None:
        pytest.skip("no C compiler")
    (tmp_path / "probe.c").write_text(ROOM_PROBE)
    flags = ("-std=gnu11", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}")
    subprocess.run([COMPILER, *flags, "probe.c", "-o", "probe"], cwd=tmp_path, check=True)
    rings_folder = tmp_path / "rings"
    rings_folder.mkdir()

    def capacity(total_mib: int, free_mib: float, wanted: int) -> int:
        blocks, available = total_mib * MIB_BLOCKS, round(free_mib * MIB_BLOCKS)
        found = SimpleNamespace(f_blocks=blocks, f_bavail=available, f_frsize=4096)
        monkeypatch.setattr(os, "statvfs", lambda path: found)
        arguments = [rings_folder, blocks, available, wanted]
        probed = subprocess.run([tmp_path / "probe", *map(str, arguments)], capture_output=True, text=True, check=True)
        assert int(probed.stdout) == affordable_capacity(str(rings_folder), wanted)
        return int(probed.stdout)

    assert capacity(16_384, 16_000, 16_384) == 16_384
    assert capacity(0, 0, 16_384) == 16_384, "a file system that does not say"
    assert capacity(64, 1, 2_048) == 0, "the job has taken nearly all of it: we take none"
    taken_bytes = n_rings = 0
    while room := capacity(64, 64 - taken_bytes / 2**20, 16_384 if n_rings % 5 == 0 else 2_048):
        path = rings_folder / f"{n_rings}.ring"
        path.touch()
        os.truncate(path, layout.HEADER_BYTES + room * layout.RECORD_BYTES)
        taken_bytes += path.stat().st_size
        n_rings += 1
    assert n_rings >= 40, "eight ranks with five threads each"
    assert taken_bytes < 16 * 2**20
