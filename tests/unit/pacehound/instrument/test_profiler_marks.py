"""Marks in the traces of the script's own profiler: what they are called, and how long they last."""

from types import SimpleNamespace

import pytest

from pacehound.instrument import torch_marks
from pacehound.instrument.torch_marks import ProfilerMarks

GROUP = object()


class Module:
    """Stands for the two modules of torch.distributed.pipelining."""

    def __init__(self):
        class Stage:
            is_last = True

            def forward_one_chunk(self, micro_batch, *args, **kwargs):
                return ("forward", micro_batch)

            def backward_one_chunk(self, micro_batch, loss, full_backward=True):
                return ("backward", micro_batch)

            def get_fwd_send_ops(self, micro_batch):
                return [SimpleNamespace(group=GROUP), SimpleNamespace(group=GROUP)]

            get_fwd_recv_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_send_ops

        class Schedule:
            def _maybe_compute_loss(self, stage, output, targets, micro_batch):
                return "loss"

        self._PipelineStageBase, self._PipelineSchedule = Stage, Schedule
        self._batch_p2p = lambda p2p_ops, desc=None: [SimpleNamespace() for _ in p2p_ops]
        self._wait_batch_p2p = lambda works: None


@pytest.fixture
def profiler(monkeypatch):
    """Ranges as they open (+) and close (-)."""
    found = SimpleNamespace(is_on=True, said=[])

    def begun(name):
        found.said.append(f"+{name}")
        return SimpleNamespace(__exit__=lambda *_: found.said.append(f"-{name}"))

    monkeypatch.setattr(torch_marks, "_is_profiling", lambda: found.is_on)
    monkeypatch.setattr(torch_marks, "_begun", begun)
    monkeypatch.setattr(torch_marks, "place_of", lambda stage: (1, 3, 4))
    return found


@pytest.fixture
def module(profiler):
    wrapped, marks = Module(), ProfilerMarks()
    marks.stages(wrapped)
    marks.schedules(wrapped)
    return wrapped


def test_passes_and_the_loss_are_ranges_that_name_stage_and_micro_batch(module, profiler):
    stage = module._PipelineStageBase()
    assert stage.forward_one_chunk(7, "x") == ("forward", 7)
    assert module._PipelineSchedule()._maybe_compute_loss(stage, "y", None, 7) == "loss"
    assert stage.backward_one_chunk(7, loss=None) == ("backward", 7)
    forward = "pacehound:forward-compute stage=1 chunk=3 mb=7 pipeline=4"
    backward = "pacehound:backward-compute stage=1 chunk=3 mb=7 pipeline=4"
    assert profiler.said == [f"{sign}{name}" for name in (forward, forward, backward) for sign in "+-"]


def test_a_transfer_lasts_until_all_of_its_tensors_have_been_waited_for(module, profiler):
    works = module._batch_p2p(module._PipelineStageBase().get_fwd_send_ops(2))
    send = "pacehound:forward-send stage=1 chunk=3 mb=2 pipeline=4"
    module._wait_batch_p2p(works[:1])
    assert profiler.said == [f"+{send}"]
    profiler.is_on = False  # the profiler may stop while something is under way
    module._wait_batch_p2p(works[1:])
    assert profiler.said == [f"+{send}", f"-{send}"]


def test_a_backward_pass_that_is_split_is_not_called_a_backward_pass(module, profiler):
    """There is no model of it: the trace will be refused, with this name in the message."""
    module._PipelineStageBase().backward_one_chunk(0, loss=None, full_backward=False)
    assert profiler.said[0].startswith("+pacehound:backward-input ")


def test_without_a_profiler_nothing_is_looked_at(module, profiler, monkeypatch):
    profiler.is_on = False
    monkeypatch.setattr(torch_marks, "place_of", lambda stage: pytest.fail("looked"))
    assert module._PipelineStageBase().forward_one_chunk(1) == ("forward", 1)
    module._wait_batch_p2p(module._batch_p2p(module._PipelineStageBase().get_fwd_send_ops(2)))
    assert profiler.said == []


def test_an_error_of_ours_ends_the_marks_and_not_the_step(module, profiler, monkeypatch):
    def fail(stage):
        raise AttributeError("a newer torch has none")

    monkeypatch.setattr(torch_marks, "place_of", fail)
    stage = module._PipelineStageBase()
    assert stage.forward_one_chunk(1) == ("forward", 1)
    assert len(stage.get_fwd_send_ops(1)) == 2
    assert profiler.said == []
    monkeypatch.setattr(torch_marks, "place_of", lambda stage: pytest.fail("looked again"))
    assert stage.forward_one_chunk(2) == ("forward", 2)
