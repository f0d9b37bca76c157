"""A whole engine and real jobs on this one machine: what benchmarks and integration tests work with."""
