"""Mutated files at every command that reads one: exit 2 with one line, or a right result; no
traceback, no wait for a pipe, no more memory than the file's own bound."""

import contextlib
import gzip
import json
import os
import random
import resource
import socket
import threading
import time
from pathlib import Path

import chakra_writer
import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.cli import main
from loomnet.jobs.chakra import read_rank
from loomnet.jobs.chakra_graph import read_graph
from loomnet.jobs.flow_sizes import from_csv
from loomnet.jobs.htsim_matrix import read_matrix
from loomnet.jobs.ns3_flows import read_flows
from loomnet.plans.make import make_plan

SCENARIO = '''import loomnet as ln

@ln.scenario
def demo(lab: ln.Lab, n: int = 2, rate: ln.Rate = "10 Gb/s", text: str = "t"):
    """One short run."""
    r = lab.run(ln.clos.star(hosts=n, rate=rate, delay="1 us"), ln.SendRecv("8 B"))
    lab.metric("blip_s", 0.5, unit="s")
    lab.check("no-error", r["errors"], eq=0)
'''
MATRIX = (
    "Nodes 4\nConnections 2\nTriggers 1\n0->1 id 1 start 0 size 1000 send_done_trigger 1\n"
    "1->2 id 2 trigger 1 size 2000\ntrigger id 1 oneshot\n"
)
TOPOLOGY = (
    "Nodes 8\nTiers 2\nPodsize 8\nTier 0\nDownlink_speed_Gbps 100\nRadix_Up 2\n"
    "Radix_Down 4\nOversubscribed 2\nDownlink_Latency_ns 1000\nTier 1\nDownlink_speed_Gbps 100\n"
    "Radix_Down 2\nDownlink_Latency_ns 1000\n"
)
ROWS = '{"at": "2 us", "source": 0, "destination": 1, "size": "1 MB"}\n' * 3
NS3 = "2\n0 1 3 100 1000 2.000000001\n1 2 3 100 2000 2.5\nsrc dst pg port size start\n"
SIZES = "bytes,share\n1000,0.5\n2000,1\n"
# Values that a JSON file may hold where another type is meant.
JUNK = [
    None,
    True,
    0,
    -1,
    1e308,
    10**400,
    "",
    "x",
    "\ud800",
    "\0",
    "a\nb",
    [],
    [[]],
    {},
    {"a": 1},
    [1] * 100,
    {"seed": 1},
    float("nan"),
    float("inf"),
    2**64,
]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A run as `loomnet run` leaves it."""
    home = tmp_path_factory.mktemp("original")
    (home / "demo.py").write_text(SCENARIO)
    report = ln.load(home / "demo.py").run(directory=home / "run")
    assert report.ok
    return home / "run"


@pytest.fixture
def copy(run_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "copy"
    target.mkdir()
    for file in run_folder.iterdir():
        if file.is_file():
            (target / file.name).write_bytes(file.read_bytes())
    return target


def command(*words, capsys, allowed=(0, 1, 2)):
    """The exit status of a command; 2 comes with one line."""
    began = time.monotonic()
    status = main(list(map(str, words)))
    out, err = capsys.readouterr()
    assert status in allowed, (words, err)
    assert "Traceback" not in err + out
    if status == 2:
        assert err.startswith("loomnet: ") and err.count("\n") == 1, err
    assert time.monotonic() - began < 10
    return status


def mutants(data, draw, count):
    """Bytes with a few of them changed, removed, doubled, or the file cut short."""
    for _ in range(count):
        made = bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5))):
            at = draw.randrange(len(made) + 1) if made else 0
            kind = draw.randrange(5)
            if kind == 0 and made:
                made[at % len(made)] = draw.choice((0, 9, 10, 34, 44, 45, 48, 57, 91, 123, 255))
            elif kind == 1:
                del made[at : at + draw.randint(1, 8)]
            elif kind == 2:
                made[at:at] = made[at : at + draw.randint(1, 20)]
            elif kind == 3:
                made[at:at] = draw.choice(
                    (
                        b"9" * 400,
                        b"[" * 300,
                        b"\xff",
                        b"\0",
                        b"1e999",
                        b"-",
                        b"NaN",
                        b"Infinity",
                        b"\xd9\xa3",
                        b"\n\n",
                    )
                )
            else:
                del made[at:]
        yield bytes(made)


def places(value, path=()):
    """Every place in a JSON value."""
    yield path
    if isinstance(value, dict):
        for name in value:
            yield from places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def with_value(content, path, value):
    made = json.loads(json.dumps(content))
    at = made
    for step in path[:-1]:
        at = at[step]
    if path:
        at[path[-1]] = value
        return made
    return value


# --- report.json, environment.json, the scenario's copy ------------------------------------------
def test_a_report_with_a_value_of_another_type_is_one_line_or_compared(copy, run_folder, capsys):
    content = json.loads((copy / "report.json").read_text())
    draw, refused, told = random.Random(1), 0, 0
    for path in places(content):
        for value in JUNK:
            text = json.dumps(with_value(content, path, value))
            (copy / "report.json").write_text(text)
            try:
                found = ln.compare(run_folder, copy)
                assert repr(found).encode() and found.exit_code in (0, 1, 3)
                told += 1
            except UsageError as error:
                assert "\n" not in str(error)
                refused += 1
            if draw.random() < 0.01:
                command("compare", run_folder, copy, capsys=capsys, allowed=(0, 1, 2, 3))
    assert refused > 100 and told > 20


@pytest.mark.parametrize("name", ["report.json", "environment.json", "demo.py"])
def test_a_run_with_a_broken_file_is_one_line_or_is_replayed(copy, capsys, name):
    whole = (copy / name).read_bytes()
    draw = random.Random(2)
    if name.endswith(".json"):
        content = json.loads(whole)
        wanted = {
            "report.json": ("parameters", "seed", "clock", "scenario", "deterministic"),
            "environment.json": ("paths", "versions"),
        }[name]
        picked = [path for path in places(content) if not path or path[0] in wanted]
        cases = [
            json.dumps(with_value(content, path, value)).encode()
            for path in picked
            for value in draw.sample(JUNK, 2)
        ]
        if name == "report.json":
            for extra in ("seed", "directory", "runner", "max_wall_s", "self", "nope"):
                made = with_value(content, ("parameters", extra), 5)
                cases.append(json.dumps(made).encode())
        cases.append(b"[" * 200_000)
    else:
        cases = [
            b"\0" * 100,
            b"\x7fELF" + bytes(range(256)),
            b"",
            whole + b"\nraise SystemExit",
            whole.replace(b"demo", b"other"),
        ]
    for data in cases:
        (copy / name).write_bytes(data)
        command("replay", copy, capsys=capsys)


def test_a_report_that_is_no_regular_file_is_refused_at_once(copy, run_folder, capsys):
    (copy / "report.json").unlink()
    os.mkfifo(copy / "report.json")
    for words in (
        ("compare", run_folder, copy),
        ("compare", "/dev/zero", copy),
        ("replay", copy),
        ("replay", "/dev/zero"),
        ("compare", run_folder, "/proc/self/mem"),
    ):
        assert command(*words, capsys=capsys) == 2


@pytest.mark.parametrize(
    "data", [b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe", b"1" * 5000, b"", b"null"]
)
def test_a_report_of_hostile_text_is_one_line(copy, run_folder, capsys, data):
    (copy / "report.json").write_bytes(data)
    assert command("compare", run_folder, copy, capsys=capsys) == 2


@pytest.mark.parametrize("count", [15, pytest.param(5000, marks=pytest.mark.soak)])
def test_a_mutated_report_is_one_line_or_a_comparison(copy, run_folder, capsys, count):
    whole = (copy / "report.json").read_bytes()
    for data in mutants(whole, random.Random(3), count):
        (copy / "report.json").write_bytes(data)
        command("compare", run_folder, copy, capsys=capsys, allowed=(0, 1, 2, 3))


# --- scenario files ------------------------------------------------------------------------------
def test_a_mutated_scenario_file_is_one_line_or_runs(copy, capsys):
    for number, data in enumerate(mutants(SCENARIO.encode(), random.Random(4), 10)):
        file = Path(f"m{number}.py")
        file.write_bytes(data)
        command("list", file, capsys=capsys)
        command("describe", file, capsys=capsys, allowed=(0, 2, 4)) if b"lab.run" in data else None


# --- what jobs read ------------------------------------------------------------------------------
READERS = {
    "flows.jsonl": (ROWS.encode(), lambda path: ln.Trace(path).rows()),
    "matrix.cm": (MATRIX.encode(), lambda path: read_matrix(path).graph()),
    "flow.txt": (NS3.encode(), read_flows),
    "fabric.topo": (TOPOLOGY.encode(), ln.from_htsim_topology),
    "sizes.csv": (SIZES.encode(), from_csv),
    "t.0.et": (None, lambda path: read_graph(path)),
}


def chakra_bytes():
    node = chakra_writer.node
    return chakra_writer.encode([node(1, 4, name="a", us=5), node(2, 4, name="b", after=[1])])


@pytest.mark.parametrize("count", [150, pytest.param(20_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("name", READERS)
def test_a_mutated_input_is_one_line_or_is_read(tmp_path, name, count):
    data, read = READERS[name]
    data = chakra_bytes() if data is None else data
    path = tmp_path / name
    path.write_bytes(data)
    read(path)
    refused = 0
    for mutant in mutants(data, random.Random(5), count):
        path.write_bytes(mutant)
        try:
            read(path)
        except UsageError as error:
            assert "\n" not in str(error) and str(error).isprintable()
            refused += 1
    assert refused > count // 10


@pytest.mark.parametrize("name", READERS)
def test_an_input_that_is_no_regular_file_is_refused_at_once(tmp_path, name):
    read = READERS[name][1]
    path = tmp_path / name
    os.mkfifo(path)
    with pytest.raises(UsageError, match=r"not a regular file|no trace files"):
        read(path)


@pytest.mark.parametrize(
    "row",
    [
        '{"at": "2 us", "source": Infinity, "destination": 1, "size": "1 MB"}',
        "[" * 100_000,
        "5",
        '{"at": "2 us", "source": 1.5, "destination": 1, "size": "1 MB"}',
        '{"at": "2 us", "source": true, "destination": 1, "size": "1 MB"}',
        '{"at": 5, "source": 0, "destination": 1, "size": "1 MB"}',
        '{"at": "2 us"}',
        "\udcff",
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, row):
    path = tmp_path / "x.jsonl"
    path.write_bytes(ROWS.encode() + os.fsencode(row) + b"\n")
    with pytest.raises(UsageError, match=r"x\.jsonl:4: "):
        ln.Trace(path).rows()


# --- bounds of memory ----------------------------------------------------------------------------
def test_a_compressed_trace_takes_no_more_than_it_holds(tmp_path):
    """Under a limit of address space that the size it is read up to would exceed."""
    path = tmp_path / "t.0.et.gz"
    path.write_bytes(gzip.compress(chakra_bytes()))
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (200 << 20), hard))
    try:
        assert len(read_rank(path)) == 2
        # A megabyte of zeros, which gzip writes in a kilobyte, is a million empty nodes.
        path.write_bytes(gzip.compress(b"\0" * (64 << 20)))
        with pytest.raises(UsageError, match="node 0 is there twice"):
            read_rank(path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# --- what a live run's capture socket is asked ----------------------------------------------------
@pytest.mark.parametrize(
    "request_",
    [
        b"[" * 4000,
        b"5",
        b"{}",
        b'{"capture": [1]}',
        b'{"capture": "h0:9"}',
        b"\xff",
        b'{"capture": "h0:' + b"9" * 3000 + b'"}',
        b'"\\ud800"',
        b"",
    ],
)
def test_a_bad_question_to_a_live_run_is_answered_in_one_line(request_, monkeypatch):
    capture = pytest.importorskip("loomnet.live.capture")
    plan = make_plan(ln.clos.star(hosts=2, rate="1 Gb/s", delay="1 us"))
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    with capture.CaptureServer(f"test-{os.getpid()}", plan, None, None):
        answer = asked(capture, request_ + b"\n")
    assert raised == []
    error = json.loads(answer)["error"]
    assert isinstance(error, str) and answer.count(b"\n") == 1
    assert os.geteuid() == 0 or error == "only root may capture a live run's ports"


def asked(capture, request_):
    """What the socket answers until it closes."""
    with socket.socket(socket.AF_UNIX) as asker:
        asker.settimeout(10)
        asker.connect(capture.address(f"test-{os.getpid()}"))
        asker.sendall(request_)
        answer = b""
        while piece := asker.recv(4096):
            answer += piece
    return answer


@pytest.fixture
def server():
    capture = pytest.importorskip("loomnet.live.capture")
    plan = make_plan(ln.clos.star(hosts=2, rate="1 Gb/s", delay="1 us"))
    with capture.CaptureServer(f"test-{os.getpid()}", plan, None, None) as server:
        yield capture, server


@pytest.mark.parametrize("size", [4096, 4097, 100_000])
def test_a_request_that_is_too_long_is_answered_in_one_line(server, size):
    capture, _ = server
    answer = asked(capture, b"x" * (size - 1) + b"\n")
    assert answer.count(b"\n") == 1
    if size > 4096:
        assert json.loads(answer)["error"] == "a request has 4096 bytes at most"


def test_askers_that_say_nothing_are_few_and_do_not_hold_up_the_end(server):
    capture, serving = server
    before = threading.active_count()
    with contextlib.ExitStack() as stack:
        askers = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(60)]
        for asker in askers:
            asker.settimeout(10)
            asker.connect(capture.address(f"test-{os.getpid()}"))
            with contextlib.suppress(BrokenPipeError):
                asker.send(b"{")
        assert json.loads(askers[-1].recv(4096))["error"].endswith("others ask this run already")
        assert threading.active_count() - before <= capture.MOST_ASKERS
        began = time.monotonic()
        serving.close()
        assert time.monotonic() - began < 1


def test_a_request_that_trickles_in_is_given_up(server):
    capture, _ = server
    with socket.socket(socket.AF_UNIX) as asker:
        asker.connect(capture.address(f"test-{os.getpid()}"))
        began = time.monotonic()
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            while time.monotonic() - began < 10:
                asker.send(b" ")
                time.sleep(0.1)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("command_", ["run", "describe", "crosscheck", "sweep", "list"])
def test_a_scenario_that_is_no_regular_file_is_named_as_what_it_is(
    tmp_path, monkeypatch, capsys, command_
):
    """Before, a folder b.py was answered by: no file "b.py"; nearest: b.py."""
    monkeypatch.chdir(tmp_path)
    Path("folder.py").mkdir()
    os.mkfifo("pipe.py")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket.py")
    for name, said in (
        ("folder", "a folder, not a file"),
        ("pipe", "not a regular file"),
        ("socket", "not a regular file"),
    ):
        if (command_, name) == ("list", "folder"):
            continue  # a folder is what it lists
        assert main([command_, f"{name}.py"]) == 2
        assert capsys.readouterr().err == f"loomnet: {name}.py is {said}\n"
    assert main([command_, "folders.py"]) == 2
    assert "nearest" not in capsys.readouterr().err  # no file is near, folders and pipes are
