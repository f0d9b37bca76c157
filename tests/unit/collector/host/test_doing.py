"""From stacks and the kernel's view to a word, which is `unknown` where two readings are possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from collector.host.evidence import kernel_view, pyspy
from collector.host.evidence.doing import doing
from collector.host.evidence.kernel_view import KernelView, Reading
from collector.host.evidence.libraries import named
from tests.fakes.proc_tree import ProcTree

IN_CALL = ("all_reduce (torch/distributed/distributed_c10d.py:3001)", "wrapper (torch/distributed/c10d_logger.py:83)")
LOADER = "_next_data (torch/utils/data/dataloader.py:785)"
QUEUE = ("Condition.wait (threading.py:331)", "Queue.get (queue.py:180)")
BACKWARD = ("_engine_run_backward (torch/autograd/graph.py:1113)", "backward (torch/autograd/__init__.py:395)")
FUTEX = KernelView(state="S", syscall="futex", wait_channel="futex_do_wait")
BUSY = KernelView(state="R", thread_share=0.9, process_share=0.9)
SLEEP = KernelView(state="S", syscall="clock_nanosleep")


@pytest.mark.parametrize(
    ("frames", "view", "word"),
    [
        ((), KernelView(state="T", syscall="futex"), "stopped"),
        (IN_CALL, FUTEX, "in_call"),
        (IN_CALL, BUSY, "in_call"),
        (("wait (pacehound/instrument/torch_waits.py:90)", "step (train.py:3)"), FUTEX, "in_call"),
        (("kernel (pacehound/instrument/dispatched_calls.py:9)", "step (train.py:3)"), FUTEX, "in_call"),
        (("_wait_batch_p2p (torch/distributed/pipelining/schedules.py:631)", "step (train.py:3)"), FUTEX, "in_call"),
        # The instrument sees the parts of a step too: who is in one is in no call for that.
        (("forward (train.py:3)", "call (pacehound/instrument/torch_ops.py:189)"), SLEEP, "unknown"),
        (("forward (train.py:3)", "call (pacehound/instrument/torch_marks.py:59)"), BUSY, "computing"),
        (("put (my_store.py:3)", "save (pacehound/instrument/torch_markers.py:75)"), SLEEP, "unknown"),
        ((*QUEUE, LOADER), FUTEX, "data_loading"),  # the lock is the loader's
        (("__getitem__ (train.py:7)", LOADER), SLEEP, "data_loading"),
        (("save (torch/serialization.py:900)", "checkpoint (train.py:9)"), BUSY, "storage"),
        (("__getitem__ (train.py:7)", LOADER), KernelView(state="D", syscall="read", target="/nfs/a"), "storage"),
        ((), KernelView(state="D", syscall="fsync", target="/ckpt/a"), "storage"),
        ((), KernelView(state="D", wait_channel="rpc_wait_bit_killable"), "storage"),
        ((), KernelView(state="S", syscall="read", target="pipe:[7]"), "unknown"),
        ((), KernelView(state="S", syscall="read", target="/dev/tty"), "unknown"),
        ((*QUEUE, "train (train.py:3)"), FUTEX, "lock"),
        ((), FUTEX, "lock"),
        ((), BUSY, "computing"),
        (("forward (train.py:3)", "_call_impl (torch/nn/modules/module.py:1)"), BUSY, "computing"),
        (BACKWARD, KernelView(state="S", syscall="futex", process_share=0.9), "computing"),
        (BACKWARD, FUTEX, "unknown"),  # some other thread's call, or a lock: the frames do not tell
        (("train (train.py:3)",), SLEEP, "unknown"),
        # A wrapper in the stack is no call: the rank is in its own forward.
        (
            ("forward (train.py:3)", "forward (torch/distributed/fsdp/fully_sharded_data_parallel.py:8)"),
            BUSY,
            "computing",
        ),
        ((), KernelView(), "unknown"),
    ],
)
def test_what_a_rank_without_an_open_call_does(frames: tuple[str, ...], view: KernelView, word: str) -> None:
    assert doing(frames, view, has_open_call=False, uses_gpu=False) == word


@pytest.mark.parametrize(
    ("frames", "view", "word"),
    [
        ((), FUTEX, "in_call"),  # a call that the host runs is waited for on a futex
        (BACKWARD, FUTEX, "in_call"),
        (QUEUE, FUTEX, "unknown"),  # a thread of its own may make the calls
        ((*QUEUE, LOADER), FUTEX, "data_loading"),
        ((), BUSY, "computing"),
    ],
)
def test_what_a_rank_with_an_open_call_does(frames: tuple[str, ...], view: KernelView, word: str) -> None:
    assert doing(frames, view, has_open_call=True, uses_gpu=False) == word


@pytest.mark.parametrize("view", [BUSY, FUTEX])
def test_a_rank_that_may_wait_for_its_gpu_is_not_said_to_compute_or_to_hold_a_lock(view: KernelView) -> None:
    assert doing(("step (train.py:3)",), view, has_open_call=False, uses_gpu=True) == "unknown"


def test_two_readings_of_proc_give_state_call_file_and_cpu(tmp_path: Path) -> None:
    tree = ProcTree(tmp_path)
    tree.put(100, state="D", utime=100)
    tree.say(100, syscall="0 0x3 0x7f 0x10 0x0 0x0 0x0 0x7ffe 0x7f", wchan="nfs_wait")
    tree.open_file(100, 3, "/nfs/data.bin")
    first = kernel_view.read(100, tmp_path)
    tree.put(100, state="D", utime=110)
    view = kernel_view.put_together(first, kernel_view.read(100, tmp_path), 0.5)
    assert (view.state, view.target, view.wait_channel) == ("D", "/nfs/data.bin", "nfs_wait")
    assert (view.thread_share, view.process_share) == (pytest.approx(0.2), pytest.approx(0.2))
    assert doing((), view, has_open_call=False, uses_gpu=False) == "storage"


def test_a_system_call_of_one_reading_alone_is_not_what_it_waits_in() -> None:
    view = kernel_view.put_together(Reading(syscall="read", target="/a"), Reading(syscall="read", target="/b"), 1.0)
    assert view.frame() == ""


@pytest.mark.parametrize("text", ["running", "-1 0x7ffe 0x7f", "", "nonsense"])
def test_a_process_in_no_system_call_waits_in_none(tmp_path: Path, text: str) -> None:
    tree = ProcTree(tmp_path)
    tree.put(100)
    tree.say(100, syscall=text, wchan="0")
    assert kernel_view.read(100, tmp_path).syscall == ""


def test_a_process_that_is_gone_says_nothing(tmp_path: Path) -> None:
    assert kernel_view.read(100, tmp_path) == Reading()
    assert not kernel_view.uses_gpu(100, tmp_path)


DUMP = b"""[{"pid": 9, "thread_id": 5, "thread_name": "pt_main_thread", "os_thread_id": 9, "active": false,
  "frames": [{"name": "wait", "filename": "/v/lib/python3.11/threading.py", "line": 331, "module": null},
             {"name": "<module>", "filename": "/home/a/train.py", "line": 8}]},
 {"pid": 9, "thread_id": 6, "thread_name": "other", "os_thread_id": 10, "frames": []}]"""


def test_the_main_thread_of_a_dump_is_told_innermost_first() -> None:
    assert pyspy.parse(DUMP, 9) == ("wait (threading.py:331)", "<module> (/home/a/train.py:8)")
    assert pyspy.parse(DUMP, 77) == ()  # nobody says that it is the main one


def test_torchs_own_libraries_are_not_told_and_those_in_use_beside_it_are() -> None:
    line = "7f00-7f01 r-xp 00000000 08:01 {} /v/{}\n"
    own = ["libnccl.so.2", "libnvshmem_host.so.3", "libtorch_cpu.so"]
    maps = "".join(line.format(number, name) for number, name in enumerate(own))
    assert named(maps) == ()
    others = [
        "nvshmem_bootstrap_uid.so.3",
        "libnccl.so.2",
        "deep_ep_cpp.cpython-311-x86_64-linux-gnu.so",
        "libucp.so.0",
    ]
    maps += "".join(line.format(number, name) for number, name in enumerate(others, start=50))
    assert named(maps) == ("deep_ep", "nccl (2 copies)", "nvshmem", "ucx")
