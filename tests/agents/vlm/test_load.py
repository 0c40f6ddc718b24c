"""Loading: what is found, what is refused and how, and models that bring their own code."""

# ruff: noqa: E402
from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch and transformers: pip install 'streamsim[vlm]'")

from streamsim_agents.testing import check_agent
from streamsim_agents.vlm import load as load_module
from streamsim_agents.vlm.agent import VLM
from streamsim_agents.vlm.load import OutOfMemory, choose_device, choose_dtype, load, out_of_memory_hint
from streamsim_agents.vlm.profile import ProfileError, find_profile
from streamsim_agents.vlm.shape import build, shapes
from tests.agents.vlm.scene import ARCHITECTURES, frame, probe, say, session

Checkpoint = Callable[[str], Path]


def test_there_is_a_shape_for_each_architecture() -> None:
    assert set(shapes()) == {*ARCHITECTURES, "qwen2_5_vl_7b"}
    with pytest.raises(KeyError):
        build("next_year")


def test_weights_are_the_same_each_time() -> None:
    first, second = build("qwen2_vl")[0].state_dict(), build("qwen2_vl")[0].state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_large_shape_is_that_of_the_real_model() -> None:
    """Qwen2.5-VL-7B has 8.29 billion parameters (its model card: 8B)."""
    model, _ = build("qwen2_5_vl_7b", device="meta")
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(8.29e9, rel=0.005)


def test_types_and_devices(checkpoint: Checkpoint) -> None:
    loaded = load(str(checkpoint("qwen2_vl")), device="cpu", dtype="bfloat16", attn="eager")
    assert loaded.model.dtype == torch.bfloat16
    assert loaded.model.config._attn_implementation == "eager"
    assert choose_dtype("auto", "cpu") == torch.float32
    assert choose_dtype("auto", "cuda:0") == torch.bfloat16
    with pytest.raises(ProfileError, match=r"no device 'tpv': expected auto, cpu, cuda or cuda:N"):
        choose_device("tpv")
    if not torch.cuda.is_available():
        assert choose_device("auto") == "cpu"
        with pytest.raises(ProfileError, match="torch finds no GPU"):
            choose_device("cuda:1")


def test_lanes_take_gpus_in_turn_and_are_warned(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("STREAMSIM_LANE", "3")
    monkeypatch.setenv("STREAMSIM_LANES", "2")
    assert choose_device("auto") == "cuda:1"
    assert not caplog.records
    monkeypatch.setenv("STREAMSIM_LANES", "4")
    assert choose_device("auto") == "cuda:1"
    assert "4 lanes share 2 GPUs: latencies are those of a shared device" in caplog.text


def test_quantization_needs_a_gpu(checkpoint: Checkpoint) -> None:
    with pytest.raises(ProfileError, match="quantization '4bit' needs a GPU"):
        load(str(checkpoint("qwen2_vl")), device="cpu", quantization="4bit")


def test_a_checkpoint_that_cannot_be_loaded_says_why(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((checkpoint("qwen2_vl") / "config.json").read_text())
    with pytest.raises(ProfileError, match=r"cannot load .*: "):
        load(str(tmp_path), device="cpu")


def test_another_version_of_transformers_is_warned_of(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import transformers

    load(str(checkpoint("qwen2_vl")), device="cpu")
    assert "was tested with" not in caplog.text
    monkeypatch.setattr(transformers, "__version__", "5.99.0")
    load_module._warn_untested(find_profile(str(checkpoint("qwen2_vl"))))
    assert "transformers 5.99.0: qwen2_vl was tested with 5.20 to 5.24" in caplog.text


def test_only_memory_errors_get_a_hint() -> None:
    with (
        pytest.raises(OutOfMemory, match="dtype=bfloat16 or quantization=4bit"),
        out_of_memory_hint("testing"),
    ):
        torch.empty(1 << 60)
    with pytest.raises(RuntimeError, match="other"), out_of_memory_hint("testing"):
        raise RuntimeError("other")


# ----------------------------------------------------------------------- models of their own code

CODE = '''
import torch
from transformers import PretrainedConfig, PreTrainedModel

class OwnConfig(PretrainedConfig):
    model_type = "MODEL_TYPE"
    local_num_frames = 4

class OwnModel(PreTrainedModel):
    """Says what it was given: the entry points of the real model, and nothing behind them."""

    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.post_init()

CHAT
'''
CHATS = {
    "minicpmv": """
    def chat(self, msgs, tokenizer, sampling, max_new_tokens, use_image_id, max_slice_nums, **more):
        *frames, question = msgs[0]["content"]
        assert not sampling and not more["enable_thinking"] and tokenizer is not None
        tones = [int(frame.getpixel((0, 0))[0]) for frame in frames]
        return f"{len(frames)} frames, {len(set(tones))} kinds, {max_new_tokens} tokens, {question}"
""",
    "internvl_chat": """
    def chat(self, tokenizer, pixel_values, question, generation_config, num_patches_list, **more):
        assert not generation_config["do_sample"] and more == {"history": None, "return_history": False}
        count = 0 if pixel_values is None else len(pixel_values)
        assert count == 0 or pixel_values.shape == (count, 3, 448, 448)
        assert num_patches_list == [1] * count == [1] * question.count("<image>")
        *frames, asked = question.splitlines()
        last = "".join(frames[-1:])
        return f"{count} frames, {last} {generation_config['max_new_tokens']} tokens, {asked}"
""",
}


@pytest.fixture
def own_code(
    tmp_path: Path, checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Path]:
    """A checkpoint folder with a model in its own code: transformers runs that code if it is trusted."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))

    def write(model_type: str) -> Path:
        folder = tmp_path / f"own_{model_type}"
        folder.mkdir()
        code = CODE.replace("MODEL_TYPE", model_type).replace("CHAT", CHATS[model_type])
        (folder / "modeling_own.py").write_text(code)
        auto = {"AutoConfig": "modeling_own.OwnConfig", "AutoModel": "modeling_own.OwnModel"}
        config = {"model_type": model_type, "architectures": ["OwnModel"], "auto_map": auto}
        (folder / "config.json").write_text(json.dumps(config))
        torch.save({"weight": torch.zeros(1)}, folder / "pytorch_model.bin")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_bytes((checkpoint("qwen2_vl") / name).read_bytes())
        return folder

    return write


def test_own_code_runs_only_when_it_is_trusted(own_code: Callable[[str], Path]) -> None:
    folder = own_code("minicpmv")
    with pytest.raises(ProfileError, match=r"brings its own code: read it, then allow it"):
        load(str(folder), device="cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_type", "answer"),
    [
        ("minicpmv", "3 frames, 3 kinds, 8 tokens, What?"),
        ("internvl_chat", "4 frames, Frame4 (6.0 s): <image> 8 tokens, What?"),
    ],
)
def test_own_code_is_asked_by_its_entry_points(
    model_type: str, answer: str, own_code: Callable[[str], Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.CRITICAL):
        loaded = load(str(own_code(model_type)), device="cpu", trust_remote_code=True)
    agent = VLM.of(loaded)
    agent.begin(session())
    for k in range(3):
        agent.observe(frame(3 * k))  # in these, the first pixel is another each time
    assert say(agent, probe("What?")) == answer
    assert check_agent(lambda: VLM.of(loaded)).skipped == ()
    with pytest.raises(ProfileError, match="takes frames only, all at once"):
        VLM.of(loaded, streaming="on")
