"""A training that takes seconds, as a file and as its folder."""

import textwrap

FILE = '''
    from loomnet.learning import Bottleneck, Cloning, Curriculum, Flow, Point, Stage, curriculum
    from loomnet.learning.td3 import Td3
    from loomnet.learning.training import Pace


    def long(random):
        """Slow to fill, where flows begin at ten packets."""
        return Bottleneck(rate="100 Mb/s", rtt="200 ms", length="20 s", tcp={"startup": "none"})


    def draw(random):
        rate = f"{random.uniform(20, 40):.2f} Mb/s"
        return Bottleneck(rate=rate, rtt="20 ms", flows=[Flow(), Flow("0.5 s")], length="3 s")


    @curriculum
    def tiny(most: int = 50, jain: float = 0.0, cloning: bool = True, patience: int = 9,
             fails: bool = False, falls: bool = False) -> Curriculum:
        """Two flows."""
        def other(random):
            return {}["nothing"] if fails else draw(random)

        watched = Point(20, 10, 1, 2)
        return Curriculum(
            stages=[
                Stage("S1", long if falls else draw, 50,
                      {"contested_jain": jain, "utilisation": 0.1}, held=1),
                Stage("S2", other, most),
            ],
            flows=2, looks=25, patience=patience, watched=[watched],
            selection=[watched, Point(20, 20, 1, 2)], sealed=[Point(33, 17, 0.8, 2)],
            beside=["teacher", "cubic"], judged=["teacher"],
            cloning=Cloning(draw, most=300) if cloning else None,
            constants=Td3(warm_up=20),
            pace=Pace(episodes=2, before=200, explore=(0.05 if falls else 0.3, 0.05), over=5000,
                      replay=20_000),
        )
'''


def written(folder, text=FILE):
    file = folder / "tiny.py"
    file.write_text(textwrap.dedent(text))
    return file
