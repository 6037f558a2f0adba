"""The kill matrix of five systems, by one witness: `make -C benchmarks peers-matrix`."""
