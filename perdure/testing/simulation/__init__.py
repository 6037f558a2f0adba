"""A simulator: the real workflows of turns, sessions and batches on a deterministic server.

```python
for seed in range(200):
    made = simulate(seed, [agent])
    assert made.broken is None, made.story
```
"""

from perdure.testing.simulation.batches import SimulatedBatch
from perdure.testing.simulation.server.server import BrokenError
from perdure.testing.simulation.simulate import Simulation, shrunk, simulate

__all__ = ["BrokenError", "SimulatedBatch", "Simulation", "shrunk", "simulate"]
