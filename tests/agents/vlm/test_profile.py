"""The checkpoints that the STORM-Bench paper tests, and how a profile is found. Needs no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.profile import GENERIC, ProfileError, find_profile, for_model_type, profiles

CAPS = {
    "Qwen/Qwen2.5-VL-3B-Instruct": (768, 2),
    "Qwen/Qwen2.5-VL-7B-Instruct": (768, 2),
    "Qwen/Qwen3-VL-4B-Instruct": (768, 2),
    "Qwen/Qwen3-VL-8B-Instruct": (768, 2),
    "Qwen/Qwen3.5-4B": (768, 2),
    "Qwen/Qwen3.5-9B": (768, 2),
    "OpenGVLab/InternVL3_5-8B": (240, 1),
    "allenai/Molmo2-8B": (384, 1),
    "openbmb/MiniCPM-V-4_5": (180, 1),
    "OpenGVLab/InternVideo2_5_Chat_8B": (512, 4),
    "nvidia/Eagle2.5-8B": (256, 2),
    "DAMO-NLP-SG/VideoLLaMA3-7B": (128, 2),
    "llava-hf/LLaVA-NeXT-Video-7B-DPO-hf": (32, 1),
    "zai-org/GLM-4.1V-9B-Thinking": (240, 2),
}
"""Frame cap and padding unit of each (public evaluator; InternVideo2.5's is its ``local_num_frames``)."""


@pytest.mark.parametrize("name", CAPS)
def test_frame_cap_and_unit(name: str) -> None:
    profile = find_profile(name)
    assert (profile.max_frames, profile.unit) == CAPS[name]


def test_what_sets_checkpoints_apart() -> None:
    assert {entry.id for entry in profiles() if entry.remote} == {
        "openbmb/MiniCPM-V-4_5",
        "OpenGVLab/InternVideo2_5_Chat_8B",
        "nvidia/Eagle2.5-8B",
    }
    glm = find_profile("zai-org/GLM-4.1V-9B-Thinking")
    assert (glm.thinking, glm.answer_tokens) == (512, 64)
    assert {entry.id for entry in profiles() if entry.thinking} == {glm.id}
    assert find_profile("Qwen/Qwen3.5-9B").template == {"enable_thinking": False}
    assert {entry.id for entry in profiles() if entry.order == "text"} == {"allenai/Molmo2-8B"}
    assert find_profile("OpenGVLab/InternVL3_5-8B").checkpoint == "OpenGVLab/InternVL3_5-8B-HF"
    assert find_profile("OpenGVLab/InternVL3_5-8B-HF").max_frames == 240


def test_a_folder_is_known_by_its_architecture(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    profile = find_profile(str(tmp_path))
    assert (profile.checkpoint, profile.model_type, profile.max_frames) == (str(tmp_path), "qwen3_vl", 768)


def test_an_unknown_architecture_gets_the_generic_profile() -> None:
    assert for_model_type("next_year").max_frames == GENERIC.max_frames
    assert find_profile("someone/next-year").checkpoint == "someone/next-year"


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"no checkpoint at 'models/x/y': expected a folder"):
        find_profile("models/x/y")
    with pytest.raises(ProfileError, match=r"expected a config.json inside"):
        find_profile(str(tmp_path))
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ProfileError, match="cannot read"):
        find_profile(str(tmp_path))
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(ProfileError, match="names no model_type"):
        find_profile(str(tmp_path))


def test_arguments_are_looked_over_before_anything_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsim_agents.vlm.agent.find_spec", lambda name: name)
    VLM.check_arguments(model="Qwen/Qwen3-VL-4B-Instruct", memory="uniform,budget=8")
    with pytest.raises(ValueError, match="trust_remote_code=true"):
        VLM.check_arguments(model="nvidia/Eagle2.5-8B")
    VLM.check_arguments(model="nvidia/Eagle2.5-8B", trust_remote_code=True)
    with pytest.raises(ValueError, match="no memory 'none'"):
        VLM.check_arguments(model="Qwen/Qwen3-VL-4B-Instruct", memory="none")
    with pytest.raises(ValueError, match="max_frames must not be negative"):
        VLM.check_arguments(model="Qwen/Qwen3-VL-4B-Instruct", max_frames=-1)


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamsim_agents.vlm.agent.find_spec", lambda name: name != "torch" or None)
    with pytest.raises(ValueError, match=r"it needs torch: pip install 'streamsim\[vlm\]'"):
        VLM.check_arguments(model="Qwen/Qwen3-VL-4B-Instruct")


@pytest.mark.slow
def test_importing_the_agents_imports_no_torch() -> None:
    code = (
        "import sys, streamsim_agents, streamsim_agents.registry, streamsim_agents.memory\n"
        "import streamsim_agents.vlm.agent\n"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
