"""Puts the NCCL shim and plugin, the hold and the streams' inner loops into the wheel, where there is a C compiler.

Beside the packages it puts `pacehound.pth`, by which ranks are found whose script sets PYTHONPATH itself. Everything
else stands in pyproject.toml. Where one of them cannot be compiled the wheel comes without it, which the
build says: `pacehound run --nccl …` then builds it at its first use. A wheel that holds one is for this platform alone.
An editable install compiles nothing: its builds lie in the user's cache (`make native`). It has no `pacehound.pth`.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Command, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build import build
from setuptools.command.build_py import build_py

sys.path.insert(0, str(Path(__file__).resolve().parent))  # a build backend does not put us there

from pacehound.instrument import hold, native_build, profiler, shim
from streams import native_loops


class BuildNative(Command):
    """Compile what can be, where an installed `find` looks for it."""

    description = "compile the NCCL shim, the profiler plugin, the hold and the inner loops"
    user_options: list[tuple[str, str | None, str]] = [("build-lib=", "d", "directory to build into")]  # noqa: RUF012

    def initialize_options(self) -> None:
        self.build_lib: str | None = None
        self.editable_mode = False

    def finalize_options(self) -> None:
        self.set_undefined_options("build", ("build_lib", "build_lib"))

    def run(self) -> None:
        if self.editable_mode:
            return
        shutil.rmtree(self._folder(), ignore_errors=True)  # what an earlier build of other sources has left
        for module in (shim, profiler, hold, native_loops):
            target = self._folder() / module.folder() / module.NAME
            try:
                native_build.made_once(target, module.make)
            except (RuntimeError, ValueError, OSError, subprocess.SubprocessError) as error:
                self.warn(f"the wheel comes without {module.NAME}, which is built at its first use: {error}")

    def get_outputs(self) -> list[str]:
        return [str(path) for path in self._folder().glob("*/*.so")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}

    def get_source_files(self) -> list[str]:
        return []  # package data of `collector` and `streams`

    def _folder(self) -> Path:
        assert self.build_lib is not None
        return Path(self.build_lib, *native_build.__name__.split(".")[:-1], native_build.PACKAGED.name)


class BuildPython(build_py):
    """The packages, and the file that interpreters look for beside them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            self.mkpath(self.build_lib)
            self.copy_file(_PTH, self._installed())

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *([] if self.editable_mode else [self._installed()])]

    def _installed(self) -> str:
        return str(Path(self.build_lib, Path(_PTH).name))


_PTH = "pacehound/instrument/autoload/pacehound.pth"


class Build(build):
    """Everything, and then the native libraries."""

    sub_commands = [*build.sub_commands, ("build_native", None)]  # noqa: RUF012


class BdistWheel(bdist_wheel):
    """A wheel whose tag says what came of the build: any Python 3, and this platform if something was compiled."""

    def run(self) -> None:
        self.run_command("build")
        is_native = bool(self.get_finalized_command("build_native").get_outputs())
        self.root_is_pure = not is_native
        self.distribution.has_ext_modules = lambda: is_native  # `install` asks it where everything goes
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return self.python_tag, "none", platform


setup(cmdclass={"build": Build, "build_py": BuildPython, "build_native": BuildNative, "bdist_wheel": BdistWheel})
