"""Readers of step-time logs take what a job's own log says, count what they cannot use, and never raise over a line."""

from __future__ import annotations

import bz2
import datetime
import gzip
import io
import json
import lzma
import math
import os

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.importers.step_logs import recognise
from collector.importers.step_logs.lines import MAX_LINE_BYTES, Lines, label
from collector.importers.step_logs.recognise import RefusedLog, read_step_logs, step_logs

TABLE = b"step,step_time_s\n1,0.5\n2,0.25\n"


def read(data):
    return step_logs(io.BufferedReader(io.BytesIO(data.encode() if isinstance(data, str) else data)), "a log")


def one(data):
    (log,) = read(data)
    return log


def refusal(data):
    with pytest.raises(RefusedLog) as caught:
        read(data)
    return str(caught.value)


def iteration(step, ms, *, prefix="", batch="| global batch size:   64 ", end="|\n"):
    return (
        f"{prefix} iteration {step:8d}/  1000 | consumed samples: {step * 64:12d} "
        f"| elapsed time per iteration (ms): {ms} | learning rate: 1.5E-04 {batch}{end}"
    )


def event(key, value=None, *, ms, prefix="", **metadata):
    told = {"namespace": "", "time_ms": ms, "event_type": "POINT_IN_TIME", "key": key, "value": value}
    return f"{prefix}:::MLLOG {json.dumps({**told, 'metadata': metadata})}\n"


def trained(step, seconds, *, ms, prefix=""):
    return event("tracked_stats", {"train_step_time": seconds, "loss": 1.0}, ms=ms, prefix=prefix, step=step)


# Megatron


def test_megatron_lines_give_step_time_batch_and_time():
    log = one(
        iteration(7, 250.5, prefix="[2024-03-01 12:00:00]") + iteration(8, "1.5e2", prefix="[2024-03-01 12:00:01.500]")
    )
    assert (log.format, log.rank, log.step.tolist()) == ("megatron", None, [7, 8])
    assert log.step_time_s.tolist() == pytest.approx([0.2505, 0.15])
    assert log.work["global_batch_size"].tolist() == [64, 64]
    assert log.time_ns[0] == 1_709_294_400 * 10**9
    assert log.time_ns[1] - log.time_ns[0] == 1_500_000_000
    assert "UTC" in " ".join(log.notes)


def test_megatron_in_seconds_with_a_curriculum():
    text = (
        " iteration 5/ 10 | consumed samples: 80 | elapsed time per iteration (s): 1.75 | curriculum seqlen:   64 |\n"
        " iteration 6/ 10 | consumed samples: 96 | elapsed time per iteration (s): 1.50 | curriculum seqlen:   72 |\n"
    )
    log = one(text)
    assert log.step_time_s.tolist() == [1.75, 1.5]
    assert log.work["sequence_length"].tolist() == [64, 72]
    assert math.isnan(log.work["global_batch_size"][0])
    assert log.work["global_batch_size"][1] == 16  # from the consumed samples


def test_a_log_interval_covers_several_steps_and_a_missing_line_none():
    log = one("".join(iteration(step, 100.0) for step in (100, 200, 300, 500, 530)))
    assert log.n_steps.tolist() == [100, 100, 100, 100, 30]


def test_after_a_restart_the_first_telling_of_a_step_counts():
    log = one("".join(iteration(step, 100.0 + i) for i, step in enumerate((1, 2, 3, 4, 3, 4, 5))))
    assert log.step.tolist() == [1, 2, 3, 4, 5]
    assert log.step_time_s[-1] == pytest.approx(0.106)
    assert any("2 rows repeat steps" in note and "step 3 after step 4" in note for note in log.notes)


def test_a_time_cut_off_in_the_last_line_is_not_believed():
    log = one(iteration(1, 500.0) + iteration(2, 500.0) + " iteration 3/ 10 | elapsed time per iteration (ms): 50")
    assert log.step.tolist() == [1, 2]
    assert any("could not be read" in note for note in log.notes)


def test_a_line_that_two_writers_share_tells_the_nearest_iteration():
    log = one(iteration(1, 500.0) + " iteration 2/ 10 | consumed samp" + iteration(3, 600.0))
    assert log.step.tolist() == [1, 3]


def test_a_clock_set_back_changes_no_order():
    stamps = ("[2024-10-27 02:59:59]", "[2024-10-27 02:00:00]")
    log = one("".join(iteration(step, 100.0, prefix=stamp) for step, stamp in enumerate(stamps)))
    assert log.step.tolist() == [0, 1]
    assert log.time_ns[1] < log.time_ns[0]


def test_strange_step_times_stay_as_they_were_logged():
    log = one(iteration(1, "nan") + iteration(2, "0.0") + iteration(3, "-5.0") + iteration(4, "inf"))
    assert math.isnan(log.step_time_s[0])
    assert log.step_time_s[1:].tolist() == [0.0, -0.005, math.inf]


def test_colours_carriage_returns_nuls_and_foreign_bytes_do_no_harm():
    line = iteration(2, 250.0).rstrip("\n").encode()
    noisy = b"\x1b[32m" + line.replace(b"elapsed", b"\x1b[1melapsed") + b"\x1b[0m\r\n"
    data = (
        b"caf\xe9 \xff\xfe\n"
        + iteration(1, 250.0).encode()
        + noisy
        + b" 10%|#\r 20%|##\r"
        + iteration(3, 250.0).encode()
        + b"\0" * 5000
        + iteration(4, 250.0).encode()
    )
    log = one(data)
    assert log.step.tolist() == [1, 2, 3, 4]
    assert not any("could not" in note for note in log.notes)


# several ranks


def test_labelled_lines_of_several_ranks_are_a_series_each():
    text = "".join(iteration(step, 100.0 * (rank + 1), prefix=f"{rank}: ") for step in (1, 2, 3) for rank in (1, 0))
    first, second = read(text)
    assert (first.rank, second.rank) == (0, 1)
    assert first.step.tolist() == second.step.tolist() == [1, 2, 3]
    assert second.step_time_s.tolist() == pytest.approx([0.2] * 3)


def test_one_label_speaks_for_the_job():
    assert one(iteration(1, 5.0, prefix="[default7]:") + iteration(2, 5.0, prefix="[default7]:")).rank is None


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        (" 0: x", 0),
        ("56: :::MLLOG", 56),
        ("[rank3]: x", 3),
        ("[default7]:[2024", 7),
        ("[1,12]<stdout>: x", 12),
        ("12:30:01 x", None),
        ("[node5] x", None),
        ("node5: x", None),
        ("iteration 3/5", None),
    ],
)
def test_what_a_launcher_writes_before_a_line(line, rank):
    assert label(line) == rank


# MLPerf


def test_mlperf_rows_are_put_in_order_of_time_and_summaries_left_out():
    summary = event("tracked_stats", {"throughput": 9.0, "train_step_time": 0.6}, ms=3500, step=0)
    text = (
        event("global_batch_size", 32, ms=1)
        + trained(2, 0.5, ms=2000)
        + summary
        + trained(1, 0.5, ms=1500)
        + trained(3, 0.75, ms=2750, prefix="0: ")
    )
    log = one(text.replace("0: :::", ":::"))
    assert log.step.tolist() == [1, 2, 3]
    assert log.time_ns.tolist() == [1_500_000_000, 2_000_000_000, 2_750_000_000]
    assert log.work["global_batch_size"].tolist() == [32, 32, 32]
    assert any("sum" in note for note in log.notes)


def test_mlperf_a_clock_set_back_leaves_steps_that_are_in_order_alone():
    log = one("".join(trained(step, 0.5, ms=ms) for step, ms in ((1, 9000), (2, 9500), (3, 1000), (4, 1500))))
    assert log.step.tolist() == [1, 2, 3, 4]


def test_mlperf_a_step_field_that_counts_samples_is_divided():
    log = one("".join(trained(64.0 * i, 0.5, ms=500 * i) for i in range(1, 9)))
    assert log.step.tolist() == list(range(1, 9))
    assert set(log.n_steps.tolist()) == {1}


def test_mlperf_a_row_every_so_many_steps_is_not_mistaken_for_samples():
    log = one("".join(trained(10 * i, 0.5, ms=5000 * i) for i in range(1, 9)))
    assert log.step.tolist() == list(range(10, 90, 10))
    assert set(log.n_steps.tolist()) == {10}


def test_mlperf_running_averages_become_differences_of_the_clock():
    rows = [(50, 1000, 0.02), (100, 2000, 0.02), (150, 4500, 0.03)]
    text = "".join(event("tracked_stats", {"time": mean, "loss": 1.0}, ms=ms, step=step) for step, ms, mean in rows)
    log = one(text)
    assert log.step.tolist() == [50, 100, 150]
    assert log.step_time_s.tolist() == pytest.approx([0.02, 0.02, 0.05])
    assert log.n_steps.tolist() == [50, 50, 50]


def test_mlperf_rows_during_an_evaluation_say_so():
    text = (
        trained(1, 1.0, ms=1000)
        + event("eval_start", ms=1200)
        + trained(2, 1.0, ms=2000)
        + event("eval_stop", ms=2500)
        + trained(3, 1.0, ms=3000)
        + trained(4, 1.0, ms=4000)
        + event("eval_start", ms=4000)  # between two rows: in nobody's time
        + event("eval_stop", ms=5000)
        + trained(5, 1.0, ms=6000)
    )
    assert one(text).planned == {1: "evaluation", 2: "evaluation"}


def test_mlperf_bad_events_are_counted():
    bad = ":::MLLOG {nonsense\n:::MLLOG {}\n" + event("tracked_stats", {"train_step_time": "soon"}, ms=2, step=1)
    log = one(trained(1, 0.5, ms=500) + bad + trained(2, 0.5, ms=1000) + trained(3, 0.5, ms=1500)[:-9])
    assert log.step.tolist() == [1, 2]
    assert any("an event could not be read: 4 lines" in note for note in log.notes)


def test_mlperf_averages_of_steps_done_again_are_left_out():
    rows = [(50, 1.0), (100, 2.0), (60, 3.0), (70, 4.0), (150, 5.0)]
    text = "".join(event("tracked_stats", {"time": 0.02}, ms=1000 * s, step=step) for step, s in rows)
    log = one(text)
    assert log.step.tolist() == [50, 100, 150]
    assert (log.n_steps > 0).all()


ODD = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3), st.lists(st.integers()))
STATS = st.dictionaries(st.sampled_from(["train_step_time", "time", "loss"]), ODD)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["tracked_stats", "global_batch_size", "eval_start", "eval_stop", "run_start"]),
            st.one_of(STATS, ODD),
            st.one_of(st.integers(0, 10**6), ODD),
            st.one_of(st.integers(0, 100), ODD),
        ),
        max_size=20,
    )
)
def test_mlperf_events_of_any_make_are_read_or_counted(events):
    text = "".join(event(key, value, ms=ms, step=step) for key, value, ms, step in events)
    try:
        logs = read(trained(1, 0.5, ms=1) + text)
    except RefusedLog:
        pytest.fail("the first row can be read")
    assert all(len(log) for log in logs)


# a running clock


def test_train_time_gives_differences_of_first_readings():
    text = (
        "step:0/9 val_loss:10.8 train_time:0ms step_avg:nanms\n"
        "step:1/9 train_time:100ms step_avg:100.0ms\n"
        "step:2/9 train_time:200ms step_avg:100.0ms\n"
        "step:2/9 val_loss:4.5 train_time:260ms step_avg:130.0ms\n"
        "step:3/9 train_time:300ms step_avg:100.0ms\n"
    )
    assert one(text).step_time_s.tolist() == pytest.approx([0.1, 0.1, 0.1])


def test_train_time_of_a_clock_set_back_or_of_steps_done_again():
    said = [(9, 900), (10, 1000), (11, 60), (12, 160), (11, 70), (12, 170), (13, 270), (15, 470)]
    log = one("".join(f"step:{step}/99 train_loss:1.0 train_time:{ms}ms step_avg:1ms\n" for step, ms in said))
    assert log.step.tolist() == [10, 12, 13, 15]
    assert log.step_time_s.tolist() == pytest.approx([0.1] * 4)
    assert log.n_steps.tolist() == [1, 1, 1, 2]
    assert any("set back" in note for note in log.notes)


def test_train_time_in_seconds_behind_the_script_itself():
    script = 'print0(f"step:{step+1}/{n} train_time:{approx:.0f}ms step_avg:{avg:.2f}ms", console=True)\n' * 3
    log = one(script + "step:1/3 train_time:1.5s\nstep:2/3 train_time:2.0s\nstep:3/3 train_time:2.")
    assert log.step_time_s.tolist() == [0.5]
    assert log.notes == ("a step could not be read: 1 line (line 6)",)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=50))
def test_differences_of_a_cumulative_clock_give_the_durations_back(durations_ms):
    totals = np.concatenate([[0], np.cumsum(durations_ms)])
    log = one("".join(f"step:{i}/{len(totals)} train_time:{ms}ms step_avg:1ms\n" for i, ms in enumerate(totals)))
    assert log.step.tolist() == list(range(1, len(totals)))
    assert log.step_time_s * 1e3 == pytest.approx(durations_ms)


# nanoGPT


def test_nanogpt_lines_tell_one_iteration_each_and_evaluations_are_planned():
    log = one(
        "iter 0: loss 10.9, time 30000.00ms, mfu -100.00%\n"
        "iter 10: loss 9.8, time 250.50ms, mfu 31.20%\n"
        "step 20: train loss 9.1, val loss 9.2\n"
        "saving checkpoint to out\n"
        "iter 20: loss 9.0, time 4000.00ms, mfu 30.10%\n"
        "iter 30: loss nan, time 2.5e2ms\n"
    )
    assert (log.format, log.rank, log.step.tolist()) == ("nanogpt", None, [0, 10, 20, 30])
    assert log.step_time_s.tolist() == pytest.approx([30.0, 0.2505, 4.0, 0.25])
    assert log.n_steps.tolist() == [1, 1, 1, 1]
    assert log.planned == {2: "evaluation"}


def test_nanogpt_a_line_cut_short_is_counted_and_its_number_not_believed():
    log = one("iter 1: loss 3.0, time 250.00ms, mfu 1%\niter 2: loss 3.0, time 25\niter 3: loss 3.0, time 250.00ms\n")
    assert log.step.tolist() == [1, 3]
    assert any("line 2" in note for note in log.notes)


# torchtitan


def titan(step, at_s, *, prefix="[rank0]:"):
    at = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=at_s)
    stamp = f"{at:%Y-%m-%d %H:%M:%S},{at.microsecond // 1000:03d}"
    return (
        f"{prefix}[titan] {stamp} - root - INFO - \x1b[31mstep: {step:2}  \x1b[32mloss:  7.1234  "
        "\x1b[38;2;180;60;0mgrad_norm:  1.2000  \x1b[34mtps: 1,234  \x1b[35mmfu: 30.12%\x1b[39m\n"
    )


def test_titan_times_lie_between_the_lines_whatever_colours_they_have():
    log = one(
        titan(1, 0)
        + "[rank0]:[titan] 2025-01-01 00:00:02,000 - root - INFO - a note\n"
        + titan(10, 4.5)
        + titan(20, 9.5)
    )
    assert (log.format, log.rank, log.step.tolist()) == ("torchtitan", None, [10, 20])
    assert log.step_time_s.tolist() == pytest.approx([0.5, 0.5])
    assert log.n_steps.tolist() == [9, 10]
    assert log.time_ns[1] - log.time_ns[0] == 5_000_000_000


def test_titan_each_rank_has_a_log_of_its_own():
    logs = read("".join(titan(s, s * (1 + r), prefix=f"[rank{r}]:") for s in (1, 2, 3) for r in (0, 1)))
    assert [(log.rank, log.step_time_s.tolist()) for log in logs] == [(0, [1.0, 1.0]), (1, [2.0, 2.0])]


def test_titan_after_a_restart_the_time_in_between_is_no_step():
    log = one(titan(10, 0) + titan(20, 10) + titan(11, 500) + titan(20, 509) + titan(30, 519))
    assert log.step.tolist() == [20, 30]
    assert log.step_time_s.tolist() == pytest.approx([1.0, 1.0])


def test_titan_a_clock_set_back_is_said():
    log = one(titan(1, 100) + titan(2, 101) + titan(3, 50) + titan(4, 51))
    assert log.step.tolist() == [2, 4]
    assert any("set back" in note for note in log.notes)


# tables

TIMES_S = st.floats(allow_nan=True, allow_infinity=True)


@given(st.dictionaries(st.integers(-(10**9), 10**9), st.tuples(TIMES_S, st.integers(0, 2**61)), min_size=1))
def test_a_table_gives_back_what_was_written(rows):
    rows = sorted(rows.items())
    log = one("step,step_time_s,time_ns\n" + "".join(f"{step},{time_s!r},{ns}\n" for step, (time_s, ns) in rows))
    assert log.step.tolist() == [step for step, _ in rows]
    assert log.time_ns.tolist() == [ns for _, (_, ns) in rows]
    np.testing.assert_array_equal(log.step_time_s, [time_s for _, (time_s, _) in rows])


@given(st.binary(max_size=300))
def test_no_bytes_in_a_table_or_a_log_raise_anything_but_a_refusal(noise):
    for start in (b"", TABLE, iteration(1, 5.0).encode(), trained(1, 0.5, ms=5).encode()):
        try:
            read(start + noise)
        except RefusedLog:
            assert start in (b"", trained(1, 0.5, ms=5).encode())


def test_a_table_of_several_ranks_gives_a_log_each():
    text = "# made by us\n\nrank;Step;step_time_s;global_batch_size\n1;5;0.5;64\n0;5;0.25;64\n1;6;0.5;\n0;6;0.25;128\n"
    first, second = read(text)
    assert (first.rank, second.rank) == (0, 1)
    assert first.work["global_batch_size"].tolist() == [64, 128]
    assert math.isnan(second.work["global_batch_size"][1])


def test_bad_rows_of_a_table_are_counted():
    rows = ["1,0.5", "2,", "three,0.5", "4", "4.5,1", "5,0.5", "99999999999999999999,0.5", "step,step_time_s", "6,0.5"]
    log = one("step,step_time_s\r\n" + "\r\n".join(rows))
    assert log.step.tolist() == [1, 5, 6]
    assert log.notes == ("a row could not be read: 5 lines (the first is line 3)",)


def test_quotes_tabs_marks_and_whole_numbers_as_some_tools_write_them():
    assert one(b'\xef\xbb\xbf"step"\t"step_time_s"\n"1.0"\t"0.5"\n2e0\t0.5\n').step.tolist() == [1, 2]
    assert one("step,step_time_s\n1,0.5\n".encode("utf-16")).step_time_s.tolist() == [0.5]


# files


@pytest.mark.parametrize(
    "pack",
    [bytes, gzip.compress, bz2.compress, lzma.compress, lambda data: pa.compress(data, "zstd", asbytes=True)],
    ids=["plain", "gzip", "bzip2", "xz", "zstd"],
)
def test_a_file_is_told_by_its_contents_not_its_name(tmp_path, pack):
    file = tmp_path / "a.jpeg"
    file.write_bytes(pack(TABLE))
    (log,) = read_step_logs(file)
    assert (log.path, log.format, log.step.tolist()) == (str(file), "csv", [1, 2])


def test_of_a_compressed_file_that_ends_early_the_beginning_is_read():
    rows = b"".join(b"%d,0.%04d\n" % (i, i * 7919 % 10007) for i in range(3000))
    log = one(gzip.compress(b"step,step_time_s\n" + rows)[:-5000])
    assert 500 < len(log) < 2900
    assert any("cannot be read to its end" in note for note in log.notes)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "empty"),
        (gzip.compress(b"", mtime=0), "empty"),
        (bytes(range(256)) * 500, "binary"),
        (gzip.compress(bytes(range(256)) * 500, mtime=0), "binary"),
        (b"\x1f\x8bnot really", "cannot be read"),
        (b"loss: 3\nloss: 2\n", "known are Megatron"),
        (b"step,loss\n1,3.0\n", "no column step_time_s"),
        (b"step,step_time_s\n", "no row"),
        (event("run_start", ms=1).encode(), "without step times"),
        (b"step:1/9 train_time:5ms\n", "fewer than two steps"),
        (b" iteration 1/ 5 | elapsed time per iteration (ms): ", "elapsed time"),
        (b"x" * (3 * MAX_LINE_BYTES), "no known format"),
    ],
)
def test_a_refusal_says_why(data, said):
    assert said in refusal(data)


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(RefusedLog, match="directory"):
            read_step_logs(path)


def test_nuls_in_front_of_a_log_are_passed_over():
    assert one(b"\0" * 200_000 + TABLE).step.tolist() == [1, 2]


def test_a_file_of_another_kind_is_given_up_after_a_while(monkeypatch):
    monkeypatch.setattr(recognise, "LOOK_BYTES", 1 << 20)
    stream = io.BufferedReader(io.BytesIO(b"just words\n" * 1_000_000))
    with pytest.raises(RefusedLog, match="first 1 MiB"):
        step_logs(stream, "words")
    assert stream.tell() < 2 << 20


def test_an_endless_line_costs_no_memory_and_is_counted():
    data = b"step,step_time_s\n1,0.5\n" + b"x" * (2 * MAX_LINE_BYTES) + b"\n2,0.5\n"
    log = one(data)
    assert log.step.tolist() == [1, 2]
    assert any("more than 1 MiB" in note for note in log.notes)


def test_lines_are_the_same_however_the_bytes_arrive():
    data = iteration(1, 5.0).encode() + b"a\rb\r\n\xff\n" + b"end"

    class Dribble(io.BytesIO):
        def read1(self, size=-1):
            return super().read(3)

    assert list(Lines(Dribble(data))) == list(Lines(io.BytesIO(data)))


def test_a_fuller_format_wins_in_a_log_that_has_two():
    text = trained(1, 0.5, ms=5) + "".join(iteration(step, 100.0) for step in range(5))
    assert one(text).format == "megatron"


def test_an_unreadable_file_is_refused(tmp_path):
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    file = tmp_path / "a"
    file.write_bytes(TABLE)
    file.chmod(0)
    with pytest.raises(RefusedLog, match="ermission"):
        read_step_logs(file)
