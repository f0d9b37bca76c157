"""Stage one: the rows of all ranks of a communicator become rounds, iterations, periods, clocks.

In: CallBatch, Progress, Markers. Out: Rounds, IterationSample, SignatureMismatch, Watermark.
Must not import any other room of `streams`.
"""
