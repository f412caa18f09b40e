"""The phases of training by the position of a step: 0 is the first step, 1 the end. No clock is read.

phase       rows      attention            trained
short       up to 512 dense                model, draft layer
dense       to 4096   dense                the same
warm        to 4096   dense                the same, and the indexer (KL to the heads' attention)
sparse      to 8192   the indexer's choice the same; weights rounded to FP8 blocks in the forward pass
polish      to 8192   the indexer's choice the same; mostly short rows, many of them lists
"""
import random
from dataclasses import dataclass

LENGTHS = [256, 512, 1024, 2048, 4096, 8192]


@dataclass(frozen=True)
class Phase:
    name: str
    begin: float     # position at which the phase begins
    mix: tuple       # weight with which each of LENGTHS is drawn
    lists: float     # share of list tasks among small tasks
    index: bool      # whether the indexer is trained
    sparse: bool     # whether attention uses the indexer's selection and weights are rounded


PHASES = [
    Phase("short", 0.00, (65, 35, 0, 0, 0, 0), 0.20, False, False),
    Phase("dense", 0.09, (45, 20, 13, 13, 9, 0), 0.20, False, False),
    Phase("warm", 0.36, (36, 18, 15, 17, 14, 0), 0.25, True, False),
    Phase("sparse", 0.58, (38, 18, 14, 15, 12, 3), 0.30, True, True),
    Phase("polish", 0.88, (54, 24, 5, 8, 8, 1), 0.45, True, True),
]


@dataclass(frozen=True)
class Schedule:
    """steps is the length of the whole run. Step `first` is at position `start`, so that a resumed run can have another
    length."""

    steps: int
    seed: int
    longest: int = LENGTHS[-1]
    first: int = 0
    start: float = 0.0

    def position(self, step):
        return self.start + (step - self.first) / self.steps

    def last(self):
        """Returns the number of the step after the last one."""
        return self.first + round((1 - self.start) * self.steps)

    def phase(self, step):
        p = self.position(step)
        return next(f for f in reversed(PHASES) if f.begin <= p + 1e-9)

    def random(self, step):
        """Returns the generator of all random numbers of a step, which depend neither on the number of workers nor
        on resuming."""
        return random.Random(f"{self.seed}/{step}")

    def length(self, step):
        """Returns the tokens of each row."""
        return min(self.longest, random.Random(f"{self.seed}/{step}/length").choices(LENGTHS, self.phase(step).mix)[0])

    def rate(self, step, warm_up=100):
        """Returns the factor for all learning rates: it rises in warm_up steps, is constant until 0.40, and then falls
        to 0.02."""
        p = self.position(step)
        return min(1.0, (step + 1) / min(warm_up, max(1, self.steps // 20))) * min(1.0, max(0.02, (1 - p) / 0.60))
