"""Calls a function right after a module has been imported, without importing it."""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself takes 5 ms to import, in every Python process of the job
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    After = Callable[[ModuleType], None]


class AfterImport:
    """A finder that finds nothing itself: it asks the others and wraps the loader that they name.

    Parameters
    ----------
    functions
        By module name; each is called once, with the module. What one raises is swallowed.

    """

    def __init__(self, functions: Mapping[str, After]) -> None:
        self._functions = dict(functions)

    def install(self) -> None:
        """Stand first among the finders; what is imported already is served at once."""
        for name in [name for name in self._functions if name in sys.modules]:
            _call(self._functions.pop(name), sys.modules[name])
        sys.meta_path.insert(0, self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the next finder gives, with a loader that calls our function; None for other modules."""
        # Taken out before the others are asked: one of them may import the module, or ask all finders again.
        after = self._functions.pop(name, None)
        if after is None:
            return None
        if not self._functions and self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec: ModuleSpec | None = find(name, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, after)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """The module's own loader, and a call afterwards. It leaves no trace on the module."""

    def __init__(self, loader: Any, after: After) -> None:
        self._loader = loader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        _call(self._after, module)


def _call(after: After, module: ModuleType) -> None:
    try:
        after(module)
    except Exception:  # nothing of ours may reach the import of somebody's module
        pass
