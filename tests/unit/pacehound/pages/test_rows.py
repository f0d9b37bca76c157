"""Rows of an answer as JSON and as text, whatever ClickHouse has made them of."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys

import pyarrow as pa

# pandas, of which Arrow would make such times, is left out of our own processes.
SCRIPT = """
import pickle, sys
from pacehound.cli.without_pandas import leave_out_pandas
leave_out_pandas()
from pacehound.pages.rows import print_rows, rows_answer
table = pickle.load(sys.stdin.buffer)
print(rows_answer(table)["rows"])
print_rows(table, sys.stdout)
"""


def test_times_with_nanoseconds_are_told_in_full_wherever_they_stand() -> None:
    at = pa.scalar(1_500_000_000_000_000_001, pa.timestamp("ns", "UTC"))
    columns = {
        "time": pa.array([at, None]),
        "times": pa.array([[at], []], pa.list_(at.type)),
        "by_name": pa.array([[("a", at)], []], pa.map_(pa.string(), at.type)),
        "both": pa.array([{"n": 1, "at": at}, None], pa.struct({"n": pa.int64(), "at": at.type})),
        "stored": pa.array([1_500_000_000_000, None], pa.timestamp("ms", "UTC")),
        "name": pa.array([b"\xff", b"a"]),
    }
    table = pickle.dumps(pa.table(columns))
    ran = subprocess.run([sys.executable, "-c", SCRIPT], input=table, capture_output=True, check=True)
    told, names, *lines = ran.stdout.decode().splitlines()
    text = "2017-07-14T02:40:00.000000001+00:00"
    assert ast.literal_eval(told) == [
        [text, [text], [["a", text]], {"n": 1, "at": text}, "2017-07-14T02:40:00+00:00", "/w=="],
        [None, [], [], None, None, "a"],
    ]
    assert names.split("\t") == list(columns)
    assert [line.split("\t")[0] for line in lines] == [text, ""]
