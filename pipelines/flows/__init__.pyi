from .check import (
    CheckResult as CheckResult,
    check as check,
)
from .engine import (
    Engine as Engine,
    EngineOptions as EngineOptions,
    TaskContext as TaskContext,
    TaskEnd as TaskEnd,
    open_engine as open_engine,
)
from .export_plan import (
    ExportPlan as ExportPlan,
    TableOptions as TableOptions,
    Tolerance as Tolerance,
    plan_export as plan_export,
    plan_export_job as plan_export_job,
)
from .exports import (
    run_export as run_export,
)
from .job_sources import (
    plan_suppression as plan_suppression,
)
from .joint_load import (
    JointOrder as JointOrder,
    digest_job as digest_job,
    run_joint_load as run_joint_load,
)
from .ledger_edits import (
    AcceptPlan as AcceptPlan,
    ForgetPlan as ForgetPlan,
    accept as accept,
    find_rejected as find_rejected,
    forget as forget,
    read_rejected as read_rejected,
    revoke_all as revoke_all,
)
from .load_plan import (
    FileReading as FileReading,
    plan_import as plan_import,
    plan_import_by_job as plan_import_by_job,
    plan_sync as plan_sync,
    plan_validation as plan_validation,
    plan_validation_by_job as plan_validation_by_job,
)
from .mail_plan import (
    plan_mail as plan_mail,
)
from .mails import (
    preview as preview,
    run_mail as run_mail,
)
from .notify import (
    report_refused as report_refused,
    send_notices_unless_stopped as send_notices_unless_stopped,
    with_messages as with_messages,
)
from .probe import (
    Probed as Probed,
    ProbePlan as ProbePlan,
    run_probe as run_probe,
)
from .reconciles import (
    plan_reconcile as plan_reconcile,
    run_reconcile as run_reconcile,
)
from .retries import (
    RetryOrder as RetryOrder,
    run_retry as run_retry,
)
from .sends import (
    describe_message as describe_message,
    draft_eml as draft_eml,
    draft_file as draft_file,
    show_email as show_email,
    write_new as write_new,
)
from .status import (
    read_health as read_health,
    read_status as read_status,
)
from .validate import (
    Validation as Validation,
    ValidationFinding as ValidationFinding,
    ValidationPlan as ValidationPlan,
    run_validation as run_validation,
)
