"""What is seen of a script's backward passes, stages and transfers; torch itself is not needed for that."""

from __future__ import annotations

import time
from collections import namedtuple
from types import SimpleNamespace

import pytest

from pacehound.instrument.recorded_steps import BACKWARD, FORWARD, FORWARD_SEND, GRADS_SCATTER, OPTIMIZER, PARAMS_GATHER
from pacehound.instrument.torch_ops import StepOperations
from tests.fakes.step_recorder import StepRecorder, optimizer_hooks

Device = namedtuple("Device", "type index")


class Optimizer:
    def __init__(self, *devices):
        params = [SimpleNamespace(device=Device(device, 0)) for device in devices or ("cpu",)]
        self.param_groups = [{"params": [param]} for param in params]


class Script:
    """A process with our functions in place of torch's."""

    def __init__(self, every=2, optimizer=None, in_a_row=1, is_asked=True, now_ns=time.monotonic_ns):
        self.recorder = StepRecorder()
        self.operations = StepOperations(self.recorder, every, in_a_row=in_a_row, is_asked=is_asked, now_ns=now_ns)
        self.optimizer = optimizer or Optimizer()
        self.before, self.after = optimizer_hooks(self.operations)
        self.autograd = SimpleNamespace(backward=lambda *tensors: "gradients")
        self.operations.autograd(self.autograd)
        self.schedules = SimpleNamespace(
            _batch_p2p=lambda ops, desc=None: [object() for _ in ops],
            _wait_batch_p2p=lambda works: None,
            _PipelineSchedule=type("Schedule", (), {"_maybe_compute_loss": lambda *_: None}),
        )
        self.operations.schedules(self.schedules)
        names = ("forward_one_chunk", "backward_one_chunk", "get_fwd_recv_ops", "get_bwd_recv_ops", "get_bwd_send_ops")
        functions = dict.fromkeys(names, lambda *args, **kwargs: [])
        functions["get_fwd_send_ops"] = lambda *_: [SimpleNamespace(group="g"), SimpleNamespace(group="g")]
        stage = type("Stage", (), functions)
        self.operations.stages(SimpleNamespace(_PipelineStageBase=stage))
        self.stage = stage()
        self.stage.has_backward, self.stage.is_last = True, False
        self.operations._place = lambda stage: (1, 1, 2)

    def step(self, optimizer=None):
        self.before(optimizer or self.optimizer, (), {})
        self.after(optimizer or self.optimizer, (), {})

    def seen(self):
        """Step, type, stage, micro-batch, pipeline and number of what was written."""
        return [(row[2], row[3], row[4], row[6], row[7], row[8]) for row in self.recorder.rows]


def test_one_step_in_so_many_is_recorded_and_never_the_first():
    script = Script(every=2)
    for _ in range(5):
        assert script.autograd.backward("loss") == "gradients"
        script.step()
    assert {row[0] for row in script.seen()} == {2, 4}


def recorded(step_s, *, is_asked, steps=200):
    """Which of a job's steps are recorded, two of each ten being due."""
    now_ns = iter(range(0, 10**15, round(step_s * 1e9) * 10))  # it is asked once in ten steps
    script = Script(every=5, in_a_row=2, is_asked=is_asked, now_ns=now_ns.__next__)
    for _ in range(steps):
        script.autograd.backward("loss")
        script.step()
    return sorted({row[0] for row in script.seen()})


def test_of_short_steps_a_stretch_in_some_seconds_is_recorded_of_those_that_longer_steps_record():
    long = recorded(1.0, is_asked=False)
    assert long == [step for step in range(10, 200) if step % 10 in (0, 1)]
    shorter = recorded(0.3, is_asked=False)  # ten take 3 s: one stretch in four is behind twelve seconds
    assert shorter == [step for step in range(10, 200) if step % 40 in (0, 1)]
    shortest = recorded(0.15, is_asked=False)
    assert shortest == [step for step in range(10, 200) if step % 80 in (0, 1)]
    assert set(shortest) < set(shorter) < set(long), "what one rank leaves out is what another leaves out, too"


def test_whoever_asks_for_so_many_steps_has_them_of_short_steps_too():
    assert recorded(0.001, is_asked=True) == recorded(1.0, is_asked=False)


def test_without_a_pipeline_each_backward_pass_ends_a_micro_batch():
    script = Script(every=1)
    script.step()
    script.autograd.backward("loss")
    script.autograd.backward("loss")
    script.step()
    assert script.seen() == [
        (1, FORWARD, 0, 0, 3, 0),
        (1, BACKWARD, 0, 0, 3, 0),
        (1, FORWARD, 0, 1, 3, 1),
        (1, BACKWARD, 0, 1, 3, 1),
        (1, OPTIMIZER, 0, -1, 3, 0),
    ]
    times = [(row[0], row[1]) for row in script.recorder.rows]
    assert all(start <= end for start, end in times)
    assert times[0][1] == times[1][0], "forward ends where backward begins"


def test_a_transfer_of_two_tensors_is_one_operation_that_ends_with_the_last_wait():
    script = Script(every=1)
    script.step()
    script.stage.forward_one_chunk(0)
    works = script.schedules._batch_p2p(script.stage.get_fwd_send_ops(0))
    script.schedules._wait_batch_p2p(works)
    unwaited = script.schedules._batch_p2p(script.stage.get_fwd_send_ops(1))
    script.schedules._wait_batch_p2p(unwaited[:1])
    script.stage.backward_one_chunk(0)
    script.step()
    assert script.seen() == [
        (1, FORWARD, 1, 0, 2, 0),
        (1, FORWARD_SEND, 1, 0, 2, 0),
        (1, BACKWARD, 1, 0, 2, 0),
        (1, OPTIMIZER, 1, -1, 2, 0),
    ]


def test_steps_end_with_the_first_optimizer_alone():
    script = Script(every=1)
    script.step()
    other = Optimizer()
    script.autograd.backward("loss")
    script.step(other)
    assert script.recorder.rows == []
    script.step()
    assert {row[0] for row in script.seen()} == {1}


@pytest.mark.parametrize("why", ["device", "mixed", "split"])
def test_what_cannot_be_seen_is_said_and_nothing_recorded(why):
    devices = {"device": ("xpu",), "mixed": ("cpu", "cuda")}.get(why, ("cpu",))
    script = Script(every=1, optimizer=Optimizer(*devices))
    script.step()
    if why == "split":
        script.stage.backward_one_chunk(0, full_backward=False)
    script.autograd.backward("loss")
    script.step()
    script.autograd.backward("loss")
    script.step()
    assert script.recorder.rows == []
    (note,) = script.recorder.notes
    assert "what-if" in note


def test_an_error_of_the_script_stays_its_own():
    script = Script(every=1)

    def broken(*_):
        raise RuntimeError("the script's")

    script.autograd.backward = broken
    script.operations.autograd(script.autograd)
    script.step()
    with pytest.raises(RuntimeError, match="the script's"):
        script.autograd.backward("loss")
    script.step()
    assert BACKWARD not in {row[1] for row in script.seen()}


def sharded(script):
    """A parameter group of FSDP2, and the first function of FSDP1, with ours around them."""
    names = ("unshard", "wait_for_unshard", "post_backward")
    group = type("FSDPParamGroup", (), {name: lambda self: "done" for name in names})
    script.operations.sharding(SimpleNamespace(FSDPParamGroup=group))
    flat = SimpleNamespace(_pre_forward=lambda: "done")
    script.operations.flat_sharding(flat)
    return group(), flat


def test_what_holds_up_a_pass_of_a_sharded_job_has_the_micro_batch_of_that_pass():
    script = Script(every=1)
    group, _ = sharded(script)
    script.autograd.backward = script.operations._seeing(lambda: group.post_backward(), script.operations._backward)
    script.step()
    for _ in range(2):
        assert group.unshard() == group.wait_for_unshard() == "done"
        script.autograd.backward()
    script.step()
    syncs = [(row[1], row[3]) for row in script.seen() if row[1] in (PARAMS_GATHER, GRADS_SCATTER)]
    assert sorted(syncs) == [(PARAMS_GATHER, 0)] * 2 + [(PARAMS_GATHER, 1)] * 2 + [
        (GRADS_SCATTER, 0),
        (GRADS_SCATTER, 1),
    ]


def test_sharding_that_there_is_no_model_of_is_said_and_not_recorded():
    """FSDP1, and FSDP2 within a pipeline."""
    script = Script(every=1)
    _, flat = sharded(script)
    script.step()
    assert flat._pre_forward() == "done"
    script.step()
    assert script.recorder.rows == []
    assert "FSDP1" in script.recorder.notes[0]
    script = Script(every=1)
    group, _ = sharded(script)
    script.step()
    group.unshard()
    script.stage.forward_one_chunk(0)
    script.stage.backward_one_chunk(0)
    script.step()
    assert script.recorder.rows == []
    assert "within a pipeline" in script.recorder.notes[0]


def test_steps_are_recorded_so_many_in_a_row():
    script = Script(every=5, in_a_row=3)
    for _ in range(40):
        script.autograd.backward("loss")
        script.step()
    assert sorted({row[0] for row in script.seen()}) == [15, 16, 17, 30, 31, 32]
