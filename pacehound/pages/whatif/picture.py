"""Heat maps of workers as a picture (needs matplotlib: `pip install 'pacehound[draw]'`)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pacehound.model.whatif_result import WhatIf
from pacehound.pages import png
from pacehound.pages.whatif.page import HOTTEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = npt.NDArray[np.float64]

_MOST_NUMBERS = 16
"""DP ranks and stages, up to which each cell has its number in it."""
_MOST_STEPS = 200


def draw_workers(found: WhatIf, file: Path) -> None:
    """Write a PNG: the published cells, each worker exactly, and each worker in each step.

    Raises
    ------
    InvalidInput
        matplotlib is not installed, or `file` cannot be written.

    """
    n_stages, n_dp = found.by_worker.shape
    map_inches = float(np.clip(0.42 * n_stages + 1.0, 1.8, 9.0))
    steps_inches = float(np.clip(0.09 * n_stages * n_dp + 1.2, 2.0, 12.0))
    width = float(np.clip(0.95 * n_dp + 3.0, 8.0, 16.0))
    figure = png.new_figure(width, map_inches + steps_inches)
    grid = figure.add_gridspec(2, 2, height_ratios=[map_inches, steps_inches])
    first, second = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1])
    _workers(first, found.cells, "lesser of DP rank and stage (as published)")
    _workers(second, found.by_worker, "each worker by itself (exact)")
    below = figure.add_subplot(grid[1, :])
    _steps(below, found)
    figure.suptitle(
        f"{found.meta.trial_name}: S = {found.slowdown:.3f}, {found.waste:.0%} of the GPU-hours wasted", fontsize=11
    )
    figure.colorbar(second.images[0], ax=[first, second, below], label="slowdown", extend="both", fraction=0.03)
    png.write(figure, file)


def _workers(axes: Axes, cells: FloatArray, title: str) -> None:
    axes.imshow(cells, cmap="Reds", vmin=1.0, vmax=HOTTEST, aspect="auto", interpolation="nearest")
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("DP rank", fontsize=8)
    axes.set_ylabel("PP rank", fontsize=8)
    axes.tick_params(labelsize=8)
    axes.locator_params(integer=True)
    if max(cells.shape) > _MOST_NUMBERS:
        return
    for (stage, dp), slowdown in np.ndenumerate(cells):
        dark = slowdown > 1 + 0.6 * (HOTTEST - 1)
        axes.text(
            dp, stage, f"{slowdown:.3g}", ha="center", va="center", fontsize=7.5, color="white" if dark else "black"
        )


def _steps(axes: Axes, found: WhatIf) -> None:
    """Workers down, DP rank by DP rank; steps across."""
    n_steps, n_stages, n_dp = found.by_worker_per_step.shape
    every = max(1, -(-n_steps // _MOST_STEPS))
    rows = found.by_worker_per_step[::every].transpose(2, 1, 0).reshape(n_dp * n_stages, -1)
    axes.imshow(rows, cmap="Reds", vmin=1.0, vmax=HOTTEST, aspect="auto", interpolation="nearest")
    shown = found.steps[::every]
    at = np.unique(np.linspace(0, len(shown) - 1, 12).astype(int))
    axes.set_xticks(at, [str(shown[i]) for i in at], fontsize=7)
    marks = range(0, n_dp * n_stages, n_stages * max(1, n_dp // 16))
    axes.set_yticks(list(marks), [f"dp {mark // n_stages}" for mark in marks], fontsize=7)
    axes.set_title("each worker in each step (stages below their DP rank)", fontsize=9)
    axes.set_xlabel("step" if every == 1 else f"step (every {every}th)", fontsize=8)
