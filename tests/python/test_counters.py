"""counters.json and the drops by reason: nothing a link, switch or NIC threw away goes unsaid."""

import json

import loomnet as ln
from loomnet.measures.drops import counters_json, drops
from loomnet.results.tables import dropped_table

TOTALS = {
    "link a->b": {"packets": 9, "drop_loss": 2, "max_queue": 7},
    "link b->a": {"packets": 9, "drop_loss": 3, "drop_queue_full": 40},
    "switch p0.leaf0": {"received": 9, "drop_no_route": 1},
    "nic h0": {"data_sent": 9, "duplicates_dropped": 4, "port_down": 1, "drop_short": 0},
}


def test_drops_by_kind_and_reason_with_the_worst_object():
    found = [(d.where, d.reason, d.packets, d.objects, d.most) for d in drops(TOTALS)]
    assert found == [
        ("link", "queue_full", 40, 1, "b->a"),
        ("link", "loss", 5, 2, "b->a"),
        ("switch", "no_route", 1, 1, "p0.leaf0"),
        ("nic", "duplicates", 4, 1, "h0"),
        ("nic", "port_down", 1, 1, "h0"),
    ]
    assert drops({"link a->b": {"packets": 9}}) == []


def lossy_report(tmp_path, name):
    lab = ln.Lab("lossy", seed=3, directory=tmp_path / name)
    fabric = ln.star(hosts=2, rate="10 Gb/s", delay="1 us")
    loss = ln.loss("h0--p0.leaf0", 0.05, at="0 s", duration="1 ms", phase="loss")
    lab.run(fabric, ln.AllReduce("1 MB", 3), [loss])
    lab.write()
    return lab.report


def test_a_run_writes_its_counters_and_the_same_run_the_same_bytes(tmp_path):
    report = lossy_report(tmp_path, "a")
    text = (tmp_path / "a" / "counters.json").read_text()
    content = json.loads(text)
    (run,) = content["runs"].values()
    lost = sum(row["packets"] for row in run["drops"] if row["reason"] == "loss")
    links = [row for name, row in run["objects"].items() if name.startswith("link ")]
    assert lost == sum(row.get("drop_loss", 0) for row in links) > 0
    assert {name.split()[0] for name in run["objects"]} == {"link", "switch", "nic"}
    assert "lossy" in content["runs"] and content["counters_version"] == 1
    lossy_report(tmp_path, "b")
    for name in ("counters.json", "report.json"):
        assert (tmp_path / "b" / name).read_bytes() == (tmp_path / "a" / name).read_bytes()
    table = dropped_table(report)
    columns = {str(c.header): [str(cell) for cell in c.cells] for c in table.columns}
    assert list(columns) == ["at", "reason", "packets", "most at"]  # no run has a label
    assert str(lost) == dict(zip(columns["reason"], columns["packets"], strict=True))["loss"]


def test_labels_name_the_runs_and_no_drop_no_table(tmp_path):
    content = json.loads(counters_json("s", {"mrc": TOTALS, None: {}}))
    assert set(content["runs"]) == {"mrc", "s"} and content["runs"]["s"]["drops"] == []
    lab = ln.Lab(directory=tmp_path)
    lab.run(ln.star(hosts=2, rate="10 Gb/s", delay="1 us"), ln.AllReduce("64 kB"))
    assert dropped_table(lab.report) is None


def test_counters_are_written_as_json_writes_them():
    odd = {'link "ä"->b': {"z": 1, "a\\": 2}, "nic h0": {}, "a": {"b": 0}}
    text = counters_json('"objects": {}', {"b": odd, "a": {}, None: TOTALS})
    content = json.loads(text)
    assert content["runs"]["b"]["objects"] == odd and content["runs"]["a"]["objects"] == {}
    assert text == json.dumps(content, sort_keys=True, indent=1, ensure_ascii=False) + "\n"
