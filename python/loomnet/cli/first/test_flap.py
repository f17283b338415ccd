"""The scenario as a test. Run it with: pytest"""


def test_the_other_planes_carry_on(lab):
    report = lab.run_file("flap.py", planes=2)
    assert report.ok, report.failed
