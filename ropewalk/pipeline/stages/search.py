"""Search: a race of the hand-designed methods, and on request a search that starts from them."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.costs.forwards import Needs
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.pipeline.stage import Stage, Start, Work
from ropewalk.pipeline.stages.judge import JudgeFirst
from ropewalk.progress import Progress
from ropewalk.searching.model.forwards import needs_of_leg
from ropewalk.searching.model.results import SearchResult
from ropewalk.searching.model.settings import SearchSettings


@dataclass(frozen=True)
class Search(Stage[SearchResult]):
    target_length: int
    evaluations: int
    """The budget of a search, in scores over all documents to search on; 0 for a race alone."""
    seed: int = 0
    short_limit: float = SHORT_LIMIT
    """Nats a token that it may cost on short text."""
    strategy: str = "yarn"

    name = "search"
    does = "the hand-designed methods against each other, and on request searched schedules"
    early = "it may not be needed; methods that are clearly worse are dropped early"
    result_type = SearchResult
    over_ranks = True
    conditional = True

    @property
    def documents(self) -> tuple[int, int, int]:
        """To search on, to select by, and none to report on: the verdict does, on its own text."""
        return (5 if self.evaluations else 1), 16, 0

    def needed(self, work: Work) -> bool:
        """True if a search was asked for, or the first schedule fails or costs too much."""
        first = work.result(JudgeFirst)
        fails = first.verdict == "does not work" or first.costs_more_than(self.short_limit)
        return bool(self.evaluations) or fails

    def needs(self, window: int) -> Needs:
        """Each document is one forward; a search may end before its budget is spent."""
        needs = needs_of_leg(self.settings, self.target_length, window)
        return needs if self.evaluations else needs._replace(least=())

    @property
    def settings(self) -> SearchSettings:
        return SearchSettings(
            target_length=self.target_length,
            strategy=self.strategy,
            evaluations=self.evaluations,
            documents=self.documents,
            seed=self.seed,
            short_limit=self.short_limit,
        )

    def check(self, start: Start) -> None:
        from ropewalk.searching.model.run import check_search

        check_search(start.loaded, start.to_search, self.settings, start.ranks, start.chat)

    def run(self, work: Work, progress: Progress) -> SearchResult:
        from ropewalk.searching.model.run import search_model

        return search_model(
            work.loaded,
            work.to_search,
            self.settings,
            chat=work.chat,
            journal=work.journal,
            ranks=work.ranks.apart(self.name),
            progress=progress,
            notice=work.notice,
        )
