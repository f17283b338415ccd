"""A Dask cluster for tests of sweeps."""

import pytest


@pytest.fixture(scope="module")
def cluster():
    """A scheduler of its own, with workers as threads of this process: quick, and by address."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tcp",
        dashboard_address=None,
        silence_logs="CRITICAL",
    ) as made:
        yield made.scheduler_address


def quiet(ended, total, failed):
    """A sweep's `watch` that shows nothing."""
