"""What a state may hold: every class of it, and the fields of those that are no dataclasses.

An operator that gets a field which is not listed here cannot be written, and a test says so. Whoever changes what is
listed raises `SCHEMA_VERSION` when a state of before would be read wrongly: one that lacks a field of a plain class,
or has one too many, is refused in any case; a field that now means something else is what only a person can see. The
version has nothing to do with the product's: most releases change no state, and then the state of jobs goes on.
"""

from __future__ import annotations

from pacehound.model import events, evidence
from pacehound.model.calls import CallBatch, Sees
from pacehound.model.flushes import Flush, Heartbeat
from pacehound.model.operations import Operations
from pacehound.model.pair_rounds import PairRounds
from pacehound.model.rounds import Rounds
from pacehound.settings import Settings
from streams.hang.exits import ExitWatch
from streams.hang.hang_watch import HangWatch, _Hang, _Standstill
from streams.hang.host_reports import HostReports
from streams.hang.observations import RootCause
from streams.hang.rank_progress import CallSequence, ProgressTable
from streams.hang.shared_name import SharedName, _Seen
from streams.hang.silent_hosts import SilenceWatch
from streams.hang.unseen_libraries import UnseenCalls
from streams.hang.wait_graph import StuckCall
from streams.job.host_promises import HostPromises
from streams.job.hosts import JobHosts
from streams.job.incidents import IncidentTracker, _Open
from streams.job.iterations import JobIterations
from streams.job.measurements import Measurements
from streams.job.operator import JobOperator
from streams.job.repeats import Repeats
from streams.job.returns import Loss, Returns, World
from streams.job.shape import ShapeWatch
from streams.job.short_slowdowns import ShortSlowdowns, _Short
from streams.job.stage_two import StageTwo
from streams.job.watches import Watches
from streams.level.bursts import Burst, BurstWatch
from streams.level.changepoint import Change, ChangepointDetector
from streams.level.records import record
from streams.level.since_start import SinceStart
from streams.level.step_watch import StepTime, StepWatch, _Work
from streams.rounds.assembly import RoundGrid
from streams.rounds.call_codes import CallCodes
from streams.rounds.clocks import ClockOffsets, HostClocks, _Compared
from streams.rounds.communicator import CommunicatorOperator
from streams.rounds.digest_places import Digesting, DigestLines
from streams.rounds.digest_table import DigestTable
from streams.rounds.edges import SeenEdges
from streams.rounds.giving_up import Patience
from streams.rounds.heartbeats import Heartbeats
from streams.rounds.held_back import HeldBack
from streams.rounds.home import Home
from streams.rounds.hosts_of_communicator import HostStates
from streams.rounds.iterations import IterationTracker
from streams.rounds.merge import Merge
from streams.rounds.mismatches import MismatchWatch
from streams.rounds.partial_membership import PartialCommunicator
from streams.rounds.period import PeriodTracker
from streams.rounds.recurring import RecurringIterations, _Anchor, _Calls
from streams.rounds.relay import PassedOn, Relay
from streams.rounds.shard import Shard
from streams.rounds.stage_one import StageOne
from streams.slow.always.always_slow import AlwaysSlowWatch, _SinceStart
from streams.slow.always.found import AlwaysSlow
from streams.slow.attribution.records import IterationRecord
from streams.slow.attribution.verdict import Attribution
from streams.slow.connections import ConnectionTracker, _Counted
from streams.slow.critical_path import Charges
from streams.slow.cycles import SlowCycles
from streams.slow.episode import SlowEpisode
from streams.slow.evidence import SlowEvidence
from streams.slow.gpu_state import GpuStates
from streams.slow.measured_iterations import MeasuredIterations
from streams.slow.now_and_then import SlowNowAndThen
from streams.slow.pace import Pace
from streams.slow.processors import ProcessorTracker, _Rates, _Reading
from streams.slow.rates import RateTracker
from streams.slow.seldom import SlowSeldom
from streams.slow.slow_rounds import SlowRound, SlowRounds, _Kind
from streams.slow.slow_series import SlowSeries
from streams.slow.slow_watch import SlowWatch
from streams.slow.thinned import Thinned
from streams.slow.transfer_times import TransferTracker, _Recent
from streams.snapshots.codec import StateCodec
from streams.whatif.price_watch import PriceWatch
from streams.whatif.straggling import PricedWindow, Straggling

SCHEMA_VERSION = 25

_PLAIN: dict[type, str] = {
    StageOne: "_lateness_ns _shared communicator is_closed _host _patience",
    Shard: (
        "_settings _lateness_ns _tick_ns _stages _over _digests _beats _held _promised _end_ns _quiet_ns _beat_ns "
        "_hears_homes"
    ),
    Home: "_lateness_ns _shard _relay _beats _vitals _processes _quiet_until_ns",
    Relay: "_known _of _promised_ns _patience _over _announced _waiting",
    Heartbeats: "_longest_ns _waiting _promised_ns _highest_ns _goes_back _behind _since_ns _wanted_ns",
    HeldBack: "_tick_ns _ticks _watermarks _waiting",
    CommunicatorOperator: (
        "job attempt communicator is_world members _lateness_ns _hosts _collectives _pairs "
        "_sees _source _digests _shared _watermark_ns _sent_watermark_ns _mismatches counts _iterations"
    ),
    DigestTable: "duplicate_rows late_rows missing_rows lines over_seq told_seq steps",
    DigestLines: "known owner width pair member",
    PartialCommunicator: (
        "job attempt communicator _is_world _members _places _created_ns _lateness_ns _announced _calls _n_calls "
        "_dropped _markers _progress _tick _passed_on _is_closed _patience _operator _shared"
    ),
    RoundGrid: (
        "n_ranks duplicate_rows late_rows missing_rows skipped_rounds _base _first_seen _length _has_new_rows _lines"
    ),
    MismatchWatch: "_job _attempt _communicator _members _open_calls _reported _uneven",
    IterationTracker: (
        "_job _attempt _communicator _members _lateness_ns _open _first_ns _previous _last_marker _told_step _behind "
        "_last_pause_ns _planned _planned_since_last incomplete backward"
    ),
    StageTwo: "job _settings attempts _ended _returns late",
    Returns: "_job _world _before _loss _away _offers _joined _more",
    JobOperator: (
        "job attempt _tick_ns _lateness_ns _merge _repeats _operation_ids _done_ns _ends_ns _world _world_size "
        "_communicators _clocks _hosts _host_promises _iterations _was_hung _watches _incidents _measurements _shape "
        "ended"
    ),
    HostPromises: "_heard_ns _waiting",
    Measurements: "_min_change _lasting _judged _more",
    ShapeWatch: (
        "earlier _world _world_size _began_ns _pairs _groups _pair _pair_ns _reduced _reduced_size _reduced_ns "
        "_reduced_bytes _steps_ns _is_full"
    ),
    JobHosts: "_lateness_ns host_of ranks_of closed _last_report_ns _patience _dropped _skipped _paused",
    JobIterations: (
        "step count _planned_count _previous _before_previous _third _rounds _rounds_before _step_times_s _recurring "
        "_recurring_locks _recurring_since_ns _unmarked_s"
    ),
    Watches: "shared_name hang slow_rounds slow since_start _all",
    Merge: "_watermarks _lowest_ns _events _pushed _rounds _first_rounds_ns",
    Repeats: "count _last",
    IncidentTracker: "_job _attempt _settings _open _over _waiting _short ranks",
    ShortSlowdowns: "_job _attempt _min_loss _recent _count _excess_s _began_ns _finding",
    RecurringIterations: (
        "_job _attempt _rank _tracker _streams _stream_of_kind _ranks_of_stream _blocks _n_blocks _waiting _delays_ns "
        "_n_delays _until_ns _locks _anchor_code _anchor_stream _anchor_stream_calls _n_seen _anchors _begun _step"
    ),
    PeriodTracker: (
        "_threshold _call_codes _codes _length _first _search_at _exhausted _mask _is_provisional _followed _phase "
        "_breaks _locks _candidates _boundaries _last_taken _pattern"
    ),
    CallCodes: "_tokens _codes _kinds _sizes",
    HostClocks: "_poll_ns _host_of _compared _offsets",
    SlowWatch: ("_job _attempt _min_change _slow_rounds _replays _evidence _earlier _measured _series _cycles"),
    SlowSeries: "_job _attempt _min_change _watch _records _earlier _episode _now_and_then _seldom _excess_s",
    SlowCycles: (
        "_job _attempt _min_change _period _watch _part _cycles _longest_s _typical_s _began _told _awaits _excess_s "
        "_before_s"
    ),
    SlowNowAndThen: "_min_change _began _finding _next_look _slow_from_s _before",
    SlowSeldom: "_job _attempt _finding _last _apart _since_step _first_step _kept _n _next_look",
    MeasuredIterations: "numbers ranks marked _others _index",
    AlwaysSlowWatch: (
        "_job _attempt _min_change _min_duration_s _slow _n_iterations _next_look _told_at _began _episode _excess_s"
    ),
    SlowEvidence: "_job _attempt _transfers _rates _connections _gpus _processors _stacks",
    SinceStart: (
        "_job _attempt _min_change _by_iterations _runs _is_first_launch _first _times_s _n_seen _finding _usual_s "
        "_excess_s"
    ),
    StepWatch: (
        "_job _attempt _source _min_change _joins_remainders _history _detector _bursts _work _excesses _row "
        "_last_change _slow _relieved _slow_before_s _intermittent _changing _expected"
    ),
    ChangepointDetector: "_record",
    BurstWatch: "_bursts _periods _excesses _rate _rows _first",
    TransferTracker: "_recent _added",
    RateTracker: "_histories _members _host_of _seen",
    SeenEdges: "_edges",
    SlowRounds: "_job _attempt _set_ns _usual_ns _host_kinds _kinds _told _findings",
    ConnectionTracker: "_readings _owner",
    GpuStates: "_now _first_ecc",
    ProcessorTracker: "_hosts",
    Thinned: "recent _older _every _n_gone",
    HangWatch: (
        "_job _attempt _settings _timeout_s _table _counters _advanced_ns _mismatches _survived_s _world _has_closed "
        "_hang _standstill host_reports _checkpoint_ns"
    ),
    ProgressTable: ("sequences names blind launch_only seen_edges _open _paired _early _columns"),
    SharedName: "_job _attempt _seen _unchanged_ns _finding",
    SilenceWatch: "_job _attempt _findings",
    UnseenCalls: "_job _attempt _latest _findings",
    ExitWatch: "_job _attempt _hang _processes _hosts _finding _is_decided _closed_why",
    PriceWatch: (
        "_job _attempt _window_steps _by_iterations _machines _straggling _excess_s _counted_ns _operations _ended "
        "_arrived _rounds _settled_ns _is_told _after_step refused unpriced"
    ),
    Straggling: "_job _attempt _windows finding",
}

_MADE: tuple[type, ...] = (
    # What was said on the bus, and its parts
    events.HostEvidence, events.RankStack, events.JudgedRanks,
    events.EarlierRun, events.LevelChange, events.SignatureMismatch, events.IterationSample, events.Finding,
    events.Incident, events.Cost, events.WhatIfPrice, events.FixPrice, events.Instant, Rounds,
    PairRounds, Sees,
    # What operators note
    _Calls, _Anchor, _Compared, ClockOffsets, _Open, _Short, _Hang, _Standstill,
    HostReports, StuckCall, RootCause, Burst, Change, StepTime, _Work, IterationRecord, Charges,
    Attribution, _Counted, _Rates, SlowRound, _Kind, SlowEpisode, _Recent, AlwaysSlow, _SinceStart,
    Pace, PricedWindow, World, Loss, Digesting, PassedOn,
    # What findings rest on
    *evidence.KINDS, *evidence.PARTS,
)  # fmt: skip

_VALUES: tuple[type, ...] = (
    # Of these there are many: of each host and each rank on each communicator.
    events.Topology, events.Markers, events.Tick, events.Progress, events.RankProgress, events.OpenCall,
    events.PairProgress, events.ChannelTransfers, events.TransferEdge, events.CallSignature, events.HostSample,
    events.ProcessState, HostStates, Patience, CallSequence,
    events.HostVitals, events.GpuReading, events.NicReading, events.SocketReading, events.RankProcessors,
    events.HostProcessors, events.AgentCost,
    _Seen, _Reading, Heartbeat, events.Watermark,
)  # fmt: skip

_LASTING: tuple[type, ...] = (events.Progress,)
"""What hosts tell of a communicator stays the last word for minutes where they tell of its calls in digests."""


def state_codec(settings: Settings) -> StateCodec:
    """Writes and reads the state of both stages; settings are those of whoever reads, and stand in no snapshot."""
    return StateCodec(
        version=SCHEMA_VERSION,
        plain={cls: names.split() for cls, names in _PLAIN.items()},
        made=_MADE,
        values=_VALUES,
        lasting=_LASTING,
        encoded=(CallBatch, Flush, Operations),
        records={"series": record("series")},
        given=(settings, settings.hang, settings.incidents),
    )
