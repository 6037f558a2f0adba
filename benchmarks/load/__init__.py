"""Load on a server and workers, and the size of a cluster: `make bench-load`."""
