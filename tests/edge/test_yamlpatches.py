"""A change of a deployment in its YAML file: in place, to the byte, or refused."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import cast

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kvgate.api.words import Capability
from kvgate.dynamo.patch import apply_to_document, baseline, revert
from kvgate.dynamo.shape import Target, read_target
from kvgate.dynamo.steps import Change, Step
from kvgate.dynamo.toggle import enable
from kvgate.edge.yamlfiles import (
    Document,
    FileProblem,
    FileReason,
    patch_document,
)
from tests.edge.yamlhands import (
    KV,
    RELEASE,
    ROUTER_ENV,
    ROUTING,
    SAMPLE,
    SPLIT,
    differing,
    documents,
    patched,
    steps_of,
    written,
)


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
