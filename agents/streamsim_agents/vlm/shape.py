"""Checkpoints with random weights: a small one of each architecture, and one in the size of a real model.

They go through the real classes of transformers (configuration, processor, tokenizer, weights) and
know nothing of the world, so what they are good for is everything but accuracy: loading, token for
token comparisons, timings and memory. ``write`` saves a small one as a checkpoint folder that
``AutoModelForImageTextToText`` loads like any other; ``build`` gives model and processor directly, on
any device, without a file. No hub is asked for anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SEED = 20260817
_CORPUS = (
    "question: what is in view now? a cup, a knife, a pan, a person at the table, nothing",
    "answer with the letter. frame at second of the video stream seen before, follows, missing",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """What a shape fixes; the rest is the architecture's own default."""

    hidden: int = 64
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    inner: int = 128
    vision: int = 32
    vision_layers: int = 2
    vision_heads: int = 2
    vision_inner: int = 64
    vocabulary: int = 0
    """Rows of the embedding; 0 means as many as the tokenizer has."""


TINY = Sizes()
QWEN2_5_VL_7B = Sizes(
    hidden=3584,
    layers=28,
    heads=28,
    kv_heads=4,
    inner=18944,
    vision=1280,
    vision_layers=32,
    vision_heads=16,
    vision_inner=3420,
    vocabulary=152064,
)


def shapes() -> tuple[str, ...]:
    """All names that ``build`` takes: one tiny shape per architecture, then the large ones."""
    return (*sorted(_FAMILIES), "qwen2_5_vl_7b")


def build(shape: str, *, device: str = "cpu", dtype: str = "float32") -> tuple[Any, Any]:
    """Model (random weights, evaluation mode, on ``device``) and processor of ``shape``.

    The same shape always has the same weights on a CPU. Raises KeyError for a name not in ``shapes``.
    """
    import torch
    from transformers import AutoModelForImageTextToText

    family, sizes = ("qwen2_5_vl", QWEN2_5_VL_7B) if shape == "qwen2_5_vl_7b" else (shape, TINY)
    config, processor = _FAMILIES[family](sizes)
    torch.manual_seed(SEED)
    with torch.device(device):
        model = AutoModelForImageTextToText.from_config(config, dtype=getattr(torch, dtype))
    tokenizer = processor.tokenizer
    settings = model.generation_config
    settings.eos_token_id, settings.pad_token_id = tokenizer.eos_token_id, tokenizer.pad_token_id
    # a trained model never says a placeholder; one with random weights would
    placeholders = set(tokenizer.added_tokens_decoder) - {tokenizer.eos_token_id}
    unnamed = range(len(tokenizer), model.config.get_text_config().vocab_size)
    settings.suppress_tokens = sorted(placeholders.union(unnamed))
    if family == "qwen2_5_vl":
        settings.repetition_penalty = 1.05
    return model.eval(), processor


def write(shape: str, folder: Path) -> Path:
    """Save ``build(shape)`` as a checkpoint folder (about 1 MB for the tiny shapes) and return it."""
    from transformers.utils import logging

    logging.disable_progress_bar()
    model, processor = build(shape)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


# ------------------------------------------------------------------------------------ parts


def _tokenizer(special: Sequence[str], *, eos: str, **named: str) -> Any:
    """A byte-level BPE tokenizer trained on the spot; ``special`` are never split."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=["<|endoftext|>", *special],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(list(_CORPUS) * 20, trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=eos,
        pad_token="<|endoftext|>",
        model_max_length=1 << 20,
        additional_special_tokens=[token for token in special if token != eos],
        extra_special_tokens=named,
    )


def _chat(*, image: str, video: str, newline: str = "") -> str:
    """A ChatML template in Jinja with the architecture's own placeholders."""
    return (
        (
            "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
            "{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}"
            "{% if c['type'] == 'image' %}IMAGE{% elif c['type'] == 'video' %}VIDEO"
            "{% elif c['type'] == 'text' %}{{ c['text'] }}{% endif %}{% endfor %}{% endif %}"
            "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
        )
        .replace("IMAGE", image + newline)
        .replace("VIDEO", video + newline)
    )


def _text(sizes: Sizes, tokenizer: Any, **more: Any) -> dict[str, Any]:
    """The language half of a configuration."""
    return {
        "vocab_size": sizes.vocabulary or len(tokenizer),
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "max_position_embeddings": 131072,
        "bos_token_id": tokenizer.pad_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "initializer_range": 0.2 if sizes is TINY else 0.02,
        **more,
    }


def _config(model_type: str, **parts: Any) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(model_type, **parts)


_QWEN_SPECIAL = (
    "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>",
)  # fmt: skip


def _qwen(model_type: str, sizes: Sizes) -> tuple[Any, Any]:
    """Qwen2-VL, Qwen2.5-VL, Qwen3-VL and Qwen3.5."""
    import transformers

    tokenizer = _tokenizer(_QWEN_SPECIAL, eos="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    old = model_type in ("qwen2_vl", "qwen2_5_vl")
    head = sizes.hidden // sizes.heads
    share = head // 2 - 2 * (3 * head // 16)
    rope: dict[str, Any] = {
        "rope_type": "default",
        "rope_theta": 1e6,
        "mrope_section": [share, 3 * head // 16, 3 * head // 16],
    }
    patch = 14 if old else 16
    text = _text(sizes, tokenizer, rope_parameters=rope)
    vision: dict[str, Any] = {
        "depth": sizes.vision_layers,
        "hidden_size": sizes.vision,
        "intermediate_size": sizes.vision_inner,
        "num_heads": sizes.vision_heads,
        "out_hidden_size": sizes.hidden,
        "patch_size": patch,
    }
    if model_type == "qwen2_vl":
        vision = {
            "depth": sizes.vision_layers,
            "embed_dim": sizes.vision,
            "hidden_size": sizes.hidden,
            "num_heads": sizes.vision_heads,
            "mlp_ratio": 2,
        }
    elif model_type == "qwen2_5_vl":
        vision["fullatt_block_indexes"] = [1] if sizes is TINY else [7, 15, 23, 31]
        vision["tokens_per_second"] = 2
    else:
        text["head_dim"] = head
        rope["mrope_interleaved"] = True
        vision["num_position_embeddings"] = 64
        if model_type == "qwen3_vl":
            vision["deepstack_visual_indexes"] = [0]
        else:
            text |= {
                "num_hidden_layers": 4,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "linear_key_head_dim": 16,
                "linear_value_head_dim": 16,
                "layer_types": ["linear_attention", "full_attention"] * 2,
            }
            rope |= {"partial_rotary_factor": 0.5, "mrope_section": [2, 1, 1]}
    config = _config(
        model_type,
        text_config=text,
        vision_config=vision,
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
        vision_start_token_id=ids("<|vision_start|>"),
        vision_end_token_id=ids("<|vision_end|>"),
        tie_word_embeddings=False,
    )
    limits = {"shortest_edge": (2 * patch) ** 2, "longest_edge": 200_704 * (1 if old else 768)}
    # one image and one video processor serve both generations
    image = transformers.Qwen2VLImageProcessorPil(size=limits, patch_size=patch)
    video_class = transformers.Qwen2VLVideoProcessor if old else transformers.Qwen3VLVideoProcessor
    video = video_class(size=limits, patch_size=patch)
    processor_class = {
        "qwen2_vl": transformers.Qwen2VLProcessor,
        "qwen2_5_vl": transformers.Qwen2_5_VLProcessor,
        "qwen3_vl": transformers.Qwen3VLProcessor,
        "qwen3_5": transformers.Qwen3VLProcessor,
    }[model_type]
    template = _chat(
        image="<|vision_start|><|image_pad|><|vision_end|>",
        video="<|vision_start|><|video_pad|><|vision_end|>",
    )
    return config, processor_class(image, tokenizer, video, chat_template=template)


def _glm4v(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    special = (
        "<|im_start|>", "<|im_end|>", "<|begin_of_image|>", "<|end_of_image|>", "<|begin_of_video|>",
        "<|end_of_video|>", "<|image|>", "<|video|>",
    )  # fmt: skip
    tokenizer = _tokenizer(special, eos="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    config = _config(
        "glm4v",
        text_config=_text(
            sizes,
            tokenizer,
            rope_parameters={
                "rope_type": "default",
                "rope_theta": 1e4,
                "mrope_section": [2, 3, 3],
                "partial_rotary_factor": 1.0,
            },
        ),
        vision_config={
            "depth": sizes.vision_layers,
            "hidden_size": sizes.vision,
            "num_heads": sizes.vision_heads,
            "out_hidden_size": sizes.hidden,
            "intermediate_size": sizes.vision_inner,
            "image_size": 112,
        },
        image_token_id=ids("<|image|>"),
        video_token_id=ids("<|video|>"),
        image_start_token_id=ids("<|begin_of_image|>"),
        image_end_token_id=ids("<|end_of_image|>"),
        video_start_token_id=ids("<|begin_of_video|>"),
        video_end_token_id=ids("<|end_of_video|>"),
    )
    limits = {"shortest_edge": 28 * 28 * 2, "longest_edge": 28 * 28 * 2 * 30_000}
    image = transformers.Glm4vImageProcessorPil(size=limits)
    video = transformers.Glm4vVideoProcessor(size=limits)
    template = _chat(
        image="<|begin_of_image|><|image|><|end_of_image|>",
        video="<|begin_of_video|><|video|><|end_of_video|>",
    )
    return config, transformers.Glm4vProcessor(image, tokenizer, video, chat_template=template)


def _internvl(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    special = ("<|im_start|>", "<|im_end|>", "<img>", "</img>", "<IMG_CONTEXT>", "<video>")
    tokenizer = _tokenizer(
        special,
        eos="<|im_end|>",
        start_image_token="<img>",
        end_image_token="</img>",
        context_image_token="<IMG_CONTEXT>",
        video_token="<video>",
    )
    config = _config(
        "internvl",
        text_config={"model_type": "qwen2", **_text(sizes, tokenizer, rope_theta=1e6)},
        vision_config={
            "hidden_size": sizes.vision,
            "num_hidden_layers": sizes.vision_layers,
            "num_attention_heads": sizes.vision_heads,
            "intermediate_size": sizes.vision_inner,
            "image_size": [56, 56],
            "patch_size": [14, 14],
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
        tie_word_embeddings=False,
    )
    square = {"height": 56, "width": 56}
    image = transformers.GotOcr2ImageProcessorPil(size=square, crop_to_patches=False)
    video = transformers.InternVLVideoProcessor(size=square)
    template = _chat(image="<IMG_CONTEXT>", video="<video>", newline="\n")
    return config, transformers.InternVLProcessor(
        image, tokenizer, video, image_seq_length=4, chat_template=template
    )


def _llava_next_video(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    tokenizer = _tokenizer(("<|im_start|>", "<|im_end|>", "<image>", "<video>"), eos="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    config = _config(
        "llava_next_video",
        text_config={"model_type": "llama", **_text(sizes, tokenizer)},
        vision_config={
            "model_type": "clip_vision_model",
            "hidden_size": sizes.vision,
            "intermediate_size": sizes.vision_inner,
            "num_hidden_layers": sizes.vision_layers + 1,
            "num_attention_heads": sizes.vision_heads,
            "image_size": 56,
            "patch_size": 14,
            "projection_dim": 32,
        },
        image_token_index=ids("<image>"),
        video_token_index=ids("<video>"),
        image_seq_length=16,
        video_seq_length=4,
    )
    image = transformers.LlavaNextImageProcessorPil(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    video = transformers.LlavaNextVideoVideoProcessor(
        size={"shortest_edge": 56}, crop_size={"height": 56, "width": 56}
    )
    return config, transformers.LlavaNextVideoProcessor(
        video_processor=video,
        image_processor=image,
        tokenizer=tokenizer,
        patch_size=14,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=_chat(image="<image>", video="<video>", newline="\n"),
    )


def _molmo2(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    special = (
        "<|im_start|>", "<|im_end|>", "<|image|>", "<|video|>", "<im_patch>", "<im_col>", "<im_start>",
        "<low_res_im_start>", "<frame_start>", "<im_end>", "<frame_end>", "<im_low>",
    )  # fmt: skip
    tokenizer = _tokenizer(special, eos="<|im_end|>", image_token="<|image|>", video_token="<|video|>")
    ids = tokenizer.convert_tokens_to_ids
    heads = {"num_attention_heads": sizes.vision_heads, "num_key_value_heads": sizes.vision_heads}
    config = _config(
        "molmo2",
        text_config=_text(sizes, tokenizer, head_dim=sizes.hidden // sizes.heads, additional_vocab_size=0),
        vision_config={
            "hidden_size": sizes.vision,
            "intermediate_size": sizes.vision_inner,
            "num_hidden_layers": sizes.vision_layers,
            "head_dim": sizes.vision // sizes.vision_heads,
            "image_size": [56, 56],
            **heads,
        },
        adapter_config={
            "vision_feature_layer": [1, 0],
            "hidden_size": sizes.vision,
            "head_dim": sizes.vision // sizes.vision_heads,
            "intermediate_size": sizes.inner,
            "text_hidden_size": sizes.hidden,
            **heads,
        },
        image_start_token_id=ids("<im_start>"),
        low_res_image_start_token_id=ids("<low_res_im_start>"),
        image_end_token_id=ids("<im_end>"),
        image_patch_id=ids("<im_patch>"),
        frame_start_token_id=ids("<frame_start>"),
        frame_end_token_id=ids("<frame_end>"),
    )
    square = {"height": 56, "width": 56}
    image = transformers.Molmo2ImageProcessor(size=square)
    video = transformers.Molmo2VideoProcessor(size=square, pooling_size=[2, 2])
    return config, transformers.Molmo2Processor(
        image, video, tokenizer, chat_template=_chat(image="<|image|>", video="<|video|>")
    )


def _video_llama_3(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    tokenizer = _tokenizer(_QWEN_SPECIAL, eos="<|im_end|>")
    ids = tokenizer.convert_tokens_to_ids
    config = _config(
        "video_llama_3",
        text_config={"model_type": "qwen2", **_text(sizes, tokenizer, rope_theta=1e6)},
        vision_config={
            "hidden_size": sizes.vision,
            "intermediate_size": sizes.vision_inner,
            "num_hidden_layers": sizes.vision_layers,
            "num_attention_heads": sizes.vision_heads,
            "patch_size": 14,
        },
        image_token_id=ids("<|image_pad|>"),
        video_token_id=ids("<|video_pad|>"),
    )
    limits = {"shortest_edge": 28 * 28, "longest_edge": 200_704 * 128}
    image = transformers.VideoLlama3ImageProcessorPil(size=limits)
    video = transformers.VideoLlama3VideoProcessor(size=limits)
    template = _chat(image="<|image_pad|>", video="<|video_pad|>", newline="\n")
    return config, transformers.VideoLlama3Processor(image, tokenizer, video, chat_template=template)


def _smolvlm(sizes: Sizes) -> tuple[Any, Any]:
    import transformers

    special = (
        "<|im_start|>",
        "<|im_end|>",
        "<image>",
        "<video>",
        "<fake_token_around_image>",
        "<global-img>",
    )
    tokenizer = _tokenizer(
        special,
        eos="<|im_end|>",
        image_token="<image>",
        fake_image_token="<fake_token_around_image>",
        global_image_token="<global-img>",
        end_of_utterance_token="<|im_end|>",
    )
    config = _config(
        "smolvlm",
        text_config={"model_type": "llama", **_text(sizes, tokenizer)},
        vision_config={
            "hidden_size": sizes.vision,
            "intermediate_size": sizes.vision_inner,
            "num_hidden_layers": sizes.vision_layers,
            "num_attention_heads": sizes.vision_heads,
            "image_size": 64,
            "patch_size": 16,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        pad_token_id=tokenizer.pad_token_id,
        tie_word_embeddings=False,
    )
    edge = {"longest_edge": 64}
    image = transformers.SmolVLMImageProcessorPil(size=edge, max_image_size=edge, do_image_splitting=False)
    video = transformers.SmolVLMVideoProcessor(size=edge, max_image_size=edge)
    return config, transformers.SmolVLMProcessor(
        image, tokenizer, video, image_seq_len=4, chat_template=_chat(image="<image>", video="<video>")
    )


_FAMILIES: dict[str, Callable[[Sizes], tuple[Any, Any]]] = {
    "qwen2_vl": lambda sizes: _qwen("qwen2_vl", sizes),
    "qwen2_5_vl": lambda sizes: _qwen("qwen2_5_vl", sizes),
    "qwen3_vl": lambda sizes: _qwen("qwen3_vl", sizes),
    "qwen3_5": lambda sizes: _qwen("qwen3_5", sizes),
    "glm4v": _glm4v,
    "internvl": _internvl,
    "llava_next_video": _llava_next_video,
    "molmo2": _molmo2,
    "smolvlm": _smolvlm,
    "video_llama_3": _video_llama_3,
}
