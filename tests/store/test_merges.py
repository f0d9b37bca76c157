"""How often the engine writes again what it has."""

from __future__ import annotations

import pytest

FEWEST = 32
"""Parts that are merged at once (`storage/migrations/0016_fewer_merges.sql`)."""

OFTEN = ("calls", "call_minutes", "batches", "host_samples", "host_vitals", "markers")
"""What the writer adds to every few seconds."""


@pytest.mark.parametrize("name", OFTEN)
def test_small_parts_are_merged_many_at_a_time(own_store, name):
    table = f"stored_{name}"
    for number in range(10 * FEWEST):
        own_store.command(f"INSERT INTO {table} (job, attempt) SETTINGS insert_deduplicate = 0 VALUES ('{number}', 0)")
        merged = own_store.query(
            "SELECT max_block_number - min_block_number + 1 AS n FROM system.parts "
            f"WHERE database = currentDatabase() AND table = '{table}' AND max_block_number > min_block_number"
        )
        if merged.num_rows:
            break
    assert merged.num_rows, f"{10 * FEWEST} parts and no merge"
    assert min(merged.column("n").to_pylist()) >= FEWEST
