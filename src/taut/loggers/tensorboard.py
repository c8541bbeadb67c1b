"""TensorBoard: event files below the run's folder, a folder for each worker, so that their curves lie over each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from taut.loggers.feed import News, worker_name

FOLDER = "tensorboard"


class Logger:
    """``tensorboard --logdir taut-runs`` shows what it writes."""

    def begin(self, run: str, run_dir: Path, settings: Mapping[str, Any]) -> str:
        self._folder = run_dir / FOLDER
        self._writers: dict[str, Any] = {}  # an EventFileWriter for each folder
        text = "\n".join(f"    {name} = {value}" for name, value in sorted(settings.items()) if value is not None)
        self._text("settings", text)
        return f"tensorboard --logdir {run_dir.parent}"

    def _writer(self, source: str) -> Any:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if source not in self._writers:
            self._writers[source] = EventFileWriter(str(self._folder / source))
        return self._writers[source]

    def _text(self, tag: str, text: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.plugins.text.metadata import create_summary_metadata

        value = Summary.Value(tag=tag, metadata=create_summary_metadata(tag, ""))
        value.tensor.dtype = 7  # a string
        value.tensor.string_val.append(text.encode())
        self._writer("all").add_event(Event(step=0, summary=Summary(value=[value])))

    def write(self, news: News) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        for one in news.scalars:
            summary = Summary(value=[Summary.Value(tag=one.name, simple_value=one.value)])
            self._writer(worker_name(one.rank)).add_event(Event(wall_time=one.time, step=one.step, summary=summary))
        for image in news.images:
            height, width = png_size(image.png)
            shown = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=image.png)
            summary = Summary(value=[Summary.Value(tag=image.name, image=shown)])
            writer = self._writer(worker_name(image.rank))
            writer.add_event(Event(wall_time=image.time, step=image.step, summary=summary))
        for writer in self._writers.values():
            writer.flush()

    def end(self, outcome: Mapping[str, Any] | None) -> None:
        for writer in self._writers.values():
            writer.close()


def png_size(png: bytes) -> tuple[int, int]:
    """Return height and width, from the first block of a PNG file."""
    return int.from_bytes(png[20:24]), int.from_bytes(png[16:20])
