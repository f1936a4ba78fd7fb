"""The public names and their homes, for type checkers; __init__.py reads them here too."""

from ropewalk.api.bound import Bounds as Bounds
from ropewalk.api.bound import bound as bound
from ropewalk.api.compare_methods import Comparison as Comparison
from ropewalk.api.compare_methods import compare_methods as compare_methods
from ropewalk.api.compare_runs import compare_runs as compare_runs
from ropewalk.api.cost import Cost as Cost
from ropewalk.api.cost import cost as cost
from ropewalk.api.data import DataDescription as DataDescription
from ropewalk.api.data import build_data as build_data
from ropewalk.api.data import describe_data as describe_data
from ropewalk.api.doctor import Diagnosis as Diagnosis
from ropewalk.api.doctor import doctor as doctor
from ropewalk.api.evaluate import evaluate as evaluate
from ropewalk.api.evaluate_checkpoints import EvaluatedCheckpoints as EvaluatedCheckpoints
from ropewalk.api.evaluate_checkpoints import evaluate_checkpoints as evaluate_checkpoints
from ropewalk.api.export import ExportPreview as ExportPreview
from ropewalk.api.export import export as export
from ropewalk.api.extend import extend as extend
from ropewalk.api.fingerprint import check_server as check_server
from ropewalk.api.fingerprint import fingerprint as fingerprint
from ropewalk.api.inspect import Inspection as Inspection
from ropewalk.api.inspect import inspect as inspect
from ropewalk.api.methods import Methods as Methods
from ropewalk.api.methods import methods as methods
from ropewalk.api.plan import Planned as Planned
from ropewalk.api.plan import plan as plan
from ropewalk.api.precision import precision as precision
from ropewalk.api.register import register as register
from ropewalk.api.report import Reported as Reported
from ropewalk.api.report import report as report
from ropewalk.api.search import search as search
from ropewalk.api.train import TrainPreview as TrainPreview
from ropewalk.api.train import train as train
from ropewalk.api.verify import verify as verify
from ropewalk.attention.layout import AttentionLayout as AttentionLayout
from ropewalk.audit.result import Audit as Audit
from ropewalk.context_plan import ContextPlan as ContextPlan
from ropewalk.errors import GateFailed as GateFailed
from ropewalk.errors import InputError as InputError
from ropewalk.errors import InvalidValue as InvalidValue
from ropewalk.errors import MissingExtra as MissingExtra
from ropewalk.errors import RopewalkError as RopewalkError
from ropewalk.errors import UnknownName as UnknownName
from ropewalk.errors import Unsupported as Unsupported
from ropewalk.evaluation.compared import ComparedRuns as ComparedRuns
from ropewalk.evaluation.conclusion import Evaluated as Evaluated
from ropewalk.evaluation.conclusion import EvaluatedServer as EvaluatedServer
from ropewalk.evaluation.served.fingerprint import Fingerprint as Fingerprint
from ropewalk.evaluation.served.fingerprint import Verdict as Verdict
from ropewalk.exporting.exported import Exported as Exported
from ropewalk.models.install import applied as applied
from ropewalk.models.load import load as load
from ropewalk.number_formats.results import Precision as Precision
from ropewalk.pipeline.cost import Estimate as Estimate
from ropewalk.pipeline.extend import Extended as Extended
from ropewalk.progress import Status as Status
from ropewalk.schedule import RotaryGeometry as RotaryGeometry
from ropewalk.schedule import RotarySchedule as RotarySchedule
from ropewalk.searching.model.results import Searched as Searched
from ropewalk.training.results import Trained as Trained

__version__: str
__all__: list[str]

def __getattr__(name: str) -> object: ...
