"""Loading a checkpoint: from a folder or, if the user names a hub id, from the hub. Nothing else is sent.

Also what can be said when it does not fit: the errors here tell what to change.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from streamsim_agents.vlm.profile import (
    Dtype,
    Profile,
    ProfileError,
    Quantization,
    find_profile,
    for_model_type,
    not_trusted,
)

_log = logging.getLogger(__name__)


class OutOfMemory(RuntimeError):
    """The device had no room for a query or a frame; the text says what helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model in evaluation mode with its processor and the profile that drives it."""

    model: Any
    processor: Any
    profile: Profile


def load(
    model: str,
    *,
    dtype: Dtype = "auto",
    device: str = "auto",
    attn: str = "auto",
    quantization: Quantization = "none",
    trust_remote_code: bool = False,
) -> Loaded:
    """Load checkpoint ``model``, a folder or a hub id.

    ``dtype`` "auto" is bfloat16 on a GPU and float32 on a CPU; ``attn`` is transformers'
    ``attn_implementation`` ("auto": its default). Raises ProfileError for settings that cannot be, for
    a checkpoint that is not there, and for one whose own code the user has not trusted.
    """
    profile = find_profile(model)
    place = choose_device(device)
    if profile.remote and not trust_remote_code:
        raise not_trusted(model)
    from transformers import AutoConfig
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    where: dict[str, Any] = {
        "local_files_only": Path(profile.checkpoint).is_dir(),
        "trust_remote_code": trust_remote_code,
    }
    try:
        config = AutoConfig.from_pretrained(profile.checkpoint, **where)
        if not profile.model_type:
            profile = _adopt(profile, for_model_type(config.model_type))
        _warn_untested(profile)
        loaded = _model_class(profile).from_pretrained(
            profile.checkpoint,
            dtype=choose_dtype(dtype, place),
            **({} if attn == "auto" else {"attn_implementation": attn}),
            **_quantized(quantization, place),
            **where,
        )
        processor = _processor_class(profile).from_pretrained(profile.checkpoint, **where)
    except (OSError, ValueError, ImportError) as error:
        raise ProfileError(f"cannot load {model!r}: {_first_line(error)}") from error
    with out_of_memory_hint("loading the model"):
        if quantization == "none":
            loaded = loaded.to(place)
    return Loaded(model=loaded.eval(), processor=processor, profile=profile)


def choose_device(device: str) -> str:
    """A torch device: "auto" is the first GPU, or, with several lanes, the GPU whose turn it is."""
    if device != "auto":
        try:
            torch.device(device)
        except RuntimeError:
            raise ProfileError(f"no device {device!r}: expected auto, cpu, cuda or cuda:N") from None
        if device.startswith("cuda") and not torch.cuda.is_available():
            raise ProfileError(f"device {device!r} was asked for, but torch finds no GPU")
        return device
    if not torch.cuda.is_available():
        return "cpu"
    lane, lanes = _lane()
    gpus = torch.cuda.device_count()
    if lanes > gpus:
        _log.warning(
            "%d lanes share %d GPU%s: latencies are those of a shared device", lanes, gpus, "s" * (gpus > 1)
        )
    return f"cuda:{lane % gpus}"


def choose_dtype(dtype: Dtype, device: str) -> Any:
    """The torch type of a name."""
    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    return getattr(torch, dtype)


@contextmanager
def out_of_memory_hint(doing: str) -> Iterator[None]:
    """Turn a device's out-of-memory error into OutOfMemory with advice, and free what can be freed."""
    try:
        yield
    except (torch.OutOfMemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        text = _first_line(error)
    else:
        return
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    raise OutOfMemory(
        f"out of memory while {doing}: show the model fewer frames (max_frames=N), use a smaller memory "
        f"(memory=recent), dtype=bfloat16 or quantization=4bit ({text})"
    )


def is_out_of_memory(error: BaseException) -> bool:
    """True for a failed allocation, on a GPU or on a CPU."""
    return isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def _lane() -> tuple[int, int]:
    """This process's lane and how many there are, if whoever started it said so."""
    lane, lanes = os.environ.get("STREAMSIM_LANE", ""), os.environ.get("STREAMSIM_LANES", "")
    return (int(lane) if lane.isdigit() else 0), (int(lanes) if lanes.isdigit() else 1)


def _model_class(profile: Profile) -> Any:
    import transformers

    return transformers.AutoModel if profile.remote else transformers.AutoModelForImageTextToText


def _processor_class(profile: Profile) -> Any:
    import transformers

    # those that are asked through ``chat`` do their own processing of pictures
    by_chat = profile.model_type in ("minicpmv", "internvl_chat")
    return transformers.AutoTokenizer if by_chat else transformers.AutoProcessor


def _quantized(quantization: Quantization, device: str) -> dict[str, Any]:
    if quantization == "none":
        return {}
    if device == "cpu":
        raise ProfileError(f"quantization {quantization!r} needs a GPU; leave it out on a CPU")
    from transformers import BitsAndBytesConfig

    settings = {"load_in_8bit": True} if quantization == "8bit" else {"load_in_4bit": True}
    return {"quantization_config": BitsAndBytesConfig(**settings), "device_map": {"": device}}


def _adopt(profile: Profile, known: Profile) -> Profile:
    return replace(known, id=profile.id, load=profile.load)


def _warn_untested(profile: Profile) -> None:
    from transformers import __version__

    if not profile.tested:
        return
    first, last = (_minor(version) for version in profile.tested)
    if not first <= _minor(__version__) <= last:
        _log.warning(
            "transformers %s: %s was tested with %s to %s; streaming prefill is checked at load all the same",
            __version__,
            profile.model_type,
            *profile.tested,
        )


def _minor(version: str) -> tuple[int, int]:
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]
