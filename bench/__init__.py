"""Benchmarks: results as JSON and as a table. Quote ratios within one run; absolute times depend on the machine."""
