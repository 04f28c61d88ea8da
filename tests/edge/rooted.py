"""What of this host only root may make."""

from __future__ import annotations

import os

import pytest

as_root = pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root")
