"""Sweep plan to manifests, result text to samples: pure."""
