"""The pages as a site: every page has its place in the navigation, every link and anchor leads somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT

ELSEWHERE = re.compile(r'(?:src|href)="(https?:)?//(?!kvgate)[^"]*\.(?:js|css|woff2?)"')


def test_the_site_builds_without_a_warning_and_asks_no_other_host_for_its_parts(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "mkdocs", "build", "-f", str(ROOT / ".ci" / "mkdocs.yml"), "-d", str(tmp_path))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    page = (tmp_path / "index.html").read_text("utf-8")
    assert "Adopting it" in page
    assert ELSEWHERE.findall(page) == []
