"""A scenario is a decorated function; its typed signature is the only list of its parameters."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from loomnet.errors import RunInterrupted, UsageError
from loomnet.laboratory import Lab
from loomnet.naming import did_you_mean
from loomnet.recording import Record
from loomnet.report import Report
from loomnet.spec import one_line

_RUN_OPTIONS = (
    "seed",
    "clock",
    "directory",
    "max_wall_s",
    "runner",
    "replay_gaps",
    "replay_faults",
    "say",
    "on_progress",
    "base",
    "record",
)


@dataclass(frozen=True)
class Parameter:
    """One parameter as the signature states it."""

    name: str
    type: str
    default: str | None  # None: required


@dataclass(frozen=True)
class Parcel:
    """A scenario on its way to another process. `digest` is of its text."""

    name: str
    digest: str
    file: str | None
    text: str
    function: bytes | None = None

    def home(self) -> Path | None:
        """The folder of its file, where scripts lie, if it is there on this machine too."""
        folder = Path(self.file).parent if self.file else Path.cwd()
        return folder if folder.is_dir() else None


class Scenario:
    """What @ln.scenario makes of a function whose first argument is the Lab."""

    def __init__(self, function: Callable[..., None]) -> None:
        self.function = function
        self.name = function.__name__
        self.doc = inspect.getdoc(function) or ""
        file = inspect.getsourcefile(function)
        self.file = Path(file).resolve() if file and Path(file).is_file() else None
        self._model = self._signature_model()
        self.__doc__, self.__name__ = function.__doc__, function.__name__
        self.__module__ = function.__module__

    def _signature_model(self) -> type[BaseModel]:
        signature = list(inspect.signature(self.function).parameters.values())
        if not signature:
            raise UsageError(
                f"scenario {self.name}: its first argument must be the lab: "
                f"def {self.name}(lab: ln.Lab, …)"
            )
        hints = typing.get_type_hints(self.function, include_extras=True)
        fields: dict[str, Any] = {}
        for parameter in signature[1:]:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise UsageError(
                    f"scenario {self.name}: *{parameter.name} has no name to set; "
                    "list every parameter"
                )
            if parameter.name in _RUN_OPTIONS:
                raise UsageError(
                    f"scenario {self.name}: a parameter cannot be named "
                    f'"{parameter.name}", which every run has already'
                )
            if parameter.name not in hints:
                raise UsageError(f"scenario {self.name}: parameter {parameter.name} needs a type")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[parameter.name] = (hints[parameter.name], default)
        config = ConfigDict(
            extra="forbid",
            validate_default=True,
            arbitrary_types_allowed=True,
            protected_namespaces=(),
        )
        return create_model(self.name, __config__=config, **fields)

    @property
    def parameters(self) -> list[Parameter]:
        """Every parameter with its type and default, in order."""
        found = []
        for name, field in self._model.model_fields.items():
            kind = field.annotation
            text = kind.__name__ if isinstance(kind, type) else str(kind).replace("typing.", "")
            text = text.replace("loomnet.units.", "")
            found.append(Parameter(name, text, None if field.is_required() else str(field.default)))
        return found

    def validate(self, values: dict[str, Any]) -> BaseModel:
        """Typed parameters from raw values. Raises UsageError: one line, with the fix."""
        try:
            return self._model(**values)
        except ValidationError as error:
            raise UsageError(one_line(self.name, error, self._model.model_fields)) from None

    def settings(self, texts: list[str]) -> dict[str, str]:
        """`name=value` strings as given to --set. Raises UsageError for an unknown name, and for
        a comma, which belongs to `loomnet sweep`."""
        values: dict[str, str] = {}
        for text in texts:
            name, value = self._setting(text)
            if "," in value and self._model.model_fields[name].annotation is not str:
                raise UsageError(
                    f"--set {text}: one run takes one value; for several, use "
                    f"`loomnet sweep` with --set {text}"
                )
            if name in values:
                raise UsageError(f"--set {text}: {name} is set twice")
            values[name] = value.strip()
        return values

    def axes(self, texts: list[str]) -> dict[str, list[str]]:
        """`name=value,value` strings as given to --set of a sweep. Raises UsageError."""
        axes: dict[str, list[str]] = {}
        for text in texts:
            name, value = self._setting(text)
            values = [each.strip() for each in value.split(",")]
            if "" in values:
                raise UsageError(f"--set {text}: a value is empty")
            if name in axes:
                raise UsageError(f"--set {text}: {name} is set twice")
            axes[name] = values
        return axes

    def _setting(self, text: str) -> tuple[str, str]:
        name, sign, value = text.partition("=")
        name = name.strip()
        if not sign:
            raise UsageError(f"--set {text}: write name=value")
        self.known([name], f"--set {text}")
        return name, value

    def known(self, names: Iterable[str], where: str) -> None:
        """Raises UsageError, with the three nearest, for a name that is no parameter."""
        for name in names:
            if name not in self._model.model_fields:
                raise UsageError(
                    f'{where}: {self.name} has no parameter "{name}"'
                    f"{did_you_mean(name, self._model.model_fields)}"
                )

    def source(self) -> str:
        """The text that defines it: its file's, or its function's where it has none."""
        if self.file is not None:
            return self.file.read_text()
        try:
            return inspect.getsource(self.function)
        except OSError:
            raise UsageError(f"scenario {self.name}: its source is not at hand; put it in a file") \
                from None  # fmt: skip

    def parcel(self) -> Parcel:
        """What another process, perhaps on another machine, needs to run it."""
        text = self.source()
        function = None
        if self.file is None:  # of a notebook: the function itself travels
            import cloudpickle  # comes with Dask, which alone sends parcels

            function = cloudpickle.dumps(self.function)
        digest = hashlib.sha256(text.encode()).hexdigest()
        file = str(self.file) if self.file else None
        return Parcel(self.name, digest, file, text, function)

    def run(
        self,
        *,
        seed: int = 0,
        clock: str = "virtual",
        directory: Path | None = None,
        max_wall_s: float | None = None,
        runner: Any = None,
        replay_gaps: Any = None,
        replay_faults: Any = None,
        say: Any = None,
        on_progress: Any = None,
        base: Path | None = None,
        record: Record | None = None,
        **values: Any,
    ) -> Report:
        """Runs it and returns the report, which is also written. An interrupted run leaves a
        partial report. `base`: where scripts are looked for first, by default beside the
        scenario's file."""
        typed = self.validate(values)
        lab = Lab(
            self.name,
            clock=clock,
            seed=seed,
            parameters=typed.model_dump(mode="json"),
            base=base or (self.file.parent if self.file else None),
            directory=directory,
            source=self.file,
            max_wall_s=max_wall_s,
            runner=runner,
            replay_gaps=replay_gaps,
            replay_faults=replay_faults,
            say=say,
            on_progress=on_progress,
            record=record,
        )
        try:
            self.function(lab, **{name: getattr(typed, name) for name in self._model.model_fields})
        except (KeyboardInterrupt, RunInterrupted):
            lab.report.interrupted = True
        except BaseException:
            lab.discard_if_empty()
            raise
        lab.write()
        return lab.report

    def __call__(self, lab: Lab, **values: Any) -> None:
        """Plays the scenario on a lab that is there already."""
        typed = self.validate(values)
        self.function(lab, **{name: getattr(typed, name) for name in self._model.model_fields})

    def __repr__(self) -> str:
        return f"Scenario({self.name}: {', '.join(p.name for p in self.parameters)})"


def unpacked(parcel: Parcel, folder: Path) -> Scenario:
    """The scenario of a parcel: from its file where that is the same here, else from its text,
    written into `folder`."""
    if parcel.function is not None:
        import cloudpickle

        return Scenario(cloudpickle.loads(parcel.function))
    file = Path(parcel.file or "")
    if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != parcel.digest:
        file = folder / (file.name or "scenario.py")
        file.write_text(parcel.text)
    return load(f"{file}::{parcel.name}")


def scenario(function: Callable[..., None]) -> Scenario:
    """Decorator: makes a function of a Lab and typed parameters a scenario."""
    return Scenario(function)


def scenarios_in(file: str | Path) -> list[Scenario]:
    """All scenarios of a file, in order of definition. Raises UsageError if it cannot be read."""
    path = Path(file)
    if not path.is_file():
        near = [str(p) for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        raise UsageError(f'no file "{file}"{did_you_mean(str(file), near)}')
    module = import_file(path.resolve())
    return [
        value
        for value in vars(module).values()
        if isinstance(value, Scenario) and value.__module__ == module.__name__
    ]


def load(target: str | Path) -> Scenario:
    """The scenario of `FILE` or `FILE::NAME`. Raises UsageError naming what there is."""
    file, _, name = str(target).partition("::")
    found = {each.name: each for each in scenarios_in(file)}
    if not found:
        raise UsageError(f"{file} holds no scenario: decorate a function with @ln.scenario")
    if name:
        if name not in found:
            raise UsageError(f'{file} has no scenario "{name}"{did_you_mean(name, found)}')
        return found[name]
    if len(found) > 1:
        raise UsageError(
            f"{file} holds {len(found)} scenarios: write {file}::NAME with one of "
            f"{', '.join(found)}"
        )
    return next(iter(found.values()))


def import_file(path: Path) -> ModuleType:
    """A Python file as a module of its own name. Raises UsageError for one that does not parse."""
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:8]
    name = f"loomnet_scenario_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno}: {error.msg}") from error
    return module
