"""docs/your-script.md and docs/your-network.md: their scripts, files and code run as they stand
there, and give the figures that the pages state."""

import re

import doc_blocks
import networkx as nx
import pages
import pytest

import loomnet as ln
from loomnet.measures import training as measure
from loomnet.measures.run_data import RunData
from loomnet.results.drawing import Scale, draw_marks, new_picture
from loomnet.running.log_lines import LogLines

SCRIPT, NETWORK = "docs/your-script.md", "docs/your-network.md"


@pytest.fixture
def scripts(tmp_path, monkeypatch):
    """The folder of a reader of your-script.md; the code of the page, by block."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    train, scenario, sharded, table = pages.python_blocks(SCRIPT)
    for name, code in {"mine": train, "my_script": scenario, "sharded": sharded}.items():
        (tmp_path / f"{name}.py").write_text(code)
    return table


@pytest.fixture(scope="module")
def page_run(tmp_path_factory):
    """One run of the page's scenario."""
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("page")
    train, scenario, *_ = pages.python_blocks(SCRIPT)
    (folder / "mine.py").write_text(train)
    (folder / "my_script.py").write_text(scenario)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        report = ln.load(folder / "my_script.py").run(directory=folder / "run")
    return folder, report


def test_a_script_with_accumulation_workers_and_checkpoints_runs_unchanged(page_run):
    folder, report = page_run
    (result,) = report.results.values()
    assert report.ok and report.deterministic
    assert [step for step, _ in result.loss_curve] == list(range(1, 25))
    # Both micro-batches are in an iteration, which computes once for 2 ms.
    assert 2e-3 < report["before.iteration_s"] < 2.1e-3
    assert (folder / "checkpoints" / "20" / ".metadata").exists()
    assert (folder / "run" / "iterations.png").stat().st_size > 10_000


def test_a_line_of_the_log_marks_the_iteration_that_its_checkpoint_makes_longer(page_run):
    _, report = page_run
    (result,) = report.results.values()
    assert [(row["step"], row["mark"]) for row in result.marks] == [
        (10, "checkpoint"),
        (20, "checkpoint"),
    ]
    lengths = {row["number"]: row["length_s"] for row in result.iterations}
    ends = {row["number"]: row["end_s"] for row in result.iterations}
    assert [row["time_s"] for row in result.marks] == [ends[10], ends[20]]
    assert lengths[11] > lengths[10] + 5e-5 and lengths[21] > lengths[20] + 5e-5
    # In the picture: a tick of each, labelled, at that time.
    (axes,) = result.plot("iterations").axes
    labels = [text for text in axes.texts if text.get_text() == "checkpoint"]
    assert [text.get_position()[0] for text in labels] == pytest.approx(
        [1e3 * ends[10], 1e3 * ends[20]]
    )
    ticks = [line for line in axes.lines if list(line.get_ydata()) == [0.0, 0.05]]
    assert len(ticks) == 2


def test_a_mark_without_a_step_has_the_time_of_the_line_before_it():
    lines = [
        {"mark": "begin"},
        {"step": "1", "loss": "2.5"},
        {"mark": "saved"},
        {"step": "3", "mark": "  "},
        {"step": "²", "mark": "odd"},
        {"step": "9", "mark": "end"},
    ]
    matched = LogLines(ln.TorchJob("mine.py"))
    matched.lines = lines
    log = matched.timed([(1, 150), (2, 250), (3, 350)], 100)
    assert [at for at, _ in log] == [0, 50, 50, 250, 250, 250]
    found = measure.marks(RunData("finished", 300, log=log))
    assert found == [(None, 0, "begin"), (1, 50, "saved"), (3, 250, "odd"), (9, 250, "end")]
    assert measure.marks(RunData("finished", 300, log=[(5, {"step": "1", "loss": "1"})])) == []


@pytest.mark.parametrize(
    ("numbers", "log_from", "ends"),
    [
        ((0, 1, 2), None, (50, 150, 250)),  # as nanoGPT counts
        ((1, 2, 3), None, (50, 150, 250)),
        ((2, 3), None, (150, 250)),  # a script that prints every other step
        ((1, 2), 0, (150, 250)),
        ((0, 1, 2), 1, (50, 50, 150)),  # a line before the first step
        ((100, 101), 100, (50, 150)),  # gone on with from a checkpoint
    ],
)
def test_steps_of_a_log_are_counted_from_where_the_script_counts(numbers, log_from, ends):
    matched = LogLines(ln.TorchJob("mine.py", log_from=log_from))
    matched.lines = [{"step": str(each), "mark": "saved"} for each in numbers]
    log = matched.timed([(1, 150), (2, 250), (3, 350)], 100)
    assert tuple(at for at, _ in log) == ends
    # As the script wrote them.
    assert [step for step, *_ in measure.marks(RunData("finished", 400, log=log))] == list(numbers)


def test_many_marks_are_counted_and_not_written_over_one_another():
    figure, (axes,) = new_picture()
    rows = [
        {"time_s": 0.1 * n, "mark": "checkpoint" if n % 2 else "evaluated " * 9} for n in range(40)
    ]
    draw_marks(axes, rows, Scale("s", 1.0))
    assert len(axes.lines) == 40
    assert [text.get_text() for text in axes.texts] == [
        "evaluated evaluated eval (x 20)",
        "checkpoint (x 20)",
    ]
    assert figure.axes == [axes]


@pytest.mark.in_turns
def test_compute_by_layer_is_forwards_and_clocks_are_emulated(scripts):
    names = {}
    exec(scripts, names)
    whole, layer, pair = took = [r.number("before.iteration_s") for r in names["runs"]]
    rows = re.findall(r"^\| `(.+?)` \|.*\| ([\d.]+) ms \|$", pages.PAGES[SCRIPT], re.M)
    assert [round(1e3 * value, 3) for value in took] == [float(ms) for _, ms in rows]
    # Without its communication: forward once, backward twice that, or what the pair says.
    network = whole - 1e-3
    assert layer - network == pytest.approx(3e-3, rel=1e-3)
    assert pair - network == pytest.approx(4.5e-3, rel=1e-3)
    # What the script's own clock showed, and the page says it prints.
    own = [float(row["ms"]) for row in names["runs"][0].logged(0, r"took (?P<ms>\S+) ms")]
    assert own[-1] == pytest.approx(1e3 * whole, abs=1e-3)
    assert f"took {own[-1]:.3f} ms" in pages.PAGES[SCRIPT]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_compiled_model_computes_the_same(scripts, tmp_path):
    text = (tmp_path / "sharded.py").read_text()
    compiled = text.replace("for step in", "model = torch.compile(model)\nfor step in")
    (tmp_path / "compiled.py").write_text(compiled)
    fabric, found = ln.star(hosts=2, rate="100 Gb/s", delay="1 us"), []
    for name in ("sharded.py", "compiled.py"):
        job = ln.TorchJob(
            name, ranks=2, compute={"0": "1 ms"}, log=r"step (?P<step>\d+) loss (?P<loss>\S+)"
        )
        r = ln.run(fabric, job, directory=tmp_path / name[:-3])
        found.append((r.loss_curve, r["before.iteration_s"]))
    assert found[0] == found[1] and len(found[0][0]) == 8


SIX_LAYERS = """
import sys, torch, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(6)))
if sys.argv[1] == "FSDP2":
    for layer in (*model, model):
        fully_shard(layer)
else:
    model = DistributedDataParallel(model, bucket_cap_mb=1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(8):
    model(torch.randn(16, 512)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_fsdp_hides_nothing_and_ddp_does_as_the_page_says(tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "six.py"
    script.write_text(SIX_LAYERS)
    rows = re.findall(
        r"^\| (DDP|FSDP2), .*?\| ([\d.]+) ms \| ([\d.]+) ms \| ([\d.]+) ms \|$",
        pages.PAGES[SCRIPT],
        re.M,
    )
    assert len(rows) == 2
    layers = {"*": ("0.333333 ms", "0.666667 ms")}
    for name, *shown in rows:
        took = [
            ln.run(
                ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
                ln.TorchJob(script, args=[name], ranks=2, compute=compute),
                directory=tmp_path / f"{name}{number}",
            ).number("before.iteration_s")
            for number, compute in enumerate(("1 ps", "6 ms", layers))
        ]
        assert [f"{1e3 * each:.3f}" for each in took] == shown


def test_every_block_of_the_network_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = pages.PAGES[NETWORK]
    (flows,) = re.findall(r"^```text\n(.*?)^```$", text, re.M | re.S)
    (tmp_path / "flow.txt").write_text(flows)
    (tmp_path / "web.txt").write_text("0 0\n10000 50\n1000000 100\n")
    graph = nx.Graph()
    graph.add_edges_from((("h0", "n0"), ("h1", "n0"), ("h2", "n0")), capacity=10)
    nx.write_graphml(graph, tmp_path / "network.graphml")
    jellyfish, graphml, jobs = [
        block.code for block in doc_blocks.blocks(doc_blocks.ROOT / NETWORK)
    ]
    made = {}
    exec(jellyfish, made)
    assert made["fabric"].counts == (8, 8, 24) and made["r"]["errors"] == 0
    assert made["r"].flows[0]["fct_s"] > 3e-4, "25 Gb/s: 1 MB takes 320 us"
    made = {}
    exec(graphml, made)
    assert {str(link["rate"]) for link in made["fabric"].links} == {"10 Gb/s"}
    exec(jobs, {})
    out = capsys.readouterr().out
    assert re.search(r"^list [\d.e-]+ ", out, re.M) and re.search(r"^drawn [\d.e-]+ ", out, re.M)
    assert all((tmp_path / f"{name}.png").stat().st_size > 10_000 for name in ("list", "drawn"))


def test_a_slow_way_up_is_a_directed_graph():
    graph = nx.DiGraph()
    for line in re.findall(r"`(graph\.add_edge\(.*?\))`", pages.PAGES[NETWORK]):
        exec(line, {"graph": graph})
    graph.add_edge("h1", 0, rate="10 Gb/s")
    graph.add_edge(0, "h1", rate="10 Gb/s")
    r = ln.run(
        ln.from_networkx(graph, delay="1 us"),
        ln.Flows(["1 MB"], pairs=[(0, 1), (1, 0)], starts=["0 s", "50 ms"]),
    )
    up, down = (row["fct_s"] for row in r.flows)
    assert up == pytest.approx(10 * down, rel=0.1)


def test_the_pages_are_found():
    for where in ("README.md", "docs/index.md", "mkdocs.yml"):
        text = (doc_blocks.ROOT / where).read_text()
        assert "your-script.md" in text and "your-network.md" in text, where
