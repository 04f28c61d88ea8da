"""Runs inside the probe pod: standard library and the measuring tool, nothing else."""
