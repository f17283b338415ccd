"""A scenario on its way to another process, perhaps on another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from loomnet.base.reading import is_file
from loomnet.labs.scenario import Scenario, load


@dataclass(frozen=True)
class Parcel:
    """`digest` is of the scenario's text and of the modules beside it; `modules` are these, by
    their paths from the scenario's folder."""

    name: str
    digest: str
    file: str | None
    text: str
    modules: Mapping[str, bytes] = field(default_factory=dict)
    function: bytes | None = None

    def home(self) -> Path | None:
        """The folder of its file, where scripts lie, if it is there on this machine too."""
        folder = Path(self.file).parent if self.file else Path.cwd()
        return folder if folder.is_dir() else None


def parcel_of(scenario: Scenario) -> Parcel:
    """What another process needs to run a scenario. Raises UsageError where its source is not at
    hand."""
    text, function = scenario.source(), None
    if scenario.file is None:  # of a notebook: the function itself travels
        import cloudpickle  # comes with Dask, which alone sends parcels

        function = cloudpickle.dumps(scenario.function)
    modules = {} if scenario.modules is None else scenario.modules.sources()
    file = str(scenario.file) if scenario.file else None
    return Parcel(scenario.name, _digest(text.encode(), modules), file, text, modules, function)


def unpacked(parcel: Parcel, folder: Path) -> Scenario:
    """The scenario of a parcel: from its file where that and the modules beside it are the same
    here, else from what the parcel holds, written into `folder`, which must stay for as long as the
    scenario is used."""
    if parcel.function is not None:
        import cloudpickle

        return Scenario(cloudpickle.loads(parcel.function))
    file = Path(parcel.file or "")
    if not is_file(file) or _digest(file.read_bytes(), _beside(file, parcel)) != parcel.digest:
        file = folder / (file.name or "scenario.py")
        file.write_text(parcel.text)
        for name, source in parcel.modules.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(source)
    return load(f"{file}::{parcel.name}")


def _beside(file: Path, parcel: Parcel) -> dict[str, bytes]:
    """The parcel's modules as they are beside a file."""
    return {
        name: (file.parent / name).read_bytes()
        for name in parcel.modules
        if is_file(file.parent / name)
    }


def _digest(text: bytes, modules: Mapping[str, bytes]) -> str:
    made = hashlib.sha256(hashlib.sha256(text).digest())
    for name in sorted(modules):
        made.update(name.encode() + b"\0" + hashlib.sha256(modules[name]).digest())
    return made.hexdigest()
