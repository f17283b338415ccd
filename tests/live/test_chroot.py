"""A live run inside a chroot, as on a machine whose root folder is another machine's folder."""

import shutil

import endings

# The run's folder is on a file system that is mounted inside the new root alone.
CHROOT = """
    mount --make-rprivate / && mount --rbind / "$0" && mount -t tmpfs tmpfs "$0/mnt" &&
    cp -r scripts/. "$0/mnt" && exec chroot "$0" sh -c 'cd /mnt && exec "$@"' sh "$@"
    """


def test_ranks_find_their_files_where_the_run_has_them(loomnet):
    root = loomnet.directory / "root"
    root.mkdir()
    shutil.copytree(endings.SCRIPT.parent, loomnet.directory / "scripts")
    run = loomnet.live(
        "ends",
        f"script=/mnt/{endings.SCRIPT.name}",
        "args=exit0 after 0 0.0",
        prefix=["unshare", "--mount", "sh", "-c", CHROOT, root],
    )
    status = run.wait(120)
    assert "errors: 0" in run.output, run.output
    assert status in (0, 3), run.output  # 3: a busy machine, not this test's matter
