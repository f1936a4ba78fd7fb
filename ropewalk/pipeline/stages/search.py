"""Search: rescale factors and attention scaling, starting from the hand-designed methods."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.errors import Unsupported
from ropewalk.evaluation.select import SHORT_LIMIT
from ropewalk.pipeline.stage import Cost, Forwards, Stage, Start, Work
from ropewalk.progress import Progress
from ropewalk.searching.model.forwards import fewest_forwards, most_forwards, short_forwards
from ropewalk.searching.model.results import Found
from ropewalk.searching.model.settings import SearchSettings


@dataclass(frozen=True)
class Search(Stage[Found]):
    target_length: int
    evaluations: int
    """The budget of the search, in scores over all documents to search on."""
    seed: int = 0
    short_limit: float = SHORT_LIMIT
    """Nats a token that it may cost on short text."""
    strategy: str = "yarn"
    documents: tuple[int, int, int] = (6, 16, 5)
    """To search on, to select by, to report on. The evaluation reports too, on text of its own."""

    name = "search"
    does = "rescale factors and attention scaling, starting from the hand-designed methods"
    early = "schedules that are clearly worse are dropped after a few documents"
    result_type = Found
    over_ranks = True

    def cost(self, window: int) -> Cost:
        """Each document is one forward; a search may end before its budget is spent."""
        count = most_forwards(self.settings, self.target_length)
        short = Forwards(window, short_forwards(self.settings, self.target_length))
        least = Forwards(self.target_length, fewest_forwards(self.settings))
        return Cost((Forwards(self.target_length, count), short), least=(least,))

    @property
    def settings(self) -> SearchSettings:
        return SearchSettings(
            target_length=self.target_length,
            strategy=self.strategy,
            evaluations=self.evaluations,
            stock_runtimes=True,
            documents=self.documents,
            seed=self.seed,
            short_limit=self.short_limit,
        )

    def check(self, start: Start) -> None:
        from ropewalk.searching.model.legs import check_search

        present = start.loaded.present_plan
        geometry = present.longest(present.extended_layer).geometry
        if geometry.resting_pairs:
            raise Unsupported(
                f"{geometry.resting_pairs} of {geometry.pairs} rotary pairs of this model rest "
                "(their frequency is 0), and extend exports what it finds, which no stock runtime "
                "can load for such a model; use plan --method ntk and export, or search"
            )
        check_search(start.loaded, start.to_search, self.settings, start.ranks)

    def run(self, work: Work, progress: Progress) -> Found:
        from ropewalk.searching.model.legs import search_model

        return search_model(
            work.loaded,
            work.to_search,
            self.settings,
            journal=work.journal,
            ranks=work.ranks and work.ranks.apart(self.name),
            progress=progress,
            notice=work.notice,
        )
