"""script/bootstrap on machines that refuse: a package archive and a dpkg of each kind, by shims of
dpkg-query, apt-cache, apt-get and sudo on PATH. Everything else that it calls is the real program.

`script/test fresh` is the same script on a real machine that has nothing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest
from pip._vendor import distlib

import loomnet

SCRIPTS = Path(__file__).parents[2] / "script"
SOURCE = (SCRIPTS / "bootstrap").read_text()
PACKAGES = [
    word
    for line in SOURCE.partition("PACKAGES=(\n")[2].partition("\n)")[0].splitlines()
    for word in line.partition("#")[0].split()
]
TORCH = re.search(r"TORCH='(.*)'", SOURCE)[1]

# One program under several names; `machine.json` is the machine it plays.
SHIM = r"""#!PYTHON -IS
import json, os, sys
here = os.path.dirname(os.path.abspath(sys.argv[0]))
path = here + "/machine.json"
machine = json.load(open(path))
name, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
with open(here + "/calls", "a") as calls:
    print(name, *arguments, file=calls)
status = machine["status"]
words = [a for a in arguments if not a.startswith("-") and "=" not in a]
if name == "sudo":
    os.execvp(arguments[0], arguments)
elif name == "dpkg-query":
    unknown = False
    line = arguments[arguments.index("-f") + 1].replace("\\n", "\n")
    for package in (w for w in words if "{" not in w):
        if package in status:
            text = line.replace("${db:Status-Abbrev}", status[package])
            print(text.replace("${Package}", package), end="")
        else:
            unknown = True
            print("dpkg-query: no packages found matching", package, file=sys.stderr)
    sys.exit(unknown)
elif name == "apt-cache":
    if machine.get("cache_fails"):
        sys.exit(100)
    for package in words[1:]:
        if package not in machine["archive"]:
            continue
        print(package + ":\n  Installed: (none)\n  Candidate:", machine["archive"][package])
        print("  Version table:\n" + "     9.9 500\n" * 4000)  # longer than a pipe's buffer
elif name == "apt-get":
    action = next(w for w in words if w in ("update", "install"))
    if said := machine.get(action):
        print("Reading package lists...")
        print(said, file=sys.stderr)
        sys.exit(100)
    if action == "install":
        for package in words[words.index("install") + 1:]:
            status[package] = "ii "
        json.dump(machine, open(path, "w"))
"""


@dataclass
class Machine:
    root: Path
    tools: Path

    def bootstrap(self, folder="clone", **machine) -> subprocess.CompletedProcess:
        """Runs it as an ordinary user on a machine with those packages, archive and refusals."""
        machine.setdefault("archive", {name: "9.9" for name in [*PACKAGES, "bpftool"]})
        (self.root / "shims/machine.json").write_text(json.dumps(machine))
        environment = {
            "PATH": f"{self.root}/shims:{self.tools}",
            "HOME": str(self.root),
            "LANGUAGE": "de",
            "LC_ALL": "C.UTF-8",
        }
        # Root's files are that user's own in a namespace of users, and sudo is what it must call.
        user = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
        return subprocess.run(
            [*(user if os.geteuid() == 0 else ()), self.root / folder / "script/bootstrap"],
            capture_output=True,
            text=True,
            timeout=60,
            env=environment,
            stdin=subprocess.DEVNULL,
        )

    def calls(self, program: str) -> list[str]:
        calls = self.root / "shims/calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        return [line for line in lines if line.split()[0] == program]

    def without(self, program: str) -> None:
        (self.root / "shims" / program).unlink()


@pytest.fixture(scope="module")
def tools(tmp_path_factory) -> Path:
    """A folder of this machine's programs, without those that the shims play."""
    tools = tmp_path_factory.mktemp("tools")
    for name in ("bpftool", "clang"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    for program in [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]:
        hidden = program.name.startswith(("sudo", "apt", "dpkg", "python", "clang", "bpftool"))
        if not hidden and not (tools / program.name).is_symlink():
            (tools / program.name).symlink_to(program)
    return tools


@pytest.fixture
def machine(tmp_path, tools) -> Machine:
    """A clone whose .venv is there and whose pip installs nothing, so that packages are all."""
    clone, shims = tmp_path / "clone", tmp_path / "shims"
    for folder in (clone / "script", clone / "core", clone / "ebpf", clone / "python", shims):
        folder.mkdir(parents=True)
    for name in ("bootstrap", "common.sh"):
        shutil.copy(SCRIPTS / name, clone / "script")
    for name in ("CMakeLists.txt", "pyproject.toml", "LICENSE"):
        (clone / name).touch()
    site = clone / ".venv/lib/python3.11/site-packages"
    (site / f"torch-{TORCH}.dist-info").mkdir(parents=True)
    python = clone / ".venv/bin/python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    for name in ("dpkg-query", "apt-cache", "apt-get", "sudo"):
        (shims / name).write_text(SHIM.replace("PYTHON", sys.executable))
        (shims / name).chmod(0o755)
    return Machine(tmp_path, tools)


def installed(**other: str) -> dict[str, str]:
    return {**dict.fromkeys(PACKAGES, "ii "), **other}


def refusal(done: subprocess.CompletedProcess) -> str:
    """The one line on stderr of a bootstrap that gave up."""
    assert done.returncode == 2, done
    assert done.stderr.startswith("bootstrap: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_a_machine_that_has_all_is_only_looked_at(machine):
    first = machine.bootstrap(status=installed())
    assert first.returncode == 0, first
    second = machine.bootstrap(status=installed())
    assert second.returncode == 0 and not machine.calls("apt-get")
    assert "compiling" in first.stdout and "compiling" not in second.stdout


PIP = """
import os, sys
with open(os.environ["HOME"] + "/pip_calls", "a") as calls:
    print(os.getcwd(), *sys.argv[1:], file=calls)
"""


@pytest.fixture
def with_venv(machine) -> Machine:
    """The same with a real .venv: pip's writer of commands, and a pip that installs nothing."""
    clone = machine.root / "clone"
    shutil.rmtree(clone / ".venv")
    venv.create(clone / ".venv")
    (site,) = (clone / ".venv/lib").glob("python3*/site-packages")
    vendor = Path(distlib.__file__).parents[1]
    shutil.copytree(vendor / "distlib", site / "pip/_vendor/distlib")
    for name in ("__init__", "_vendor/__init__"):
        (site / f"pip/{name}.py").touch()
    (site / "pip/__main__.py").write_text(PIP)
    (site / "tool.py").write_text("import sys\ndef main(): print(sys.prefix)\n")
    for name, entry in (
        (f"torch-{TORCH}", None),
        ("pip-9", "pip = pip.__main__:main"),
        ("tool-1", "tool = tool:main"),
    ):
        about = site / f"{name}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Name: {name.partition('-')[0]}\nVersion: 1\n")
        if entry:
            (about / "entry_points.txt").write_text(f"[console_scripts]\n{entry}\n")
    for name in ("pip", "tool", "file"):
        command = clone / ".venv/bin" / name
        command.write_text(f"#!{clone}/.venv/bin/python\nimport tool\ntool.main()\n")
        command.chmod(0o755)
    return machine


@pytest.mark.parametrize("new", ["moved", "with a space"])
def test_a_venv_that_came_from_another_folder_becomes_this_ones(with_venv, new):
    machine = with_venv
    clone, other = machine.root / "clone", machine.root / new
    assert machine.bootstrap(status=installed()).returncode == 0
    commands = {file: file.read_bytes() for file in (clone / ".venv/bin").iterdir()}
    calls = machine.root / "pip_calls"
    calls.unlink()
    again = machine.bootstrap(status=installed())
    assert not again.stdout and not calls.exists()
    # A copy made of hard links shares its files with the original, which must stay as it is.
    subprocess.run(["cp", "-al", clone, other], check=True)
    done = machine.bootstrap(new, status=installed())
    assert done.returncode == 0, done
    assert ".venv came from another folder with this one" in done.stdout
    assert any(
        line.startswith(f"{other} ") and " -e ." in line for line in calls.read_text().splitlines()
    )
    for command in ("tool", "file"):
        for tree in (clone, other):
            said = subprocess.run([tree / ".venv/bin" / command], capture_output=True, text=True)
            assert said.stdout == f"{tree}/.venv\n", said
    assert str(other) in (other / ".venv/bin/activate").read_text()
    assert not [
        file
        for file in (other / ".venv/bin").iterdir()
        if file.read_bytes().startswith(f"#!{clone}/".encode())
    ]
    assert commands == {file: file.read_bytes() for file in (clone / ".venv/bin").iterdir()}
    calls.unlink()
    again = machine.bootstrap(new, status=installed())
    assert again.returncode == 0 and not again.stdout and not calls.exists(), again


def test_a_build_says_how_far_it_is_and_its_modules_are_compiled(with_venv):
    clone = with_venv.root / "clone"
    (site,) = (clone / ".venv/lib").glob("python3*/site-packages")
    with open(site / "pip/__main__.py", "a") as pip:
        pip.write(
            'print("  [3/5] a.o\\n  loomnet: 3 of 5 steps", os.environ.get('
            '"LOOMNET_BUILD_PROGRESS"))'
        )
    (clone / "python/loomnet").mkdir()
    (clone / "python/loomnet/room.py").touch()
    done = with_venv.bootstrap(status=installed())
    assert done.returncode == 0, done
    assert done.stdout.splitlines().count("bootstrap: 3 of 5 steps stdout") == 1
    assert "a.o" not in done.stdout
    assert "  [3/5] a.o\n" in (clone / "build/logs/install.log").read_text()
    assert list((clone / "python/loomnet/__pycache__").glob("room.*.pyc"))


def test_packages_that_dpkg_does_not_know_are_installed(machine):
    done = machine.bootstrap(status={"git": "ii ", "clang": "un ", "llvm": "rc "})
    assert done.returncode == 0, done
    (line,) = (call for call in machine.calls("apt-get") if " install " in call)
    assert set(line.split()) >= set(PACKAGES) - {"git"}
    assert "git" not in line.split()


@pytest.mark.parametrize("state", ["iU ", "iF ", "iHR", "iiR", "it "])
def test_a_half_installed_package_is_installed_again(machine, state):
    done = machine.bootstrap(status=installed(mininet=state))
    assert done.returncode == 0, done
    (line,) = (call for call in machine.calls("apt-get") if " install " in call)
    assert line.endswith("--no-install-recommends mininet")


def test_a_package_on_hold_that_is_installed_is_left_alone(machine):
    assert machine.bootstrap(status=installed(mininet="hi ")).returncode == 0
    assert not machine.calls("apt-get")


def test_a_package_on_hold_that_is_missing_is_named_with_the_fix(machine):
    line = refusal(machine.bootstrap(status=installed(mininet="hn ")))
    assert line.endswith("on hold and not installed: mininet; sudo apt-mark unhold mininet\n")


def test_an_archive_without_a_package_is_named(machine):
    archive = {name: "9.9" for name in PACKAGES if name not in ("mininet", "tshark")}
    archive["tshark"] = "(none)"
    line = refusal(machine.bootstrap(status={}, archive=archive))
    assert "has no: mininet tshark (" in line and "universe" in line


@pytest.mark.parametrize(
    ("action", "said", "named"),
    [
        ("update", "E: Failed to fetch http://a/InRelease  Could not resolve 'a'", "not resolve"),
        ("update", "E: Could not get lock /var/lib/apt/lists/lock.", "Could not get lock"),
        (
            "install",
            "E: dpkg was interrupted, you must manually run 'dpkg --configure -a' to "
            "correct the problem.",
            "dpkg --configure -a",
        ),
        ("install", "E: Unable to fetch some archives, maybe run apt-get update", "Unable to"),
        (
            "install",
            "dpkg: error processing package mininet (--configure):\nE: Sub-process "
            "/usr/bin/dpkg returned an error code (1)",
            "returned an error code",
        ),
    ],
)
def test_an_archive_that_fails_is_one_line_with_apts_reason(machine, action, said, named):
    line = refusal(machine.bootstrap(status=installed(mininet="un "), **{action: said}))
    assert f"apt-get {action} failed: " in line and named in line
    assert line.endswith("(see build/logs/apt.log)\n")
    assert said in (machine.root / "clone/build/logs/apt.log").read_text()


def test_a_cache_that_cannot_be_read_is_no_missing_package(machine):
    line = refusal(machine.bootstrap(status=installed(mininet="un "), cache_fails=True))
    assert "cannot find out: candidates mininet" in line
    assert "archive of this machine has no" not in line


def test_without_sudo_a_user_is_told_what_root_is_needed_for(machine):
    machine.without("sudo")
    line = refusal(machine.bootstrap(status=installed(mininet="un ", tshark="un ")))
    assert "needs root to install packages (mininet tshark)" in line and "sudo" in line


def test_without_sudo_a_machine_that_has_all_packages_is_enough(machine):
    machine.without("sudo")
    assert machine.bootstrap(status=installed()).returncode == 0


def test_a_sudo_that_refuses_is_one_line(machine):
    sudo = machine.root / "shims/sudo"
    sudo.write_text("#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n")
    line = refusal(machine.bootstrap(status=installed(mininet="un ")))
    assert "apt-get update failed: sudo: a password is required" in line


def test_no_apt_at_all_is_one_line(machine):
    for program in ("apt-get", "apt-cache", "dpkg-query"):
        machine.without(program)
    assert "this is not Debian or Ubuntu" in refusal(machine.bootstrap(status={}))


def test_an_archive_that_installs_nothing_is_noticed(machine):
    apt = machine.root / "shims/apt-get"
    apt.write_text("#!/bin/sh\nexit 0\n")
    assert "still missing after apt-get install: mininet" in refusal(
        machine.bootstrap(status=installed(mininet="un "))
    )


def test_nothing_changes_the_owner_of_a_path():
    """A chown by path follows what a user puts there; what is a user's is written as that user."""
    sources = [*SCRIPTS.iterdir(), *Path(loomnet.__file__).parent.rglob("*.py")]
    found = [
        f"{source.name}:{number}: {line.strip()}"
        for source in sources
        for number, line in enumerate(source.read_text().splitlines(), 1)
        if re.search(r"\bl?ch(own|grp)\b", line.partition("#")[0])
    ]
    assert SCRIPTS / "test" in sources and not found


def test_every_script_is_sound_shell():
    shellcheck = shutil.which("bash")
    for script in SCRIPTS.iterdir():
        if "bash" not in script.read_text().partition("\n")[0] and script.suffix != ".sh":
            continue  # of Python
        done = subprocess.run([shellcheck, "-n", script], capture_output=True, text=True)
        assert done.returncode == 0, textwrap.shorten(done.stderr, 400)


@pytest.mark.parametrize(
    ("command", "lines"),
    [
        ("true", ""),
        ("printf 'a b\\nc\\n'", "[a b][c]"),
        ("printf 'a\\n'; exit 3", None),
        ("! true", None),
    ],
)
def test_lines_of_a_command_are_read_whole_or_the_script_ends(tmp_path, command, lines):
    script = tmp_path / "reads"
    script.write_text(
        f'source "{SCRIPTS}/common.sh"\nasked() {{ ({command}); }}\n'
        'lines_of kept asked\n((${#kept[@]} == 0)) || printf "[%s]" "${kept[@]}"\n'
    )
    done = subprocess.run(["bash", script], capture_output=True, text=True)
    if lines is None:
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == "reads: cannot find out: asked\n"
    else:
        assert (done.returncode, done.stdout) == (0, lines), done.stderr


def test_package_settings_that_cannot_be_read_are_no_empty_settings(tmp_path):
    """`script/test` and `script/fresh` hand the settings on; a failure must end these scripts."""
    command = f'set -o pipefail; source "{SCRIPTS}/common.sh"; package_settings'
    environment = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["bash", "-c", command], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "env").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "env").chmod(0o755)
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    assert subprocess.run(["bash", "-c", command], env=environment).returncode != 0


def test_no_script_reads_a_process_substitution():
    """The status of `< <(command)` is lost: `lines_of` reads the same lines and keeps it."""
    for script in SCRIPTS.iterdir():
        assert "< <(" not in script.read_text(), script
