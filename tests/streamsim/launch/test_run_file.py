"""What ``run.json`` says of the videos that a run is about to play."""

from __future__ import annotations

from pathlib import Path

from streamsim.episodes.dataset import DatasetInfo, load_dataset, write_dataset
from streamsim.episodes.episode import Episode
from streamsim.journal.folder import changed_videos
from streamsim.launch.options import RunOptions
from streamsim.launch.planning import make_config, make_run_file

SIZES = {"a": 1234, "b": 1, "c": 77}


def test_sizes_of_the_videos_that_are_played(tmp_path: Path) -> None:
    """Those of the chosen episodes, in bytes; one whose file is absent has none."""
    episodes = [Episode(id=name, subset="s", video=f"{name}.mp4", queries=()) for name in SIZES]
    write_dataset(tmp_path, DatasetInfo(name="sizes", chain="task", source="made"), episodes, [])
    dataset = load_dataset(tmp_path)
    for name, size in SIZES.items():
        (dataset.public / f"{name}.mp4").write_bytes(bytes(size))
    options = RunOptions(dataset=tmp_path, agent=None)
    config = make_config(options, dataset, [0, 1], partial=True, agent=None)
    run_file = make_run_file(config, dataset, episodes[:2])
    assert run_file.videos == {"a": 1234, "b": 1}

    (dataset.public / "b.mp4").write_bytes(bytes(2))
    (dataset.public / "c.mp4").unlink()
    now = dataset.video_sizes(dataset.episodes)
    assert now == {"a": 1234, "b": 2}
    assert changed_videos(run_file, now) == ["video of 'b': 1 bytes when the run began, 2 now"]
