"""What ``poolingformer doctor`` finds: the installation, the choice of backends, self-checks, times, tiles."""
