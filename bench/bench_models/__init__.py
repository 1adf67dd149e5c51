"""The models that the benchmarks call."""
