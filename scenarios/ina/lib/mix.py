"""Eight jobs that share one switch: the fabric, the jobs, and one run of them."""

import random
import tempfile

import loomnet as ln

JOBS = 8
VALUES, SLOT_BYTES = 256, 1056  # int32 of a packet; its slot
# Until a tensor's first result. 50 ms, ATP's, is for tensors of 16,517 packets; here they have 128.
RTO_FIRST = ln.Time("0.39 ms")
WIRE_BYTES = 4 * VALUES + 118  # of a packet: Ethernet and its framing, IPv6, UDP and INA's header
# Workers of a job, delay of a link, jitter of the compute time.
SETTINGS = {"M1": (4, "1 us", 0.0), "M2": (8, "1 us", 0.0), "M3": (4, "4 us", 0.2)}


class Mix:
    """The fabric and the jobs of a setting. `servers`: of each job, each with a link of its own."""

    def __init__(
        self, workers, delay, jitter, iterations, fragments, window, rate, jobs=JOBS, servers=1
    ):
        self.workers, self.delay, self.jitter, self.window = workers, delay, jitter, window
        self.iterations, self.fragments, self.rate = iterations, fragments, rate
        self.count, self.servers = jobs, servers
        self.packet_s = WIRE_BYTES * 8 / rate.count
        self.communicate = fragments * self.packet_s

    @classmethod
    def of(cls, setting, iterations, fragments, window, rate, *, jitter=None, **more):
        workers, delay, usual = SETTINGS[setting]
        return cls(
            workers,
            ln.Time(delay),
            usual if jitter is None else jitter,
            iterations,
            fragments,
            window,
            rate,
            **more,
        )

    def slots(self, memory):
        return max(1, round(memory * self.count * self.window))

    @property
    def bdp(self):
        """Packets of a worker that fill the round trip from it to the switch and back."""
        return 2 * (self.delay.seconds + self.packet_s) / self.packet_s

    def share(self, memory):
        """Packets of a worker that SwitchML's static share of the slots lets it have under way."""
        return min(self.window, self.slots(memory) // (2 * self.count))

    def fabric(self, slots, program):
        fabric = ln.Fabric("shared-switch")
        switch = fabric.add_switch("p0.leaf0")
        for _ in range(self.count * self.workers):
            fabric.add_link(fabric.add_host(), switch, rate=self.rate, delay=self.delay)
        for job in range(self.count):
            for name in self.server_names(job):
                server = fabric.add_host(name, role="server")
                fabric.add_link(server, switch, rate=self.rate, delay=self.delay)
        return fabric.program("*", "aggregate", pool=slots * SLOT_BYTES, **program)

    def server_names(self, job):
        return [f"ps{job}"] + [f"ps{job}.{n}" for n in range(1, self.servers)]

    def jobs(self, seed, draw, jitter=None, **how):
        """Jobs of even number communicate more, the others compute more."""
        rng = random.Random(f"{seed} {draw}")
        half = self.count // 2
        spread = [round(self.iterations * 4 ** (place / (half - 1 or 1))) for place in range(half)]
        counts = [rng.sample(spread, len(spread)) for _ in range(2)]
        jobs = []
        for job in range(self.count):
            compute = self.communicate * (2 if job % 2 else 0.5)
            start = rng.random() * (self.communicate + compute)
            names = self.server_names(job)
            servers = {"servers": names} if how["allreduce"] == "ina" else {}
            jobs.append(
                ln.ModelJob(
                    size=ln.Size.of(4 * VALUES * self.fragments),
                    compute=picoseconds(compute),
                    start=picoseconds(start),
                    iterations=counts[job % 2][job // 2],
                    workers=self.workers,
                    name=f"job{job}",
                    hosts=[f"h{self.workers * job + n}" for n in range(self.workers)],
                    jitter=self.jitter if jitter is None else jitter,
                    **how,
                    **servers,
                )
            )
        return jobs

    def options(self, more=()):
        """Gradients at a fixed scale: buckets of 128 packets would need as many more to carry block
        exponents ahead."""
        return {"window": self.window, "quant": "fixed", "rto_first": RTO_FIRST.count, **dict(more)}

    def run(self, lab, draw, slots, program, how, *, jitter=None, payload=False, faults=(), ina=()):
        """One run of the jobs; its figures are not among the report's rows."""
        with tempfile.TemporaryDirectory() as folder:
            inner = ln.Lab("draw", clock=lab.clock, seed=lab.seed, directory=folder)
            return inner.run(
                self.fabric(slots, program),
                self.jobs(lab.seed, draw, jitter, **how),
                list(faults),
                seed=lab.seed + 1000 * draw,
                payload=payload,
                reroute_delay="off",
                ina=self.options(ina),
            )

    def jct(self, *args, **options):
        """Mean job completion time of one run, in seconds. Raises RuntimeError where a job has an
        error."""
        r = self.run(*args, **options)
        for job in range(self.count):
            if r[f"job{job}.errors"]:
                raise RuntimeError(f"job{job}: it has an error, {r.job(f'job{job}').data.errors}")
        return sum(r[f"job{job}.jct_s"] for job in range(self.count)) / self.count


def picoseconds(seconds):
    return ln.Time.of(round(seconds * 1e12))
