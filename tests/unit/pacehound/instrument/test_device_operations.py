"""Operations of a job on a device that its host is ahead of; a stand-in for one (tests/fakes/cuda_device.py)."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from pacehound.instrument import cuda_times, torch_ops
from pacehound.instrument.cuda_times import CudaClock
from pacehound.instrument.recorded_steps import (
    BACKWARD,
    BACKWARD_RECV,
    FORWARD,
    FORWARD_RECV,
    FORWARD_SEND,
    GRADS_SCATTER,
    OPTIMIZER,
    PARAMS_GATHER,
)
from pacehound.instrument.torch_ops import MOST_WAITING, StepOperations
from tests.fakes.cuda_device import MS, US, Device, FakeProcessGroup, Machine, Work
from tests.fakes.step_recorder import StepRecorder, optimizer_hooks

DEVICE = Device()
TOLERANCE_NS = 20 * US
"""What an idle device takes for a launch, and what clocks and events are rounded to."""


class Job:
    """A script whose kernels take 10 ms forward, 20 ms backward and 3 ms in the optimizer, and the host 1 ms each."""

    def __init__(self, machine, every=1, device=DEVICE, host_takes_ns=MS, is_asked=True):
        self.machine, self.recorder, self.host_takes_ns = machine, StepRecorder(), host_takes_ns
        self.operations = StepOperations(
            self.recorder,
            every,
            lambda device: CudaClock(machine.cuda, device, machine.host_ns),
            is_asked=is_asked,
        )
        self.param_groups = [{"params": [SimpleNamespace(device=device)]}]
        self.truth = {}
        self.before, self.after = optimizer_hooks(self.operations)
        self.autograd = SimpleNamespace(backward=lambda mb: self._pass(BACKWARD, mb, 20 * MS))
        self.operations.autograd(self.autograd)

    def _pass(self, optype, mb, duration_ns):
        self.machine.spend(self.host_takes_ns)
        begin_ns, end_ns = self.machine.kernel(duration_ns)
        first_ns = self.truth.get((optype, mb), (begin_ns,))[0]
        self.truth[optype, mb] = first_ns, end_ns

    def optimizer_step(self):
        self.before(self, (), {})
        self._pass(OPTIMIZER, -1, 3 * MS)
        self.after(self, (), {})

    def step(self, micro_batches=2):
        self.truth = {}
        for mb in range(micro_batches):
            self._pass(FORWARD, mb, 10 * MS)
            self.autograd.backward(mb)
        self.optimizer_step()

    def told(self, steps=2):
        """The device does what it was given; the next steps tell of it. They are not those looked at."""
        self.machine.run_dry()
        for _ in range(steps):
            self.optimizer_step()

    def is_told_as_it_was(self, tolerance_ns=TOLERANCE_NS, step=1):
        told = self.recorder.times(step)
        assert told.keys() == self.truth.keys()
        for what, (start_ns, end_ns) in self.truth.items():
            # A forward pass of a script without a pipeline begins where the one before it ended.
            if what[0] != FORWARD:
                assert told[what][0] == pytest.approx(start_ns, abs=tolerance_ns), what
            assert told[what][1] == pytest.approx(end_ns, abs=tolerance_ns), what
        return True


def test_on_a_device_nothing_is_recorded_that_nobody_asked_for():
    job = Job(Machine(), is_asked=False)
    for _ in range(3):
        job.step()
    job.told()
    assert (job.recorder.rows, job.recorder.notes) == ([], [])


def test_times_are_those_of_the_device_although_the_host_is_far_ahead():
    job = Job(Machine())
    job.step()
    job.step()
    truth, launched_ns = dict(job.truth), job.machine.now_ns
    assert truth[OPTIMIZER, -1][0] > launched_ns + 80 * MS, "the host has launched all of it long before"
    job.told()
    job.truth = truth
    assert job.is_told_as_it_was()
    assert job.recorder.notes == []
    assert job.machine.blocked == []


def test_times_are_right_where_the_script_waits_for_its_device_too():
    """A script that reads its loss in each step: events are over long before anybody looks."""
    job = Job(Machine())
    for _ in range(3):
        job.step()
        truth = dict(job.truth)
        job.machine.run_dry()
    job.told(steps=1)
    job.truth = truth
    assert job.is_told_as_it_was(step=2)


def test_a_device_with_one_queue_is_told_as_exactly_as_somebody_looked():
    """A probe ends behind what was launched before it, a while after: so looks decide, which are 9 ms apart here."""
    job = Job(Machine(one_queue=True), host_takes_ns=9 * MS)
    job.step()
    truths = {}
    for step in range(1, 6):
        job.step(micro_batches=6)
        truths[step] = dict(job.truth)
        job.machine.run_dry()
    told = {row[2] for row in job.recorder.rows}
    assert len(told) >= 3
    for step in told:
        job.truth = truths[step]
        assert job.is_told_as_it_was(tolerance_ns=9 * MS, step=step)


def test_a_clock_that_is_not_known_well_enough_is_not_used(monkeypatch):
    monkeypatch.setattr(cuda_times, "MOST_UNSURE_NS", 1 * US)
    job = Job(Machine())
    job.step()
    job.step()
    job.told()
    assert job.recorder.rows == []
    (note,) = job.recorder.notes
    assert "clock was not known" in note


def test_a_captured_step_is_not_recorded_and_the_next_one_is():
    """The stand-in fails where an event is recorded, or asked for, in a capture."""
    job = Job(Machine())
    job.step()
    job.machine.cuda.is_capturing = True
    job.step()
    job.machine.cuda.is_capturing = False
    job.step()
    job.step()
    job.told()
    assert {row[2] for row in job.recorder.rows} >= {3}
    assert {row[2] for row in job.recorder.rows}.isdisjoint({1, 2}), "2 began within the capture"
    assert sum("captured into a CUDA graph" in note for note in job.recorder.notes) == 1


def test_a_step_that_waits_to_be_told_is_not_asked_for_in_a_capture_and_told_after_it():
    job = Job(Machine())
    job.step()
    job.step()
    truth = dict(job.truth)
    job.machine.cuda.is_capturing = True
    job.machine.run_dry()
    job.optimizer_step()
    assert job.recorder.rows == []
    job.machine.cuda.is_capturing = False
    job.told()
    job.truth = truth
    assert job.is_told_as_it_was()
    assert not any("error" in note for note in job.recorder.notes)


def test_streams_of_ours_are_none_that_the_script_may_have_too():
    """There are 32 of each priority, which torch gives out in turn; scripts and NCCL have those of 0 and -1."""
    job = Job(Machine())
    theirs = list(job.machine.cuda.streams)
    job.step()
    job.step()
    ours = [stream for stream in job.machine.cuda.streams if stream not in theirs]
    assert ours
    assert all(stream.priority < -1 for stream in ours)


def test_only_recorded_steps_use_events():
    job = Job(Machine(), every=1000)
    for _ in range(20):
        job.step()
    assert job.machine.cuda.events == []


def test_an_error_of_cuda_ends_it_with_a_note_and_never_reaches_the_script():
    """Each of the first event calls in turn, in a job that ends several recorded steps."""
    noted = 0
    for at in range(150):
        job = Job(Machine())
        job.machine.cuda.fails_from = at
        for _ in range(6):
            job.step()
            job.machine.run_dry()
        job.told()
        assert len(job.recorder.notes) <= 1
        if job.recorder.notes:
            noted += 1
            assert "no operations for what-if" in job.recorder.notes[0]
            assert "illegal memory access" in job.recorder.notes[0]
            n_events = len(job.machine.cuda.events)
            job.step()
            assert len(job.machine.cuda.events) == n_events
    assert noted > 100


def test_events_are_used_again():
    job = Job(Machine())
    job.step()
    counts = []
    for _ in range(30):
        job.step()
        job.machine.run_dry()
        counts.append(len(job.machine.cuda.events))
    assert counts[-1] == counts[5]
    assert len({row[2] for row in job.recorder.rows}) > 25


def test_steps_that_the_device_does_not_end_are_few_and_so_are_their_events():
    """A device that is stuck: the script goes on launching."""
    job = Job(Machine())
    job.step()
    job.machine.kernel(10**15)
    for _ in range(50):
        job.step()
    assert len(job.operations._waiting) <= MOST_WAITING
    assert len(job.machine.cuda.events) < 100
    (note,) = job.recorder.notes
    assert "has yet to end" in note


def test_a_step_of_more_operations_than_there_are_events_is_said_and_left_out(monkeypatch):
    monkeypatch.setattr(cuda_times, "MOST_EVENTS", 16)
    job = Job(Machine())
    job.step()
    job.step(micro_batches=20)
    for _ in range(3):
        job.step()
        job.machine.run_dry()
    job.told()
    assert len(job.machine.cuda.events) <= 16
    assert any("more operations than" in note for note in job.recorder.notes)
    assert {row[2] for row in job.recorder.rows} >= {2}, "smaller steps are recorded"


class Pipeline(Job):
    """The first of two stages: micro-batches, with sends and receives on NCCL's stream."""

    def __init__(self, machine, backend=None):
        super().__init__(machine)
        self.group = FakeProcessGroup(backend) if backend else FakeProcessGroup()
        self.nccl = machine.cuda.Stream()
        self.works = []
        self.arrives_ns = 0
        self.schedules = SimpleNamespace(
            _batch_p2p=self._batch, _wait_batch_p2p=lambda works: [work.wait() for work in works]
        )
        self.schedules._PipelineSchedule = type("Schedule", (), {"_maybe_compute_loss": lambda *_: None})
        self.operations.schedules(self.schedules)
        one = [lambda *_: [SimpleNamespace(group=self.group, tensor=SimpleNamespace(device=DEVICE))]][0]
        stage = type(
            "Stage",
            (),
            {
                "forward_one_chunk": lambda _, mb: self._pass(FORWARD, mb, 10 * MS),
                "backward_one_chunk": lambda _, mb: self._pass(BACKWARD, mb, 20 * MS),
                **dict.fromkeys(("get_fwd_recv_ops", "get_fwd_send_ops", "get_bwd_recv_ops", "get_bwd_send_ops"), one),
            },
        )
        self.operations.stages(SimpleNamespace(_PipelineStageBase=stage))
        self.operations._place = lambda stage: (0, 0, 2)
        self.stage = stage()
        self.stage.has_backward, self.stage.is_last = True, False

    def _batch(self, p2p_ops, desc=None):
        self.works += [Work(self.machine, self.nccl, self.arrives_ns)]
        return self.works[-1:] * (1 if desc == "coalesced" else len(p2p_ops))


def test_a_receive_begins_when_the_device_gets_to_it_and_ends_when_nccl_does():
    """The peer is late: the script's stream stands still, and the host is ahead of all of it."""
    job = Pipeline(Machine())
    job.optimizer_step()
    begun_ns = job.machine.kernel(4 * MS)[1]
    job.arrives_ns = job.machine.now_ns + 60 * MS
    job.schedules._wait_batch_p2p(job.schedules._batch_p2p(job.stage.get_fwd_recv_ops(0)))
    job.stage.forward_one_chunk(0)
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    work, truth = job.works[0], job.truth[FORWARD, 0]
    job.told()
    told = job.recorder.times()
    assert told[FORWARD_RECV, 0] == pytest.approx((begun_ns, work.end.done_ns), abs=TOLERANCE_NS)
    assert told[FORWARD, 0] == pytest.approx(truth, abs=TOLERANCE_NS)
    assert told[FORWARD, 0][0] >= told[FORWARD_RECV, 0][1] - TOLERANCE_NS, "waiting for it is no computing"


def test_a_transfer_ends_when_nccl_is_done_and_not_when_the_scripts_stream_gets_there():
    """The send is over in the middle of the computation that follows it, after which the script waits for it."""
    job = Pipeline(Machine())
    job.optimizer_step()
    job.stage.forward_one_chunk(0)
    job.arrives_ns = job.machine.now_ns + 15 * MS
    sent = job.schedules._batch_p2p(job.stage.get_fwd_send_ops(0))
    job.stage.forward_one_chunk(1)
    job.stage.forward_one_chunk(2)
    job.schedules._wait_batch_p2p(sent)
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    work, computed_ns = job.works[0], job.truth[FORWARD, 2][1]
    assert work.end.done_ns < computed_ns - 10 * MS
    job.told()
    assert job.recorder.times()[FORWARD_SEND, 0][1] == pytest.approx(work.end.done_ns, abs=TOLERANCE_NS)
    assert job.machine.blocked == []


def test_a_late_send_does_not_make_a_receive_late_that_is_waited_for_behind_it():
    job = Pipeline(Machine())
    job.optimizer_step()
    other_stream, job.arrives_ns = job.nccl, job.machine.now_ns + 200 * MS
    sent = job.schedules._batch_p2p(job.stage.get_fwd_send_ops(0))
    job.nccl, job.arrives_ns = job.machine.cuda.Stream(), job.machine.now_ns + 5 * MS
    received = job.schedules._batch_p2p(job.stage.get_bwd_recv_ops(0))
    job.schedules._wait_batch_p2p(sent)
    job.schedules._wait_batch_p2p(received)
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    assert other_stream.free_ns > job.nccl.free_ns + 100 * MS
    ends_ns = [work.end.done_ns for work in job.works]
    job.told()
    told = job.recorder.times()
    assert told[FORWARD_SEND, 0][1] == pytest.approx(ends_ns[0], abs=TOLERANCE_NS)
    assert told[BACKWARD_RECV, 0][1] == pytest.approx(ends_ns[1], abs=TOLERANCE_NS)


def test_two_transfers_in_one_work_end_with_it():
    """A batch of sends and receives is coalesced into one Work, which the script waits for once."""
    job = Pipeline(Machine())
    job.optimizer_step()
    job.arrives_ns = job.machine.now_ns + 9 * MS
    both = [*job.stage.get_fwd_send_ops(0), *job.stage.get_bwd_recv_ops(0)]
    job.schedules._wait_batch_p2p(job.schedules._batch_p2p(both, desc="coalesced"))
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    (work,) = job.works
    job.told()
    told = job.recorder.times()
    assert told[FORWARD_SEND, 0] == pytest.approx(told[BACKWARD_RECV, 0], abs=TOLERANCE_NS)
    assert told[FORWARD_SEND, 0][1] == pytest.approx(work.end.done_ns, abs=TOLERANCE_NS)
    assert work.n_waits == 1, "its tensors are given back by the script's own wait"


def test_transfers_of_a_backend_whose_ends_are_not_known_are_refused():
    class ProcessGroupWrapper:
        """What TORCH_DISTRIBUTED_DEBUG=DETAIL puts around the real one."""

    job = Pipeline(Machine(), ProcessGroupWrapper)
    job.optimizer_step()
    job.schedules._wait_batch_p2p(job.schedules._batch_p2p(job.stage.get_fwd_send_ops(0)))
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    job.told()
    assert job.recorder.rows == []
    (note,) = job.recorder.notes
    assert "ProcessGroupWrapper" in note


def test_a_transfer_in_a_captured_step_draws_no_stream_of_ours_into_the_graph():
    job = Pipeline(Machine())
    job.optimizer_step()
    sent = job.schedules._batch_p2p(job.stage.get_fwd_send_ops(0))
    job.machine.cuda.is_capturing = True
    job.schedules._wait_batch_p2p(sent)
    job.machine.cuda.is_capturing = False
    job.stage.backward_one_chunk(0)
    job.optimizer_step()
    job.told()
    assert 1 not in {row[2] for row in job.recorder.rows}


def test_what_a_sharded_pass_waits_for_is_seen_on_the_thread_that_autograd_has_for_the_device():
    job = Job(Machine())
    waits = {"unshard": 0, "wait_for_unshard": 7 * MS, "post_backward": 0}
    group = type(
        "FSDPParamGroup",
        (),
        {name: lambda self, wait_ns=wait_ns: job.machine.kernel(wait_ns) for name, wait_ns in waits.items()},
    )
    job.operations.sharding(SimpleNamespace(FSDPParamGroup=group))
    state = type("FSDPState", (), {"_end_backward_iteration": lambda self: job.machine.kernel(5 * MS)})
    job.operations.sharding_ends(SimpleNamespace(FSDPState=state))
    seen = []

    def backward():
        def on_the_devices_thread():
            seen.append((PARAMS_GATHER, group().wait_for_unshard()))
            job._pass(BACKWARD, 0, 20 * MS)
            group().post_backward()
            seen.append((GRADS_SCATTER, state()._end_backward_iteration()))

        thread = threading.Thread(target=on_the_devices_thread)
        thread.start()
        thread.join()

    job.autograd.backward = job.operations._seeing(backward, job.operations._backward)
    job.optimizer_step()
    group().unshard()
    job._pass(FORWARD, 0, 10 * MS)
    job.autograd.backward()
    job.optimizer_step()
    job.told()
    rows = {(row[3], row[0] // MS): (row[0], row[1], row[6]) for row in job.recorder.rows if row[2] == 1}
    for optype, (start_ns, end_ns) in seen:
        told = [row for (kind, _), row in rows.items() if kind == optype and row[1] - row[0] > MS]
        assert told == [pytest.approx((start_ns, end_ns, 0), abs=TOLERANCE_NS)]


def test_a_forked_child_neither_tells_of_its_parents_events_nor_destroys_them():
    job = Job(Machine())
    job.step()
    job.step()
    job.operations.after_fork()
    assert any(clock is not None for clock, *_ in torch_ops._left_to_the_parent)
    job.machine.run_dry()
    for _ in range(3):
        job.optimizer_step()
    assert 1 not in {row[2] for row in job.recorder.rows}
    torch_ops._left_to_the_parent.clear()


@pytest.mark.parametrize("is_over", [True, False])
def test_a_process_that_ends_tells_of_the_last_step_if_its_device_has_ended_it(is_over):
    job = Job(Machine())
    job.step()
    job.step()
    if is_over:
        job.machine.run_dry()
    job.operations.leave()
    assert ({row[2] for row in job.recorder.rows} == {1}) == is_over
    assert bool(job.recorder.notes) != is_over


def test_parameters_on_another_device_than_the_current_one_are_refused():
    job = Job(Machine(), device=Device("cuda", 1))
    for _ in range(3):
        job.step()
    assert job.recorder.rows == []
    (note,) = job.recorder.notes
    assert "cuda:1" in note
