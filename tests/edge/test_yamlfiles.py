"""Files of YAML documents: what is read, what is refused and why, and patching that keeps every other character."""

from __future__ import annotations

import os
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Capability
from kvgate.dynamo.patch import apply_to_document, baseline, revert
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.steps import Change, EnvRef, Step, Steps
from kvgate.dynamo.toggle import enable, plan_steps
from kvgate.edge.yamlfiles import (
    MAX_FILE_BYTES,
    Document,
    FileProblem,
    FileReason,
    Patched,
    patch_document,
    read_documents,
    read_tree,
    replace_file,
)

ROOT = Path(__file__).parents[2]
SAMPLE = (ROOT / "manifests" / "samples" / "dgd-qwen3.yaml").read_text(encoding="utf-8")
ROUTER_ENV, SPLIT_ENV = "DYN_ROUTER_MODE", "DYN_VLLM_DISAGGREGATION_MODE"
ROUTING, SPLIT = Capability.ROUTING, Capability.DISAGGREGATION


def written(folder: Path, text: str, name: str = "dgd.yaml") -> Path:
    path = folder / name
    path.write_bytes(text.encode())
    return path


def documents(path: Path) -> tuple[Document, ...]:
    found = read_documents(path)
    assert not isinstance(found, FileProblem), found
    return found


def refused(path: Path) -> FileProblem:
    problem = read_documents(path)
    assert isinstance(problem, FileProblem)
    assert problem.message.startswith(f"{path} ")
    assert "\n" not in problem.message
    return problem


def steps_of(document: Document, capability: Capability) -> Steps:
    target = read_target(document.body)
    assert isinstance(target, Target)
    steps = plan_steps(target, capability)
    assert isinstance(steps, Steps), steps
    return steps


def patched(document: Document, change: Change) -> Patched:
    answer = patch_document(document, change)
    assert isinstance(answer, Patched), answer
    return answer


def differing(before: str, after: str) -> list[tuple[str, str]]:
    lines = zip(before.splitlines(), after.splitlines(), strict=True)
    return [(old.strip(), new.strip()) for old, new in lines if old != new]


def test_the_sample_is_split_by_two_values_and_no_other_character(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)
    (document,) = documents(path)
    answer = patched(document, enable(steps_of(document, SPLIT)))
    assert answer.written
    assert documents(path) == (answer.document,)
    assert differing(SAMPLE, path.read_text(encoding="utf-8")) == [
        ("value: agg", "value: decode"),
        ("value: agg", "value: prefill"),
    ]


@pytest.mark.parametrize("capability", [ROUTING, SPLIT])
def test_a_revert_gives_the_file_back_to_the_byte(tmp_path: Path, capability: Capability) -> None:
    path = written(tmp_path, SAMPLE)
    (document,) = documents(path)
    steps = steps_of(document, capability)
    target = cast("Target", read_target(document.body))
    kept = baseline(target, steps)
    switched = patched(document, enable(steps)).document
    patched(switched, revert(capability, kept))
    assert path.read_text(encoding="utf-8") == SAMPLE


def test_a_change_that_already_holds_writes_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)
    (document,) = documents(path)
    change = enable(steps_of(document, ROUTING))
    again = patched(patched(document, change).document, change)
    assert not again.written


def frontend(main: str) -> str:
    """A deployment of one frontend whose `main` is written as given, eight columns in."""
    return f"""\
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {{name: x}} # flöw, with an umlaut and a 🙂 before the place
spec:
  components:
  - name: Frontend
    type: frontend
    podTemplate:
      spec:
        containers:
{main}
    replicas: 1 # behind
"""


KV = Change(ROUTING, (Step("Frontend", ROUTER_ENV, "kv"),))
RELEASE = Change(ROUTING, (), (EnvRef("Frontend", ROUTER_ENV),))

STYLES = [
    pytest.param(
        "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: random # why",
        "value: kv # why",
        id="plain, with a comment",
    ),
    pytest.param(
        "- name: main\n  env:\n  - {name: DYN_ROUTER_MODE, value: 'random'}",
        "value: 'kv'}",
        id="single quotes in a flow mapping",
    ),
    pytest.param(
        '- name: main\n  env: [{name: DYN_ROUTER_MODE, value: "random"}]',
        'value: "kv"}]',
        id="double quotes in a flow list",
    ),
    pytest.param(
        "- name: main\n  env:\n    - value: random\n      name: DYN_ROUTER_MODE",
        "- value: kv",
        id="value before name, indented",
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: |-\n      random\n  image: x",
        "value: kv\n",
        id="a block scalar",
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value:\n  image: x", "value: kv", id="a value left empty"
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: # nothing\n",
        "value: kv # nothing",
        id="empty with a comment",
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: DYN_ROUTER_MODE # mode\n  image: x",
        "# mode\n            value: kv",
        id="no value at all",
    ),
    pytest.param(
        "- name: main\n  env: [{name: DYN_ROUTER_MODE}]",
        "{name: DYN_ROUTER_MODE, value: kv}",
        id="no value in a flow mapping",
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: A\n    value: b # last\n  # more\n  image: x",
        "value: b # last\n          - name: DYN_ROUTER_MODE\n            value: kv\n          # more",
        id="appended to a block list",
    ),
    pytest.param(
        "- name: main\n  env:\n      - name: A\n        value: b\n",
        "              - name: DYN_ROUTER_MODE\n                value: kv\n",
        id="appended at the list's own indent",
    ),
    pytest.param(
        "- name: main\n  env:\n  - name: A\n    value: |\n      b\n  image: x",
        "      b\n          - name: DYN_ROUTER_MODE\n",
        id="appended behind a block scalar",
    ),
    pytest.param(
        "- name: main\n  env: [{name: A}]",
        "[{name: A}, {name: DYN_ROUTER_MODE, value: kv}]",
        id="appended to a flow list",
    ),
    pytest.param(
        "- name: main\n  env: [{name: A}, ]", "{name: DYN_ROUTER_MODE, value: kv}", id="a flow list with a last comma"
    ),
    pytest.param("- name: main\n  env: []", "env: [{name: DYN_ROUTER_MODE, value: kv}]", id="an empty list"),
    pytest.param(
        "- name: main\n  env: # soon\n  image: x",
        "env: [{name: DYN_ROUTER_MODE, value: kv}] # soon",
        id="an env left empty",
    ),
    pytest.param(
        "- name: main\n  env: null\n  image: x", "env: [{name: DYN_ROUTER_MODE, value: kv}]", id="an env that is null"
    ),
    pytest.param(
        "- name: main # it\n  image: x # i",
        "image: x # i\n          env: [{name: DYN_ROUTER_MODE, value: kv}]",
        id="no env",
    ),
    pytest.param(
        "- {name: main, image: x}",
        "image: x, env: [{name: DYN_ROUTER_MODE, value: kv}]}",
        id="no env in a flow mapping",
    ),
    pytest.param(
        "- name: proxy\n- name: main\n  env: []", "env: [{name: DYN_ROUTER_MODE, value: kv}]", id="behind a sidecar"
    ),
]


def indented(main: str) -> str:
    return "\n".join(f"        {line}" if line else line for line in main.splitlines())


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("main", "fragment"), STYLES)
def test_every_way_to_write_an_env_is_patched_in_place(tmp_path: Path, main: str, fragment: str, newline: str) -> None:
    around = "# head\nkind: A\n---\n{}---\nkind: Z # tail\n"
    text = around.format(frontend(indented(main))).replace("\n", newline)
    path = written(tmp_path, text)
    before = documents(path)
    patched(before[1], KV)
    after = path.read_bytes().decode()
    assert fragment.replace("\n", newline) in after
    assert ("\r\n" in after) is (newline == "\r\n")
    assert "\n" not in after.replace("\r\n", "") or newline == "\n"
    for kept in ("# head", "# flöw, with an umlaut", "# behind", "# tail"):
        assert kept in after
    found = documents(path)
    assert [held.body for held in found] == [before[0].body, apply_to_document(before[1].body, KV), before[2].body]


@pytest.mark.parametrize(
    ("main", "left"),
    [
        pytest.param(
            "- name: main\n  env:\n  - name: A\n    value: b\n  - name: DYN_ROUTER_MODE\n    value: kv\n  image: x",
            "value: b\n          image",
            id="the last of a list",
        ),
        pytest.param(
            "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: kv # ours\n  # theirs\n  - name: A\n",
            "env:\n          # theirs\n",
            id="the first of a list",
        ),
        pytest.param(
            "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: kv\n  image: x",
            "main\n          image: x",
            id="the only one",
        ),
        pytest.param(
            "- env:\n  - name: DYN_ROUTER_MODE\n    value: kv\n  name: main",
            "- name: main\n",
            id="the only one, and env comes first",
        ),
        pytest.param(
            "- name: main\n  env: [{name: DYN_ROUTER_MODE, value: kv}, {name: A}]",
            "[{name: A}]",
            id="first in a flow list",
        ),
        pytest.param(
            "- name: main\n  env: [{name: A}, {name: DYN_ROUTER_MODE, value: kv}]",
            "[{name: A}]",
            id="last in a flow list",
        ),
        pytest.param(
            "- {name: main, env: [{name: DYN_ROUTER_MODE, value: kv}]}",
            "{name: main}",
            id="the only one in a flow mapping",
        ),
        pytest.param(
            "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: |\n      kv\n  image: x",
            "main\n          image: x",
            id="a block scalar",
        ),
    ],
)
def test_a_released_entry_leaves_the_file(tmp_path: Path, main: str, left: str) -> None:
    path = written(tmp_path, frontend(indented(main)))
    (document,) = documents(path)
    patched(document, RELEASE)
    assert left in path.read_text(encoding="utf-8")
    assert [held.body for held in documents(path)] == [apply_to_document(document.body, RELEASE)]


@pytest.mark.parametrize(
    "value", ["null", "yes", "1", "a: b", "it's", 'say "hi"', "", "two\nlines", "🙂", "# no", "- x"]
)
@pytest.mark.parametrize("quoted", ["x", "'x'", '"x"'], ids=["plain", "single", "double"])
def test_any_value_reads_back_as_the_same_text(tmp_path: Path, value: str, quoted: str) -> None:
    path = written(tmp_path, frontend(indented(f"- name: main\n  env:\n  - name: M\n    value: {quoted}")))
    (document,) = documents(path)
    change = Change(ROUTING, (Step("Frontend", "M", value),))
    assert patched(document, change).document in documents(path)


@pytest.mark.parametrize(
    ("main", "said"),
    [
        pytest.param(
            "- name: main\n  env: &e\n  - name: DYN_ROUTER_MODE\n    value: a\n- name: x\n  env: *e",
            "without anchors",
            id="a shared list",
        ),
        pytest.param(
            "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    value: &v a\n- name: *v",
            "without anchors",
            id="a value that others use",
        ),
        pytest.param("- name: main\n  <<: {env: [{name: A}]}", "without anchors", id="an env by merge key"),
        pytest.param("- name: main\n  env: {a: b}", "no list", id="an env that is no list"),
        pytest.param(
            "- name: main\n  env:\n  - name: DYN_ROUTER_MODE\n    valueFrom: {}", "from elsewhere", id="valueFrom"
        ),
        pytest.param("- name: web", "no container main", id="no main"),
    ],
)
def test_what_cannot_be_edited_in_place_is_refused_and_left_alone(tmp_path: Path, main: str, said: str) -> None:
    text = frontend(indented(main))
    path = written(tmp_path, text)
    (document,) = documents(path)
    problem = patch_document(document, KV)
    assert isinstance(problem, FileProblem)
    assert problem.reason is FileReason.NOT_PATCHABLE
    assert said in problem.message
    assert path.read_text(encoding="utf-8") == text
    assert [held.name for held in tmp_path.iterdir()] == ["dgd.yaml"]


def test_a_file_that_changed_since_it_was_read_is_not_written(tmp_path: Path) -> None:
    path = written(tmp_path, SAMPLE)
    (document,) = documents(path)
    path.write_text(SAMPLE.replace("1.6.1", "1.6.2"), encoding="utf-8")
    problem = patch_document(document, KV)
    assert isinstance(problem, FileProblem)
    assert problem.reason is FileReason.CHANGED
    assert "1.6.2" in path.read_text(encoding="utf-8")


def test_a_deployment_within_a_list_is_told_apart_from_one_that_changed(tmp_path: Path) -> None:
    body = yaml.safe_load(SAMPLE)
    path = written(tmp_path, yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [body]}))
    problem = patch_document(Document(path, 0, body), KV)
    assert isinstance(problem, FileProblem)
    assert problem.message.endswith("an item of a List, which can't be edited in place; give it a document of its own")


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


@settings(max_examples=200, deadline=None)
@given(
    st.booleans(),
    st.sampled_from(["", "'", '"']),
    st.lists(st.sampled_from(["A", "B", ROUTER_ENV]), max_size=3, unique=True),
    st.sampled_from(["", "# note"]),
    st.sampled_from([KV, RELEASE]),
)
def test_a_patch_is_what_the_server_would_make_of_it(
    flow: bool, quote: str, names: list[str], note: str, change: Change
) -> None:
    if flow:
        env = "[" + ", ".join(f"{{name: {name}, value: {quote}v{quote}}}" for name in names) + f"] {note}"
    else:
        env = note + "".join(
            f"\n          - name: {name} {note}\n            value: {quote}v{quote} {note}" for name in names
        )
    text = frontend(f"        - image: x\n          env: {env}\n          name: main")
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), text)
        (document,) = documents(path)
        answer = patched(document, change)
        assert documents(path) == (answer.document,)
        assert answer.document.body == apply_to_document(document.body, change)
        assert yaml.safe_load(path.read_text(encoding="utf-8")) == answer.document.body
