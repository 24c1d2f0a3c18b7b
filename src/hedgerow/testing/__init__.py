"""Tools to test Hedgerow, and what is built on it: a simulator, a faulty store, models and checkers."""

from hedgerow.testing.faults import FAULTS, FaultPlan, Process, SimulatedStore, World
from hedgerow.testing.scheduler import Deadlock, SimulatedEnvironment, SimulationLoop, simulate

__all__ = [
    "FAULTS",
    "Deadlock",
    "FaultPlan",
    "Process",
    "SimulatedEnvironment",
    "SimulatedStore",
    "SimulationLoop",
    "World",
    "simulate",
]
