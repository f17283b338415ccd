"""The compute constants of the published models, fitted again to their published fat-tree times,
and what they ask of a GPU.

Bytes are counted twice for models of more than 8 experts: as a gate's rows add up, and as the
authors' simulator counts them (MixNet, SIGCOMM 2025, doi 10.1145/3718958.3750465), which is
experts / 8 times as much."""

from typing import Annotated

from pydantic import Field

import loomnet as ln

import lib as mfabric


@ln.scenario
def constants(lab: ln.Lab, models: str = "all", servers: Annotated[int, Field(ge=8)] = 128):
    rows = []
    for name, model in mfabric.MODELS.items():
        if models != "all" and model not in models.split(","):
            continue
        for scale in ("row_sum", "simulator") if model in mfabric.SIMULATOR else ("row_sum",):
            points = [point for point in ln.cost.TIMES if point.model == name]
            stated = mfabric.compute_of(model, scale)

            def times_at(each, model=model, scale=scale, points=points):
                return [seconds(lab, model, scale, point.rate, each, servers) for point in points]

            found = mfabric.fitted(
                times_at, [point.times["fattree"] for point in points], stated.count / 1e9
            )
            _, job = mfabric.compared("fattree", model, compute=stated, matrix_scale=scale)
            asks = mfabric.operations_per_second(job)
            key = f"{model}.{scale}"
            lab.metric(f"{key}-fitted", found.compute_ms, unit="ms")
            lab.metric(f"{key}-apart", found.apart, unit="ratio")
            lab.metric(f"{key}-of-a-gpu", asks / 1e12, unit="Tflop/s")
            lab.check(f"{key}-is-its-fit", stated.count / 1e9, approx=found.compute_ms, rel=1e-3)
            rows.append(
                f"{key:<26}{found.compute_ms:>9.3f} ms  to {found.apart:>5.1%}"
                f"{asks / 1e12:>8.0f} Tflop/s of a GPU"
                f"{'' if asks <= mfabric.PEAK else ': none has that, it carries no bar'}"
            )
    print("\n".join(rows))


def seconds(lab, model, scale, rate, compute_ms, servers):
    fabric, job = mfabric.compared(
        "fattree",
        model,
        rate=rate.replace("G", " Gb/s"),
        iterations=1,
        servers=servers,
        matrix_scale=scale,
        compute=f"{compute_ms:.6f} ms",
    )
    r = lab.run(fabric, job, model="fluid", label=f"{model}.{scale}.{rate}.{compute_ms:.6f}")
    [only] = r.experts.rounds
    return (only.end_ps - only.begin_ps) / 1e12
