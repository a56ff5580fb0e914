"""The part of a report on servers that are apart: who heard whom, when, and what happened.

Start with `section`, which both studies with a graph of servers use; `links` reads which letters
were used, `drawing` draws the graph and the letters of every round.
"""

from .links import known_servers
from .section import network_sections

__all__ = ["known_servers", "network_sections"]
