"""Runs notebooks without a page, as `jupyter execute` does, for tests."""

import contextlib
import json
import os
import re
from pathlib import Path

import loomnet as ln

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def package_for_kernels():
    """Kernels that start inside find the package that the tests use."""
    root, before = str(Path(ln.__file__).parents[1]), os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, before)))
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before


def executed(book, folder, *, watched=False, timeout=240):
    """The notebook with its outputs. `watched`: by a page, which takes what input() asks for."""
    import nbclient

    class Page(nbclient.NotebookClient):
        async def async_start_new_kernel_client(self, **options):
            client = await super().async_start_new_kernel_client(**options)
            client.allow_stdin = watched
            return client

    with package_for_kernels():
        Page(
            book,
            timeout=timeout,
            kernel_name="python3",
            resources={"metadata": {"path": str(folder)}},
        ).execute()
    return book


def code_cells(book):
    return [cell for cell in book.cells if cell.cell_type == "code"]


def check_clean(book):
    """No error, nothing on the standard error, no bar and no trace of one."""
    for cell in code_cells(book):
        for output in cell.outputs:
            assert output.output_type != "error", output
            assert output.get("name") != "stderr", output
            data = output.get("data", {})
            assert "application/vnd.jupyter.widget-view+json" not in data, output
            assert "progress" not in str(data.get("text/html", "")), output
            assert output.output_type == "stream" or any(data.values()), output
    assert "No such comm" not in json.dumps(book)


def sentences(book):
    """Of the notebook's texts, without their marks; a title is one, too."""
    found = []
    for cell in book.cells:
        if cell.cell_type == "markdown":
            for paragraph in re.split(r"\n+", cell.source):
                plain = re.sub(r"[*`#]", "", paragraph).strip(" -")
                found += re.split(r"(?<=[.?!;:])\s+", plain)
    return [sentence for sentence in found if sentence]


def check_claims(book, claims):
    """`claims`: part of a text -> whether it is true. Each must be in the notebook and true, and
    each sentence of the notebook with a digit in it must hold one."""
    said = sentences(book)
    missing = [claim for claim in claims if not any(claim in sentence for sentence in said)]
    assert not missing, missing
    unchecked = [
        sentence
        for sentence in said
        if re.search(r"\d", sentence) and not any(claim in sentence for claim in claims)
    ]
    assert not unchecked, unchecked
    wrong = [claim for claim, true in claims.items() if not true]
    assert not wrong, wrong
