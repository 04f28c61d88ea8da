"""The fixture that more than one file about switching uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.access import Access
from tests.dynamo_real.switching_gate import Gate, gated
from tests.dynamo_stage.stage import Stage


@pytest.fixture
def gate(control_plane: Access, stage: Stage, tmp_path: Path) -> Iterator[Gate]:
    with gated(control_plane, stage, tmp_path) as made:
        yield made
