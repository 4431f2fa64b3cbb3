"""What a run has counted, for Prometheus; imported only if metrics.port is set."""
