"""Fixtures that more than one room's tests use."""

pytest_plugins = ["tests.cluster.fixtures"]
