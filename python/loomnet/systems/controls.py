"""Congestion controls of jobs: a job's `cc=` in the place of what its run says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from loomnet.base.errors import UsageError
from loomnet.base.names import did_you_mean, in_quotes
from loomnet.base.reading import read_bytes
from loomnet.jobs.model import Job
from loomnet.plans.job_request import JobRequest
from loomnet.systems.registry import option_tables, transport
from loomnet.systems.transport import control_facts

Options = Mapping[str, Any]
POLICY, POLICY_FILE = "policy", ".astp"  # the option of a control that may name such a file
_MOST_POLICY = 1 << 26  # bytes of a file


def with_policies(
    jobs: Sequence[Job], options: Options, base: Path
) -> tuple[list[Job], dict[str, Any]]:
    """Jobs and options of a run with learned policies in the place of the files that hold them, as
    `tcp={"cc": "astraea", "policy": "mine.astp"}` names one; relative names are from `base`. Raises
    UsageError for a file that cannot be read or holds no policy."""
    read = {
        table: _with_policy(f"run: {table}", given, base)
        for table in option_tables()
        if isinstance(given := options.get(table), Mapping)
    }
    found = []
    for job in jobs:
        if job.cc is not None and (own := _with_policy(f"{type(job).__name__}.cc", job.cc, base)):
            job = job if own == job.cc else job.model_copy(update={"cc": own})
        found.append(job)
    return found, {**options, **read}


def _with_policy(where: str, given: Options, base: Path) -> Options:
    path = given.get(POLICY)
    if not isinstance(path, (str, Path)) or not str(path).endswith(POLICY_FILE):
        return given
    content = read_bytes(base / path, _MOST_POLICY)
    import loomnet._core as _core  # only a run that names a file loads the engine here

    try:
        return {**given, POLICY: _core.astraea_policy(content)}
    except ValueError as error:
        told = str(error).removeprefix(f"{POLICY}: ")
        raise UsageError(f"{where}: {POLICY}: {path}: {told}") from None


def options_of_job(job: Job, options: Options) -> Options:
    """The table of the job's transport, `options` being those of the run: its `cc=` with the
    control's own options takes the place of the run's control and that one's."""
    carrier = transport(job.transport)
    table: Options = options.get(carrier.model, {})
    if job.cc is None or carrier.control_option is None:
        return table
    named, own = carrier.control_option, dict(job.cc)
    chosen = own.pop("cc", table.get(named))
    left = () if chosen == table.get(named) else _options_of(table.get(named))
    return {
        **{name: value for name, value in table.items() if name not in left},
        **({} if chosen is None else {named: chosen}),
        **own,
    }


def check_job_control(job: Job, options: Options, *, live: bool) -> None:
    """Raises UsageError for a `cc=` that the job's transport or the clock has no place for."""
    if job.cc is None:
        return
    where, carrier = f"{type(job).__name__}.cc", transport(job.transport)
    if carrier.control_option is None:
        raise UsageError(
            f"{where}: transport {carrier.name} has no choice of control; leave it out"
        )
    if live and carrier.by_kernel:
        raise UsageError(
            f"{where}: live, all sockets of a run have one control; "
            f'give {carrier.model}={{"cc": …}}'
        )
    chosen = job.cc.get("cc", options.get(carrier.model, {}).get(carrier.control_option))
    known = _options_of(chosen)
    for name in job.cc:
        if name != "cc" and chosen is not None and control_facts(chosen) and name not in known:
            raise UsageError(
                f"{where}: {in_quotes(name)} is no option of the control {chosen}"
                f"{did_you_mean(name, known)}; those of the transport are of the whole run: "
                f"{carrier.model}={{{in_quotes(name)}: …}}"
            )
    of_run = options.get(carrier.model, {})
    marks = carrier.link_defaults(of_run, switches_pause=not live)
    if carrier.link_defaults(options_of_job(job, options), switches_pause=not live) != marks:
        raise UsageError(
            f"{where}: links mark for this control by other thresholds than for the run's, and "
            f'have one kind for each transport; give {carrier.model}={{"cc": …}} for the whole run'
        )


def by_host(requests: Iterable[JobRequest], options: Options) -> dict[int, dict[str, Options]]:
    """Of hosts whose job has a control of its own: tables by transport. Raises UsageError for two
    jobs of a host whose controls are not the same."""
    found: dict[int, dict[str, Options]] = {}
    requests = tuple(requests)
    if all(asked.job.cc is None for asked in requests):
        return found
    for asked in requests:
        model, table = transport(asked.job.transport).model, options_of_job(asked.job, options)
        for host in asked.hosts:
            if found.setdefault(host, {}).setdefault(model, table) != table:
                raise UsageError(
                    f"run: two jobs over {model} on one host have unlike cc=, and a host's senders "
                    "of a transport have one; give them different hosts"
                )
    return found


def _options_of(control: Any) -> list[str]:
    return [row["name"] for row in control_facts(control).get("options", ())]
