"""SONiC's model as JSON on a UNIX socket, requests that a run's thread carries out, and what
`loomnet ocs` makes of them."""

import json
import os
import socket
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import loomnet.ocs.requests as requests_module
from loomnet.base.errors import UnavailableError, UsageError
from loomnet.cli import main
from loomnet.cli.ocs import table
from loomnet.ocs import StandaloneSwitch, client
from loomnet.ocs.access import Access
from loomnet.ocs.json_server import MOST_LINE, JsonServer, answer
from loomnet.ocs.requests import MOST_WAITING, Requests, RunEnded


def ask(access, **request):
    return json.loads(json.dumps(answer(access, json.dumps(request).encode(), threading.Event())))


@pytest.fixture
def noted():
    return []


@pytest.fixture
def access(noted):
    return Access(StandaloneSwitch(24, "ideal").operate, note=lambda at, text: noted.append(text))


def test_every_command(access, noted):
    assert ask(access, command="config cross-connect add", list="1A..3A-4B..6B") == {
        "ok": "cross-connect add: 3 succeeded"
    }
    assert ask(access, command="config cross-connect add", list="9A-4B", mode="safe") == {
        "error": "Error: port 4B is in another cross-connect"
    }
    assert ask(access, command="config cross-connect delete", list="2a-5b")["ok"]
    assert [row["id"] for row in ask(access, command="show cross-connect config")["ok"]] == [
        "1A-4B",
        "3A-6B",
    ]
    assert {
        row["a_side_status"] for row in ask(access, command="show cross-connect status")["ok"]
    } == {"tuned"}
    assert ask(access, command="show half-circuits")["ok"] == ["1A-4B", "3A-6B"]
    assert ask(access, command="config port label", port="1A", text="rack 3")["ok"]
    assert ask(access, command="config port state", port="2B", state="force_blocked")["ok"]
    config = {row["id"]: row for row in ask(access, command="show port config")["ok"]}
    assert config["1A"]["label"] == "rack 3" and config["2B"]["state"] == "force_blocked"
    assert len(ask(access, command="show port status")["ok"]) == 48
    assert len(ask(access, command="show port-mapping")["ok"]) == 48
    [loss] = ask(access, command="show factory-insertion-loss", list="1A-16B")["ok"]
    assert 1.58 <= float(loss["loss_dB"]) <= 1.85
    assert len(ask(access, command="show factory-insertion-loss")["ok"]) == 576
    assert "OCS_PORT|1A" in ask(access, command="tables")["ok"]["config"]
    first = ask(access, command="reconcile", list="7-8,9A-10B")["ok"]
    assert first["added"] == ["7A-8B", "8A-7B", "9A-10B"] and first["tuned"]
    assert ask(access, command="reconcile", list=[[7, 8], "9A-10B"])["ok"] == {
        "removed": [],
        "added": [],
        "generation": first["generation"],
        "tuned": True,
    }
    assert noted == [
        "config cross-connect add 1A..3A-4B..6B",
        "config cross-connect delete 2a-5b",
        "config port label 1A rack 3",
        "config port state 2B force_blocked",
        "reconcile 7-8,9A-10B",
        "reconcile [[7, 8], '9A-10B']",
    ], "what was refused is not there"


BAD = [
    (b"", "not JSON"),
    (b"[]", "write {"),
    (b"{}", '"command" is a text that is missing'),
    (b'{"command": 5}', "is not a text"),
    (b'{"command": "show"}', "Invalid command 'show'; near"),
    (b'{"command": "tables", "x": 1}', "tables has no field 'x'"),
    (b'{"command": "config cross-connect add"}', '"list" is a text that is missing'),
    (b'{"command": "config cross-connect add", "list": "1A-1A"}', "Invalid cross-connect id"),
    (b'{"command": "config cross-connect add", "list": "1A-25B"}', "Error: no port 25"),
    (b'{"command": "config cross-connect add", "list": "1A-2B", "mode": "x"}', "Invalid mode 'x'"),
    (b'{"command": "config port state", "port": "1A", "state": "off"}', "Invalid port state"),
    (b'{"command": "reconcile", "list": ""}', '"list" is a text'),
    (b'{"command": "reconcile", "list": [[1]]}', "Invalid cross-connect [1]"),
    (b'{"command": "reconcile", "list": [[1, 1e400]]}', "Invalid cross-connect"),
    (b'{"command": "reconcile", "list": [[0, 1]]}', "Error: no port 0"),
    (b'{"command": "reconcile", "list": "1-2", "timeout_s": 1e9}', '"timeout_s"=1000000000.0'),
    (b'{"command": "reconcile", "list": "1-2", "timeout_s": NaN}', '"timeout_s"=nan'),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"command": "\\ud800"}', "Invalid command"),
    (b"\xff\xfe", "not JSON"),
    (b"9" * 10_000, "not JSON"),
]


@pytest.mark.parametrize(("line", "says"), BAD, ids=range(len(BAD)))
def test_bad_requests_are_one_line(line, says, access, noted):
    reply = answer(access, line, threading.Event())
    assert says in reply["error"] and "\n" not in reply["error"] and noted == []
    json.dumps(reply).encode()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda each: st.lists(each, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=80)
    | st.fixed_dictionaries(
        {
            "command": st.sampled_from(
                [
                    "reconcile",
                    "config cross-connect add",
                    "config port label",
                    "show factory-insertion-loss",
                    "config port state",
                ]
            )
        },
        optional={"list": JSON, "mode": JSON, "port": JSON, "text": JSON, "timeout_s": st.just(0)},
    ).map(lambda found: json.dumps(found).encode())
)
def test_any_line_has_an_answer(line):
    reply = answer(Access(StandaloneSwitch(4, "ideal").operate), line, threading.Event())
    assert reply.keys() in ({"ok"}, {"error"})


@pytest.fixture
def path(access, tmp_path):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "ocs0"))
    listener.listen()
    with JsonServer(access, listener):
        yield str(tmp_path / "ocs0")


def connected(path):
    link = socket.socket(socket.AF_UNIX)
    link.settimeout(10)
    link.connect(path)
    return link


def test_lines_that_are_too_long_and_clients_that_are_too_many(path):
    links = [connected(path) for _ in range(8)]
    links[0].sendall(b"x" * (MOST_LINE + 1) + b"\n" + b'{"command": "show cross-connect config"}\n')
    lines = links[0].makefile()
    assert "more than 131072 bytes" in json.loads(lines.readline())["error"]
    assert json.loads(lines.readline()) == {"ok": []}
    assert "too many clients" in json.loads(connected(path).makefile().readline())["error"]
    # A client that takes no answer is left, and its place is free again.
    for link in links:
        link.close()
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with connected(path) as link:
            try:
                link.sendall(b'{"command": "show half-circuits"}\n')
                if json.loads(link.makefile().readline()) == {"ok": []}:
                    break
            except OSError:
                pass
    else:
        raise AssertionError("no room again")


# --- requests that another thread carries out -----------------------------------------------------


def test_requests_are_carried_out_by_their_owner_alone():
    requests, askers = Requests(), []

    def asked():
        askers.append(
            requests.operate("ocs0", lambda device, now: (device, now, threading.get_ident()))
        )

    threads = [threading.Thread(target=asked) for _ in range(6)]
    for each in threads:
        each.start()
    while len(askers) < 6:
        if requests.wait(0.1):
            requests.serve(lambda panel, fn: fn(panel, 7))
    assert askers == [("ocs0", 7, threading.get_ident())] * 6


def test_errors_of_a_request_are_its_askers_alone():
    requests, found = Requests(), []

    def asked(fn):
        try:
            requests.operate("ocs0", fn)
        except (UsageError, ZeroDivisionError) as error:
            found.append(type(error))

    def no_panel(panel, fn):
        raise UsageError("no panel")

    for fn, operate in (
        (lambda device, now: 1 // 0, lambda panel, fn: fn(None, 0)),
        (lambda device, now: 1, no_panel),
    ):
        thread = threading.Thread(target=asked, args=(fn,))
        thread.start()
        while not requests.wait(1):
            pass
        requests.serve(operate)
        thread.join(5)
    assert found == [ZeroDivisionError, UsageError]


def test_a_flood_is_bounded():
    requests, ended = Requests(), []

    def flood():
        while True:
            try:
                requests.operate("ocs0", lambda device, now: None)
            except UnavailableError:
                ended.append(1)
                return

    threads = [threading.Thread(target=flood) for _ in range(8)]
    for each in threads:
        each.start()
    served, end = 0, time.monotonic() + 0.5

    def operate(panel, fn):
        nonlocal served
        served += 1
        fn(None, 0)

    while time.monotonic() < end:
        requests.wait(0.01)
        requests.serve(operate)
    requests.close()
    for each in threads:
        each.join(5)
    assert 100 < served <= 0.55 / requests_module.LEAST_APART_S * requests_module.MOST_AT_ONCE
    assert len(ended) == 8
    with pytest.raises(RunEnded, match="the run has ended"):
        requests.operate("ocs0", lambda device, now: None)


def test_no_more_wait_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(requests_module, "PATIENCE_S", 2)  # by when all ask
    requests, said = Requests(), []

    def asked():
        try:
            requests.operate("ocs0", lambda device, now: None)
        except UnavailableError as error:
            said.append(str(error))

    threads = [threading.Thread(target=asked) for _ in range(MOST_WAITING + 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(5)
    assert sum("wait already" in line for line in said) == 1
    assert sum("has taken no request" in line for line in said) == MOST_WAITING


# --- the command ----------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setattr(client, "STATE", tmp_path)
    return tmp_path


@pytest.fixture
def panel(state, access):
    """Makes a panel that the command finds, of this run and name."""
    made = []

    def make(run, name, there=True):
        folder = state / "ocs" / run
        folder.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / name))
        if there:
            listener.listen()
            made.append(JsonServer(access, listener))
        else:
            listener.close()

    yield make
    for each in made:
        each.close()


def test_the_command_by_its_grammar(panel, capsys):
    panel("k3f9", "ocs0")
    panel("dead", "ocs0", there=False)

    def out(*words):
        status = main(["ocs", *words])
        found = capsys.readouterr()
        assert status == 0 and found.err == ""
        assert "--json" in words or max(map(len, found.out.splitlines())) <= 80
        return found.out

    assert out("config", "cross-connect", "add", "1A-16B,2A-2B") == (
        "cross-connect add: 2 succeeded\n"
    )
    assert out("show", "cross-connect", "config").splitlines() == [
        "id      a_side  b_side",
        "1A-16B  1A      16B",
        "2A-2B   2A      2B",
    ]
    assert out("show", "cross-connect", "status", "--panel", "ocs0").splitlines() == [
        "id      a_side  b_side  a_side_status  b_side_status",
        "1A-16B  1A      16B     tuned          tuned",
        "2A-2B   2A      2B      tuned          tuned",
        "one direction alone: 1A-16B",
    ]
    assert json.loads(out("show", "cross-connect", "config", "--json", "--run", "k3f9"))[1] == {
        "id": "2A-2B",
        "a_side": "2A",
        "b_side": "2B",
    }
    assert out("config", "port", "label", "1A", "x" * 64) == "port label succeeded\n"
    assert f"1A   {'x' * 20}" in out("show", "port", "config")
    assert out("config", "port", "state", "3b", "force_blocked") == "port state succeeded\n"
    assert (
        "1A   LC              1.1            16B                     tuned"
        in out("show", "port", "status").splitlines()
    )
    assert len(out("show", "port-mapping").splitlines()) == 49
    assert "228.85" in out("show", "factory-insertion-loss", "1A-16B")
    assert len(out("show", "factory-insertion-loss").splitlines()) == 577
    assert out("reconcile", "1-16,4-5") == "added 16A-1B, 4A-5B, 5A-4B\ntuned\n"
    assert out("reconcile", "1-16,4-5") == "nothing to do\ntuned\n"
    assert "delete: 1 succeeded" in out("config", "cross-connect", "delete", "2A-2B")


def test_what_goes_wrong_is_one_line(panel, state, capsys):
    def err(*words):
        assert main(["ocs", *words]) == 2
        found = capsys.readouterr()
        assert found.out == "" and found.err.count("\n") == 1
        return found.err

    nothing = (
        "loomnet: ocs: nothing with a panel runs live; start it with "
        "`loomnet run FILE --clock live`\n"
    )
    assert err("show", "port", "status") == nothing
    panel("dead", "ocs0", there=False)
    assert err("show", "port", "status") == nothing, "a run that has died is none"
    panel("k3f9", "ocs0")
    assert err("config", "cross-connect", "add", "1A-1A").startswith(
        "loomnet: Invalid cross-connect id '1A-1A'"
    )
    assert err("config", "cross-connect", "add", "1A-99B").startswith("loomnet: Error: no port 99")
    assert err("config", "cross-connect", "add", "1A-2B", "sure").startswith(
        "loomnet: Invalid mode 'sure'"
    )
    assert 'no panel "ocs1"; nearest: ocs0' in err("show", "port", "status", "--panel", "ocs1")
    no_run = err("show", "port", "status", "--run", "k3f8")
    assert 'no run "k3f8" with a panel; nearest: k3f9' in no_run
    panel("k3f9", "ocs1")
    assert "run k3f9 has 2 panels: add --panel ocs0 … ocs1" in err("show", "port", "status")
    panel("m2m2", "ocs0")
    assert "add --run k3f9 or --run m2m2" in err("show", "port", "status", "--panel", "ocs0")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may ask every panel")
def test_another_users_panel_is_refused(panel, state, capsys):
    panel("k3f9", "ocs0")
    os.chmod(state / "ocs" / "k3f9" / "ocs0", 0)
    assert main(["ocs", "show", "port", "status"]) == 2
    assert "is another user's; ask as that user" in capsys.readouterr().err


def test_a_wide_table_fits():
    lines = table(["id", "label"], [{"id": "1A", "label": "y" * 200}]).splitlines()
    assert len(lines[1]) == 80 and lines[1].endswith("y…")
