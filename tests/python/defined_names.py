"""The names that Loomnet's sources define and a user meets in a report: counters, drop reasons,
events, series, figures. Read from the sources, so that a new one is found. Tests only."""

import re
from pathlib import Path

import loomnet
from loomnet.measures import expert_rounds, flow_completion, region_events, standard

ROOT = Path(__file__).parents[2]
# Counters that no report shows: of the executor inside a rank, and of a rank's session.
_INSIDE_RANKS = ("core/collective", "core/rank")


def _read(path: str) -> str:
    """Of the package, the files that are imported: the suite also runs from a wheel."""
    package = "python/loomnet/"
    if path.startswith(package):
        return (Path(loomnet.__file__).parent / path.removeprefix(package)).read_text()
    return (ROOT / path).read_text()


def _sources(folder: str) -> list[Path]:
    found = sorted(
        path for path in (ROOT / folder).rglob("*") if path.suffix in (".cpp", ".hpp", ".h")
    )
    assert found, folder
    return [path for path in found if not str(path.relative_to(ROOT)).startswith(_INSIDE_RANKS)]


def figures() -> set[str]:
    flows = set(flow_completion.UNITS)
    experts = {name for name, *_ in expert_rounds.ExpertRounds().figures()}
    rows = _read("python/loomnet/results/result_rows.py")
    written = {
        name.removesuffix(".{switch}")
        for name in re.findall(r'\bmetric\(\s*f?"([a-z_{}.]+)"', rows)
    }
    sums = {"slots_mean", "slots_peak"}
    own = "".join(_read(f"python/loomnet/systems/ina/{name}.py") for name in ("run", "figures"))
    sums |= set(re.findall(r'yield\s*\(?\s*"([a-z_]+)",', own))
    assert "slots_{figure}" in own and len(sums) == 4
    assert {"expected_capacity", "jct_s"} <= written
    return {*standard.UNITS, *flows, *experts, *sums, *written}


def switch_counters() -> set[str]:
    """`X(SYMBOL, "name")`, or without quotes, of the headers that programs share with the
    kernel."""
    found: set[str] = set()
    for path in sorted((ROOT / "ebpf").glob("*.h")):
        found |= set(re.findall(r'\bX\([A-Z_0-9]+, "?([a-z_0-9]+)"?\)', path.read_text()))
    return found


def listed_counters() -> set[str]:
    """`{"name", value}` of every function that lists counters, and `out["name"] = value` of the
    bindings."""
    found: set[str] = set()
    for path in _sources("core"):
        text = path.read_text()
        for body in re.findall(
            r"(?:counters|list)\(std::vector<TransportCounter>& out\) const \{"
            r"(.*?)\n\}",
            text,
            re.S,
        ):
            found |= set(re.findall(r'\{"([a-z_0-9]+)", ', body))
    loop = re.search(r"f\.counters = (.*?\});", _read("core/live/live_loop.cpp"), re.S)
    found |= set(re.findall(r'\{"([a-z_0-9]+)", ', loop[0]))
    bound = _read("core/bindings/figures.cpp")
    for function in ("link_counters", "switch_counters", "counts_of", "nic_counters"):
        body = re.search(rf" {function}\([^)]*\) \{{(.*?)\n\}}", bound, re.S)[1]
        found |= set(re.findall(r'(?:out\[|own\()"([a-z_0-9]+)"', body)) - {"half"}  # which one
        if function == "counts_of":
            found |= set(re.findall(r'"([a-z_]+)"', body.partition("};")[0]))
    return found


def enumerated_counters() -> set[str]:
    """MRC's enum, and INA's lists."""
    mrc = re.search(
        r"enum class Count : std::uint8_t \{(.*?)kCount",
        _read("core/transport/mrc/counters.hpp"),
        re.S,
    )[1]
    names = re.findall(r"^  ([a-z_]+),", mrc, re.M)
    ina = _read("core/transport/ina/counters.hpp")
    return {*names, *re.findall(r"\bX\(([a-z_]+)\)", ina)}


def link_drops() -> set[str]:
    found: set[str] = set()
    for path in _sources("core/link"):
        for names in re.findall(r"(?:kNames|kWireDropNames)\{(.*?)\}", path.read_text(), re.S):
            found |= {f"drop_{name}" for name in re.findall(r'"([a-z_]+)"', names)}
    return found


def event_kinds() -> set[str]:
    kinds = re.search(
        r"std::string_view to_string\(EventKind.*?\n\}", _read("core/transport/transport.cpp"), re.S
    )[0]
    panels = set()
    for path in (
        "python/loomnet/measures/panel_events.py",
        "python/loomnet/running/engine_panels.py",
    ):
        panels |= set(re.findall(r'"(status|carrier|command)"', _read(path)))
    named = set(re.findall(r'return "([a-z_]+)"', kinds)) - {"unknown_event"}
    return named | set(region_events.KINDS) | panels


def statuses() -> set[str]:
    text = re.search(
        r"std::string_view to_string\(Status.*?\n\}", _read("core/transport/transport.cpp"), re.S
    )[0]
    return set(re.findall(r'return "([a-z_]+)"', text)) - {"ok", "unknown_status"}


def series() -> set[str]:
    found = {"goodput", "iteration_s"}
    for path in _sources("core"):
        found |= set(re.findall(r'\bout\.value\("([a-z_]+)"', path.read_text()))
    steered = re.search(r"_SERIES = \{(.*?)\n\}", _read("python/loomnet/live/steering.py"), re.S)
    return found | set(re.findall(r'^    "([a-z_]+)":', steered[1], re.M))


def columns() -> set[str]:
    """Of the tables that a result has as properties and `flows` among them."""
    found: set[str] = set()
    result = re.sub(r"\s+", "", _read("python/loomnet/results/result.py"))
    for names in re.findall(r"(?:Table\(|columns=)\(((?:\"[a-z_]+\",?)+)", result):
        found |= set(re.findall(r"[a-z_]+", names))
    assert {"length_s", "time_s", "mark", "fct_s", "most", "unit"} <= found
    return found


def everything() -> dict[str, set[str]]:
    """By what they are."""
    return {
        "figures": figures(),
        "columns": columns(),
        "switch counters": switch_counters(),
        "listed counters": listed_counters(),
        "enumerated counters": enumerated_counters(),
        "drops of links": link_drops(),
        "events": event_kinds(),
        "statuses": statuses(),
        "series": series(),
    }
