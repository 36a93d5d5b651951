"""What TF_CONFIG means, and what is said about one that is wrong."""

import json
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest

from paceline.cluster.spec import Address, ClusterSpec, Task
from paceline.cluster.tf_config import parse_tf_config, read_tf_config
from paceline.errors import ConfigurationError

TWO_WORKERS = {"worker": ["a:1", "b:2"]}
FIRST_WORKER = {"type": "worker", "index": 0}


def tf_config(cluster: object = None, task: object = None, **others: object) -> str:
    """The text of a TF_CONFIG that is right but for the halves that are given."""
    return json.dumps({"cluster": cluster or TWO_WORKERS, "task": task or FIRST_WORKER, **others})


@dataclass(frozen=True)
class Good:
    name: str
    text: str
    task: Task
    rank: int | None
    world: list[str]
    """The addresses in rank order."""


GOOD = [
    Good("two workers", tf_config(task={"type": "worker", "index": 1}), Task("worker", 1), 1, ["a:1", "b:2"]),
    Good(
        "the chief comes first, wherever it is written",
        tf_config({"worker": ["a:1", "b:2"], "chief": ["c:3"]}, {"type": "worker", "index": 1}),
        Task("worker", 1),
        2,
        ["c:3", "a:1", "b:2"],
    ),
    Good(
        "own task the chief",
        tf_config({"worker": ["a:1"], "chief": ["c:3"]}, {"type": "chief", "index": 0}),
        Task("chief", 0),
        0,
        ["c:3", "a:1"],
    ),
    Good(
        "a chief alone",
        tf_config({"chief": ["c:3"]}, {"type": "chief", "index": 0}),
        Task("chief", 0),
        0,
        ["c:3"],
    ),
    Good(
        "parameter servers have no rank",
        tf_config({"worker": ["a:1"], "ps": ["p:1", "p:2"], "chief": ["c:3"]}, {"type": "ps", "index": 1}),
        Task("ps", 1),
        None,
        ["c:3", "a:1"],
    ),
    Good(
        "an evaluator is in no cluster",
        tf_config(task={"type": "evaluator", "index": 0}),
        Task("evaluator", 0),
        None,
        ["a:1", "b:2"],
    ),
    Good(
        "IPv6",
        tf_config({"worker": ["[::1]:2222", "[fe80::1%eth0]:2222"]}),
        Task("worker", 0),
        0,
        ["[::1]:2222", "[fe80::1%eth0]:2222"],
    ),
    Good(
        "index in quotes",
        tf_config(task={"type": "worker", "index": "1"}),
        Task("worker", 1),
        1,
        ["a:1", "b:2"],
    ),
    Good(
        "a map from index to address",
        tf_config({"worker": {"1": "b:2", "0": "a:1"}}),
        Task("worker", 0),
        0,
        ["a:1", "b:2"],
    ),
    Good(
        "Kubeflow's and the cloud's other keys",
        tf_config(environment="cloud", rpc_layer="grpc", session_master="grpc://a:1", job={"scale": 1}),
        Task("worker", 0),
        0,
        ["a:1", "b:2"],
    ),
    Good(
        "Kubernetes service names",
        tf_config({"worker": ["mnist-worker-0.default.svc:2222", "mnist-worker-1.default.svc:2222"]}),
        Task("worker", 0),
        0,
        ["mnist-worker-0.default.svc:2222", "mnist-worker-1.default.svc:2222"],
    ),
    Good(
        "one host, two ports",
        tf_config({"worker": ["10.0.0.7:65535", "10.0.0.7:1"]}),
        Task("worker", 0),
        0,
        ["10.0.0.7:65535", "10.0.0.7:1"],
    ),
    Good("spaces and lines around", f"\n {tf_config()} \n", Task("worker", 0), 0, ["a:1", "b:2"]),
]


@pytest.mark.parametrize("good", GOOD, ids=lambda good: good.name)
def test_reads_what_tensorflow_accepts(good: Good) -> None:
    spec, task = parse_tf_config(good.text)
    assert task == good.task
    assert [str(spec.address_of_rank(rank)) for rank in range(spec.world_size)] == good.world
    if good.rank is None:
        assert task not in spec.training_tasks
    else:
        assert spec.rank_of(task) == good.rank


@dataclass(frozen=True)
class Bad:
    name: str
    text: str
    field: str
    received: str
    expected: str
    fix: str


BAD = [
    # The text
    Bad("cut off", '{"cluster": ', "line 1, column 13", "the end of the text", "valid JSON", "json.dumps"),
    Bad(
        "a comma too much",
        '{"cluster": {"worker": ["a:1",\n]}}',
        "line 2, column 1",
        '"]}}"',
        "valid JSON",
        "correct the text there",
    ),
    Bad(
        "single quotes",
        str({"cluster": {"worker": ["a:1"]}, "task": FIRST_WORKER}),
        "line 1, column 2",
        "\"'cluster'",
        "valid JSON",
        """as in TF_CONFIG='{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'""",
    ),
    Bad(
        "single quotes and more",
        "{'cluster': {'worker': ['a:1']",
        "line 1, column 2",
        "\"'cluster'",
        "valid JSON",
        "use double quotes inside",
    ),
    Bad(
        "double quotes taken by the shell",
        "{cluster: {worker: [a:1]}, task: {type: worker, index: 0}}",
        "line 1, column 2",
        '"cluster: ',
        "valid JSON",
        "put single quotes around it",
    ),
    Bad(
        "the shell's quotes kept",
        f"'{tf_config()}'",
        "line 1, column 1",
        "\"'{",
        "valid JSON",
        "remove the single quotes around",
    ),
    Bad("a list", "[]", "the whole value", "[]", "an object with `cluster` and `task`", 'write {"cluster"'),
    Bad(
        "encoded twice",
        json.dumps(tf_config()),
        "the whole value",
        '"{\\"cluster',
        "an object with `cluster` and `task`",
        "encode it once",
    ),
    Bad(
        "number of 5000 digits",
        "[" + "1" * 5000 + "]",
        "the whole text",
        '"[1111',
        "JSON",
        "write it like TF_CONFIG=",
    ),
    Bad(
        "nested too deep",
        "[" * 100_000,
        "the whole text",
        '"[[[[',
        "an object",
        "remove the nesting",
    ),
    Bad(
        "cluster twice",
        '{"cluster": 1, "cluster": {"worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
        "cluster",
        "this key more than once",
        "it once",
        "keep one",
    ),
    # The cluster
    Bad(
        "no cluster",
        json.dumps({"task": FIRST_WORKER}),
        "cluster",
        "nothing",
        "an object",
        'add "cluster": {"worker"',
    ),
    Bad(
        "empty cluster",
        json.dumps({"cluster": {}, "task": FIRST_WORKER}),
        "cluster",
        "{}",
        "an object",
        'add "cluster": {"worker"',
    ),
    Bad("cluster a list", tf_config(["a:1"]), "cluster", '["a:1"]', "an object", 'add "cluster": {"worker"'),
    Bad(
        "master",
        tf_config({"master": ["m:1"], "worker": ["a:1"]}),
        "cluster.master",
        'the task type "master"',
        "one of chief, worker, ps, evaluator",
        'rename it to "chief"',
    ),
    Bad(
        "plural",
        tf_config({"workers": ["a:1"]}),
        "cluster.workers",
        'the task type "workers"',
        "one of chief, worker, ps, evaluator",
        'rename it to "worker"',
    ),
    Bad(
        "unknown type of odd letters",
        tf_config({"wörker 1": ["a:1"], "worker": ["b:1"]}),
        'cluster["w\\u00f6rker 1"]',
        'the task type "w\\u00f6rker 1"',
        "one of chief, worker, ps, evaluator",
        'rename it, to "worker"',
    ),
    Bad(
        "evaluator in the cluster",
        tf_config({"worker": ["a:1"], "evaluator": ["e:1"]}),
        "cluster.evaluator",
        '["e:1"]',
        "no evaluator here",
        "remove it",
    ),
    Bad(
        "only parameter servers",
        tf_config({"ps": ["p:1"]}, {"type": "ps", "index": 0}),
        "cluster",
        'only ["ps"]',
        'also a "worker" or a "chief"',
        'add "cluster": {"worker"',
    ),
    Bad(
        "no workers",
        tf_config({"worker": []}),
        "cluster.worker",
        "[]",
        "at least one address",
        'leave "worker" out',
    ),
    Bad(
        "two chiefs",
        tf_config({"chief": ["c:1", "d:1"], "worker": ["a:1"]}),
        "cluster.chief",
        "2 addresses",
        "one chief at most",
        'list the others under "worker"',
    ),
    Bad(
        "workers in one text",
        tf_config({"worker": "a:1,b:2"}),
        "cluster.worker",
        '"a:1,b:2"',
        "a list of addresses",
        'write "worker": ["a:1", "b:2"]',
    ),
    Bad(
        "a map with gaps",
        tf_config({"worker": {"1": "b:2"}}, {"type": "worker", "index": 1}),
        "cluster.worker",
        'the indices ["1"]',
        "the indices from 0 on without a gap",
        "name the address of every worker",
    ),
    Bad(
        "worker listed twice",
        '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
        "cluster.worker",
        "this key more than once",
        "it once",
        "join the two lists",
    ),
    # Addresses
    Bad(
        "no port",
        tf_config({"worker": ["a:1", "b"]}),
        "cluster.worker[1]",
        '"b"',
        "a port from 1 to 65535",
        'add the port: "b:2222"',
    ),
    Bad("empty port", tf_config({"worker": ["a:"]}), "cluster.worker[0]", '"a:"', "a port from 1", '"a:2222"'),
    Bad(
        "port a word",
        tf_config({"worker": ["a:http"]}),
        "cluster.worker[0]",
        '"a:http"',
        "a port from 1",
        '"a:2222"',
    ),
    Bad("port 0", tf_config({"worker": ["a:0"]}), "cluster.worker[0]", '"a:0"', "a port from 1", '"a:2222"'),
    Bad(
        "port 65536",
        tf_config({"worker": ["a:65536"]}),
        "cluster.worker[0]",
        '"a:65536"',
        "a port from 1 to 65535",
        "choose a port in that range",
    ),
    Bad(
        "port of another alphabet",
        tf_config({"worker": ["a:\u0661"]}),
        "cluster.worker[0]",
        '"a:\\u0661"',
        "a port from 1 to 65535",
        "choose a port in that range",
    ),
    Bad(
        "no host",
        tf_config({"worker": [":1"]}),
        "cluster.worker[0]",
        '":1"',
        '"host:port"',
        "write the host before",
    ),
    Bad(
        "a space in it",
        tf_config({"worker": ["a :1"]}),
        "cluster.worker[0]",
        '"a :1"',
        "whose host is a name",
        "correct the host",
    ),
    Bad(
        "two addresses in one",
        tf_config({"worker": ["a,b:1"]}),
        "cluster.worker[0]",
        '"a,b:1"',
        "whose host is a name",
        "each address has its own double quotes",
    ),
    Bad(
        "no IPv4 address",
        tf_config({"worker": ["10.0.0.256:1"]}),
        "cluster.worker[0]",
        '"10.0.0.256:1"',
        "an IP address",
        "correct the host",
    ),
    Bad(
        "IPv6 without brackets",
        tf_config({"worker": ["fd00::7:2222"]}),
        "cluster.worker[0]",
        '"fd00::7:2222"',
        '"[address]:port" for IPv6',
        'in brackets: "[fd00::7]:2222"',
    ),
    Bad(
        "IPv6 without port",
        tf_config({"worker": ["[fd00::7]"]}),
        "cluster.worker[0]",
        '"[fd00::7]"',
        '"[address]:port"',
        'add the port: "[fd00::7]:2222"',
    ),
    Bad(
        "brackets around a name",
        tf_config({"worker": ["[a]:1"]}),
        "cluster.worker[0]",
        '"[a]:1"',
        "with an IPv6 address",
        "write it like",
    ),
    Bad(
        "a scheme",
        tf_config({"worker": ["grpc://a:1"]}),
        "cluster.worker[0]",
        '"grpc://a:1"',
        "without a scheme",
        'leave the scheme out: "a:1"',
    ),
    Bad(
        "a number for an address",
        tf_config({"worker": [2222]}),
        "cluster.worker[0]",
        "2222",
        "in double quotes",
        "write it like",
    ),
    Bad(
        "one address twice",
        tf_config({"worker": ["a:1", "b:1", "a:1"]}),
        "cluster.worker[2]",
        '"a:1"',
        "another address than that of cluster.worker[0]",
        "give each task its own port",
    ),
    Bad(
        "one address in two types",
        tf_config({"chief": ["a:1"], "worker": ["A:1"]}),
        "cluster.worker[0]",
        '"A:1"',
        "another address than that of cluster.chief[0]",
        "give each task its own port",
    ),
    Bad(
        "localhost by two names",
        tf_config({"worker": ["localhost:1", "127.0.0.1:1"]}),
        "cluster.worker[1]",
        '"127.0.0.1:1"',
        "another address than that of cluster.worker[0]",
        "give each task its own port",
    ),
    # The task
    Bad(
        "no task",
        json.dumps({"cluster": TWO_WORKERS}),
        "task",
        "nothing",
        "which task this process is",
        'add "task": {"type": "worker", "index": 0}',
    ),
    Bad("task a text", tf_config(task="worker 0"), "task", '"worker 0"', "an object", 'add "task"'),
    Bad("no type", tf_config(task={"index": 0}), "task.type", "nothing", "one of chief, worker", "add it"),
    Bad(
        "type a number",
        tf_config(task={"type": 0, "index": 0}),
        "task.type",
        "0",
        "one of chief",
        "write it as in",
    ),
    Bad(
        "unknown type",
        tf_config(task={"type": "Worker", "index": 0}),
        "task.type",
        '"Worker"',
        "one of chief, worker, ps, evaluator",
        'rename it to "worker"',
    ),
    Bad(
        "type absent from the cluster",
        tf_config(task={"type": "chief", "index": 0}),
        "task.type",
        '"chief"',
        'a type that this cluster has: ["worker"]',
        'add "chief" with its addresses',
    ),
    Bad(
        "no index",
        tf_config(task={"type": "worker"}),
        "task.index",
        "nothing",
        "an integer from 0 to 1",
        "add it",
    ),
    Bad(
        "index out of range",
        tf_config(task={"type": "worker", "index": 2}),
        "task.index",
        "2",
        "an integer from 0 to 1",
        "indices count from 0",
    ),
    Bad(
        "index counted from 1",
        tf_config({"worker": ["a:1"]}, {"type": "worker", "index": 1}),
        "task.index",
        "1",
        "0, for the only worker",
        "indices count from 0",
    ),
    Bad(
        "negative index",
        tf_config(task={"type": "worker", "index": -1}),
        "task.index",
        "-1",
        "an integer from 0 to 1",
        "count the tasks of each type from 0",
    ),
    Bad(
        "index a fraction",
        tf_config(task={"type": "worker", "index": 0.5}),
        "task.index",
        "0.5",
        "an integer from 0 to 1",
        "write a plain number",
    ),
    Bad(
        "index true",
        tf_config(task={"type": "worker", "index": True}),
        "task.index",
        "true",
        "an integer from 0 to 1",
        "write a plain number",
    ),
    Bad(
        "index a word",
        tf_config(task={"type": "worker", "index": "first"}),
        "task.index",
        '"first"',
        "an integer from 0 to 1",
        "write a plain number",
    ),
    Bad(
        "index not a number at all",
        tf_config(task={"type": "worker", "index": float("nan")}),
        "task.index",
        "NaN",
        "an integer from 0 to 1",
        "write a plain number",
    ),
    Bad(
        "index twice",
        '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0, "index": 1}}',
        "task.index",
        "this key more than once",
        "it once",
        "keep one",
    ),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_tells_field_received_expected_and_fix(bad: Bad) -> None:
    began = time.process_time()
    with pytest.raises(ConfigurationError) as raised:
        parse_tf_config(bad.text)
    assert time.process_time() - began < 1
    lines = str(raised.value).splitlines()
    assert lines[0] == "TF_CONFIG has 1 fault:"
    assert len(lines) == 2, "one mistake is one fault"
    assert lines[1].startswith(f"  {bad.field}: received {bad.received}")
    expected, _, fix = lines[1].partition("; expected ")[2].partition(". Fix: ")
    assert bad.expected in expected
    assert bad.fix in fix
    assert len(lines[1]) < 800


def test_tells_all_faults_at_once() -> None:
    cluster = {"worker": ["a", "b:99999", "c:1", "c:1"], "chief": [], "evaluator": ["e:1"], "gpu": 1}
    with pytest.raises(ConfigurationError) as raised:
        parse_tf_config(tf_config(cluster, {"type": "wroker", "index": -3}))
    lines = str(raised.value).splitlines()
    assert lines[0] == "TF_CONFIG has 8 faults:"
    assert [line.strip().partition(": ")[0] for line in lines[1:]] == [
        "cluster.worker[0]",
        "cluster.worker[1]",
        "cluster.chief",
        "cluster.evaluator",
        "cluster.gpu",
        "cluster.worker[3]",
        "task.type",
        "task.index",
    ]


def test_an_index_is_checked_against_a_list_with_faulty_addresses() -> None:
    with pytest.raises(ConfigurationError, match=r"task\.index: received 2; expected an integer from 0 to 1"):
        parse_tf_config(tf_config({"worker": ["a", "b"]}, {"type": "worker", "index": 2}))


def test_of_very_many_faults_it_tells_the_first_ones_in_time() -> None:
    text = tf_config({"worker": [f"host{index}" for index in range(20_000)]})
    began = time.process_time()
    with pytest.raises(ConfigurationError) as raised:
        parse_tf_config(text)
    assert time.process_time() - began < 1
    lines = str(raised.value).splitlines()
    assert lines[0] == "TF_CONFIG has 20000 faults:"
    assert lines[-1] == "  and 19980 more [tf-config]"
    assert len(lines) == 22


@pytest.mark.parametrize("text", [None, "", "  \n", "{}", '{"environment": "cloud"}', '{"cluster": {}, "task": {}}'])
def test_without_a_cluster_and_a_task_there_is_no_job(text: str | None) -> None:
    assert read_tf_config({} if text is None else {"TF_CONFIG": text}) is None


@pytest.mark.parametrize("text", ['{"task": {"type": "worker", "index": 0}}', '{"cluster": {"worker": ["a:1"]}}', "[]"])
def test_half_a_job_is_a_fault(text: str) -> None:
    with pytest.raises(ConfigurationError):
        read_tf_config({"TF_CONFIG": text})


def test_reads_the_environment() -> None:
    assert read_tf_config({"TF_CONFIG": tf_config({"worker": ["a:1"]})}) == (
        ClusterSpec({"worker": (Address("a", 1),)}),
        Task("worker", 0),
    )


def test_the_check_needs_no_tensorflow() -> None:
    program = (
        "import sys, paceline.cluster.tf_config, paceline.cluster.own_address,"
        " paceline.cluster.spec, paceline.cluster.own_address\n"
        "print(sorted({'tensorflow', 'keras', 'mpi4py', 'numpy'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert ran.stdout.strip() == "[]"
