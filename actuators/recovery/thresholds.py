"""What decides in a recovery, each with its unit and reason."""

from __future__ import annotations

DP_SPREAD = 2
"""Data-parallel degrees on both sides of one that promises much: Odyssey IV-A, 'often differs by less than 2'."""

PP_GROWTH = 2
"""Pipelines of up to so many times the stages that the job had: longer ones have more bubbles and gain nothing but
memory. Where memory needs longer ones, the shortest that fit are tried, and `PP_SPREAD` above them."""

PP_SPREAD = 2
"""Stages beyond the shortest pipeline that fits into memory."""

PP_ALWAYS = 8
"""Stages that are tried whatever the job had: for seven nodes of DP 4 x PP 2 and a small batch one pipeline of seven is
the best plan, by 4 % (found by listing, as `python -m bench recovery` does)."""

LEAST_PRICED = 6
"""Plans that are priced whatever they promise, so that who reads the table sees what the choice was made from."""

MOST_PRICED = 16
"""Chosen: of 1,024 nodes each takes about 40 ms, and those promising most come first."""

RESTART_S = 2.0
"""Of a recovery of 11.2 s that V-C of Odyssey shows for 8 devices, 26.79 % is 32.35 % of the transfer: so 9.3 s are the
transfer and 1.9 s all else. That is one point; of other scales nothing is known, so it is a setting of the cluster."""

REROUTE_S = 0.5
"""Odyssey IV-C calls it negligible. Gradients are reduced among fewer, so communicators are made anew: assumed."""

LEAST_PAST_FAILURES = 0.5
"""Added to the failures that were seen (Jeffreys' prior of a Poisson rate): having seen none yet is no rate of zero."""

LEAST_SEEN_FAILURES = 3
"""In a store, those of now among them: below that its rate is not taken. Of three it is known to within a half (one
standard error); and of one in the first minute of a job it would be expected that the next comes in seconds."""

UTILISATION = 0.4
"""Of a device's peak, where a model is known by its shape alone: Llama 3 reports 38-43 % on 16,384 GPUs (Llama 3, table
4). It scales all compute alike, so that plans are compared well where it is wrong; downtime then weighs too much or
too little."""

BYTES_PER_WEIGHT = 2
"""bf16; gradients too."""

OPTIMIZER_BYTES_PER_WEIGHT = 12
"""Adam with a copy of the weights and two moments, in fp32: mixed-precision training as ZeRO 3.1 counts it."""

ACTIVATION_BYTES_PER_VALUE = 34
"""Of each token and hidden value, in a layer whose attention is recomputed: Korthikanti et al., equation 3 without its
second term."""

ASSUMED_FAILURES = 419
ASSUMED_DEVICE_HOURS = 54 * 24 * 16_384
"""Interruptions in 54 days of 16,384 GPUs (Llama 3, 3.3.4): taken where nobody watched failures, which is said then."""

ASSUMED_LAYERS = 32
"""Of a job whose model nobody has told: a model of 7 billion weights has them (Llama 2, table 1). It decides how finely
stages can be divided."""

ASSUMED_MICRO_BATCHES = 8
"""Equal parts of a replica's batch where no pipeline shows them: replicas without stages can divide it as they like."""

CHECKPOINT_BYTES_PER_S = 1e9
"""At which a node reads a checkpoint: as `pacehound recover` has it (--checkpoint-bandwidth)."""

UNKNOWN_MEMORY_BYTES = 1e15
"""Stands for memory that nobody has told of: no plan is left out for it."""

MOST_ALTERNATIVES = 3
"""Plans that a decision tells of besides the best: of each kind the best is among them."""

MOST_NODES = 4_096
"""Of a job whose recovery is decided by itself: it takes some seconds (1,024 nodes: 0.3 s), and others wait."""
