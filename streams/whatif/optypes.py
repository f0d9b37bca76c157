"""The operation types of a trace, and what each one is to the model."""

from __future__ import annotations

from typing import Final

from pacehound.model.operations import OPTYPES

FORWARD_COMPUTE, BACKWARD_COMPUTE = 0, 1
FORWARD_SEND, FORWARD_RECV, BACKWARD_SEND, BACKWARD_RECV = 2, 3, 4, 5
PARAMS_GATHER, GRADS_SCATTER, SEPARATE_GRADS = 6, 7, 8
LAYERNORM_GRADS, EMBEDDING_GRADS = 9, 10
CLIP_GRADS, OPTIMIZER, GC = 11, 12, 13

NAMES: Final = OPTYPES
"""By code."""

CODE: Final = {name: code for code, name in enumerate(NAMES)}

COMPUTE: Final = (FORWARD_COMPUTE, BACKWARD_COMPUTE)
P2P: Final = (FORWARD_SEND, FORWARD_RECV, BACKWARD_SEND, BACKWARD_RECV)

IDEAL_IS_MEDIAN: Final = (*P2P, *range(PARAMS_GATHER, CLIP_GRADS + 1))
"""Communication: rare, very long transfers would spoil a mean (section 3.2). Everything else takes the mean."""

SHOWN_AS: Final = (*NAMES[:2], *["forward-pp-comm"] * 2, *["backward-pp-comm"] * 2, *NAMES[6:])
"""The group under which a type's slowdown is told: a slow send makes a slow receive, so the two are one."""
