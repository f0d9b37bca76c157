"""The agent: one daemon per host and run, which reads what the ranks write and sends it on.

In: rings, frames and processes of a run folder. Out: batches and samples, to a head node or Kafka.
May import `collector.calls` and `collector.host`; must not import the importers.
"""
