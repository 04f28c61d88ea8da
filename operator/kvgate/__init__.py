"""kvgate: gates disaggregated serving on measured fabric evidence."""

__version__ = "0.1.0"
