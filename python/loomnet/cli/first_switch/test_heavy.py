"""The switch program in a scenario, as a test. Run it with: pytest"""


def test_the_leaves_count_each_packet(lab):
    report = lab.run_file("heavy.py", size="100 kB")
    assert report.ok, report.failed
    leaf = report.results[None].switch("p0.leaf0")
    assert leaf.counters["counted"] == leaf.counters["received"]
