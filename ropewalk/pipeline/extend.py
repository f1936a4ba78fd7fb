"""Runs the stages of `extend` in order, each once: finished ones are read back from their files.

A stage leaves its result in the run directory, as `NAME.json`, with the name of the stage and a
digest of the run's configuration beside it. So a run that was cut off goes on, and a file that is
damaged, or comes from another run, is named and not believed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ropewalk.blocks import Block, Paragraph
from ropewalk.evaluation.forward_time import Range
from ropewalk.exporting.staging import SPARE_BYTES
from ropewalk.lengths import format_length
from ropewalk.models.config import BUNDLED
from ropewalk.models.load import load
from ropewalk.outputs import check_room
from ropewalk.pipeline.cost import tokens_of
from ropewalk.pipeline.results import IN_FOLDER, TRAINED, Judged, final, read_result, run_id, sealed
from ropewalk.pipeline.settings import ExtendSettings
from ropewalk.pipeline.stage import Stage, Start, Work
from ropewalk.pipeline.stages import stages
from ropewalk.pipeline.stages.export import Export
from ropewalk.pipeline.stages.judge import JudgeFirst, JudgeTrained
from ropewalk.pipeline.stages.search import Search
from ropewalk.pipeline.stages.verify import Verify
from ropewalk.progress import Progress, silent
from ropewalk.run_directory import RunDirectory
from ropewalk.searching.model.results import SEARCHED, schedule_in_words
from ropewalk.untrusted import Fields
from ropewalk.values import Charts, Drawn, Result, decode

R = TypeVar("R", bound=Result)
USED = "used"
"""The event of a stage that ended, or was interrupted."""
Done = Callable[[Stage[Any], Result], None]
"""Called after each stage, and at once for one that was done before."""


@dataclass(frozen=True, eq=False)
class Extended(Drawn):
    """An extended model: the results of each stage."""

    model: str
    settings: ExtendSettings
    results: Mapping[str, Result]
    """By the names of the stages, in their order."""

    def result(self, stage: type[Stage[R]]) -> R:
        return cast(R, self.results[stage.name])

    def to_rows(self) -> list[dict[str, Any]]:
        return self.judged.to_rows()

    @property
    def judged(self) -> Judged:
        """The verdict on what was exported."""
        return final(self.results)

    @property
    def method(self) -> str:
        """The schedule that was exported: a method's name, or `search`."""
        return self.judged.chosen

    def derived(self) -> dict[str, object]:
        return {
            "target_length": self.settings.target_length,
            "method": self.method,
            "verdict": self.judged.verdict,
            "price": self.judged.price,
            "exported": self.result(Export).written,
            "verified": self.result(Verify).verified,
        }

    def blocks(self) -> Iterator[Block]:
        """Yield a question with both answers; before, after, and the price; where the files are."""
        yield from map(Paragraph, self.lines)
        if self.model == BUNDLED:
            yield Paragraph(
                "for your own model: ropewalk extend path/to/model --to 128k --dry-run", "quiet"
            )
        yield from self.charts()

    @property
    def lines(self) -> tuple[str, ...]:
        """The sentences of `blocks`."""
        example = self.result(JudgeFirst).example
        return (
            *([str(example)] if example else []),
            f"before: {self.result(JudgeFirst).before}",
            f"after: {self.told}",
            f"price: {self.judged.price_in_words}",
            self.written,
            f"load it: {self.load}",
        )

    @property
    def told(self) -> str:
        """Whether the exported model works at the target, and what to do."""
        judged = self.judged
        instead = "train longer" if self.method == TRAINED else "train under it"
        if self.result(Export).of_gguf:
            instead = IN_FOLDER
        advice = {
            "works": f"use {self._shown}",
            "does not work": f"do not use {self._shown}; {instead}, or extend less far",
            "undecided": f"read more documents before you rely on {self._shown}",
            "cannot be judged": f"do not rely on {self._shown} before it has answered those",
        }
        return f"{judged.summary()}{self._without}; {advice[judged.verdict]}"

    @property
    def _shown(self) -> str:
        if self.method == SEARCHED:
            searched = schedule_in_words(self.result(Search).legs[0].best.schedule)
            return f"the searched schedule, {searched}"
        return "the trained model" if self.method == TRAINED else self.method

    @property
    def _without(self) -> str:
        """After a training, the verdict on the schedule alone."""
        if self.method != TRAINED:
            return ""
        schedules = {name: each for name, each in self.results.items() if name != JudgeTrained.name}
        return f"; without training, {final(schedules).summary()}"

    @property
    def written(self) -> str:
        paths = [str(each.path) for each in self.result(Export).written]
        them = "them" if len(paths) > 1 else "it"
        return f"written to {' and '.join(paths)}, with report.html next to {them}"

    @property
    def load(self) -> str:
        return self.result(Export).written[0].load

    def summary(self) -> str:
        return f"{self.model} at {format_length(self.settings.target_length)}: " + "; ".join(
            self.lines
        )

    def charts(self) -> Charts:
        """Retrieval and perplexity within the window and at the target."""
        return self.judged.charts()

    @classmethod
    def from_json(cls, value: object, path: str = "extended") -> Extended:
        fields = Fields(value, path)
        settings: ExtendSettings = decode(
            ExtendSettings, fields.take("settings"), fields.of("settings")
        )
        kept = Fields(fields.take("results"), fields.of("results"))
        results = {
            each.name: each.result_type.from_json(kept.take(each.name), kept.of(each.name))
            for each in stages(settings)
            if each.name in kept or not each.conditional
        }
        kept.close()
        built = cls(fields.text("model"), settings, results)
        built.check_json(value, path)
        return built


def check(start: Start, settings: ExtendSettings) -> None:
    """Refuse a run that would fail in a later stage, before it has a directory."""
    to_do = stages(settings)
    for each in to_do:
        each.check(start)
    if start.place is not None:
        needed = sum(each.bytes_to_write(start, start.place) for each in to_do)
        check_room(start.place, needed + SPARE_BYTES, "the run")


def run_stages(
    work: Work,
    settings: ExtendSettings,
    to_do: Sequence[Stage[Any]],
    *,
    progress: Progress = silent,
    done: Done = lambda *_: None,
) -> Extended:
    """Do every stage that has not been done, and all stages after one that now ends otherwise."""
    name, redo = work.source, False
    for each in to_do:
        if not each.needed(work):
            continue
        result = None
        if work.held is not None and _file(each, work.held).exists():
            kept = _recalled(each, work)
            redo = redo or kept is None
            result = None if redo else kept
        result = _shared(each, work, result)
        if result is None:
            if work.held is not None:
                work.held.event("stage", name=each.name)
            if work.held is not None or each.over_ranks:
                result = _counted(each, work, progress)
            if work.held is not None:
                assert result is not None, "the first rank has the result"
                content = sealed(each.name, work.held.configuration, result)
                redo = not work.held.keep(_file(each, work.held).name, content) or redo
            result = _shared(each, work, result)
            assert result is not None
        work = replace(work, results=MappingProxyType({**work.results, each.name: result}))
        changed = each.model_after(result)
        if changed is not None:
            now = work.reader.model
            loaded = load(
                changed, dtype=str(now.dtype).removeprefix("torch."), device=str(now.device)
            )
            work = replace(work, source=changed, loaded=loaded)
        done(each, result)
    return Extended(name, settings, dict(work.results))


def _recalled(each: Stage[R], work: Work) -> R | None:
    directory = work.directory
    kept = read_result(
        _file(each, directory), each.name, each.result_type, run_id(directory.configuration)
    )
    return each.recalled(work, cast(R, kept))


def _shared(each: Stage[R], work: Work, result: R | None) -> R | None:
    """The result of the first rank."""
    value = work.ranks.broadcast(None if result is None else result.to_json())
    if work.held is not None or value is None:
        return result
    return cast(R, each.result_type.from_json(value, each.name))


def _counted(each: Stage[R], work: Work, progress: Progress) -> R | None:
    """Run a stage, and note what all copies of the model used, or, if it is interrupted, this."""
    began, others = time.monotonic(), 0
    with work.reader.counting() as read:
        try:
            result = each.run(work, progress)
            if each.over_ranks:
                work.ranks.send(f"read/{each.name}/{work.ranks.copy}", read())
                copies = range(1, work.ranks.copies if work.held is not None else 1)
                others = sum(work.ranks.received(f"read/{each.name}/{copy}") for copy in copies)
            return result
        finally:
            seconds = round(time.monotonic() - began, 1)
            if work.held is not None:
                work.held.event(USED, stage=each.name, tokens=read() + others, seconds=seconds)


def _used(directory: RunDirectory) -> tuple[float, float]:
    """The tokens that were read, and the seconds that it took, over all interruptions."""
    tokens = seconds = 0.0
    for each in directory.events:
        read, took = each.get("tokens"), each.get("seconds")
        if each.get("event") == USED and isinstance(read, int) and isinstance(took, int | float):
            tokens, seconds = tokens + read, seconds + took
    return tokens, seconds


def used(directory: RunDirectory, settings: ExtendSettings, window: int) -> str:
    """The cost of a run from its beginning, next to the planned one."""
    tokens, seconds = _used(directory)
    beside = " besides those of training" if settings.train_steps else ""
    return (
        f"used: {tokens:,.0f} tokens read{beside}, {Range(seconds, seconds, seconds)}; at most "
        f"{tokens_of(settings, window):,} tokens were planned"
    )


def _file(each: Stage[Any], directory: RunDirectory) -> Path:
    return directory.path / f"{each.name}.json"
