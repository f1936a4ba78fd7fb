"""Retrieval tasks put to a server: the samples of an evaluation in process, several at a time.

An answer is scored by the task's own rule on the written text. Records are written in the order of
the samples, whichever answer comes first, so that a run that was killed goes on and ends with the
same bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from ropewalk.data.corpora import Document
from ropewalk.evaluation import tasks
from ropewalk.evaluation.drawing import drawn
from ropewalk.evaluation.encoding import Encoder
from ropewalk.evaluation.haystack import Haystack
from ropewalk.evaluation.samples import Sample
from ropewalk.evaluation.served.server import Answer, Server
from ropewalk.evaluation.settings import EvaluationSettings
from ropewalk.records import EvalRecord, Subject
from ropewalk.run_directory import Journal

CHECKED_EVERY = 64
"""Answers after which a server is asked again what it is."""


@dataclass
class ServedEvaluation:
    """A server, a corpus, and what is asked."""

    server: Server
    encoder: Encoder
    documents: Sequence[Document]
    settings: EvaluationSettings
    subject: Subject
    concurrency: int = 4
    notice: Callable[[str], None] = field(default=lambda _: None)

    def run(
        self,
        journal: Journal | None = None,
        progress: Callable[[float], None] = lambda done: None,
    ) -> list[EvalRecord]:
        """Ask what the journal does not hold yet."""
        kept = [] if journal is None else journal.records
        records = [EvalRecord.from_json(r, f"record {i}") for i, r in enumerate(kept, start=1)]
        done = {record.key for record in records}
        total, behind = sum(self.settings.lengths) * len(self.settings.tasks), 0.0
        haystack = Haystack(self.documents)
        pool = ThreadPoolExecutor(self.concurrency, thread_name_prefix="ropewalk-server")
        try:
            for length in self.settings.lengths:
                for name in self.settings.tasks:
                    task = tasks.named(name)
                    own = drawn(task, self.encoder, haystack, length, self.settings, self.notice)
                    for step, new in enumerate(self._asked(pool, task, own, done), start=1):
                        if journal is not None:
                            journal.append([new.to_json()])
                        records.append(new)
                        done.add(new.key)
                        progress((behind + length * step / self.settings.samples) / total)
                    behind += length
                    progress(behind / total)
            self.server.check_unchanged()
        except BaseException:
            self.server.client.stop()
            raise
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        return records

    def _asked(
        self,
        pool: ThreadPoolExecutor,
        task: tasks.Task,
        own: Sequence[Sample],
        done: set[tuple[object, ...]],
    ) -> Iterator[EvalRecord]:
        """The records of samples that are not done, in order."""
        waiting: deque[tuple[Sample, Future[Answer]]] = deque()

        def first() -> EvalRecord:
            sample, future = waiting.popleft()
            return self._record(task, sample, future.result().text)

        for count, sample in enumerate(own, start=1):
            if self._record(task, sample, "").key in done:
                continue
            if count % CHECKED_EVERY == 0:
                self.server.check_unchanged()
            waiting.append((sample, pool.submit(self._answer, sample)))
            if len(waiting) >= 2 * self.concurrency:
                yield first()
        while waiting:
            yield first()

    def _answer(self, sample: Sample) -> Answer:
        return self.server.complete(sample.prompt.tolist(), count=sample.allowance)

    def _record(self, task: tasks.Task, sample: Sample, answer: str) -> EvalRecord:
        return EvalRecord(
            **self.subject._asdict(),
            task=task.name,
            mode=self.settings.mode,
            metric=task.metric,
            length=sample.length,
            sample=sample.id,
            layout=sample.layout,
            score=task.score(answer, sample.references),
            depth=None if sample.depth is None else round(sample.depth, 4),
            answer=answer,
            server=self.server.info.line,
        )
