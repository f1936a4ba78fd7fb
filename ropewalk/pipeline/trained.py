"""A request to `train`, carried out: its run directory, its text as tokens, its stages."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ropewalk.budget import counted
from ropewalk.context_plan import ContextPlan
from ropewalk.data.corpora import Document, corpus_digest
from ropewalk.data.store import TokenStore
from ropewalk.data.windows import SpecialTokens
from ropewalk.models.load import checked_weights, load, load_tokenizer
from ropewalk.models.source import Source, resolve
from ropewalk.pipeline.training import TrainingRun, check_store, joined
from ropewalk.progress import Notice, Progress, silent, unheard
from ropewalk.run_directory import RESULTS, RunDirectory
from ropewalk.searching.model.forwards import FEWER, announce_search
from ropewalk.searching.model.readers import reader_of
from ropewalk.searching.model.run import check_search, search_model
from ropewalk.searching.model.settings import SearchSettings, published
from ropewalk.torchrun import Ranks, first
from ropewalk.training.ranks import check_shared, on_first
from ropewalk.training.request import TrainRequest
from ropewalk.training.results import Trained
from ropewalk.training.settings import StageSettings
from ropewalk.training.stage import digest_of

_ORIGIN = ("_name_or_path", "transformers_version")


def config_sha256(source: Source) -> str:
    own = {key: value for key, value in source.config.items() if key not in _ORIGIN}
    return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()


def weights_sha256(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in checked_weights(folder):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


TOKENS = "tokens"


@dataclass(frozen=True)
class Training:
    """A request, with what its searches read."""

    asked: TrainRequest
    search_texts: list[Document]
    progress: Progress
    notice: Notice

    def run(self, ranks: Ranks) -> Trained:
        """Train all stages, and keep the result. All ranks return the same."""
        asked, folder = self.asked, self.asked.source.folder
        ranks.broadcast(None)  # all came so far, or one has failed
        with self._held(ranks) as directory:
            place, given = asked.path / TOKENS, asked.text.tokens
            if given is None:
                on_first(
                    lambda: asked.text.tokenised(asked.source, place, self.progress, self.notice)
                )
            store, tokenizer = TokenStore(given or place), load_tokenizer(folder)
            settings = asked.settings
            if asked.domain_tags:
                named = {
                    name: tokenizer.encode(name, add_special_tokens=False)
                    for name in store.with_text
                }
                settings = replace(settings, tags=named)
            on_first(lambda: check_store(store, tokenizer, folder, self.progress))
            trained = TrainingRun(
                asked,
                settings,
                store,
                SpecialTokens.of(tokenizer),
                plan_of=lambda *of: self._plan(directory, *of),
                directory=directory,
                progress=self.progress if first() else silent,
                notice=self.notice if first() else unheard,
            ).run()
            if directory is not None:
                directory.keep(RESULTS, trained.to_json())
        return trained

    @contextmanager
    def _held(self, ranks: Ranks) -> Iterator[RunDirectory | None]:
        """The run directory, which the first rank holds."""
        asked, found = self.asked, None
        with ExitStack() as stack:
            stack.enter_context(joined(asked.execution))

            def hold() -> None:
                nonlocal found
                held = RunDirectory(
                    asked.path, "train", self._identity(), apart_from=asked.apart_from
                )
                found = stack.enter_context(held)

            on_first(hold)
            if ranks.size > 1:
                check_shared(asked.path)
            yield found

    def _identity(self) -> dict[str, object]:
        """The identity of a run's computation; the texts are checked by the store."""
        asked, planner = self.asked, self.asked.planner
        searched: dict[str, object] = {
            "search_between": asked.search_between,
            "budget": None if asked.budget is None else list(asked.budget),
            "search_corpus_sha256": corpus_digest(self.search_texts),
        }
        tokens = asked.text.tokens
        return {
            "config_sha256": config_sha256(asked.source),
            "weights_sha256": weights_sha256(asked.source.folder),
            "present_plan": asked.source.present_plan.id,
            "tokens_sha256": None if tokens is None else digest_of(TokenStore(tokens)),
            "plans": [plan.id for plan in planner.plans],
            "method": planner.method,
            "recipe": None if asked.recipe is None else asked.recipe.name,
            **(searched if planner.searches else {}),
            **asdict(asked.settings),
            **({"domain_tags": True} if asked.domain_tags else {}),
            "dtype": asked.execution.dtype,
            "device": "cpu" if asked.execution.on_cpu else "accelerator",
        }

    def _plan(
        self, directory: RunDirectory | None, number: int, folder: Path, stage: StageSettings
    ) -> ContextPlan:
        """The plan of a stage, for the model that it begins with."""
        source, planner = resolve(str(folder)), self.asked.planner
        longer = stage.length != source.present_plan.target_length
        if longer and planner.is_searched(number):
            assert directory is not None  # under torchrun nothing is searched
            return self._searched(directory, number, folder, stage.length)
        return planner.planned(number, source, self.progress, self.notice)

    def _searched(
        self, directory: RunDirectory, number: int, folder: Path, length: int
    ) -> ContextPlan:
        settings = SearchSettings(
            target_length=length,
            evaluations=counted(self.asked.budget, "evaluations"),
            tokens=counted(self.asked.budget, "tokens"),
            seed=self.asked.settings.seed,
        )
        if self.asked.searches_as_published:  # both lengths on the original model, §3.3
            settings, folder = published(settings), self.asked.source.folder
        loaded = load(str(folder))
        check_search(loaded, self.search_texts, settings)
        begun = directory.path / f"search-{number}-search-measured.jsonl"
        announce_search(reader_of(loaded), settings, begun, self.notice, FEWER)
        found = search_model(
            loaded,
            self.search_texts,
            settings,
            journal=lambda name: directory.journal(f"search-{number}-{name}"),
            progress=self.progress,
            notice=self.notice,
        )
        return found.plan
