"""Jobs: specifications that hold together, or one line that says why not."""

import importlib.util

import pytest

import loomnet as ln
from loomnet.base.errors import UsageError
from loomnet.jobs import graphs as graphjobs
from loomnet.systems.registry import check


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ln.AllReduce(size=256), "AllReduce.size: 256 has no unit"),
        (lambda: ln.AllReduce(size="0 B"), "1 B or more"),
        (lambda: ln.AllReduce("1 MB", repeat=0), "AllReduce.repeat"),
        (lambda: ln.AllReduce("1 MB", repeat=True), "AllReduce.repeat"),
        (lambda: ln.AllReduce("1 MB", repeet=2), 'unknown name "repeet"; nearest: repeat'),
        (lambda: ln.AllReduce(), "AllReduce.size is missing"),
        (lambda: ln.AllReduce("1 MB", size="2 MB"), "given twice"),
        (lambda: ln.AllReduce("1 MB", 1, "mrc", 4), "takes 3 values by position"),
        (lambda: ln.TorchJob("a.py", compute=2), "TorchJob.compute: 2 has no unit"),
        (lambda: ln.TorchJob("a.py", log="(loss"), "is not a regular expression"),
        (lambda: ln.TorchJob("a.py", log="loss"), "no group"),
        (lambda: ln.TorchJob("a.py", stall_timeout=5), "TorchJob.stall_timeout: 5 has no unit"),
        (lambda: ln.TorchJob("a.py", stall_timeout="0 s"), "stall_timeout: must be above 0; None"),
        (lambda: ln.Flows(sizes=[]), "sizes is empty"),
        (lambda: ln.Flows("1 MB", count=2, starts=["1 ms"]), "1 times for 2 flows"),
        (lambda: ln.Flows("1 MB", gap="1 ms", starts=["1 ms"]), "both set the arrivals"),
        (lambda: ln.Flows("1 MB", starts=["1"]), "Flows.starts.*has no unit"),
    ],
)
def test_refused_on_construction(make, message):
    with pytest.raises(UsageError, match=message):
        make()


def test_ranks_take_hosts_in_order():
    job = ln.TorchJob("a.py", ranks=3)
    assert job.place([0, 1, 2, 3]) == [0, 1, 2]
    assert ln.TorchJob("a.py").place([4, 5]) == [4, 5]
    with pytest.raises(UsageError, match="5 ranks but 4 hosts"):
        ln.TorchJob("a.py", ranks=5).place([0, 1, 2, 3])
    with pytest.raises(UsageError, match="2 ranks or more"):
        ln.TorchJob("a.py", ranks=1).place([0, 1])


def test_who_talks_to_whom():
    hosts = [3, 5, 8]
    assert ln.TorchJob("a.py").edges(hosts) == [(3, 5), (5, 8), (8, 3)]
    assert len(ln.AllToAll("1 MB").edges(hosts)) == 6
    assert ln.Permutation("1 MB", shift=2).edges(hosts) == [(3, 8), (5, 3), (8, 5)]
    assert ln.Incast("1 MB", receiver=1).edges(hosts) == [(3, 5), (8, 5)]
    assert ln.Flows("1 MB", pairs=[(0, 2)]).edges(hosts) == [(3, 8)]
    for job, message in (
        (ln.Permutation("1 MB", shift=3), "to itself"),
        (ln.Incast("1 MB", receiver=3), "rank 3 of 3"),
        (ln.Flows("1 MB", pairs=[(0, 3)]), "no pair"),
    ):
        with pytest.raises(UsageError, match=message):
            job.edges(hosts)


def test_stall_timeout_is_three_times_the_longest_fault_at_least_5_s():
    job = ln.TorchJob("a.py")
    assert job.stall_after(ln.Time("8 s")) == ln.Time("24 s")
    assert job.stall_after(ln.Time("1 ms")) == ln.Time("5 s")
    assert ln.TorchJob("a.py", stall_timeout=None).stall_after(ln.Time("8 s")) is None
    assert ln.TorchJob("a.py", stall_timeout="1 s").stall_after(ln.Time("8 s")) == ln.Time("1 s")


def test_what_a_clock_cannot_run_is_said_before_anything_starts():
    with pytest.raises(UsageError, match='compute="2 ms"'):
        check(ln.TorchJob("a.py"), "virtual")
    check(ln.TorchJob("a.py", transport="gloo"), "live")
    check(ln.TorchJob("a.py", transport="gloo", compute="1 ms"), "virtual")  # its model
    for job, message in (
        (ln.TorchJob("a.py", transport="tcp"), 'transport="gloo"'),
        (ln.AllReduce("1 MB", transport="gloo"), "PyTorch jobs; use TorchJob"),
        (ln.AllReduce("1 MB", transport="tcp"), "flows alone"),
        (ln.Incast("1 MB", transport="gloo"), 'flows over kernel TCP are transport="tcp"'),
    ):
        with pytest.raises(UsageError, match=f"{type(job).__name__}.transport: .*{message}"):
            check(job, "live")
    for job in (ln.AllReduce("1 MB", transport="gloo"), ln.Permutation("1 MB", transport="gloo")):
        check(job, "virtual")
    for job in (ln.Flows("1 MB", transport="tcp"), ln.Permutation("1 MB", transport="tcp")):
        check(job, "live")


def test_an_unknown_transport_is_refused_with_the_nearest():
    with pytest.raises(UsageError, match=r'AllReduce\.transport: "mcr" is not .*; nearest: mrc'):
        check(ln.AllReduce("1 MB", transport="mcr"), "virtual")


def test_trace_names_the_line_at_fault(tmp_path):
    good = '{"at": "2 us", "source": 0, "destination": 1, "size": "1 MB"}\n'
    path = tmp_path / "trace.jsonl"
    path.write_text(good.replace("2 us", "3 us") + "\n" + good)
    rows = ln.Trace(path).rows()
    assert [row[0] for row in rows] == [ln.Time("2 us"), ln.Time("3 us")]
    assert ln.Trace(path).edges([0, 1]) == [(0, 1)]
    path.write_text(good + good.replace('"1 MB"', "1000"))
    with pytest.raises(UsageError, match=r"trace.jsonl:2: size: 1000 has no unit"):
        ln.Trace(path).rows()
    path.write_text(good + "{")
    with pytest.raises(UsageError, match=r"trace.jsonl:2: "):
        ln.Trace(path).rows()
    with pytest.raises(UsageError, match="No such file"):
        ln.Trace(tmp_path / "none").rows()
    with pytest.raises(UsageError, match="no pair"):
        path.write_text(good.replace('n": 1', 'n": 5'))
        ln.Trace(path).edges([0, 1])


def test_a_script_is_looked_for_and_named_if_missing(tmp_path):
    (tmp_path / "train.py").write_text("")
    assert ln.TorchJob("train.py").located(tmp_path / "no", tmp_path) == tmp_path / "train.py"
    with pytest.raises(UsageError, match=r"TorchJob.script: no file other.py in .*"):
        ln.TorchJob("other.py").located(tmp_path)
    with pytest.raises(UsageError) as error:
        ln.TorchJob("other.py").located(tmp_path, tmp_path)
    assert str(error.value).count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import os\nfor", r"train.py line 2 is no Python: invalid syntax$"),
        ("x = (\n\n", r"line 1 is no Python: '\(' was never closed"),
        ("x = '\0'", "is no Python: .*null bytes"),
        (b"x = '\xff'", "is no Python: .*utf-8"),
        ("x = " + "(" * 5000, "is no Python: "),
        (
            "import loomnet as ln\n@ln.scenario\ndef f(lab):\n    pass",
            r"holds a scenario \(@ln.scenario\) and no training; run it with "
            "`loomnet run train.py`",
        ),
    ],
)
def test_a_script_that_no_rank_could_run_is_refused_in_one_line(tmp_path, text, words):
    (tmp_path / "train.py").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=words) as refused:
        ln.TorchJob("train.py").located(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_folder_is_no_script(tmp_path):
    (tmp_path / "train").mkdir()
    with pytest.raises(UsageError, match="train is a folder, not a file"):
        ln.TorchJob("train").located(tmp_path)


def test_a_script_that_imports_torch_needs_it(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "torch" else find(name, *rest),
    )
    script = tmp_path / "train.py"
    job = ln.TorchJob(script)
    for text in ("import torch.nn as nn", "import os, torch", "from torch import nn"):
        script.write_text(text)
        with pytest.raises(UsageError, match=r"imports torch, which .* does not have; pip install"):
            job.located(tmp_path)
        ln.TorchJob(script, env={"PYTHONPATH": "/elsewhere"}).located(tmp_path)
    for text in ("try:\n    import torch\nexcept ImportError:\n    pass", "from .torch import x"):
        script.write_text(text)
        job.located(tmp_path)
    script.write_text("import torch")
    (tmp_path / "torch.py").write_text("")
    job.located(tmp_path)


def test_a_graph_job_without_a_graph_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        graphjobs.GraphJob(path="trace.et")
