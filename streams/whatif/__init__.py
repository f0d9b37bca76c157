"""What-if analysis: how long a job would take without its stragglers, and whose fault the difference is.

From file to answer: `reader` (parquet to columns), `layout` (columns to tensors of one value per operation, step and
DP rank), `model` (what waits for what), `durations` (transfers, launch delays, the ideal), `graph` and `longest`
(simulating), `scenarios` (what keeps its stragglers), `metrics`, `patterns`, `answer`.

Source: Understanding Stragglers in Large Model Training Using What-if Analysis (ByteDance), sections 3 to 6 and 8.

In: operations, rounds, traces. Out: prices and results of an analysis.
May import `rounds`; must not import the other rooms.
"""
