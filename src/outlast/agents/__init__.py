"""Tasks as tools for agents: plain functions, tool JSON for models, and a server for MCP."""

from outlast.agents.tools import AgentTools

__all__ = ["AgentTools"]
