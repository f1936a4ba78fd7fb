"""Verify: the exports, read from disk as anybody's files would be, and searched for traps."""

from __future__ import annotations

from dataclasses import dataclass

from ropewalk.context_plan import PLAN, ContextPlan
from ropewalk.costs.forwards import Needs
from ropewalk.errors import GateFailed
from ropewalk.pipeline.results import Verified, VerifiedFile
from ropewalk.pipeline.stage import Stage, Work
from ropewalk.pipeline.stages.export import Export, in_llama_cpp
from ropewalk.progress import Progress, Status


@dataclass(frozen=True)
class Verify(Stage[Verified]):
    name = "verify"
    does = "both read from disk and searched for known traps"
    result_type = Verified

    def needs(self, window: int) -> Needs:
        return Needs(in_llama_cpp(window), processes=2)

    def recalled(self, work: Work, result: Verified) -> Verified:
        at = work.directory.path
        return Verified(tuple(each._replace(path=at / each.path.name) for each in result.verified))

    def run(self, work: Work, progress: Progress) -> Verified:
        from ropewalk.audit.examination import audit

        plan = ContextPlan.read(work.directory.path / PLAN)
        verified = []
        written = work.result(Export).written
        for done, each in enumerate(written):
            progress(Status(self.name, done / len(written)))
            # What other runtimes would make of a folder written for one is no fault of it.
            runtimes = [each.target] if each.target != "llama.cpp" else []
            audited = audit(each.path, plan=plan, runtimes=runtimes)
            wrong = [finding.what for finding in audited.warnings if finding.wrong]
            if wrong:
                raise GateFailed(f"{each.path} does not follow the plan", wrong)
            verified.append(
                VerifiedFile(each.path, audited.verdict, audited.warnings, audited.not_established)
            )
        return Verified(tuple(verified))
