"""The app of the sub-agents' tests, for worker processes too."""

import sys
from pathlib import Path

from outlast import Outlast
from outlast.systems.subagents import Agent, SubAgents

HERE = Path(__file__).parent
COMMAND = [sys.executable, str(HERE / "programs" / "agent.py")]

app = Outlast()
agents = SubAgents(
    app,
    {
        "researcher": Agent(
            COMMAND, model="small", env={"MOOD": "calm"}, folder=str(HERE), timeout="30s"
        ),
        "coder": Agent(COMMAND, memory="512MB"),
        "hasty": Agent(COMMAND, timeout="2s"),
        "reviewer": Agent(),
    },
)
