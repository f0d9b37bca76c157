"""The events of the pipeline besides CallBatch (calls.py) and Rounds (rounds.py); a file for each who says them.

Every event carries its job, its attempt (an elastic restart is a new attempt) and an event time; `identity()` is
the id that a replay writes again. Time is the time on the event, never that of arrival.
"""

from pacehound.model.events.answers import Asked, Decision, Notification, SiteStep
from pacehound.model.events.bus import DeadLetter, Tick
from pacehound.model.events.calls_of_hosts import (
    CHECKPOINT_BEGIN,
    CHECKPOINT_END,
    EVALUATION_BEGIN,
    EVALUATION_END,
    HOLD_BEGIN,
    HOLD_END,
    MARKER_NAMES,
    MAX_WORLD_RANKS,
    NEVER,
    OPTIMIZER_STEP,
    UNKNOWN_MEMBER,
    UNTOLD,
    ChannelTransfers,
    Markers,
    OpenCall,
    PairProgress,
    Progress,
    RankProgress,
    Topology,
    TransferEdge,
    members_agree,
)
from pacehound.model.events.control import (
    Command,
    CommandResult,
    JudgedRanks,
    RankAnswer,
    RankState,
    Refused,
    TrainerAnswer,
    TrainerState,
)
from pacehound.model.events.hosts import (
    SWITCHED_OFF,
    AgentCost,
    GpuReading,
    HostEvidence,
    HostProcessors,
    HostSample,
    HostVitals,
    NicReading,
    ProcessState,
    RankProcessors,
    RankStack,
    RunState,
    SocketReading,
    StackState,
)
from pacehound.model.events.stage_one import CallSignature, IterationSample, SignatureMismatch, Watermark
from pacehound.model.events.stage_two import (
    HALTS,
    SURENESS,
    Cause,
    Changepoint,
    Cost,
    Finding,
    FindingKind,
    FixKind,
    FixPrice,
    GroupOutlier,
    Incident,
    IncidentState,
    Instant,
    LearntRounds,
    VerdictWord,
    WhatIfPrice,
    foremost,
)
from pacehound.model.events.store import EarlierRun, JobHistory, LevelChange, UsualRounds

__all__ = [
    "CHECKPOINT_BEGIN", "CHECKPOINT_END", "EVALUATION_BEGIN", "EVALUATION_END", "HALTS", "HOLD_BEGIN",
    "HOLD_END", "MARKER_NAMES", "MAX_WORLD_RANKS",
    "NEVER", "OPTIMIZER_STEP", "SURENESS", "SWITCHED_OFF", "UNKNOWN_MEMBER", "UNTOLD",
    "AgentCost", "Asked", "CallSignature", "Cause",
    "Changepoint", "ChannelTransfers", "Command", "CommandResult", "Cost", "DeadLetter", "Decision", "EarlierRun",
    "Finding", "FindingKind", "FixKind", "FixPrice", "GpuReading", "GroupOutlier", "HostEvidence", "HostProcessors",
    "HostSample", "HostVitals", "Incident", "IncidentState", "Instant", "IterationSample", "JobHistory", "JudgedRanks",
    "LearntRounds", "LevelChange", "Markers", "NicReading", "Notification", "OpenCall", "PairProgress", "ProcessState",
    "Progress", "RankAnswer", "RankProcessors", "RankProgress", "RankStack", "RankState", "Refused", "RunState",
    "SignatureMismatch", "SiteStep", "SocketReading", "StackState", "Tick", "Topology", "TrainerAnswer", "TrainerState",
    "TransferEdge", "UsualRounds", "VerdictWord",
    "Watermark", "WhatIfPrice", "foremost", "members_agree",
]  # fmt: skip
