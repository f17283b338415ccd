"""In a Jupyter kernel: an error of Loomnet is one line, and an interrupted cell says once what
happened and leaves what was measured."""

import time

import pytest
from notebooks import package_for_kernels

jupyter_client = pytest.importorskip("jupyter_client")
pytest.importorskip("ipykernel")
LONG = 'ln.run(fabric, ln.AllReduce("8 MB", repeat=100_000), write=False)'


class Kernel:
    """A kernel that a page would have."""

    def __init__(self, folder):
        with package_for_kernels():
            self.manager = jupyter_client.KernelManager(kernel_name="python3")
            self.manager.start_kernel(cwd=str(folder))
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)

    def run(self, code, *, interrupt_at=None):
        """(kind, content) of each output; the cell is interrupted at the first of this kind."""
        asked, found = self.client.execute(code, allow_stdin=True), []
        ends = time.monotonic() + 120
        while time.monotonic() < ends:
            message = self.client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != asked:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                return found
            if kind not in ("status", "execute_input"):
                found.append((kind, content))
            if kind == interrupt_at:
                self.manager.interrupt_kernel()
                interrupt_at = None
        raise AssertionError(f"the cell did not end: {found}")

    def close(self):
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    made = Kernel(tmp_path_factory.mktemp("kernel"))
    try:
        assert not made.run(
            "import loomnet as ln\nfabric = ln.clos.two_tier(planes=1, leaves=2, spines=1, "
            'hosts_per_leaf=2, rate="100 Gb/s", delay="1 us")'
        )
        yield made
    finally:
        made.close()


def text(outputs):
    [(kind, content)] = outputs
    assert kind == "execute_result", outputs
    return content["data"]["text/plain"]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            'ln.AllReduce("1 MX")',
            'UsageError: AllReduce.size: size "1 MX": unknown unit "MX"; nearest',
        ),
        ('fabric.panel("x")', 'FabricError: no panel "x"'),
        (
            'ln.run(fabric, ln.AllReduce("1 MB"), [ln.down("h9--x", at="1 ms")])',
            'UsageError: fault down(h9--x): no link "h9--x"; nearest',
        ),
        ("ln.sweep(lambda lab: None)", "UsageError: "),
        (
            "ln.Permutaton",
            "UnknownAttributeError: module 'loomnet' has no attribute 'Permutaton'; "
            "nearest: Permutation",
        ),
        (
            'fabric.links["h0"]',
            "UnknownNameError: a table's rows go by number, not by 'h0': column(",
        ),
        (
            'ln.run(fabric, ln.AllReduce("1 MB"), write=False).metrics["slowdown_max"]',
            "UnknownNameError: a table's rows go by number, not by 'slowdown_max': r[\"NAME\"]",
        ),
        (
            'ln.run(fabric, ln.AllReduce("1 MB"), seeds=3)',
            "UsageError: run: no option seeds; nearest: seed, settle, observe; a run has one seed",
        ),
        (
            'ln.run(fabric, ln.AllReduce("1 MB"), lable="x")',
            "UsageError: run: no option lable; nearest: label",
        ),
        (
            'ln.run(fabric, ln.ModelJob("mixtral_8x22b"))',
            'UsageError: "mixtral_8x22b": one copy of the'
            " model is on expert=8 x tensor=8 x pipeline=8 = 512 ranks, by default as published, "
            "and the hosts have 4 places",
        ),
    ],
)
def test_an_error_is_one_line(kernel, code, line):
    [(kind, content)] = kernel.run(code)
    assert kind == "error"
    [shown] = content["traceback"]
    assert shown.startswith(line) and "\n" not in shown


def test_an_error_of_the_users_own_keeps_its_traceback(kernel):
    [(_, content)] = kernel.run("(1).real.none")
    assert len(content["traceback"]) > 1


def test_an_interrupted_run_says_so_once_and_leaves_its_result(kernel):
    found = kernel.run(f'{LONG}\nprint("next line")', interrupt_at="update_display_data")
    kinds = [kind for kind, _ in found]
    assert kinds.count("error") == 1 and kinds[-1] == "error"
    [line] = found[-1][1]["traceback"]
    assert line.startswith("RunInterrupted: interrupted after ") and "\n" not in line
    assert line.count("interrupted") == 1 and line.endswith("import sys; sys.last_value.result")
    assert not [c for kind, c in found if kind == "stream" and "next line" in c["text"]]
    bar = [c["data"] for kind, c in found if kind == "update_display_data"]
    assert bar[-1] == {"text/html": "", "text/plain": ""} and "step" in bar[0]["text/plain"]
    kernel.run("import sys; r = sys.last_value.result")
    assert int(text(kernel.run("len(r.iterations)"))) > 0
    assert text(kernel.run("r.summary")).count("interrupted") == 1
    assert "'the run was interrupted'" == text(kernel.run("r.metric('before.iteration_s').reason"))
    # And the kernel goes on.
    done = 'ln.run(fabric, ln.AllReduce("1 MB"), write=False).data.ended'
    assert text(kernel.run(done)) == "'finished'"


def test_an_interrupted_loop_starts_no_other_run(kernel):
    found = kernel.run(
        f"for each in range(3):\n    print(each)\n    {LONG}", interrupt_at="update_display_data"
    )
    printed = "".join(c["text"] for kind, c in found if kind == "stream" and c["name"] == "stdout")
    assert printed == "0\n" and [kind for kind, _ in found].count("error") == 1


def test_an_interrupted_scenario_says_so_and_returns_its_report(kernel):
    found = kernel.run(
        "@ln.scenario\ndef long(lab: ln.Lab) -> None:\n"
        '    lab.run(fabric, ln.AllReduce("1 MB", repeat=6), label="short")\n'
        '    lab.run(fabric, ln.AllReduce("8 MB", repeat=100_000), label="long")\n'
        "report = long.run()",
        interrupt_at="update_display_data",
    )
    said = [c["text"] for kind, c in found if kind == "stream" and c["name"] == "stderr"]
    assert said == ["long: interrupted; the report has what was measured until then\n"]
    assert text(kernel.run("report")).startswith("Report(long: interrupted, 2 runs; all numbers")
    assert float(text(kernel.run('report["short.before.iteration_s"]'))) > 0
