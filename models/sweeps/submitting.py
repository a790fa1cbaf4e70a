"""Submit the runs of a sweep to a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kmip_data.builds.execution_options import BuildArguments
from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.files.atomic_writes import folder_lock
from kmip_data.models.sweeps.plans import SweepRun
from kmip_data.models.sweeps.running import build_missing_data, prepare_sweep_folders, run_sweep

CLUSTER = "slurm"  #: kind of cluster, for submitit
TIME_LIMIT_MINUTES = 24 * 60  #: default time limit of a job; longer runs are requeued and resume
MAX_REQUEUES = 1000  #: largest number of restarts after a time limit, not counting preemptions


@dataclass(frozen=True)
class Submission:
    """Cluster job that starts or resumes a run."""

    run: SweepRun
    home: Home
    folder: Path  #: folder of the sweep
    options: BuildArguments

    def __call__(self) -> None:
        """Train the run as a sweep of one run."""
        run_sweep(
            [self.run],
            home=self.home,
            folder=self.folder,
            jobs=1,
            options=self.options,
        )

    def checkpoint(self) -> object:
        """Requeue the same job, to resume after preemption or a time-out."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit_sweep(
    runs: Sequence[SweepRun],
    *,
    home: Home,
    folder: Path,
    options: BuildArguments,
    settings: Mapping[str, int | str],
) -> None:
    """Build missing data on this machine, and submit the runs that are not done.

    A job waits if its run is already running. ``settings`` are options of ``sbatch``:
    ``partition``, ``time`` in minutes, ``array_parallelism`` and so on. Raises ``UsageError``
    without a cluster, for an unknown setting, or if a folder is a link.
    """
    from submitit import AutoExecutor
    from submitit.core.utils import FailedJobError

    jobs = folder / "jobs"
    prepare_sweep_folders(runs, home, folder, jobs)
    with folder_lock(folder / "data", quiet=options.get("quiet", False)):
        ready = build_missing_data([run for run in runs if not run.is_done], home, folder, options)
        if not ready:
            return
        gpus = 0 if all(run.config.system.device == "cpu" for run in runs) else 1
        try:
            executor = AutoExecutor(jobs, cluster=CLUSTER, slurm_max_num_timeout=MAX_REQUEUES)
            executor.update_parameters(
                name=folder.name, timeout_min=TIME_LIMIT_MINUTES, gpus_per_node=gpus
            )
            executor.update_parameters(**{f"slurm_{key}": value for key, value in settings.items()})
            with executor.batch():
                for run in ready:
                    executor.submit(Submission(run, home, folder, options))
        except (RuntimeError, NameError, ValueError, FailedJobError) as error:
            raise UsageError(
                f"The runs of {folder.name} cannot be submitted: {' '.join(str(error).split())}",
                next="use a machine with sbatch and srun, other --slurm KEY=VALUE, or --jobs without --submit",
            ) from error
