"""The operator's image: what its Dockerfile and our own packer say of it is the same."""

import json
import re
from pathlib import Path

import pytest

from tests.cluster import operator_image
from tests.cluster.operator_image import HOME, OPERATOR, PACKAGES, ROOT, SOURCES, constraints, sources

DOCKERFILE = (ROOT / "operator" / "Dockerfile").read_text().replace("\\\n", " ")
_, BUILD, RUN = DOCKERFILE.split("\nFROM ")


def instruction(stage: str, name: str) -> str:
    found = re.findall(rf"^{name} (.*)$", stage, re.MULTILINE)
    assert len(found) == 1, f"{len(found)} instructions {name}"
    return str(found[0])


def test_the_dockerfile_installs_the_same_packages() -> None:
    installed = re.search(r"install -y --no-install-recommends ([^&]+?) *&&", RUN)

    assert installed is not None
    assert installed[1].split() == list(PACKAGES)


def test_the_dockerfile_starts_the_same_program_as_the_same_user() -> None:
    assert json.loads(instruction(RUN, "ENTRYPOINT")) == list(OPERATOR.entrypoint)
    assert instruction(RUN, "USER") == OPERATOR.user
    assert dict(pair.split("=") for pair in instruction(RUN, "ENV").split()) == OPERATOR.environment
    assert instruction(RUN, "COPY") == f"--from=build /{HOME} /{HOME}"


def test_the_dockerfile_runs_what_it_built_on_the_release_it_was_built_on() -> None:
    assert re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE) == ["$DEBIAN", "$DEBIAN"]
    assert len(re.findall(r"^ARG DEBIAN=debian:\w+-slim$", DOCKERFILE, re.MULTILINE)) == 1


def test_the_dockerfile_builds_the_wheel_of_the_same_sources() -> None:
    copied = {line.split()[1] for line in BUILD.splitlines() if line.startswith(tuple(f"COPY {s}" for s in SOURCES))}

    assert copied == set(SOURCES)
    assert f"/{HOME}/bin/pip install" in BUILD
    assert {"operator/kvgate/app/__main__.py", "probes/kvgate_probe/walker.py"} <= {
        str(path.relative_to(ROOT)) for path in sources()
    }


def test_both_take_the_versions_of_the_lock() -> None:
    """The Dockerfile's sed and our own reading of the lock, on each kind of line that it has."""
    (script,) = re.findall(r"sed (.*) requirements\.lock > /tmp/constraints\.txt", BUILD)
    lines = constraints().splitlines()

    assert script == r"-e '/^ *--hash=/d' -e '/^ *#/d' -e 's/ *\\$//'"
    assert "PIP_CONSTRAINT=/tmp/constraints.txt" in BUILD
    assert any(line.startswith("kopf==") for line in lines)
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==\S+( ; .+[^\\ ])?", line)] == []


def test_another_lock_or_another_source_makes_another_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_image, "made_once", lambda target, make: target)
    monkeypatch.setattr(operator_image, "python_minor", lambda: "3.11")
    lock = tmp_path / "lock"
    lock.write_text("other==1\n")
    before = operator_image.dependencies_layer(), operator_image.kvgate_layer()
    monkeypatch.setattr(operator_image, "LOCK", lock)
    after = operator_image.dependencies_layer(), operator_image.kvgate_layer()
    monkeypatch.setattr(operator_image, "sources", lambda: sources()[1:])

    assert before[0] != after[0]
    assert before[1] == after[1] != operator_image.kvgate_layer()
