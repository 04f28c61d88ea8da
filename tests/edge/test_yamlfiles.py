"""Files of YAML documents: what is read, what is refused and why, and patching that keeps every other character."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.edge.yamlfiles import (
    MAX_FILE_BYTES,
    FileProblem,
    FileReason,
    patch_document,
    read_documents,
    read_tree,
    replace_file,
)
from tests.edge.yamlhands import (
    KV,
    SAMPLE,
    documents,
    patched,
    refused,
    written,
)


def staircase(steps: int) -> str:
    return "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}]\n" for n in range(1, steps))


def bomb() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "reason", "said"),
    [
        pytest.param("- a\n- b\n", FileReason.NOT_A_MAPPING, "document 1 is a list", id="a list"),
        pytest.param("just text\n", FileReason.NOT_A_MAPPING, "document 1 is a single value", id="a scalar"),
        pytest.param(
            "kind: A\n---\n[]\n", FileReason.NOT_A_MAPPING, "document 2 is a list", id="a list behind an object"
        ),
        pytest.param("a: [b\nc: d\n", FileReason.NOT_YAML, "is no YAML (line 2)", id="no YAML"),
        pytest.param("a: b: c", FileReason.NOT_YAML, "is no YAML (line 1)", id="no YAML in one line"),
        pytest.param("a: \x00", FileReason.NOT_YAML, "is no YAML", id="a control character"),
        pytest.param(
            "a: 1\nb: 2\na: 3\n", FileReason.NOT_YAML, "names a key twice in one mapping (line 3)", id="a key twice"
        ),
        pytest.param("1: a\n", FileReason.NOT_YAML, "a key that is no text (line 1)", id="a key that is a number"),
        pytest.param("? [a]\n: b\n", FileReason.NOT_YAML, "a key that is no text", id="a key that is a list"),
        pytest.param(
            "a: !!python/object/apply:os.system [x]\n", FileReason.NOT_YAML, "uses a tag", id="a tag of Python"
        ),
        pytest.param("a: *nobody\n", FileReason.NOT_YAML, "is no YAML", id="an alias of nothing"),
        pytest.param("a: &a [*a]\n", FileReason.NOT_YAML, "an alias to itself", id="an alias to itself"),
        pytest.param(
            bomb(), FileReason.NOT_YAML, "unfolds to more than 200,000 values", id="aliases that unfold to billions"
        ),
        pytest.param(staircase(600), FileReason.NOT_YAML, "aliases within aliases", id="aliases that unfold to depths"),
        pytest.param("a: " + "[" * 70, FileReason.NOT_YAML, "nested deeper than 64 levels (line 1)", id="too deep"),
        pytest.param("[" * 100_000, FileReason.NOT_YAML, "(line 1)", id="a hundred thousand brackets"),
        pytest.param("a: !!int x\n", FileReason.NOT_YAML, "a value that can't be read", id="a number that is none"),
        pytest.param(
            "a: " + "x" * MAX_FILE_BYTES,
            FileReason.TOO_LARGE,
            "larger than the limit of 2,000,000 bytes (2,000,003)",
            id="too large",
        ),
    ],
)
def test_a_bad_file_says_what_where_and_the_limit(tmp_path: Path, text: str, reason: FileReason, said: str) -> None:
    problem = refused(written(tmp_path, text))
    assert problem.reason is reason
    assert said in problem.message
    assert len(problem.message) < 300


def test_what_is_not_text_or_no_file_is_unreadable(tmp_path: Path) -> None:
    binary = tmp_path / "b.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    assert "is no UTF-8 text (byte 3)" in refused(binary).message
    assert "No such file" in refused(tmp_path / "gone.yaml").message
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    assert "no regular file" in refused(pipe).message
    assert refused(tmp_path).reason is FileReason.UNREADABLE


def test_values_read_as_kubernetes_reads_them(tmp_path: Path) -> None:
    (document,) = documents(written(tmp_path, "\ufeff---\n# nothing\n---\nat: 2024-01-01\nn: .nan\n---\n"))
    assert document.index == 1
    assert document.body["at"] == "2024-01-01"


def test_a_file_with_a_byte_order_mark_keeps_it(tmp_path: Path) -> None:
    path = written(tmp_path, "\ufeff" + SAMPLE)
    (document,) = documents(path)
    patched(document, KV)
    assert path.read_bytes().decode() == "\ufeff" + SAMPLE.replace("round-robin", "kv")


def test_a_directory_is_read_by_name_and_an_object_named_twice_is_told(tmp_path: Path) -> None:
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: n}\n"
    written(tmp_path, one, "1.yaml")
    written(tmp_path, f"{one}---\n{one.replace('name: a', 'name: b')}", "2.yml")
    written(tmp_path, "[", "3.yaml")
    written(tmp_path, "[", ".hidden.yaml")
    written(tmp_path, "[", "notes.txt")
    tree = read_tree(tmp_path)
    assert [(held.path.name, held.index) for held in tree.documents] == [("1.yaml", 0), ("2.yml", 0), ("2.yml", 1)]
    assert [(problem.path.name, problem.reason) for problem in tree.problems] == [
        ("3.yaml", FileReason.NOT_YAML),
        ("2.yml", FileReason.DUPLICATE),
    ]
    assert "ConfigMap a again, already in 1.yaml" in tree.problems[1].message


def test_a_directory_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    (problem,) = read_tree(tmp_path / "gone").problems
    assert problem.reason is FileReason.UNREADABLE


def test_mode_and_owner_stay_and_a_link_stays_a_link(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 1234)
    before = path.stat()
    link = tmp_path / "link.yaml"
    link.symlink_to(path)
    (document,) = documents(link)
    patched(document, KV)
    after = path.stat()
    assert link.is_symlink()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (0o640, before.st_uid, before.st_gid)
    assert "value: kv" in path.read_text(encoding="utf-8")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users can look into, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder


def test_a_directory_that_cannot_be_written_is_told_and_the_file_stays(open_folder: Path) -> None:
    path = written(open_folder, SAMPLE)
    (document,) = documents(path)
    open_folder.chmod(0o555)
    child = os.fork()
    if child == 0:
        if os.geteuid() == 0:
            os.setuid(65534)
        answer = patch_document(document, KV)
        said = answer.message if isinstance(answer, FileProblem) else ""
        os._exit(0 if "can't be written in its directory (Permission denied)" in said else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    open_folder.chmod(0o755)
    assert path.read_text(encoding="utf-8") == SAMPLE
    assert [held.name for held in open_folder.iterdir()] == ["dgd.yaml"]


def _flipping(path: Path, old: bytes, new: bytes) -> int:
    """A process that replaces the file again and again until it is killed; its pid."""
    child = os.fork()
    if child == 0:
        try:
            while True:
                replace_file(path, new)
                replace_file(path, old)
        finally:
            os._exit(1)
    return child


def test_a_writer_killed_half_way_leaves_the_old_file_or_the_new_one(tmp_path: Path) -> None:
    old = f"{SAMPLE}---\n".encode() * 50
    new = old.replace(b"round-robin", b"kv")
    path = tmp_path / "dgd.yaml"
    path.write_bytes(old)
    for turn in range(12):
        writer = _flipping(path, old, new)
        time.sleep(0.01 + turn * 0.007)
        os.kill(writer, signal.SIGKILL)
        _, status = os.waitpid(writer, 0)
        assert os.WTERMSIG(status) == signal.SIGKILL
        assert path.read_bytes() in (old, new)
    assert {held.path.name for held in read_tree(tmp_path).documents} == {"dgd.yaml"}


def test_a_replacement_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "gone.yaml", b"x")
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#,? \n\t%@`~1."), max_size=60) | st.text(max_size=40))
def test_any_text_is_documents_or_one_problem(text: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "x.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        found = read_documents(path)
    if isinstance(found, FileProblem):
        assert found.message
    else:
        assert all(isinstance(document.body, dict) for document in found)
