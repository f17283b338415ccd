"""README.md and docs/ keep their word: every command and every block of code is run as it stands.
Those of the live clock are in tests/live/test_pages.py; those that take longer than a minute run
with --soak, and without it their scenario and settings are checked."""

import re
import shutil
import subprocess
import sys

import pages
import pytest
import typer.main

import loomnet as ln
from loomnet.cli.commands import app

# Scenarios that take longer than a minute, or that tests of their own run whole.
SLOW = re.compile(
    r"mrc_ddp_link_failure|one_link|ddp_eight_planes|scenarios/(ina|symphony|astraea)/|"
    r"mfabric/(headline|decisive|failures|shares|modes|limits|scale|all|moe_ddp|"
    r"constants|fluid_times|control|panel|worthwhile|moe_gates)"
)
# Commands that a page's own test runs, in the surroundings that they need.
ELSEWHERE = {
    r"loomnet cost ": "test_cost_command.py",
    r"loomnet ocs ": "test_ocs_doc.py",
    r"loomnet train ": "test_train_command.py",
    r"--switch|heavy\.py": "test_switch_programs_doc.py",
}
# Pages whose code their own tests run.
OWN_TESTS = {
    "docs/course-answers.md": "test_courses.py",
    "docs/for-a-class.md": "test_courses.py",
    "docs/fluid.md": "test_fluid.py",
    "docs/foreign-files.md": "test_foreign_files.py",
    "docs/ina-jobs.md": "test_ina_jobs_docs.py",
    "docs/ina.md": "test_ina_scenarios.py",
    "docs/learning.md": "test_learning.py",
    "docs/model-jobs.md": "test_model_jobs_doc.py",
    "docs/ocs.md": "test_ocs_doc.py",
    "docs/panels.md": "test_panels_doc.py",
    "docs/pictures.md": "test_pictures_doc.py",
    "docs/plugins.md": "test_plugins_doc.py",
    "docs/ranks-on-a-host.md": "test_host_ranks_docs.py",
    "docs/roce-hosts.md": "test_roce_hosts_doc.py",
    "docs/switch-programs.md": "test_switch_programs_doc.py",
    "docs/tcp-hosts.md": "test_tcp_hosts_doc.py",
    "docs/your-script.md": "test_your_pages.py",
    "docs/your-network.md": "test_your_pages.py",
    "docs/several-jobs.md": "test_several_jobs_docs.py",
    "README.md": "test_readme.py",
}
COMMANDS = [
    command
    for command in pages.all_commands()
    if not pages.is_live(command)
    and not any(re.search(elsewhere, command) for elsewhere in ELSEWHERE)
]
FAST = [command for command in COMMANDS if not SLOW.search(command)]
LONG = [command for command in COMMANDS if SLOW.search(command)]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(pages.ROOT / "scenarios", folder / "scenarios")
    return folder


@pytest.fixture(scope="module")
def run(clone):
    """The directory of a run, for commands that take one."""
    report = ln.load(clone / "scenarios" / "flap.py").run(directory=clone / "runs" / "kept")
    assert report.ok
    return clone / "runs" / "kept"


# --- commands -----------------------------------------------------------------------------------
def test_no_command_is_left_out():
    """A new one is tested by being there; those that install are script/test's step `fresh`."""
    assert len(FAST) >= 20 and len(LONG) >= 20
    named = {re.search(r"loomnet (\w+)", command)[1] for command in pages.all_commands()}
    known = set(typer.main.get_command(app).commands)
    assert named <= known, named - known
    assert known - named <= {"clean"}, known - named


def test_commands_that_need_root_say_so():
    for command, page in pages.all_commands().items():
        assert command.startswith("sudo .venv/bin/loomnet") == pages.is_live(command), (
            page,
            command,
        )


@pytest.mark.parametrize("command", FAST)
def test_a_command_does_what_it_says(clone, run, command, tmp_path):
    # The clone has scenarios, which are not overwritten.
    folder = tmp_path if command == "loomnet examples" else clone
    done = pages.typed(re.sub(r"\bRUN\b", str(run), command), folder)
    if command == "loomnet doctor":
        assert done.returncode in (0, 2) and "virtual clock" in done.stdout
        return
    assert done.returncode == 0, done.stdout + done.stderr
    out = done.stdout
    if " run " in command:
        assert "FAIL" not in out and "not a result" not in out
    if "flap.py" in command and " run " in command:
        assert re.search(r"^ok   capacity: ", out, re.M) and "null:" not in out
    for option in re.findall(r"--(?:trace|pcap) (?:\S+=)?(\S+)", command):
        size = (clone / option).stat().st_size
        assert 1e5 < size < 60e6, "a first capture is one that a laptop opens"
        kind = "trace" if "--trace" in command else "capture"
        assert re.search(rf"{kind}\b.*{re.escape(option)}", out), out
    if " sweep " in command:
        assert "9 points, 0 failed, 0 missing" in out and "do not hold" not in out
        assert ".parquet" in out
    if " compare " in command:
        assert "worse" not in out
    if " replay " in command:
        assert "identical: " in out
    if " bench " in command:
        assert "# Out of bounds values : 0 OK" in out


def test_compare_exits_1_on_a_regression(clone, run):
    ln.load(clone / "scenarios" / "flap.py").run(directory=clone / "runs" / "worse", planes=2)
    (command,) = [command for command in COMMANDS if " compare " in command]
    worse = command.replace("RUN", str(run), 1).replace("RUN", str(clone / "runs" / "worse"))
    assert pages.typed(worse, clone).returncode == 1


@pytest.mark.parametrize("command", LONG)
def test_a_long_command_names_a_scenario_and_its_parameters(clone, command):
    scenario = ln.load(clone / re.search(r"scenarios/\S+\.py", command)[0])
    # Each of a sweep's values is one that a run takes.
    for setting in re.findall(r"--set (\S+)", command):
        name, _, values = setting.partition("=")
        for value in values.split(",") if " sweep " in command else [values]:
            scenario.validate(scenario.settings([f"{name}={value}"]))


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("command", LONG)
def test_a_long_command_runs_to_its_end(clone, command):
    """Checks that a page says do not hold end in exit status 1; nothing ends otherwise."""
    done = pages.typed(command, clone, timeout=7000)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert ("points, 0 failed" if " sweep " in command else "report: ") in done.stdout
    assert "Traceback" not in done.stderr


# --- code ---------------------------------------------------------------------------------------
def saved(clone, name, code):
    """A block of code as a file beside the scenarios, so that it finds what they find."""
    file = clone / "scenarios" / f"{name}.py"
    file.write_text(code)
    return file


def test_each_page_with_code_is_tested():
    here = pages.Path(__file__).read_text()
    for page in pages.PAGES:
        if not pages.python_blocks(page):
            continue
        if page in OWN_TESTS:
            assert (
                page.rpartition("/")[2]
                in (pages.ROOT / "tests/python" / OWN_TESTS[page]).read_text()
            ), page
        else:
            assert f'python_blocks("{page}")' in here, page


def test_first_scenario_shows_the_file_that_is_run():
    (code,) = pages.python_blocks("docs/first-scenario.md")
    assert code == (pages.ROOT / "scenarios" / "flap.py").read_text()


def test_a_stepped_world_keeps_its_queue_short():
    (code,) = pages.python_blocks("docs/stepping.md")
    names = {}
    exec(code, names)
    world, rows = names["world"], names["rows"]
    assert world.done and len(rows) == 0 and "cwnd" in rows.dtype.names
    _, _, size, start, end, _ = world.flows[0].columns
    took = (end - start) / 1e12
    # Their lifetimes, and what was under way then, of which the second one sends little at a time.
    assert 4 <= took[0] < 4.2 and 2 <= took[1] < 4
    assert 0.8 * 100e6 * took.max() < size.sum() * 8 < 100e6 * took.max()  # the bottleneck is busy


def test_what_differs_from_mrc_as_published_is_on_its_page(tmp_path):
    fabric = ln.star(hosts=2, planes=2, rate="100 Gb/s", delay="1 us")
    r = ln.run(fabric, ln.SendRecv("10 kB", 1, "mrc"), directory=tmp_path)
    [note] = [text for name, text in r.data.fidelity.notes.items() if "published" in name]
    table = (pages.ROOT / "docs" / "mrc.md").read_text().partition("## Constants")[2]
    names = [each.split()[0] for each in note.split("; ")]
    assert len(names) >= 4 and all(f"| `{name}` |" in table for name in names), names


def test_every_fault_of_the_page(clone, tmp_path):
    (code,) = pages.python_blocks("docs/faults.md")
    report = ln.load(saved(clone, "every_fault", code)).run(directory=tmp_path)
    assert report.ok, report.failed
    assert report["nic_link.expected_capacity"] == pytest.approx(0.75, abs=0.01)
    assert report["nic_link.goodput_ratio"] == pytest.approx(0.75, abs=0.08)
    for phase in ("lossy", "slow", "far", "spine"):
        assert 0.3 < report[f"{phase}.goodput_ratio"] < 1.05


def test_the_jobs_of_pytorch(clone, tmp_path):
    jobs, scenario, benchmark = pages.python_blocks("docs/pytorch.md")
    names = {}
    exec(jobs, names)
    assert isinstance(names["job"], ln.TorchJob) and names["job"].compute is not None
    pytest.importorskip("torch")
    (tmp_path / "benchmark.py").write_text(benchmark)
    r = ln.run(
        ln.star(hosts=2, rate="100 Gb/s", delay="1 us"),
        ln.TorchJob(tmp_path / "benchmark.py", ranks=2, compute="1 ms"),
        directory=tmp_path / "benchmark",
    )
    assert r["errors"] == 0 and r["before.iteration_s"] == pytest.approx(1.085e-3, rel=0.02)
    log = (tmp_path / "benchmark" / "ranks" / "0.log").read_text()
    assert log.count("all_reduce of 1 MB took 0.00009") == 10
    pytest.importorskip("sklearn")
    report = ln.load(saved(clone, "two_ranks", scenario)).run(directory=tmp_path)
    assert report.ok and len(report.results[None].loss_curve) == 8


def test_the_notebooks_page(clone, monkeypatch):
    monkeypatch.chdir(clone)
    (code,) = pages.python_blocks("docs/notebooks.md")
    names = {}
    exec(code, names)
    assert names["mrc"]["down.goodput_ratio"] > names["roce"]["down.goodput_ratio"] - 0.2
    assert names["mrc"].flows is not None and names["mrc"].drops is not None


def test_the_sweep(clone, monkeypatch):
    monkeypatch.chdir(clone)
    (code,) = pages.python_blocks("docs/sweeps.md")
    names = {}
    exec(code, names)
    assert names["found"].frame.height == 4 and names["found"].frame["ok"].all()


@pytest.mark.in_turns
def test_the_tests_of_the_pytest_page(clone):
    (code,) = pages.python_blocks("docs/pytest.md")
    (clone / "test_of_the_page.py").write_text(code)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "test_of_the_page.py",
            "-k",
            "not live",
        ],
        cwd=clone,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0 and "3 passed" in done.stdout, done.stdout


def test_what_attributes_shows(clone, tmp_path):
    """In a rank: the context's code as it stands. Each hook has a model of its own, as DDP takes
    one hook."""
    pytest.importorskip("torch")
    context, hooks, steps, liars = pages.python_blocks("docs/attributes.md")
    lines = [line for line in hooks.splitlines() if "register_comm_hook" in line]
    assert len(lines) == 4
    body = [
        "import torch, torch.distributed as dist",
        "from torch.distributed.algorithms.ddp_comm_hooks import default_hooks",
        "from torch.nn.parallel import DistributedDataParallel",
        "dist.init_process_group('gloo')",
        "gradient = torch.ones(1000)",
        context,
        "assert seen.expected == seen.delivered > 0 and bool(kept.all())",
        *[line for line in hooks.splitlines() if line and line not in lines],
    ]
    for line in lines:
        body += [
            "ddp = DistributedDataParallel(torch.nn.Linear(8, 8))",
            line,
            "ddp(torch.ones(2, 8)).sum().backward()",
        ]
    body += ["print('hooks ran')", "dist.destroy_process_group()"]
    saved(clone, "says_more", "\n".join(body))
    code = (
        "import loomnet as ln\n\n@ln.scenario\ndef stated(lab: ln.Lab):\n"
        "    fabric = ln.star(hosts=2, rate='100 Gb/s', delay='1 us')\n"
        "    lab.run(fabric, ln.TorchJob('says_more.py', ranks=2, compute='1 ms'))\n"
    )
    report = ln.load(saved(clone, "stated", code)).run(directory=tmp_path)
    (result,) = report.results.values()
    assert report["errors"] == 0, result.rank_log(0)
    assert "hooks ran" in result.rank_log(0)

    inside = "\n".join(f"    {line}" for line in steps.splitlines())
    code = (
        "import loomnet as ln\n\n@ln.scenario\ndef rings(lab: ln.Lab):\n"
        f"    fabric = ln.star(hosts=4, rate='100 Gb/s', delay='1 us')\n{inside}\n"
        "    assert len(r.ring_steps.channels) == 2\n"
    )
    assert ln.load(saved(clone, "rings", code)).run(directory=tmp_path / "rings")["errors"] == 0
    exec(liars, {"ln": ln})


def test_symphony_marks_a_ring(clone, tmp_path):
    (code,) = pages.python_blocks("docs/symphony.md")
    report = ln.load(saved(clone, "marked", code)).run(directory=tmp_path)
    assert report["errors"] == 0


def test_a_region_of_the_mixnet_page(clone, tmp_path):
    blocks = pages.python_blocks("docs/mfabric.md")
    assert len(blocks) == 5  # the last two: test_cost_command.py and test_mixnet_assignment.py
    report = ln.load(saved(clone, "trains", blocks[0])).run(directory=tmp_path)
    assert report["exposed_s"] > 0


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_pytorch_of_the_mixnet_page(clone, tmp_path):
    blocks = pages.python_blocks("docs/mfabric.md")
    shutil.copy(clone / "scenarios" / "mfabric" / "moe_train.py", clone / "scenarios")
    report = ln.load(saved(clone, "trained", blocks[1])).run(directory=tmp_path)
    assert report["circuit_maps"] > 0


def test_code_of_live_is_python():
    """It runs in tests/live/test_pages.py."""
    for code in pages.python_blocks("docs/live.md"):
        compile(code, "docs/live.md", "exec")


# --- the gallery --------------------------------------------------------------------------------
def test_every_scenario_is_in_the_gallery():
    there = {
        str(path.relative_to(pages.ROOT))
        for path in (pages.ROOT / "scenarios").rglob("*.py")
        if "@ln.scenario" in path.read_text()
    }
    shown = set(re.findall(r"loomnet run (scenarios/\S+\.py)", pages.PAGES["docs/gallery.md"]))
    assert there - shown == set(), "without a place in docs/gallery.md"
    assert shown <= there


def test_pictures_are_small_and_each_is_shown():
    folder = pages.ROOT / "docs" / "pictures"
    shown = {
        name for text in pages.PAGES.values() for name in re.findall(r"pictures/(\w+\.png)", text)
    }
    there = {path.name for path in folder.glob("*.png")}
    assert there == shown
    for path in folder.glob("*.png"):
        assert path.stat().st_size < 90_000, path
