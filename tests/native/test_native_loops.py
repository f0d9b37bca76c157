"""The inner loops in C: built once, without a warning, and never given what they would misread."""

import weakref

import numpy as np
import pytest

from pacehound.errors import Unavailable
from streams import native_loops
from streams.arrays_in_c import address, pointer


@pytest.fixture
def anew(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native_loops.loaded.cache_clear()
    yield tmp_path
    native_loops.loaded.cache_clear()


def test_they_are_built_without_a_warning_and_once_into_the_cache(anew, monkeypatch):
    """The compiler takes five seconds for them."""
    monkeypatch.setattr(native_loops, "FLAGS", (*native_loops.FLAGS, "-Wall", "-Wextra", "-Werror"))
    assert native_loops.loaded() is not None
    native_loops.loaded.cache_clear()
    monkeypatch.setattr(native_loops, "make", lambda target: pytest.fail("built twice"))
    assert native_loops.loaded() is not None


def test_a_machine_without_a_compiler_is_told_what_to_do(anew, monkeypatch):
    monkeypatch.setenv("PATH", str(anew))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(Unavailable, match=r"no C compiler .*\. Install a C compiler .* or a wheel"):
        native_loops.loaded()


@pytest.mark.parametrize("array", [np.zeros((4, 4))[:, 0], np.zeros(4, np.float32)], ids=["strided", "of another type"])
def test_what_c_would_misread_is_refused(array):
    with pytest.raises(ValueError, match="C order"):
        address(array, np.float64)
    with pytest.raises(ValueError, match="C order"):
        pointer(array, np.float64)


@pytest.mark.parametrize("kind", [np.int64, np.bool_, np.dtype([("a", "i4"), ("b", "i8")])])
@pytest.mark.parametrize("is_writeable", [True, False])
def test_an_array_is_handed_over_where_it_lies(kind, is_writeable):
    array = np.zeros((3, 2), kind)
    array.flags.writeable = is_writeable
    assert pointer(array, kind) == array.ctypes.data
    assert address(array, kind).value == array.ctypes.data


def test_what_is_handed_over_keeps_the_array():
    array = np.arange(1_000)
    array.flags.writeable = False
    watched = weakref.ref(array)
    handed = address(array)
    del array
    assert watched() is not None
    del handed
    assert watched() is None
