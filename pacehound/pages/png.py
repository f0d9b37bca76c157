"""PNG files by matplotlib, which is there only where somebody asked for pictures (`pip install 'pacehound[draw]'`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pacehound.errors import InvalidInput

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 110


def new_figure(width_inches: float, height_inches: float) -> Figure:
    """An empty figure that needs no display.

    Raises
    ------
    InvalidInput
        matplotlib is not installed.

    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InvalidInput(
            f"--png needs matplotlib ({error}); install it with: pip install 'pacehound[draw]'"
        ) from error
    figure = Figure(figsize=(width_inches, height_inches), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def write(figure: Figure, file: Path) -> None:
    """Write a figure as a PNG.

    Raises
    ------
    InvalidInput
        `file` cannot be written.

    """
    try:
        figure.savefig(file, format="png")
    except OSError as error:
        raise InvalidInput(f"cannot write {file}: {error.strerror or error}") from error
