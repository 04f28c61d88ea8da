"""What an iperf3 error text says about who is at fault; texts differ by version, the words below are stable."""

from __future__ import annotations

from kvgate.core.evidence import Failure, FailureKind

MOST_CHARACTERS = 100

_KINDS: tuple[tuple[str, FailureKind, str], ...] = (
    ("server is busy", FailureKind.SERVER_BUSY, "the server was busy with another test"),
    ("address already in use", FailureKind.PORT_IN_USE, "the server's port was taken"),
    ("no route to host", FailureKind.NO_ROUTE, "no route to the destination"),
    ("network is unreachable", FailureKind.NO_ROUTE, "no route to the destination's network"),
    ("connection refused", FailureKind.CONNECT_REFUSED, "nothing listened at the destination"),
    ("idle timeout", FailureKind.PARTNER_LOST, "the other end fell silent during the test"),
    ("timed out", FailureKind.CONNECT_TIMEOUT, "no answer from the destination"),
    ("timeout", FailureKind.CONNECT_TIMEOUT, "no answer from the destination"),
    ("permission denied", FailureKind.TOOL_FAILED, "iperf3 needs a writable /tmp: mount an emptyDir there"),
    ("interrupt", FailureKind.INTERRUPTED, "the test was interrupted"),
    ("has terminated", FailureKind.SERVER_LOST, "the other end went away during the test"),
    ("closed unexpectedly", FailureKind.SERVER_LOST, "the other end went away during the test"),
    ("broken pipe", FailureKind.SERVER_LOST, "the other end went away during the test"),
    ("reset by peer", FailureKind.SERVER_LOST, "the other end went away during the test"),
    ("unable to receive", FailureKind.SERVER_LOST, "the other end went away before it told what arrived"),
    ("unable to send", FailureKind.SERVER_LOST, "the other end went away during the test"),
)


def classify(error: str) -> Failure:
    """The failure that iperf3's own error speaks of; its words are quoted short and printable."""
    lowered = error.lower()
    for words, kind, meaning in _KINDS:
        if words in lowered:
            return Failure(kind, f"{meaning} (iperf3: {quoted(error)})")
    return Failure(FailureKind.TOOL_FAILED, f"iperf3 failed: {quoted(error)}")


def quoted(text: str, most: int = MOST_CHARACTERS) -> str:
    """Foreign text made fit to print: one line, ASCII, at most `most` characters, in quotes."""
    plain = "".join(c if c.isascii() and c.isprintable() and c not in "\"'`<>" else "." for c in text)
    return f'"{plain[:most]}…"' if len(plain) > most else f'"{plain}"'
