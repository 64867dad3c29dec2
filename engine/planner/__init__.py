"""Decides from a file's header what a model will take on a machine, where its weights live and how fast it will be.

Not here: reading the machine (appliance/machine), carrying the plan out (engine/load.py). Costs no numba.
"""

from engine.budget import Machine as Machine  # whoever plans names a machine
from engine.planner.planning import assess as assess
from engine.planner.planning import plan as plan
from engine.planner.values import LOAD_MODES as LOAD_MODES
from engine.planner.values import Plan as Plan
from engine.planner.values import PlanRequest as PlanRequest
from engine.planner.values import Row as Row
