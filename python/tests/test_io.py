"""The engine from Python, with real tensors and with everything that can be wrong."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from children import HANG_SECONDS, started

import tensorferry as ferry
from tensorferry.io import File


@pytest.fixture(params=["auto", "threads", "memory"])
def engine(request: pytest.FixtureRequest) -> Iterator[ferry.Engine]:
    with ferry.Engine(request.param) as engine:
        yield engine


@pytest.fixture
def file(engine: ferry.Engine, tmp_path: Path) -> File:
    return engine.open(tmp_path / "a", "x")


DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.complex64,
    torch.int64,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (7,), (129, 33)])
def test_tensors_come_back_bit_for_bit(
    file: File, dtype: torch.dtype, shape: tuple[int, ...]
) -> None:
    raw = torch.randint(0, 256, (8 * max(1, int(np.prod(shape))),), dtype=torch.uint8)
    count = int(np.prod(shape))
    if dtype is torch.bool:
        raw %= 2
    tensor = raw[: count * dtype.itemsize].view(dtype).reshape(shape)
    file.write(tensor, 100).wait()
    again = torch.empty_like(tensor)
    assert file.read(into=again, offset=100).wait() is not None
    assert again.reshape(-1).view(torch.uint8).equal(tensor.reshape(-1).view(torch.uint8))


def test_what_is_read_into_new_memory_needs_no_copy(file: File) -> None:
    tensor = torch.randn(1000, 1000)
    file.write(tensor).wait()
    assert len(file) == tensor.nbytes
    buffer = file.read().wait()
    again = torch.frombuffer(buffer, dtype=torch.float32).reshape(1000, 1000)
    del buffer
    gc.collect()
    assert again.equal(tensor)
    again.add_(1)  # the memory is writable, and the tensor keeps it alive


def test_bytes_arrays_and_views_are_accepted(file: File) -> None:
    file.write(b"abc").wait()
    file.write(bytearray(b"de"), 3).wait()
    file.write(memoryview(b"xfgx")[1:3], 5).wait()
    file.write(np.arange(3, dtype=np.int16), 8).wait()
    assert bytes(file.read(7).wait()) == b"abcdefg"
    assert np.frombuffer(file.read(6, 8).wait(), np.int16).tolist() == [0, 1, 2]


def test_a_reserved_file_has_its_length(file: File) -> None:
    file.reserve(12_345)
    assert len(file) == 12_345
    assert not any(bytes(file.read().wait()))


def test_a_dropped_write_still_arrives(engine: ferry.Engine, tmp_path: Path) -> None:
    file = engine.open(tmp_path / "b", "w")
    for number in range(50):
        file.write(torch.full((50_000,), number, dtype=torch.uint8), number * 50_000)
    deadline = time.monotonic() + 60
    while len(file) < 50 * 50_000 and time.monotonic() < deadline:
        time.sleep(0.001)
    file.sync().wait()
    if engine.facts()["backend"] != "memory":
        del file
        assert (tmp_path / "b").stat().st_size == 50 * 50_000


def test_other_threads_run_while_one_waits(tmp_path: Path) -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    with ferry.Engine() as engine:
        file = engine.open(tmp_path / "a", "w")
        data = torch.zeros(64 << 20, dtype=torch.uint8)
        pending = file.write(data)
        before = ticks
        pending.wait()
        file.sync().wait()
        assert ticks > before
    stop.set()
    thread.join()


def test_results_and_errors_are_given_again_and_again(file: File) -> None:
    file.write(b"abc").wait()
    pending = file.read(3)
    assert pending.wait() is pending.wait(0)
    assert pending.done()
    assert repr(pending) == "Pending(done)"
    failed = file.read(4)
    for _ in range(2):
        with pytest.raises(ferry.Truncated, match="the file has only 3 bytes"):
            failed.wait()


def test_a_file_cut_short_names_the_file_and_the_byte(engine: ferry.Engine, file: File) -> None:
    file.write(torch.zeros(10_000)).wait()
    file.set_len(5000)
    with pytest.raises(ferry.Truncated) as caught:
        file.read(40_000).wait()
    assert str(caught.value) == (
        f"can't read 39.06 KiB at offset 0: the file has only 5000 bytes (file: {file.path})"
    )
    assert isinstance(caught.value, ferry.Corrupt)
    assert caught.value.context == {"file": file.path}


def test_a_full_disk_is_out_of_space() -> None:
    with ferry.Engine() as engine:
        file = engine.open("/dev/full", "r+")
        with pytest.raises(ferry.OutOfSpace, match="No space left on device") as caught:
            file.write(torch.zeros(4096)).wait()
    assert isinstance(caught.value, OSError)
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda e, f: ferry.Engine("turbo"), ferry.InvalidInput, '"turbo" is no backend; choose'),  # type: ignore[arg-type]
        (lambda e, f: ferry.Engine(in_flight="lots"), ferry.InvalidInput, '"lots" is not a size'),
        (lambda e, f: ferry.Engine(in_flight=0), ferry.InvalidInput, "in_flight_bytes is 0"),
        (lambda e, f: ferry.Engine(piece="1GiB"), ferry.InvalidInput, "must not exceed in_flight"),
        (lambda e, f: ferry.Engine("memory").open("a", "x").set_len(2**60), OSError, "too large"),
        (lambda e, f: ferry.Engine(piece=1000), ferry.InvalidInput, "piece_bytes is 1000, it must"),
        (lambda e, f: ferry.Engine(piece=1.5), TypeError, "a size is an int of bytes or a str"),  # type: ignore[arg-type]
        (lambda e, f: e.open("x", "rw"), ferry.InvalidInput, '"rw" is no mode; choose "r"'),
        (lambda e, f: e.open("/no/such/file"), FileNotFoundError, "can't open file"),
        (lambda e, f: e.open(3), TypeError, "str, bytes or os.PathLike"),
        (lambda e, f: f.write(b"x", -1), ferry.InvalidInput, "offset is at least 0, not -1"),
        (lambda e, f: f.write(b"xy", 2**63 - 1).wait(), ferry.InvalidInput, "beyond any file"),
        (lambda e, f: f.write(b"x", priority="now"), ferry.InvalidInput, '"now" is no priority'),
        (lambda e, f: f.write(7), TypeError, "a tensor, an array or a buffer, not int"),
        (lambda e, f: f.write(torch.zeros(4, 4).T), ferry.InvalidInput, "tensor.contiguous()"),
        (lambda e, f: f.write(np.zeros((4, 4)).T), ferry.InvalidInput, "contiguous copy"),
        (lambda e, f: f.write(torch.zeros(1, device="meta")), ferry.InvalidInput, "on the meta"),
        (lambda e, f: f.reserve(1 << 62), OSError, "can't reserve room for file"),
        (lambda e, f: f.read(-1), ferry.InvalidInput, "length is at least 0, not -1"),
        (lambda e, f: f.read(3, into=bytearray(3)), ferry.InvalidInput, "not both"),
        (lambda e, f: f.read(into=b"fixed"), ferry.InvalidInput, "must not be written to"),
        (lambda e, f: f.read(1 << 60), ferry.OutOfMemory, "can't allocate 1 EiB|1024 PiB"),
        (lambda e, f: f.sync().wait(-1), ferry.InvalidInput, "a timeout can't be -1 seconds"),
        (lambda e, f: f.sync().wait(float("nan")), ferry.InvalidInput, "can't be NaN seconds"),
    ],
)
def test_wrong_arguments_are_clear_errors(
    call: Any, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with ferry.Engine() as engine:
        file = engine.open(tmp_path / "a", "x")
        with pytest.raises(error, match=text):
            call(engine, file)


def test_a_closed_engine_says_so(tmp_path: Path) -> None:
    engine = ferry.Engine()
    file = engine.open(tmp_path / "a", "x")
    engine.close()
    engine.close()
    with pytest.raises(ferry.Closed, match="the engine is closed"):
        engine.open(tmp_path / "b", "x")
    file.write(b"still open").wait()


def test_no_write_to_a_file_opened_for_reading(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with (
        ferry.Engine() as engine,
        pytest.raises(ferry.InvalidInput, match="opened for reading"),
    ):
        engine.open(tmp_path / "a").write(b"y").wait()


def test_waiting_with_a_timeout_leaves_the_operation_usable(tmp_path: Path) -> None:
    with ferry.Engine() as engine:
        file = engine.open(tmp_path / "a", "x")
        zeros = torch.zeros(1 << 22)  # made once: making one anew takes as long as writing it
        told = None
        # Once is enough, unless this thread is held up for as long as a gibibyte takes.
        while told is None:
            writes = [file.write(zeros, number << 24) for number in range(64)]
            try:
                writes[-1].wait(0)  # behind all the others
            except ferry.Timeout as error:
                told = error
            for write in writes:
                write.wait(HANG_SECONDS)
        assert "the operation was not done within" in str(told)
        assert isinstance(told, TimeoutError)


def run(script: str, *, timeout: float = HANG_SECONDS) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=timeout, check=False
    )


def test_a_forked_child_gets_an_error_and_not_a_hang(tmp_path: Path) -> None:
    script = f"""
import os, tensorferry as ferry
engine = ferry.Engine()
file = engine.open({str(tmp_path / "a")!r}, "x")
file.write(b"parent").wait()
before = file.read(6)
pid = os.fork()
if pid == 0:
    try:
        file.write(b"child").wait()
    except ferry.Closed as error:
        assert "forked" in str(error), error
        with ferry.Engine() as own:
            own.open({str(tmp_path / "a")!r}, "r+").write(b"CHILD").wait()
        try:
            before.wait()
        except ferry.Closed as error:
            assert "forked" in str(error), error
            del engine, file
            os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
assert bytes(file.read().wait()) == b"CHILDt"
assert len(before.wait()) == 6
"""
    done = run(script)
    assert done.returncode == 0, done.stderr


def test_a_child_forked_while_memory_is_given_back_can_leave(tmp_path: Path) -> None:
    script = f"""
import os, sys, threading, time, tensorferry as ferry
releasing = threading.Event()
class Slow(bytearray):
    def __del__(self):
        releasing.set()
        time.sleep(1)
engine = ferry.Engine()
file = engine.open({str(tmp_path / "a")!r}, "x")
file.write(Slow(b"slow to let go of"))
assert releasing.wait({HANG_SECONDS})
pid = os.fork()
if pid == 0:
    sys.exit(7)  # runs what was registered with atexit
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""
    done = run(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("keep", ["file", "engine", "pending", "nothing"])
def test_leaving_the_interpreter_finishes_what_was_accepted(tmp_path: Path, keep: str) -> None:
    script = f"""
import sys, torch, tensorferry as ferry
engine = ferry.Engine()
file = engine.open({str(tmp_path / "a")!r}, "x")
pending = [file.write(torch.full((1 << 20,), i, dtype=torch.uint8), i << 20) for i in range(64)]
for name in {{"engine", "file", "pending"}} - {{{keep!r}}}:
    del globals()[name]
"""
    done = run(script)
    assert (done.returncode, done.stderr) == (0, "")
    written = np.fromfile(tmp_path / "a", np.uint8).reshape(64, -1)
    assert (written == np.arange(64)[:, None]).all()


def test_dropped_operations_give_their_memory_back(tmp_path: Path) -> None:
    with ferry.Engine() as engine:
        file = engine.open(tmp_path / "a", "x")
        array = bytearray(1 << 20)
        for number in range(20):
            file.write(array, number << 20)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                array.append(0)  # refused as long as anybody has a claim on the memory
                break
            except BufferError:
                time.sleep(0.001)
        assert len(array) == (1 << 20) + 1


def test_a_killed_process_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    (tmp_path / "safe").write_bytes(b"safe" * 1000)
    script = f"""
import torch, tensorferry as ferry
engine = ferry.Engine()
safe = engine.open({str(tmp_path / "safe")!r})
file = engine.open({str(tmp_path / "a")!r}, "x")
print("ready", flush=True)
while True:
    file.write(torch.zeros(1 << 22)).wait()
    safe.read().wait()
"""
    with started(sys.executable, "-c", script, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
    assert process.returncode == -signal.SIGKILL
    assert (tmp_path / "safe").read_bytes() == b"safe" * 1000
    with ferry.Engine() as engine:
        engine.open(tmp_path / "a", "r+").write(b"usable again").wait()


def test_an_interrupt_ends_waiting(tmp_path: Path) -> None:
    script = f"""
import os, signal, threading, time, tensorferry as ferry
engine = ferry.Engine()
file = engine.open({str(tmp_path / "a")!r}, "x")
file.write(bytearray(1 << 30))  # long enough to be interrupted
pending = file.sync()
try:
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    while True:
        pending.wait()
        pending = file.sync()
except KeyboardInterrupt:
    print("interrupted")
"""
    done = run(script)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_metrics_are_plain_data_and_prometheus_text(file: File) -> None:
    def written() -> int:
        return sum(
            series["value"]
            for series in ferry.metrics()
            if series["name"] == "ferry_io_bytes_total" and series["labels"]["op"] == "write"
        )

    before = written()
    file.write(b"x" * 12_345).wait()
    assert written() - before == 12_345
    assert "# TYPE ferry_io_bytes_total counter" in ferry.prometheus()
    assert "ferry_io_operation_seconds_bucket{" in ferry.prometheus()


def test_a_trace_shows_the_operations(file: File, tmp_path: Path) -> None:
    import json

    path = tmp_path / "trace.json"
    with ferry.trace(path):
        file.write(b"x" * 777).wait()
    events = json.loads(path.read_text())["traceEvents"]
    assert any(e.get("name") == "write" and e["args"].get("bytes") == 777 for e in events)
    with (
        pytest.raises(ferry.InvalidInput, match="recorded already"),
        ferry.trace(path),
        ferry.trace(path),
    ):
        pass
    with pytest.raises(FileNotFoundError, match="can't write the trace"), ferry.trace("/no/dir/t"):
        pass


def test_facts_say_which_backend_and_why() -> None:
    facts = ferry.Engine("threads").facts()
    assert facts["backend"] == "threads"
    assert facts["why"] == "asked for"
    assert repr(ferry.Engine("threads")) == "Engine('threads')"
    assert os.cpu_count()


@pytest.mark.parametrize("number", [True, -1, 1 << 63, 1 << 70, 1.0, "1", None])
def test_numbers_that_make_no_sense_are_refused_by_name(tmp_path: Path, number: Any) -> None:
    with ferry.Engine() as engine:
        file = engine.open(tmp_path / "bytes", "w")
        for call, name in (
            (lambda: file.write(b"x", number), "offset"),
            (lambda: file.read(1, number), "offset"),
            (lambda: file.read(into=bytearray(1), offset=number), "offset"),
            (lambda: file.reserve(number), "length"),
            (lambda: file.set_len(number), "length"),
        ):
            with pytest.raises(ferry.InvalidInput, match=name):
                call()
        if number is not None:
            with pytest.raises(ferry.InvalidInput, match="length"):
                file.read(number)
