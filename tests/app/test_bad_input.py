"""Bad input: each a condition, a schema error or one line that says what, where, the limit and who must act."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from kvgate.core.decide import decide
from kvgate.edge.directory import Directory
from kvgate.edge.errors import EdgeError
from kvgate.edge.nodes import COMPANION
from tests.app.yard import DROP, FAST, SLOW, Sweeps, Yard, condition, edit, kvgate, lay_out, node, opened, sample, yard

Break = Callable[[Yard], object]
POOL, DEPLOYMENT, CONFIG, APPROVAL = "pool.yaml", "deployment.yaml", "config.yaml", "approval.yaml"
_KV = "spec|model|kvCache"
_PLAYED = "local.kvgate.dev/network-namespace"
_ARGS = "spec|components|1|podTemplate|spec|containers|0|args"


def fields(name: str, **changed: Any) -> Break:
    return lambda made: edit(made.folder / name, changed)


def at(name: str, place: str, value: Any) -> Break:
    return lambda made: edit(made.folder / name, {place: value})


def text(name: str, content: str) -> Break:
    def write(made: Yard) -> None:
        (made.folder / name).write_text(content, encoding="utf-8")

    return write


def gone(name: str) -> Break:
    return lambda made: (made.folder / name).unlink()


def config(content: str) -> Break:
    return at(CONFIG, "data|config.json", content)


def _shard(made: Yard) -> Path:
    return next((made.folder / ".kvgate" / "reports").glob("*-0.yaml"))


def _edit_shard(made: Yard) -> None:
    document = yaml.safe_load(_shard(made).read_text())
    edit(_shard(made), {"spec|data": document["spec"]["data"][:-8] + "AAAAAAA="})


def _file_for_folder(made: Yard) -> None:
    shutil.rmtree(made.folder / ".kvgate")
    (made.folder / ".kvgate").write_text("")


# Each stands before a pool on a fast path whose approval is there, whose evidence is fresh, and which is not yet open.
CONDITIONS: dict[str, tuple[Break, tuple[str, str, str], str]] = {
    "no node matches prefillNodes": (
        at(POOL, "spec|fabric|prefillNodes|matchLabels|pool", "gpu"),
        ("Ready", "False", "NoNodesMatched"), "match none of 2 nodes",
    ),
    "no node bears the labels that the target itself asks for": (
        at(DEPLOYMENT, "spec|components|1|podTemplate|spec|nodeSelector|pool", "elsewhere"),
        ("Ready", "False", "NoNodesMatched"), "the target's nodeSelector",
    ),
    "the nodes are missing, and the evidence still names them": (
        gone("nodes.yaml"), ("FabricMeasured", "False", "NoNodesMatched"), "none of 0 nodes",
    ),
    "the ConfigMap is missing": (
        gone(CONFIG), ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"), "ConfigMap serving/qwen3-config",
    ),
    "the ConfigMap lacks the key": (
        at(CONFIG, "data", {"other.json": "{}"}), ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"),
        "key config.json does not exist",
    ),
    "the config is not JSON": (
        config("{'model_type': qwen3}"), ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"), "JSON",
    ),
    "the config is larger than 1 MiB": (
        config("{" + " " * 1024 * 1024 + "}"), ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"),
        "larger than 1048576 bytes",
    ),
    "the config holds NaN": (
        config('{"model_type": "qwen3", "num_hidden_layers": NaN}'),
        ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"), "",
    ),
    "the config has a negative number of layers": (
        text(CONFIG, sample(CONFIG).replace('_layers": 28', '_layers": -28')),
        ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"), "",
    ),
    "the model is not known": (
        config('{"model_type": "nobody-knows-me"}'), ("DisaggregationAccepted", "Unknown", "KVBytesUnknown"),
        "bytesPerToken",
    ),
    "the approval has expired": (
        at(APPROVAL, "spec|expiresAt", "2020-01-01T00:00:00Z"), ("Approved", "False", "ApprovalExpired"), "expired at",
    ),
    "the approval names another hash": (
        at(APPROVAL, "spec|planHash", "v1:sha256:" + "0" * 64), ("Approved", "False", "ApprovalPlanChanged"),
        "an approver must create a GateApproval",
    ),
    "the approval is of another pool's UID": (
        at(APPROVAL, "spec|poolRef|uid", "0b7ab8d6-0000-0000-0000-000000000000"),
        ("Approved", "False", "ApprovalMissing"), "an approver must create a GateApproval",
    ),
    "the approval is older than the plan": (
        at(APPROVAL, "metadata|creationTimestamp", "2020-01-01T00:00:00Z"),
        ("Approved", "False", "ApprovalPlanChanged"), "an approver must create a GateApproval",
    ),
    "the approval does not accept what is inconclusive": (
        at(APPROVAL, "spec|acceptInconclusive", []), ("DisaggregationAccepted", "Unknown", "ReducedCapacity"), "",
    ),
    "a shard of the evidence was edited": (
        _edit_shard, ("FabricMeasured", "False", "EvidenceUnreadable"), "was altered",
    ),
    "a shard of the evidence is missing": (
        lambda made: _shard(made).unlink(), ("FabricMeasured", "False", "EvidenceUnreadable"), "is missing",
    ),
    "the deployment is missing": (
        gone(DEPLOYMENT), ("TargetResolved", "False", "TargetNotFound"), "there is no DynamoGraphDeployment qwen3",
    ),
    "the deployment has components of the wrong shape": (
        at(DEPLOYMENT, "spec|components", "three"), ("TargetResolved", "False", "*"), "",
    ),
    "the deployment is a list of nothing": (
        at(DEPLOYMENT, "spec|components", []), ("TargetResolved", "False", "*"), "",
    ),
    "the deployment says the roles in its args": (
        at(DEPLOYMENT, _ARGS, ["--model", "Qwen/Qwen3-0.6B", "--disaggregation-mode", "decode"]),
        ("TargetResolved", "False", "*"), "",
    ),
}  # fmt: skip


def _ready(folder: Path) -> Yard:
    """Everything but the last turn: approved, and not yet patched."""
    made = yard(folder, FAST)
    made.approve()
    return made


@pytest.mark.parametrize("case", CONDITIONS)
def test_it_is_a_condition_and_nothing_is_patched(
    case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks, (kind, wanted, reason), said = CONDITIONS[case]
    made = _ready(tmp_path)
    breaks(made)
    before = made.deployment() if (tmp_path / DEPLOYMENT).exists() else ""
    assert kvgate("reconcile", "-f", tmp_path, "-o", "json") == 1
    printed = yaml.safe_load(capsys.readouterr().out)["pools"][0]
    found = {c["type"]: c for c in printed["status"]["conditions"]}
    assert found[kind]["status"] == wanted, found[kind]
    assert reason in {"*", found[kind]["reason"]}, found[kind]
    assert said in found[kind]["message"], found[kind]
    assert (printed["passed"], printed["patch"], printed["done"]) == (False, "", [])
    assert before == (made.deployment() if (tmp_path / DEPLOYMENT).exists() else "")


def test_without_a_fault_the_same_pool_opens(tmp_path: Path) -> None:
    _ready(tmp_path)
    assert kvgate("reconcile", "-f", tmp_path, "-o", "json") == 0
    assert (tmp_path / DEPLOYMENT).read_text() != sample(DEPLOYMENT)


# file, what is in it, and what the one line says.
LINES: dict[str, tuple[Break, tuple[str, ...]]] = {
    "a YAML that is a list": (text("list.yaml", "- one\n- two\n"), ("list.yaml", "is a list")),
    "a YAML that is no YAML": (text("odd.yaml", "a: [1, 2\n"), ("odd.yaml", "no YAML")),
    "a file of 2 MB": (
        text("large.yaml", "# " + "x" * 2_000_000 + "\n"), ("large.yaml", "limit of 2,000,000 bytes", "split it"),
    ),
    "a file that is no UTF-8": (
        lambda made: (made.folder / "odd.yaml").write_bytes(b"a: \xff\n"), ("odd.yaml", "UTF-8"),
    ),
    "zero bytes per token": (at(POOL, _KV, {"bytesPerToken": 0}), (POOL, "bytesPerToken")),
    "negative bytes per token": (at(POOL, _KV, {"bytesPerToken": -1}), (POOL, "bytesPerToken")),
    "a prompt of zero tokens": (at(POOL, "spec|workload|prompts", [{"tokens": 0}]), (POOL, "tokens")),
    "no prompts": (at(POOL, "spec|workload|prompts", []), (POOL, "prompts")),
    "a throughput without a unit": (
        at(POOL, "spec|criteria|disaggregation|minThroughput", "10"), (POOL, "minThroughput", "GB/s"),
    ),
    "a throughput that is a number": (
        at(POOL, "spec|criteria|disaggregation|minThroughput", 10), (POOL, "minThroughput"),
    ),
    "a budget without a unit": (at(POOL, "spec|criteria|disaggregation|ttftBudget", "2"), (POOL, "ttftBudget")),
    "a rate that is NaN": (
        at(POOL, "spec|workload|peakRequestsPerSecond", "NaN"), (POOL, "peakRequestsPerSecond"),
    ),
    "a rate that is a float of NaN": (
        at(POOL, "spec|workload|peakRequestsPerSecond", float("nan")), (POOL, "peakRequestsPerSecond"),
    ),
    "a percentage above 100": (
        at(POOL, "spec|criteria|disaggregation|maxUtilization", "101%"), (POOL, "maxUtilization"),
    ),
    "a misspelt suspend": (at(POOL, "spec|suspnd", True), (POOL, 'unknown field "spec.suspnd"')),
    "a misspelt field of an approval": (at(APPROVAL, "spec|atestations", []), (APPROVAL, "atestations")),
    "an approval without a hash": (at(APPROVAL, "spec|planHash", DROP), (APPROVAL, "planHash")),
    "a node whose name climbs out of its folder": (
        text("nodes.yaml", yaml.safe_dump(node("../../node", "prefill"))), ("nodes.yaml", "metadata.name"),
    ),
    "a node whose namespace is a path": (
        text("more.yaml", yaml.safe_dump(node("n", "x", **{_PLAYED: "../../proc/1/ns/net"}))),
        ("more.yaml", "ip netns list"),
    ),
    "a node whose pace has no unit": (
        text("more.yaml", yaml.safe_dump(node("n", "x", **{"local.kvgate.dev/paced": "100"}))), ("more.yaml", "paced"),
    ),
    "a pool named twice": (text("again.yaml", sample(POOL)), ("InferencePool", "qwen3", "already")),
    "no pool at all": (gone(POOL), ("holds no InferencePool",)),
    "a status that was edited by hand": (
        lambda made: (made.folder / ".kvgate" / "status" / "serving.qwen3.yaml").write_text("status: 7\n"),
        ("serving.qwen3.yaml", "remove it"),
    ),
    "a status of brackets without end": (
        lambda made: (made.folder / ".kvgate" / "status" / "serving.qwen3.yaml").write_text("[" * 5000 + "]" * 5000),
        ("serving.qwen3.yaml", "remove it"),
    ),
    "a place for its memory that is a file": (
        _file_for_folder,
        ("cannot be written", "make it writable"),
    ),
}  # fmt: skip


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """What was said on stderr, which must be one line, with nothing on stdout."""
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("kvgate: error: "), said.err
    assert said.err.count("\n") == 1, said.err
    return said.err


@pytest.mark.parametrize("case", LINES)
def test_it_is_one_line_and_nothing_is_patched(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    breaks, said = LINES[case]
    made = _ready(tmp_path)
    breaks(made)
    assert kvgate("reconcile", "-f", tmp_path) == 2
    line = one_line(capsys)
    assert all(part in line for part in said), line
    assert made.deployment() == sample(DEPLOYMENT)


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """As a user who may read it alone; the child inherits every module, for its own user may not read Python's."""
    lay_out(tmp_path / "held")
    (tmp_path / "held").chmod(0o755)
    for folder in (tmp_path, *list(tmp_path.parents)[:-2]):
        folder.chmod(folder.stat().st_mode | 0o055)
    said = tmp_path / "said"
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 2)
            (tmp_path / "held").chmod(0o555)
            if os.geteuid() == 0:
                os.setresuid(65534, 65534, 65534)
            os._exit(_as_child(tmp_path / "held"))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    assert said.read_text() == f"{tmp_path / 'held'}: cannot be written (Permission denied); make it writable"


def _as_child(folder: Path) -> int:
    try:
        with Directory(folder, Sweeps(FAST)).locked():
            return 0
    except EdgeError as error:
        os.write(2, str(error).encode())
        return 2


def test_a_deployment_that_changes_within_the_turn_is_not_patched(tmp_path: Path) -> None:
    made = _ready(tmp_path)
    ground = Directory(tmp_path, made.sweeps)
    pool, world = ground.observe("serving/qwen3")
    decision = decide(pool, world, made.sweeps.clock())
    other = made.deployment().replace("vllm-runtime:1", "vllm-runtime:another-1")
    (tmp_path / DEPLOYMENT).write_text(other)
    with pytest.raises(EdgeError, match="has changed since it was read; run again"):
        ground.carry_out(pool, world, decision.patches[0])
    assert made.deployment() == other != sample(DEPLOYMENT)


def test_a_lock_that_is_a_link_empties_nothing(tmp_path: Path) -> None:
    made = _ready(tmp_path / "made")
    (tmp_path / "precious").write_text("precious")
    lock = made.folder / ".kvgate" / "lock"
    lock.unlink()
    lock.symlink_to(tmp_path / "precious")
    kvgate("reconcile", "-f", made.folder)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_folder_named_like_a_half_written_file_is_left_alone(tmp_path: Path) -> None:
    made = _ready(tmp_path)
    (tmp_path / ".kvgate" / "odd.half").mkdir()
    assert kvgate("reconcile", "-f", tmp_path) == 0
    assert (made.folder / ".kvgate" / "odd.half").is_dir()


def test_two_kvgate_on_one_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = _ready(tmp_path)
    with Directory(tmp_path, made.sweeps).locked():
        assert kvgate("reconcile", "-f", tmp_path) == 2
    assert "another kvgate is at work there" in one_line(capsys)
    assert made.deployment() == sample(DEPLOYMENT)


def test_a_node_that_this_host_does_not_play(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay_out(tmp_path)
    edit(tmp_path / POOL, {"metadata|annotations": {"kvgate.dev/measure-requested-at": "now"}})
    assert kvgate("reconcile", "-f", tmp_path, "-o", "json") == 1
    said = capsys.readouterr()
    assert said.err == (
        "kvgate: serving/qwen3 cannot be measured: node decode-1 is not played by this host: annotate its Node "
        f"manifest with {_PLAYED} and give it an InternalIP, or with "
        'local.kvgate.dev/loopback: "true"\n'
    )
    status = yaml.safe_load(said.out)["pools"][0]["status"]
    assert status["capabilities"][0]["outcome"] == "Unknown"
    assert kvgate("reconcile", "-f", tmp_path) == 1
    assert "cannot be measured" in capsys.readouterr().err, "the request was forgotten"
    assert (tmp_path / DEPLOYMENT).read_text() == sample(DEPLOYMENT)


def test_a_namespace_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = {_PLAYED: "kvgate-nowhere"}
    lay_out(tmp_path, node("p", "prefill", **played), node("d", "decode", **played))
    assert kvgate("reconcile", "-f", tmp_path) == 1
    assert "kvgate-nowhere, which does not exist on this host: make it" in capsys.readouterr().err


def test_one_pool_that_cannot_be_patched_does_not_keep_another_from_its_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _ready(tmp_path)
    held = made.deployment().replace("value: agg", "value: &mode agg", 1).replace("value: agg", "value: *mode")
    (tmp_path / DEPLOYMENT).write_text(held)
    for name in (POOL, DEPLOYMENT):
        renamed = sample(name).replace("name: qwen3\n", "name: second\n").replace("{name: qwen3}", "{name: second}")
        (tmp_path / f"zz-{name}").write_text(renamed.replace("mode: Enforce", "mode: Observe"))
    made.sweeps.clock.wait(seconds=1)
    assert kvgate("reconcile", "-f", tmp_path, "-o", "json") == 2
    assert "deployment.yaml can't be edited in place" in capsys.readouterr().err
    assert made.deployment() == held
    assert (tmp_path / ".kvgate" / "status" / "serving.second.yaml").exists()


def test_evidence_of_another_run_is_an_error(tmp_path: Path) -> None:
    made = yard(tmp_path, FAST)
    made.sweeps.run_of_samples = "another"
    status = made.status()
    assert condition(status, "FabricMeasured") == ("False", "EvidenceOfAnotherRun")
    assert status.capabilities[0].plan_hash == ""


@pytest.mark.parametrize("breaks", [_edit_shard, lambda made: _shard(made).unlink()], ids=["edited", "missing"])
def test_a_spoilt_shard_never_brings_back_older_evidence_that_passed(
    breaks: Break, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = _ready(tmp_path)
    passing = _shard(made)
    (tmp_path / APPROVAL).rename(tmp_path / "kept")
    made.sweeps.bytes_per_second = SLOW
    made.sweeps.clock.wait(seconds=30)
    made.ask_to_measure("again")
    made.settle()
    (tmp_path / "kept").rename(tmp_path / APPROVAL)
    passing.rename(tmp_path / "passing")
    breaks(made)
    (tmp_path / "passing").rename(passing)
    assert kvgate("reconcile", "-f", tmp_path, "-o", "json") == 1
    printed = yaml.safe_load(capsys.readouterr().out)["pools"][0]
    assert printed["status"]["capabilities"][0]["outcome"] == "Error"
    assert made.deployment() == sample(DEPLOYMENT)


@pytest.mark.parametrize(
    ("probe", "outcome", "told"),
    [
        pytest.param({}, "Inconclusive", ("True", "Measured"), id="is measured as any other"),
        pytest.param(
            {"spec|fabric|probe": {"hostNetwork": True}},
            "Inconclusive",
            ("False", "SameNodeUnmeasured"),
            id="is unmeasured where its two pods would have one address",
        ),
    ],
)
def test_a_path_from_a_node_onto_itself(
    tmp_path: Path, probe: dict[str, object], outcome: str, told: tuple[str, str]
) -> None:
    made = yard(tmp_path, FAST)
    for number, field in ((1, "decodeNodes"), (2, "prefillNodes")):
        edit(tmp_path / DEPLOYMENT, {f"spec|components|{number}|podTemplate|spec|nodeSelector": {"link": "qwen3"}})
        edit(tmp_path / POOL, {f"spec|fabric|{field}": {"matchLabels": {"link": "qwen3"}}})
    edit(tmp_path / POOL, probe)
    before = made.deployment()
    status = made.status()
    assert status.capabilities[0].outcome == outcome
    assert condition(status, "FabricMeasured") == told
    assert made.deployment() == before


@pytest.mark.parametrize(
    ("second", "told"),
    [
        pytest.param({}, ("False", "SameNodeUnmeasured"), id="is unmeasured without a namespace for a second pod"),
        pytest.param({COMPANION: "second"}, ("True", "Measured"), id="is measured to that of its second pod"),
    ],
)
def test_a_node_that_a_namespace_plays_and_that_faces_itself(
    tmp_path: Path, second: dict[str, str], told: tuple[str, str]
) -> None:
    both = node("both", "prefill", **{_PLAYED: "first"}, **second)
    addresses = [{"type": "InternalIP", "address": f"10.0.0.{number}"} for number in (1, 2)]
    played = both | {"status": {"addresses": addresses}}
    made = Yard(lay_out(tmp_path, played, node("decode-1", "decode")), Sweeps(FAST))
    for number in (1, 2):
        edit(tmp_path / DEPLOYMENT, {f"spec|components|{number}|podTemplate|spec|nodeSelector": {"link": "qwen3"}})
    either = {"matchLabels": {"link": "qwen3"}}
    edit(tmp_path / POOL, {f"spec|fabric|{side}": either for side in ("prefillNodes", "decodeNodes")})
    assert condition(made.status(), "FabricMeasured") == told


def test_evidence_that_is_too_old_is_measured_again(tmp_path: Path) -> None:
    made = opened(tmp_path)
    made.sweeps.clock.wait(hours=25)
    made.settle()
    assert made.sweeps.count == 2


def test_a_path_without_an_answer_is_not_a_slow_path(tmp_path: Path) -> None:
    made = yard(tmp_path, FAST)
    made.sweeps = Sweeps(None)
    assert made.status().capabilities[0].outcome in {"Inconclusive", "Unknown"}
