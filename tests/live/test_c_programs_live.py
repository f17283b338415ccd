"""A switch program from one C file on the live clock: compiled for the kernel and for the engine,
by the user behind sudo, and what the kernel refuses."""

import os
import shutil
from pathlib import Path

import pytest
from unprivileged import NOBODY, open_directory

import loomnet as ln
from loomnet.cli.new import SWITCH_TEMPLATES
from loomnet.labs.lab import Lab
from loomnet.programs import c_file

HEAVY = (SWITCH_TEMPLATES / "heavy.c").read_text()
LOCKED = "LN_UNLOCK(&row->lock);"
pytestmark = pytest.mark.skipif(shutil.which("clang") is None, reason="no clang")


@pytest.fixture
def folder():
    made = open_directory()
    yield made
    shutil.rmtree(made)


def fabric(file: Path, text: str = HEAVY):
    file.write_text(text)
    return ln.clos.two_tier(
        planes=1, leaves=2, spines=1, hosts_per_leaf=2, rate="40 Mb/s", delay="0.5 ms"
    ).program("p0.leaf*", str(file))


def run(made, folder):
    return Lab("counted", clock="live", directory=folder / "run").run(
        made, ln.AllReduce("60 kB", repeat=5, transport="roce")
    )


def check(r):
    assert r["errors"] == 0 and r.data.fidelity.unexplained == 0
    for leaf in ("p0.leaf0", "p0.leaf1"):
        found = r.switch(leaf)
        packets = sum(row["packets"] for row in found.snapshot()["rows"])
        assert 0 < packets == found.counters["received"] == found.counters["counted"]


def test_kernel_and_engine_count_each_packet(uses_machine, folder):
    made = fabric(folder / "heavy.c").place("p0.leaf1", "engine")
    check(run(made, folder))


def test_under_sudo_it_is_the_users_file_and_the_kernel_alone_runs_it(
    uses_machine, folder, monkeypatch
):
    monkeypatch.setenv("SUDO_UID", str(NOBODY))
    monkeypatch.setenv("SUDO_GID", str(NOBODY))
    (folder / "heavy.c").touch(0o600)
    for each in (folder, folder / "heavy.c"):
        os.chown(each, NOBODY, NOBODY)
    folder.chmod(0o700)
    made = fabric(folder / "heavy.c", HEAVY + "/* theirs */")
    check(run(made, folder))
    assert c_file.known(made.switches["p0.leaf0"].program).user.uid == NOBODY
    with pytest.raises(ln.UsageError, match="root does not run the code of user nobody"):
        run(made.place("p0.leaf1", "engine"), folder)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            "packet->frame[70] = 1;",
            r"heavy\.c: the kernel's verifier refuses it: invalid access to "
            r"packet, .* at .*heavy\.c:\d+",
        ),
        ("bpf_get_prandom_u32();", r"built for the kernel, calls the kernel's helper 7"),
        ("bpf_override();", r"heavy\.c: the C compiler refuses it: .*bpf_override"),
    ],
)
def test_what_the_kernel_may_not_run_is_one_line(uses_machine, folder, code, line):
    text = HEAVY.replace(LOCKED, f"{LOCKED}\n#ifdef __bpf__\n{code}\n#endif")
    with pytest.raises(ln.UsageError, match=line) as refused:
        run(fabric(folder / "heavy.c", text), folder)
    assert "\n" not in str(refused.value)


def test_a_crash_in_the_engine_ends_the_run_and_leaves_nothing(uses_machine, folder):
    made = fabric(folder / "heavy.c", HEAVY.replace(LOCKED, f"{LOCKED} *(volatile int*)0 = 1;"))
    with pytest.raises(ln.LoomnetError, match=r"heavy\.c.*: the switch program crashed \(SIGSEGV"):
        run(made.place("*", "engine"), folder)


NUMBERS = """#define LN_CONTRACT 1
#define LN_COUNTERS(X) X(SEEN, "seen")
#define LN_OPTIONS(X) X(port, 0, 0, 1000000, "") X(counter, 16, 0, 1000000, "")
#include <loomnet/switch_program.h>
struct ln_verdict ln_on_packet(const struct ln_options* options, struct ln_host* host,
                               struct ln_packet* packet, const struct ln_meta* meta) {
  ln_count(host->counters, options->counter);
  return options->port ? ln_forward(options->port) : ln_route(host, packet);
}
"""


@pytest.mark.parametrize("placement", ["xdp", "engine"])
def test_a_port_without_a_link_is_the_same_drop_in_kernel_and_engine(
    uses_machine, folder, placement
):
    for port in (99, 65_536):
        (folder / "numbers.c").write_text(NUMBERS)
        made = ln.star(hosts=2, rate="40 Mb/s", delay="0.5 ms")
        made.program("*", str(folder / "numbers.c"), port=port).place("*", placement)
        r = Lab("no_port", clock="live", directory=folder / f"{placement}{port}").run(
            made,
            ln.Flows("10 kB", pairs=[(0, 1)], transport="roce"),
            roce={"timeout_exponent": 10, "retry_count": 0},
        )
        counters = r.switch("p0.leaf0").counters
        assert counters["drop_no_device"] == counters["received"] == counters["seen"] >= 5
        assert r.data.fidelity.unexplained == 0 and r["errors"] == 1


def test_the_verifier_refuses_an_option_that_names_no_counter_in_one_line(uses_machine, folder):
    (folder / "numbers.c").write_text(NUMBERS)
    made = ln.star(hosts=2, rate="40 Mb/s", delay="0.5 ms")
    made.program("*", str(folder / "numbers.c"), counter=4000)
    with pytest.raises(
        ln.LoomnetError,
        match=r"switch p0\.leaf0: load the numbers\.c@\w+ program: "
        r"the kernel's verifier refuses it: invalid access to map value",
    ) as refused:
        Lab("no_counter", clock="live", directory=folder / "run").run(
            made, ln.AllReduce("1 kB", transport="roce")
        )
    assert len(str(refused.value)) < 500 and "\n" not in str(refused.value)
