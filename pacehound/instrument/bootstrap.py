"""The first thing of ours in an instrumented process: it waits for `torch.distributed`, and costs little until then.

Loaded by `autoload/sitecustomize.py`. Only what waiting needs is imported here; the rest when torch is.
"""

from __future__ import annotations

import os

from pacehound.instrument.import_hook import AfterImport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

    from pacehound.instrument.recorder import Recorder
    from pacehound.instrument.torch_markers import Markers
    from pacehound.instrument.torch_marks import ProfilerMarks
    from pacehound.instrument.torch_ops import StepOperations


def start() -> None:
    """Wait for torch's modules, where a run folder is named; else do nothing."""
    run_dir = os.environ.get("PACEHOUND_RUN_DIR")
    if run_dir:
        instrument = _Process(run_dir)
        functions = {
            "torch.distributed.distributed_c10d": instrument.c10d,
            "torch.serialization": instrument.serialization,
            "torch.distributed.checkpoint.state_dict_saver": instrument.checkpoint,
            "torch.nn.parallel.distributed": instrument.data_parallel,
            "torch.distributed.pipelining.stage": instrument.stages,
            "torch.distributed.pipelining.schedules": instrument.schedules,
        }
        if instrument.every_steps:
            functions |= {
                "torch.optim.optimizer": lambda module: instrument.operations().optimizers(module),
                "torch.autograd": lambda module: instrument.operations().autograd(module),
                "torch.distributed.fsdp._fully_shard._fsdp_param_group": (
                    lambda module: instrument.operations().sharding(module)
                ),
                "torch.distributed.fsdp._fully_shard._fsdp_state": (
                    lambda module: instrument.operations().sharding_ends(module)
                ),
                "torch.distributed.fsdp._runtime_utils": lambda module: instrument.operations().flat_sharding(module),
            }
        AfterImport(functions).install()


class _Process:
    """What is done to each module of torch."""

    def __init__(self, run_dir: str) -> None:
        self._run_dir = run_dir
        self._parts: tuple[Recorder, Markers] | None = None
        self._operations: StepOperations | None = None
        self._marks: ProfilerMarks | None = None
        self.every_steps = _number("PACEHOUND_OPS_EVERY_STEPS", 0)

    def c10d(self, module: ModuleType) -> None:
        from pacehound.instrument import readers
        from pacehound.instrument.torch_c10d import Instrument

        recorder, markers = self._made()
        try:
            readers.allow(os.environ.get("PACEHOUND_LAUNCHER", ""))
            instrument = Instrument(module, recorder, markers)
            os.register_at_fork(after_in_child=recorder.after_fork)
            os.register_at_fork(after_in_child=instrument.after_fork)
            instrument.install()
        except Exception as error:
            recorder.fail("the set-up", error)

    def serialization(self, module: ModuleType) -> None:
        module.save = self._made()[1].saving(module.save)  # type: ignore[attr-defined]

    def checkpoint(self, module: ModuleType) -> None:
        module.save = self._made()[1].saving(module.save)  # type: ignore[attr-defined]

    def data_parallel(self, module: ModuleType) -> None:
        wrapper = module.DistributedDataParallel
        wrapper.train = self._made()[1].switching(wrapper.train)

    def stages(self, module: ModuleType) -> None:
        self._profiler_marks().stages(module)
        if self.every_steps:
            self.operations().stages(module)

    def schedules(self, module: ModuleType) -> None:
        self._profiler_marks().schedules(module)
        if self.every_steps:
            self.operations().schedules(module)

    def operations(self) -> StepOperations:
        if self._operations is None:
            from pacehound.instrument.torch_ops import StepOperations

            self._operations = StepOperations(
                self._made()[0],
                self.every_steps,
                in_a_row=max(1, _number("PACEHOUND_OPS_WINDOW_STEPS", 1)),
                is_asked=not _number("PACEHOUND_QUIET_OPS", 0),
            )
            os.register_at_fork(after_in_child=self._operations.after_fork)
        return self._operations

    def _profiler_marks(self) -> ProfilerMarks:
        if self._marks is None:
            from pacehound.instrument.torch_marks import ProfilerMarks

            self._marks = ProfilerMarks()
        return self._marks

    def _made(self) -> tuple[Recorder, Markers]:
        if self._parts is None:
            from pacehound.instrument.recorder import Recorder
            from pacehound.instrument.torch_markers import Markers

            recorder = Recorder(self._run_dir, os.environ)
            self._parts = recorder, Markers(recorder)
        return self._parts


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdigit() else otherwise
