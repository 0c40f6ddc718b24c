"""What test_vlm_agent runs in a fresh process: load checkpoints and memories, answer, print the answers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.load import load
from tests.agents.vlm.operators.torchvision_operators import declare
from tests.agents.vlm.scene import frame, say, session


def main(path: str) -> None:
    """For each job: the answer right after loading, and after two frames of a new session."""
    answers = []
    for _, checkpoint, memory, folder in json.loads(Path(path).read_text()):
        loaded = load(checkpoint, device="cpu")
        profile = replace(loaded.profile, thinking=min(loaded.profile.thinking, 16), answer_tokens=8)
        agent = VLM.of(replace(loaded, profile=profile), memory=memory)
        agent.begin(session())
        agent.load(Path(folder))
        said = [say(agent)]
        for k in range(2):
            agent.observe(frame(k))
        answers.append([*said, say(agent)])
    print(json.dumps(answers))


if __name__ == "__main__":
    declare()
    main(sys.argv[1])
