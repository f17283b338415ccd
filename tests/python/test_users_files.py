"""What a run writes is its user's, and written with that user's rights: no name that a user or a
rank puts in a file's place leads root anywhere. Run as root, with SUDO_UID as sudo sets it."""

import ast
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path

import pytest

import loomnet
from loomnet.base.errors import UsageError
from loomnet.processes.folder import Folder, read_bounded
from loomnet.processes.invoking_user import RankUser, rights_of, writer_of
from loomnet.processes.rank_logs import MOST_LINE, RankLog

USER = 54321
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes another user's rights: run as root")
SUDO = {"SUDO_UID": str(USER), "SUDO_GID": str(USER), "SUDO_USER": "somebody"}
RUN = """
    import loomnet as ln

    @ln.scenario
    def short(lab: ln.Lab, wait: str = ""):
        fabric = ln.star(hosts=2, rate="1 Gb/s", delay="1 us")
        lab.directory
        before()
        lab.run(fabric, ln.AllReduce("1 kB", transport="mrc", repeat=1), label="one")
        lab.check("it ran", 1, eq=1)

    def before():
        {before}
    """


@pytest.fixture
def home():
    """A folder of the user's, and beside it one of root's with two files that are to stay."""
    top = Path(tempfile.mkdtemp(prefix="loomnet-user-"))
    os.chmod(top, 0o755)
    mine, roots = top / "home", top / "roots"
    mine.mkdir()
    os.chown(mine, USER, USER)
    roots.mkdir(mode=0o700)
    (roots / "shadow").write_text("root:SECRET-LAST-LINE\n")
    (roots / "other").write_text("other\n")
    for name in ("shadow", "other"):
        os.chmod(roots / name, 0o600)
    yield mine
    assert {path.name for path in roots.iterdir()} == {"shadow", "other"}
    assert (roots / "shadow").read_text() == "root:SECRET-LAST-LINE\n"
    assert (roots / "other").read_text() == "other\n"
    for path in (roots, roots / "shadow", roots / "other"):
        found = path.lstat()
        assert (found.st_uid, found.st_gid) == (0, 0), path
    shutil.rmtree(top)


def loomnet_in(home: Path, *words: str, before: str = "pass", environment=SUDO):
    (home / "short.py").write_text(textwrap.dedent(RUN).format(before=before))
    return subprocess.run(
        [sys.executable, "-m", "loomnet", *words],
        cwd=home,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=120,
    )


def not_the_users(folder: Path) -> list[Path]:
    return [
        path
        for path in (folder, *folder.rglob("*"))
        if (path.lstat().st_uid, path.lstat().st_gid) != (USER, USER)
    ]


@as_root
def test_all_that_a_run_writes_is_the_users(home):
    done = loomnet_in(
        home,
        "run",
        "short.py",
        "--json",
        "out.json",
        "--trace",
        "t.pftrace",
        "--pcap",
        "h0:0=h0.pcapng",
    )
    assert done.returncode == 0, done.stderr
    (run,) = (home / "runs").iterdir()
    assert {path.name for path in run.iterdir()} >= {"report.json", "short.py"}
    assert not_the_users(home / "runs") == []
    for name in ("out.json", "t.pftrace", "h0.pcapng"):
        assert (home / name).stat().st_uid == USER and (home / name).stat().st_size > 100
    assert (home / "out.json").read_bytes() == (run / "report.json").read_bytes()


@as_root
def test_a_run_whose_folder_is_changed_for_a_link_to_roots_writes_where_it_began(home):
    swap = (
        "import os, pathlib; (f,) = pathlib.Path('runs').iterdir(); f.rename('moved'); "
        "f.symlink_to('../../roots')"
    )
    done = loomnet_in(home, "run", "short.py", before=swap)
    assert done.returncode == 0, done.stderr
    assert json.loads((home / "moved" / "report.json").read_text())["scenario"] == "short"
    assert not_the_users(home / "moved") == []


@as_root
@pytest.mark.parametrize("name", ["report.json", "counters.json", "short.py", "one"])
def test_a_link_in_the_place_of_a_file_leads_nowhere(home, name):
    link = (
        f"import os, pathlib; (f,) = pathlib.Path('runs').iterdir(); "
        f"(f / '{name}').symlink_to('../../../roots/shadow')"
    )
    done = loomnet_in(home, "run", "short.py", before=link)
    (run,) = (home / "runs").iterdir()
    if name == "one":  # a folder of a run: not followed, not replaced
        assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert not (run / name).is_symlink() and (run / name).stat().st_uid == USER


@as_root
def test_runs_itself_as_a_link_to_roots_is_refused_in_a_line(home):
    (home / "runs").symlink_to("../roots")
    done = loomnet_in(home, "run", "short.py")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1 and "Permission denied" in done.stderr, done.stderr


@as_root
@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_an_output_that_the_user_may_not_write_is_refused_before_the_run(home, option):
    (home / "link").symlink_to("../roots/new")
    for path in ("../roots/shadow", "link"):
        done = loomnet_in(home, "run", "short.py", option, path)
        assert done.returncode == 2 and "Permission denied" in done.stderr, done.stderr
        assert not (home / "runs").exists()


@as_root
def test_a_device_named_as_output_stays_what_it_is(home):
    device = home.parent / "null"
    os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    os.chmod(device, 0o666)
    done = loomnet_in(home, "run", "short.py", "--json", str(device))
    found = device.lstat()
    device.unlink()
    assert done.returncode == 0, done.stderr
    assert stat.S_ISCHR(found.st_mode) and (found.st_uid, found.st_gid) == (0, 0)


@as_root
def test_rights_are_the_users_inside_and_roots_again_after(home):
    os.chmod(home, 0o777)
    secret = home / "secret"
    secret.write_text("")
    os.chmod(secret, 0o600)
    user = RankUser.of(USER)
    groups = os.getgroups()
    inside = threading.Event()

    def look():
        inside.wait()
        (home / "thread").write_text(secret.read_text())

    other = threading.Thread(target=look)  # started before, it is root's all the time
    other.start()
    with pytest.raises(KeyError), rights_of(user):
        with pytest.raises(PermissionError):
            secret.read_text()
        with rights_of(RankUser.of(USER + 1)):
            (home / "inner").write_text("")
        (home / "outer").write_text("")
        inside.set()
        other.join()
        raise KeyError
    assert secret.read_text() == "" and os.getgroups() == groups
    owners = {name: (home / name).stat().st_uid for name in ("inner", "outer", "thread")}
    assert owners == {"inner": USER + 1, "outer": USER, "thread": 0}


@as_root
def test_root_writes_as_root_where_all_folders_are_roots_alone(home, monkeypatch):
    for name, value in SUDO.items():
        monkeypatch.setenv(name, value)
    roots = home.parent / "roots"
    assert writer_of(roots / "new" / "deep").uid is None
    assert writer_of(home / "new").uid == USER
    assert writer_of(Path("/tmp/new")).uid == USER  # all may write there
    (home / "link").symlink_to("../roots")
    assert writer_of(home / "link" / "new").uid == USER
    assert writer_of(home / ".." / "roots" / "new").uid == USER
    monkeypatch.delenv("SUDO_UID")
    assert writer_of(home / "new").uid is None


# --- rank logs ------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path):
    """A rank's log and the descriptor that the rank has of it."""
    made = RankLog(Folder.at(tmp_path / "ranks"), "0.log")
    fd = made.writer()
    yield made, fd
    os.close(fd)


@pytest.mark.parametrize(
    "put",
    [
        lambda path: os.mkfifo(path),
        lambda path: path.symlink_to("/dev/zero"),
        lambda path: path.symlink_to("/etc/shadow"),
        lambda path: path.mkdir(),
    ],
    ids=["fifo", "zero", "shadow", "folder"],
)
def test_what_a_rank_puts_in_its_logs_place_is_never_opened(log, put):
    made, fd = log
    os.write(fd, b"step 1\nValueError: mine\n")
    made.path.unlink()
    put(made.path)
    assert made.lines() == ["step 1", "ValueError: mine"] and made.error() == "ValueError: mine"
    began = time.monotonic()
    with pytest.raises(OSError):
        read_bounded(made.path)
    assert time.monotonic() - began < 1


@as_root
def test_a_link_that_waits_in_a_logs_place_is_not_followed(home, monkeypatch):
    for name, value in SUDO.items():
        monkeypatch.setenv(name, value)
    run = Folder.at(home / "run")
    ranks = run.folder("ranks")
    for target in ("../../../roots/shadow", "/dev/zero", "nowhere"):
        (home / "run" / "ranks" / "0.log").unlink(missing_ok=True)
        (home / "run" / "ranks" / "0.log").symlink_to(target)
        made = RankLog(ranks, "0.log")
        with open(made.writer(), "wb") as rank:
            rank.write(b"said\n")
        assert made.lines() == ["said"]
        assert (home / "run" / "ranks" / "0.log").read_text() == "said\n"
        assert not_the_users(home / "run") == []
    # The folder itself.
    ranks.path.rename(home / "run" / "moved")
    ranks.path.symlink_to("../../roots")
    with pytest.raises(UsageError, match="ranks"):
        run.folder("ranks")
    # What is read later by its name is what the user may read.
    for path in (ranks / "shadow", home / "run" / "moved" / "link"):
        if path.name == "link":
            path.symlink_to("../../../roots/shadow")
        with pytest.raises(OSError):
            read_bounded(path)


@as_root
def test_a_sweep_under_sudo_is_the_users(home):
    pytest.importorskip("distributed")
    pytest.importorskip("polars")
    done = loomnet_in(home, "sweep", "short.py", "--set", "wait=a,b", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert (*home.glob("runs/sweep-*/sweep.json"),) and not_the_users(home / "runs") == []


def test_a_log_may_be_cut_stretched_and_hold_anything(log):
    made, fd = log
    os.write(fd, b"one\ntw")
    assert made.lines() == ["one"]
    os.write(fd, b"o\n\xff\xfe\n")
    assert made.lines() == ["two", "\ufffd\ufffd"]
    os.ftruncate(fd, 0)
    assert made.lines() == [] and made.at_end and made.error() == ""
    os.ftruncate(fd, 1 << 40)  # a hole of a terabyte
    began = time.monotonic()
    for _ in range(32):
        assert made.lines() == []
    assert made.error().strip("\0") == "" and time.monotonic() - began < 10
    os.ftruncate(fd, 0)


def test_a_line_without_end_costs_no_memory(log):
    made, fd = log
    os.write(fd, b"first\n")
    for _ in range(40):
        os.write(fd, b"x" * (1 << 20))
    os.write(fd, b"\nlast\n")
    lines = []
    while not made.at_end:
        lines += made.lines()
        assert len(made._rest) <= MOST_LINE
    assert lines == ["first", "last"]


def test_flags_that_a_rank_sets_on_its_output_are_its_own(log):
    import fcntl

    made, fd = log
    os.write(fd, b"said\n")
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT | os.O_NONBLOCK)
    os.lseek(fd, 0, os.SEEK_SET)
    assert made.lines() == ["said"]


# --- outputs and places that cannot be written ----------------------------------------------------


# --- labels ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "label",
    [
        "/abs/path",
        "../x",
        "a/b",
        "..",
        ".",
        ".x",
        "-x",
        "a b",
        "\0",
        "\udcff",
        "x" * 101,
        "a\n",
        "é",
        5,
    ],
)
def test_a_label_is_the_name_of_one_folder(tmp_path, label, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lab = loomnet.Lab(directory=tmp_path / "run")
    fabric = loomnet.star(hosts=2, rate="1 Gb/s", delay="1 us")
    with pytest.raises(UsageError, match="label") as caught:
        lab.run(fabric, loomnet.AllReduce("1 kB", transport="mrc"), label=label)
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


@as_root
def test_the_line_for_sudo_runs_no_module_of_the_current_folder(tmp_path):
    from loomnet.live import doctor

    for name in ("typer", "rich", "json", "loomnet"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('HIJACKED by {name}')")
    words = doctor._sudo("--help").split()
    assert words[0] == "sudo"
    for command in (words[1:], [sys.executable, "-P", "-m", "loomnet", "--help"]):
        done = subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, timeout=60)
        assert done.returncode == 0 and "HIJACKED" not in done.stdout + done.stderr, command


# --- the rule -------------------------------------------------------------------------------------


def test_no_file_changes_hands_by_path():
    """Of calls that give a file away or change its mode, only fchown of a descriptor is left."""
    root = Path(loomnet.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = (
                    node.func.attr
                    if isinstance(node.func, ast.Attribute)
                    else getattr(node.func, "id", "")
                )
                named = {keyword.arg for keyword in node.keywords}
                if called in ("chown", "lchown", "chmod", "lchmod") or "follow_symlinks" in named:
                    found.append(f"{path}:{node.lineno}")
                if called == "fchown":
                    assert path.name in ("ranks.py", "socket_folder.py")
    assert found == []


def test_bad_input_removes_no_folder_that_was_there_before(tmp_path):
    """A run's folder may be one that the user has, with what lies in it."""
    from loomnet.labs.lab import Lab

    (tmp_path / "mine/empty/inner").mkdir(parents=True)
    (tmp_path / "fresh").mkdir()
    for name, left in (("mine", True), ("fresh", True), ("new", False)):
        lab = Lab("bad", directory=tmp_path / name)
        with pytest.raises(UsageError):
            lab.run(
                loomnet.star(hosts=2, rate="1 Gb/s", delay="1 us"),
                loomnet.SendRecv("8 B", transport="mrc"),
                label="one",
                trace="no/such/folder/a",
            )
        assert (tmp_path / name).exists() == left
        assert not (tmp_path / name / "one").exists()
    assert (tmp_path / "mine/empty/inner").is_dir()
