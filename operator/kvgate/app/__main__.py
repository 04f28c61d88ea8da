"""`python -m kvgate.app` is `kvgate`."""

from kvgate.app.cli import run

run()
