"""Settings that must stand before torch is loaded, and what is printed at the end."""

import atexit
import contextlib
import functools
import gc
import os
import pkgutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest

CORE = 2  #: tests of a file that the core has

# Collect garbage rarely: with the usual thresholds, collections take a twentieth of the processor
# time of the tests, and more of their imports.
gc.set_threshold(20_000, 20, 50)

worker_process: int | None = None  #: of pytest-xdist, once it is known


@atexit.register  # before other modules register functions: they are called before this one
def _end_worker() -> None:
    """End a worker, but no fork of it, without freeing its modules and tests, which takes 3 s."""
    if os.getpid() == worker_process:
        os._exit(0)


# As the command line does: threads of several test processes on few cores must not spin.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Kernels for GPUs are compiled once a checkout; the machine code of numba lies beside its source as
# ever.
os.environ.setdefault(
    "TRITON_CACHE_DIR", str(Path(__file__).resolve().parents[1] / ".pytest_cache" / "triton")
)
# A shell has its jobs in the background ignore SIGINT, and nohup SIGHUP; what tests start would,
# too.
for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, usual)


@pytest.fixture(scope="session", autouse=True)
def _light() -> Iterator[dict[str, Any]]:
    """Let tests share few cores: one thread of PyTorch, builds in this process and without pictures.

    A worker of a build takes 1 to 4 s to start; bytes and errors are the same
    (``pipelines/engine/test_pool.py``); a picture takes 2 s. The measure of memory is
    a part of a run of two epochs; so are reference answers, which here have one strength of
    the penalty and two rounds of boosting. Counting the frozen objects of all tests takes a build
    50 ms, the entry points of all packages a command 10 ms, and drawing the rooms of S3DIS's usual sample 500 ms.
    Give what was replaced, by its name.
    """
    light: dict[str, Any] = {}
    if "kmip_data" in sys.modules:
        from kmip_data import plugins
        from kmip_data.pipelines.datasets.s3dis import sample
        from kmip_data.pipelines.engine import resumable_build

        light["kmip_data.cli.build._add_picture"] = lambda *_, **__: None
        light["kmip_data.pipelines.engine.pool.gc_frozen"] = contextlib.nullcontext
        entry_points = plugins._entry_points
        of_path = functools.lru_cache(lambda _, group: entry_points(group))
        light["kmip_data.plugins._entry_points"] = lambda group: of_path(tuple(sys.path), group)
        draw_blocks = sample._draw_blocks
        drawn_blocks = functools.cache(lambda total, seed: list(draw_blocks(total, seed)))
        light[f"{sample.__name__}._draw_blocks"] = lambda total, seed: (
            iter(drawn_blocks(total, seed))
            if total == sample.DEFAULT_BLOCKS
            else draw_blocks(total, seed)
        )
        executor_for = resumable_build.executor_for
        for module in ("resumable_build", "encode"):
            light[f"kmip_data.pipelines.engine.{module}.executor_for"] = (
                lambda *arguments, **options: executor_for(
                    *arguments, **{**options, "in_process": True}
                )
            )
    if "torch" in sys.modules:
        import torch

        from kmip_data.models.training import memory_estimate
        from kmip_data.models.training.references import fitted

        torch.set_num_threads(1)
        light[f"{fitted.__name__}.STRENGTHS"] = fitted.STRENGTHS[2:3]
        light[f"{fitted.__name__}.ROUNDS"] = 2
        light[f"{memory_estimate.__name__}.estimate_step_memory"] = lambda config, *_: (
            memory_estimate.StepMemory(
                bool(config.model.checkpoint_layers), needed_bytes=1, free_bytes=2**40
            )
        )
    whole = {name: pkgutil.resolve_name(name) for name in light}
    with _patched(light):
        yield whole


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> Iterator[None]:
    """Let one process of pytest-xdist compile a kernel.

    The others wait, and read its machine code.
    """
    if "numba" not in sys.modules or "PYTEST_XDIST_WORKER" not in os.environ:
        yield
        return
    from filelock import FileLock
    from numba.core import dispatcher

    folder, compile_it = Path(os.environ["TRITON_CACHE_DIR"]).parent, dispatcher.Dispatcher.compile
    folder.mkdir(parents=True, exist_ok=True)
    locks: dict[str, FileLock] = {}  # one object each: a kernel may compile another of its name

    def compile_alone(kernel: Any, signature: Any) -> Any:
        name = f"{kernel.py_func.__module__}.{kernel.py_func.__qualname__}"
        if not name.startswith("kmip_data."):
            return compile_it(kernel, signature)
        lock = locks.setdefault(name, FileLock(folder / f"{name}.lock"))
        with (
            dispatcher.global_compiler_lock,
            lock,
        ):  # in the order in which a kernel takes those it calls
            return compile_it(kernel, signature)

    with _patched({"numba.core.dispatcher.Dispatcher.compile": compile_alone}):
        yield


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a sweep are trained in this process; a new one imports PyTorch first, for 5 s."""
    from support.cli import kmip

    from kmip_data.models.sweeps import running

    def start(arguments: list[str], output: IO[bytes], **options: object) -> SimpleNamespace:
        outcome = kmip(*arguments)
        output.write((outcome.out + outcome.err).encode())
        return SimpleNamespace(poll=lambda: outcome.code)

    monkeypatch.setattr(running, "start_process", start)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist of this tree."""
    from support.wheel import build_copy

    return build_copy(tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="session")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed into a folder of its own."""
    from support.cli import python

    target = tmp_path_factory.mktemp("target")
    wheel = next(built.glob("*.whl"))
    python("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", target, wheel)
    return target


@contextlib.contextmanager
def _patched(values: dict[str, Any]) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(name, value)
        yield


@pytest.fixture(autouse=True)
def _as_in_use(request: pytest.FixtureRequest, _light: dict[str, Any]) -> Iterator[None]:
    """Start workers of builds, and measure memory, where a test is marked so."""
    parts = {"real_workers": "engine", "whole_run": "train"}
    whole = [part for mark, part in parts.items() if request.node.get_closest_marker(mark)]
    with _patched(
        {name: value for name, value in _light.items() if any(part in name for part in whole)}
    ):
        yield


@pytest.fixture
def torture_count(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Count injected faults: ``torture_count("kills")``, ``torture_count("bit flips", 300)``.

    The sums by kind are printed at the end of the run, over all processes of pytest-xdist.
    """

    def count(kind: str, number: int = 1) -> None:
        record_property("torture", (kind, int(number)))

    return count


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave the modules and tests, two million objects, out of garbage collections."""
    gc.freeze()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Let the interpreter free them at its end."""
    gc.unfreeze()


class Tallies:
    """Keep the core of the tests, and sum up the faults of all processes."""

    def __init__(self) -> None:
        self.problems: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)  # of what markers have left
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Keep the first case of the first tests of each file, with ``--core``."""
        if not config.getoption("--core"):
            return
        first: dict[str, pytest.Item] = {}
        tests_of: Counter[str] = Counter()
        for item in items:
            test = item.nodeid.partition("[")[0]
            file = test.partition("::")[0]
            if test not in first and tests_of[file] < CORE:
                first[test] = item
                tests_of[file] += 1
        kept = set(first.values())
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = first.values()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count what one test injected, once."""
        if report.when == "teardown":
            for name, value in report.user_properties:
                if name == "torture":
                    kind, number = value
                    self.problems[kind] += number

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print one line for each kind of fault."""
        if self.problems:
            terminalreporter.section("faults injected")
            for kind, number in sorted(self.problems.items()):
                terminalreporter.write_line(f"{number:>9,}  {kind}")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``make check`` has the first one."""
    parser.addoption(
        "--core", action="store_true", help="run the first case of the first tests of each file"
    )
    parser.addoption(
        "--update-messages", action="store_true", help="write tests/messages.txt, for a review"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Sum up over all tests."""
    global worker_process
    if hasattr(config, "workerinput"):
        worker_process = os.getpid()
    config.pluginmanager.register(Tallies(), "tallies")
