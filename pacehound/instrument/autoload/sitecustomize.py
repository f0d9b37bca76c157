"""Loaded by the interpreter because `pacehound run` has put this folder first on PYTHONPATH.

It steps aside for the next `sitecustomize` on the path, whose errors then behave as without us, and loads the
instrument. PYTHONPATH stays as it is, so that the processes which this one starts are instrumented too.

Scripts set PYTHONPATH themselves (`PYTHONPATH=src python …`), or run Python without it (`-I`, `-E`). Where Pacehound is
installed in the interpreter's own packages, `pacehound.pth` lies there and finds this file by PACEHOUND_AUTOLOAD; it
does so before the interpreter looks for a `sitecustomize`, which is nobody's but the user's then.
"""

import os
import sys


def _step_aside() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != here]
    if sys.modules.get("sitecustomize") is not None:
        del sys.modules["sitecustomize"]


def _load_instrument() -> None:
    # In a virtual environment each .pth file is worked on twice.
    if not os.environ.get("PACEHOUND_RUN_DIR") or "pacehound.instrument.bootstrap" in sys.modules:
        return
    try:
        from _frozen_importlib_external import PathFinder  # importlib.machinery would load more than this file

        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

        class FindsPacehound:
            """Finds our package beside this file, and nothing else that lies there.

            The folder that holds the package holds others (collector, storage …) whose names a script may use, so
            it must not be on the path.
            """

            @staticmethod
            def find_spec(name, path=None, target=None):  # type: ignore[no-untyped-def]
                return PathFinder.find_spec(name, [root]) if name == "pacehound" else None

        sys.meta_path.insert(0, FindsPacehound)
        from pacehound.instrument import bootstrap

        bootstrap.start()
    except Exception:  # whatever is wrong with us, the script runs
        pass


if __name__ == "sitecustomize":
    _step_aside()
    try:
        # Raises where there is no other one, which the interpreter takes as it takes it without us.
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    finally:
        _load_instrument()
else:
    _load_instrument()
