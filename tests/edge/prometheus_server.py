"""A real Prometheus of the distribution, with a configuration and a folder of its own, on loopback."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

from tests.ports import free_ports


@contextmanager
def prometheus(folder: Path, config: str, port: int = 0) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its url and process; it may not be ready yet. It ends with the block; one in the same folder knows what it saw.
    Without a `port`, one that is free."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(config)
    port = port or free_ports(1)
    options = {
        "config.file": folder / "prometheus.yml",
        "storage.tsdb.path": folder / "data",
        "web.listen-address": f"127.0.0.1:{port}",
        "log.level": "error",
    }
    command = ["prometheus", *(f"--{name}={value}" for name, value in options.items())]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}", process
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
