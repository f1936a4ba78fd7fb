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
    config = {key: value for key, value in source.config.items() if key not in _ORIGIN}
    return hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode()).hexdigest()


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

    request: TrainRequest
    search_texts: list[Document]
    progress: Progress
    notice: Notice

    def run(self, ranks: Ranks) -> Trained:
        """Train all stages, and keep the result. All ranks return the same."""
        request, source = self.request, self.request.source
        ranks.broadcast(None)  # all came so far, or one has failed
        with self._held(ranks) as directory:
            place, tokens = request.path / TOKENS, request.text.tokens
            if tokens is None:
                on_first(lambda: request.text.tokenised(source, place, self.progress, self.notice))
            store, tokenizer = TokenStore(tokens or place), load_tokenizer(source.folder)
            settings = request.settings
            if request.domain_tags:
                named = {
                    name: tokenizer.encode(name, add_special_tokens=False)
                    for name in store.with_text
                }
                settings = replace(settings, tags=named)
            on_first(lambda: check_store(store, tokenizer, source.folder, self.progress))
            trained = TrainingRun(
                request,
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
        request, directory = self.request, None
        with ExitStack() as stack:
            stack.enter_context(joined(request.execution))

            def hold() -> None:
                nonlocal directory
                held = RunDirectory(
                    request.path, "train", self._identity(), apart_from=request.apart_from
                )
                directory = stack.enter_context(held)

            on_first(hold)
            if ranks.size > 1:
                check_shared(request.path)
            yield directory

    def _identity(self) -> dict[str, object]:
        """The identity of a run's computation; the texts are checked by the store."""
        request, planner = self.request, self.request.planner
        searched: dict[str, object] = {
            "search_between": request.search_between,
            "budget": None if request.budget is None else list(request.budget),
            "search_corpus_sha256": corpus_digest(self.search_texts),
        }
        tokens = request.text.tokens
        return {
            "config_sha256": config_sha256(request.source),
            "weights_sha256": weights_sha256(request.source.folder),
            "present_plan": request.source.present_plan.id,
            "tokens_sha256": None if tokens is None else digest_of(TokenStore(tokens)),
            "plans": [plan.id for plan in planner.plans],
            "method": planner.method,
            "recipe": None if request.recipe is None else request.recipe.name,
            **(searched if planner.searches else {}),
            **asdict(request.settings),
            **({"domain_tags": True} if request.domain_tags else {}),
            "dtype": request.execution.dtype,
            "device": "cpu" if request.execution.on_cpu else "accelerator",
        }

    def _plan(
        self, directory: RunDirectory | None, number: int, folder: Path, stage: StageSettings
    ) -> ContextPlan:
        """The plan of a stage, for the model that it begins with."""
        source, planner = resolve(str(folder)), self.request.planner
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
            evaluations=counted(self.request.budget, "evaluations"),
            tokens=counted(self.request.budget, "tokens"),
            seed=self.request.settings.seed,
        )
        if self.request.searches_as_published:  # both lengths on the original model, §3.3
            settings, folder = published(settings), self.request.source.folder
        loaded = load(str(folder))
        check_search(loaded, self.search_texts, settings)
        begun = directory.path / f"search-{number}-search-measured.jsonl"
        announce_search(reader_of(loaded), settings, begun, self.notice, FEWER)
        result = search_model(
            loaded,
            self.search_texts,
            settings,
            journal=lambda name: directory.journal(f"search-{number}-{name}"),
            progress=self.progress,
            notice=self.notice,
        )
        return result.plan
