"""An agent that really looks: it sees colours and shapes, remembers what was where, and says when it
does not know. No model, numpy only; a baseline that shows what the questions ask for."""

from streamsim_agents.sightings.sightings import Sightings

__all__ = ["Sightings"]
