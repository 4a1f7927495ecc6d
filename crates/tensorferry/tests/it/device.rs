//! What every device promises, checked on each of them, and what only the emulated one does.
//!
//! Nothing here depends on how fast the machine is. Where a test needs an operation to be in
//! flight, it holds the stream with a [`Gate`]; where it needs times, it reads the device's own
//! link log; and wall-clock time is only ever compared from below.

// Clippy takes only functions marked as tests for tests, not what they call.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use tensorferry::device::emulated::{LinkUse, Spec};
use tensorferry::device::{
    Device, Direction, Emulated, Event, Host, Kernel, Kernels, Memory, Operand, STREAM_QUEUE_MAX,
    STREAMS_MAX, Stream, View,
};
use tensorferry::memory::{Block, Buffer, Foreign, Pool};
use tensorferry::{Error, Kind};

/// Nothing waits for as long as this unless something is broken.
const LIMIT: Duration = Duration::from_mins(1);
const CAPACITY: u64 = 64 << 20;

fn block(bytes: &[u8]) -> Block {
    Buffer::copy_of(bytes).unwrap().into()
}

fn empty(len: usize) -> Block {
    Buffer::zeroed(len).unwrap().into()
}

/// Bytes that differ by position and by seed.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i + 1).wrapping_mul(seed * 2 + 0x9E37) >> 5) as u8).collect()
}

fn put(device: &dyn Device, stream: &Stream, bytes: &[u8], to: &Memory, offset: usize) {
    device.copy_in(stream, block(bytes), to, offset).unwrap().finish(LIMIT).unwrap();
}

fn get(device: &dyn Device, stream: &Stream, from: &Memory, offset: usize, len: usize) -> Block {
    device.copy_out(stream, from, offset, empty(len)).unwrap().finish(LIMIT).unwrap()
}

fn kernels(device: &dyn Device) -> &dyn Kernels {
    device.kernels().unwrap()
}

/// Runs each promise on each device.
macro_rules! conformance {
    ($($promise:ident)*) => {
        mod host {
            $(#[test] fn $promise() { super::promises::$promise(&|| {
                Box::new(super::Host::with_capacity(super::CAPACITY))
            }); })*
        }
        mod emulated {
            $(#[test] fn $promise() { super::promises::$promise(&|| {
                let spec = format!("capacity={},bandwidth=4GB/s,latency=20us", super::CAPACITY);
                Box::new(super::Emulated::new(spec.parse().unwrap()).unwrap())
            }); })*
        }
    };
}

conformance! {
    bytes_come_back_from_any_offset_and_length
    operations_of_one_stream_happen_in_order
    a_stream_sees_what_came_before_the_event_it_waited_for
    any_schedule_ordered_by_events_gives_the_same_bytes
    a_dropped_transfer_still_happens_and_its_block_goes_home
    memory_freed_in_flight_lives_until_the_operation_ends
    work_in_line_outlives_its_stream_and_its_device
    copies_of_nothing_succeed
    ranges_outside_are_refused_and_the_block_comes_back
    read_only_blocks_are_never_copied_into
    allocation_beyond_the_capacity_fails_until_something_is_freed
    impossible_allocations_are_errors
    handles_of_another_device_are_refused
    streams_are_bounded_and_come_back
    kernels_compute_on_device_memory
    a_kernel_uses_mapped_host_memory_in_place
    mapped_memory_comes_back_only_when_nobody_uses_it
    operands_that_make_no_sense_are_refused
    a_failure_stays_with_its_stream_until_it_is_reported
    a_panic_in_a_kernel_is_an_error
    what_is_done_needs_no_time_to_wait_for
    many_threads_share_one_device
    operations_of_threads_that_share_a_stream_never_overlap
}

mod promises {
    use super::*;

    type Make<'a> = &'a dyn Fn() -> Box<dyn Device>;

    pub(super) fn bytes_come_back_from_any_offset_and_length(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(70_001).unwrap());
        for (seed, (offset, len)) in
            [(0, 1), (0, 70_001), (1, 4095), (255, 257), (4097, 65_537), (70_000, 1)]
                .into_iter()
                .enumerate()
        {
            let bytes = pattern(len, seed as u64);
            put(&*device, &stream, &bytes, &memory, offset);
            assert_eq!(&*get(&*device, &stream, &memory, offset, len), bytes);
        }
        let part = block(b"0123456789").narrow(3..6).unwrap();
        let part = device.copy_in(&stream, part, &memory, 10).unwrap().finish(LIMIT).unwrap();
        assert_eq!(&*part.into_buffer().unwrap(), b"0123456789");
        assert_eq!(&*get(&*device, &stream, &memory, 10, 3), b"345");
    }

    pub(super) fn operations_of_one_stream_happen_in_order(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(1000).unwrap());
        let reads: Vec<_> = (0..100u8)
            .map(|round| {
                device.copy_in(&stream, block(&[round; 1000]), &memory, 0).unwrap();
                device.copy_in(&stream, block(&[round + 100; 500]), &memory, 250).unwrap();
                device.copy_out(&stream, &memory, 0, empty(1000)).unwrap()
            })
            .collect();
        device.synchronize(&stream, LIMIT).unwrap();
        for (round, read) in (0..100u8).zip(reads) {
            assert!(read.is_done());
            let bytes = read.into_block().unwrap();
            assert!(bytes[..250].iter().chain(&bytes[750..]).all(|byte| *byte == round));
            assert!(bytes[250..750].iter().all(|byte| *byte == round + 100));
        }
    }

    pub(super) fn a_stream_sees_what_came_before_the_event_it_waited_for(make: Make) {
        let device = make();
        let memory = device.allocate(100_000).unwrap();
        let streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
        let bytes = pattern(100_000, 5);
        device.copy_in(&streams[0], block(&bytes), &memory, 0).unwrap();
        let arrived = device.record(&streams[0]).unwrap();
        device.wait_for(&streams[1], &arrived).unwrap();
        // The order passes on: the third stream knows the first only through the second.
        let passed_on = device.record(&streams[1]).unwrap();
        device.wait_for(&streams[2], &passed_on).unwrap();
        assert_eq!(&*get(&*device, &streams[2], &memory, 0, 100_000), bytes);
        assert!(arrived.is_done() && passed_on.is_done());
    }

    /// Copies on random streams into and out of random slots, each ordered behind the last use of
    /// its slot by an event: every read must see the last write submitted before it.
    pub(super) fn any_schedule_ordered_by_events_gives_the_same_bytes(make: Make) {
        let device = make();
        let (slots, len) = (5, 3000);
        let memory = device.allocate(slots * len).unwrap();
        let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
        let mut last: Vec<Option<(Event, u64)>> = vec![None; slots];
        let mut reads = Vec::new();
        let mut random = 1u64;
        for step in 0..400 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (slot, stream) =
                ((random >> 33) as usize % slots, &streams[(random >> 40) as usize % 4]);
            if let Some((event, _)) = &last[slot] {
                device.wait_for(stream, event).unwrap();
            }
            let value = match &last[slot] {
                Some((_, value)) if random >> 63 == 1 => {
                    let read = device.copy_out(stream, &memory, slot * len, empty(len)).unwrap();
                    reads.push((read, *value));
                    *value
                }
                _ => {
                    let bytes = block(&pattern(len, step));
                    device.copy_in(stream, bytes, &memory, slot * len).unwrap();
                    step
                }
            };
            last[slot] = Some((device.record(stream).unwrap(), value));
        }
        assert!(reads.len() > 100);
        for (read, value) in reads {
            assert_eq!(&*read.finish(LIMIT).unwrap(), pattern(len, value));
        }
    }

    pub(super) fn a_dropped_transfer_still_happens_and_its_block_goes_home(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(4096).unwrap());
        let pool = Pool::new(4096, 1).unwrap();
        for round in 0..50 {
            let mut lease = pool.take_within(LIMIT).unwrap();
            lease.fill(round);
            drop(device.copy_in(&stream, lease.into(), &memory, 0).unwrap());
        }
        assert!(get(&*device, &stream, &memory, 0, 4096).iter().all(|byte| *byte == 49));
        assert!(pool.take_within(LIMIT).is_ok());
    }

    pub(super) fn memory_freed_in_flight_lives_until_the_operation_ends(make: Make) {
        let device = make();
        let stream = device.stream().unwrap();
        for seed in 0..20 {
            let memory = device.allocate(50_000).unwrap();
            let bytes = pattern(50_000, seed);
            device.copy_in(&stream, block(&bytes), &memory, 0).unwrap();
            let read = device.copy_out(&stream, &memory, 0, empty(50_000)).unwrap();
            drop(memory);
            assert_eq!(&*read.finish(LIMIT).unwrap(), bytes);
            assert_eq!(device.facts().used_bytes, 0);
        }
    }

    pub(super) fn work_in_line_outlives_its_stream_and_its_device(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(1 << 20).unwrap());
        let bytes = pattern(1 << 20, 3);
        device.copy_in(&stream, block(&bytes), &memory, 0).unwrap();
        let read = device.copy_out(&stream, &memory, 0, empty(1 << 20)).unwrap();
        let event = device.record(&stream).unwrap();
        drop((stream, memory, device));
        event.wait_within(LIMIT).unwrap();
        assert_eq!(&*read.into_block().unwrap(), bytes);
    }

    pub(super) fn copies_of_nothing_succeed(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
        for offset in [0, 5, 10] {
            put(&*device, &stream, b"", &memory, offset);
            assert!(get(&*device, &stream, &memory, offset, 0).is_empty());
        }
        device.synchronize(&device.stream().unwrap(), Duration::ZERO).unwrap();
    }

    pub(super) fn ranges_outside_are_refused_and_the_block_comes_back(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(100).unwrap());
        for (offset, len) in [(0, 101), (100, 1), (99, 2), (101, 0), (usize::MAX, 2)] {
            let refused =
                device.copy_in(&stream, block(&vec![8; len]), &memory, offset).unwrap_err();
            assert_eq!(refused.error.kind(), Kind::InvalidInput);
            assert_eq!(&*refused.block, vec![8; len]);
            let refused = device.copy_out(&stream, &memory, offset, empty(len)).unwrap_err();
            assert_eq!(
                Error::from(refused).to_string(),
                format!("{len} bytes at offset {offset} are not inside 100 bytes of device memory")
            );
        }
        device.synchronize(&stream, LIMIT).unwrap();
    }

    pub(super) fn read_only_blocks_are_never_copied_into(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(5).unwrap());
        let bytes: &'static [u8] = b"fixed";
        let fixed = Block::from(Foreign::from_static(bytes));
        let fixed = device.copy_in(&stream, fixed, &memory, 0).unwrap().finish(LIMIT).unwrap();
        assert_eq!(&*get(&*device, &stream, &memory, 0, 5), bytes);
        let refused = device.copy_out(&stream, &memory, 0, fixed).unwrap_err();
        assert_eq!(refused.error.kind(), Kind::InvalidInput);
        let mapped = device.map_host(refused.block).unwrap();
        let operand = Operand::write_mapped(&mapped, 0..1);
        assert_eq!(kernels(&*device).enter(vec![operand]).unwrap_err().kind(), Kind::InvalidInput);
    }

    pub(super) fn allocation_beyond_the_capacity_fails_until_something_is_freed(make: Make) {
        let device = make();
        let half = device.allocate((CAPACITY / 2) as usize).unwrap();
        let error = device.allocate((CAPACITY / 2) as usize + 1).unwrap_err();
        assert_eq!(error.kind(), Kind::OutOfMemory);
        let facts: Vec<_> = error.context().collect();
        assert_eq!(facts[1..], [("used", "32 MiB"), ("capacity", "64 MiB")]);
        assert_eq!(facts[0].0, "requested");
        let rest = device.allocate((CAPACITY / 2) as usize).unwrap();
        assert_eq!(device.facts().free_bytes(), 0);
        assert!(device.allocate(1).is_err());
        drop((half, rest));
        assert_eq!(device.facts().used_bytes, 0);
        assert!(device.allocate(CAPACITY as usize).is_ok());
    }

    pub(super) fn impossible_allocations_are_errors(make: Make) {
        let device = make();
        assert_eq!(device.allocate(0).unwrap_err().kind(), Kind::InvalidInput);
        assert_eq!(device.allocate(usize::MAX).unwrap_err().kind(), Kind::OutOfMemory);
        assert_eq!(device.allocate_host(usize::MAX).unwrap_err().kind(), Kind::OutOfMemory);
        assert_eq!(device.facts().used_bytes, 0);
        let some = (device.allocate(1).unwrap(), device.allocate(1).unwrap());
        assert!(some.0.address().is_multiple_of(256) && some.0.address() != some.1.address());
    }

    pub(super) fn handles_of_another_device_are_refused(make: Make) {
        let (device, other) = (make(), make());
        let (stream, memory) = (device.stream().unwrap(), device.allocate(8).unwrap());
        let (foreign, far) = (other.stream().unwrap(), other.allocate(8).unwrap());
        let event = other.record(&foreign).unwrap();
        let kinds = [
            device.copy_in(&foreign, empty(8), &memory, 0).unwrap_err().error,
            device.copy_in(&stream, empty(8), &far, 0).unwrap_err().error,
            device.copy_out(&stream, &far, 0, empty(8)).unwrap_err().error,
            device.copy_out(&foreign, &memory, 0, empty(8)).unwrap_err().error,
            device.record(&foreign).unwrap_err(),
            device.wait_for(&stream, &event).unwrap_err(),
            device.synchronize(&foreign, LIMIT).unwrap_err(),
            kernels(&*device).enter(vec![Operand::read(&far, 0..8)]).unwrap_err(),
        ];
        for error in kinds {
            assert_eq!(error.kind(), Kind::InvalidInput);
            assert!(error.to_string().contains("belongs to another device"), "{error}");
        }
        let mapped = other.map_host(empty(8)).unwrap();
        let error = kernels(&*device).enter(vec![Operand::read_mapped(&mapped, 0..8)]);
        assert!(error.unwrap_err().to_string().contains("mapped for another device"));
    }

    pub(super) fn streams_are_bounded_and_come_back(make: Make) {
        let device = make();
        let mut streams: Vec<_> = (0..STREAMS_MAX).map(|_| device.stream().unwrap()).collect();
        assert_eq!(device.stream().unwrap_err().kind(), Kind::OutOfMemory);
        streams.pop();
        assert!(device.stream().is_ok());
    }

    pub(super) fn kernels_compute_on_device_memory(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(200).unwrap());
        device.copy_in(&stream, block(&[3; 100]), &memory, 0).unwrap();
        let operands = vec![Operand::read(&memory, 0..100), Operand::write(&memory, 100..200)];
        let event = kernels(&*device).launch(&stream, operands, Box::new(double)).unwrap();
        let read = device.copy_out(&stream, &memory, 100, empty(100)).unwrap();
        assert_eq!(&*read.finish(LIMIT).unwrap(), [6; 100]);
        assert!(event.is_done());

        let mut entered = kernels(&*device).enter(vec![Operand::write(&memory, 50..150)]).unwrap();
        assert_eq!((entered.views[0][0], entered.views[0][99]), (3, 6));
        entered.views[0].as_mut().unwrap().fill(9);
        drop(entered);
        assert_eq!(&*get(&*device, &stream, &memory, 49, 3), [3, 9, 9]);
    }

    #[expect(clippy::unnecessary_wraps, reason = "it is a kernel")]
    fn double(views: &mut [View]) -> tensorferry::Result<()> {
        let (from, to) = views.split_at_mut(1);
        assert!(from[0].as_mut().is_none());
        for (to, from) in to[0].as_mut().unwrap().iter_mut().zip(&*from[0]) {
            *to = from * 2;
        }
        Ok(())
    }

    pub(super) fn a_kernel_uses_mapped_host_memory_in_place(make: Make) {
        let device = make();
        let stream = device.stream().unwrap();
        let mapped = device.map_host(block(&[3; 200])).unwrap();
        assert_ne!(mapped.address(), 0);
        mapped.write(0..1).unwrap()[0] = 50;
        let operands =
            vec![Operand::read_mapped(&mapped, 0..100), Operand::write_mapped(&mapped, 100..200)];
        let event = kernels(&*device).launch(&stream, operands, Box::new(double)).unwrap();
        event.wait_within(LIMIT).unwrap();
        assert_eq!(mapped.read(100..103).unwrap()[..], [100, 6, 6]);
        assert_eq!(mapped.unmap().unwrap().len(), 200);
        let kernels = kernels(&*device);
        kernels.direct_access(&stream, Direction::In, 1000).unwrap().wait_within(LIMIT).unwrap();
        let compute = Duration::from_millis(5);
        assert!(kernels.direct_time(Direction::In, 1000, compute) >= compute);
    }

    pub(super) fn mapped_memory_comes_back_only_when_nobody_uses_it(make: Make) {
        let device = make();
        let mapped = device.map_host(block(b"host")).unwrap();
        let reading = mapped.read(0..1).unwrap();
        let mapped = mapped.unmap().unwrap_err();
        drop(reading);
        let entered = kernels(&*device).enter(vec![Operand::write_mapped(&mapped, 0..2)]).unwrap();
        assert!(mapped.read(1..4).is_err(), "a kernel writes there");
        let mapped = mapped.unmap().unwrap_err();
        drop(entered);
        assert_eq!(&*mapped.unmap().unwrap(), b"host");
    }

    pub(super) fn operands_that_make_no_sense_are_refused(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
        for (operands, part) in [
            (vec![Operand::read(&memory, 0..11)], "operand 0..11 is not inside 10 bytes"),
            (
                vec![Operand::read(&memory, 0..6), Operand::write(&memory, 5..9)],
                "operands 0..6 and 5..9 of the same memory overlap, and one is written",
            ),
        ] {
            let error = kernels(&*device).enter(operands.clone()).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            let never = Box::new(|_: &mut [_]| panic!("a refused kernel ran"));
            assert!(kernels(&*device).launch(&stream, operands, never).is_err());
        }
        device.synchronize(&stream, LIMIT).unwrap();
    }

    pub(super) fn a_failure_stays_with_its_stream_until_it_is_reported(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
        let (follower, bystander) = (device.stream().unwrap(), device.stream().unwrap());
        let fail = Box::new(|_: &mut [_]| Err(Error::new(Kind::Io, "no such luck")));
        let failed = kernels(&*device).launch(&stream, Vec::new(), fail).unwrap();
        let behind = device.copy_in(&stream, block(&[1; 10]), &memory, 0).unwrap();
        let event = device.record(&stream).unwrap();
        device.wait_for(&follower, &event).unwrap();
        let infected = device.copy_in(&follower, block(&[2; 10]), &memory, 0).unwrap();

        let error = failed.wait_within(LIMIT).unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Io, "no such luck"));
        for later in [&behind, &infected] {
            let error = later.wait_within(LIMIT).unwrap_err();
            assert_eq!(error.kind(), Kind::Io);
            assert_eq!(error.to_string(), "an earlier operation failed: no such luck");
        }
        assert_eq!(&*behind.into_block().unwrap(), [1; 10], "the block of a failed copy");
        assert!(event.wait_within(LIMIT).is_err());
        assert!(device.record(&bystander).unwrap().wait_within(LIMIT).is_ok());

        let error = device.synchronize(&stream, LIMIT).unwrap_err();
        assert_eq!(error.to_string(), "no such luck");
        device.synchronize(&stream, LIMIT).unwrap();
        put(&*device, &stream, &[4; 10], &memory, 0);
        assert!(device.synchronize(&follower, LIMIT).is_err());
        assert_eq!(&*get(&*device, &follower, &memory, 0, 10), [4; 10]);
    }

    pub(super) fn a_panic_in_a_kernel_is_an_error(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
        let operands = vec![Operand::write(&memory, 0..10)];
        let panics = Box::new(|_: &mut [_]| panic!("as the test asks"));
        let event = kernels(&*device).launch(&stream, operands.clone(), panics).unwrap();
        assert_eq!(event.wait_within(LIMIT).unwrap_err().kind(), Kind::Internal);
        assert!(device.synchronize(&stream, LIMIT).is_err());
        assert!(kernels(&*device).enter(operands).is_ok(), "nothing stays borrowed");
        put(&*device, &stream, &[1; 10], &memory, 0);
    }

    pub(super) fn what_is_done_needs_no_time_to_wait_for(make: Make) {
        let device = make();
        let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
        let transfer = device.copy_in(&stream, empty(10), &memory, 0).unwrap();
        let event = device.record(&stream).unwrap();
        device.synchronize(&stream, LIMIT).unwrap();
        assert!(transfer.is_done() && event.is_done());
        event.wait_within(Duration::ZERO).unwrap();
        event.clone().wait_within(Duration::MAX).unwrap();
        transfer.finish(Duration::ZERO).unwrap();
    }

    pub(super) fn many_threads_share_one_device(make: Make) {
        let device = make();
        let (threads, len) = (8, 5000);
        let memory = device.allocate(threads * len).unwrap();
        let shared = device.stream().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (device, memory, shared) = (&*device, &memory, &shared);
                scope.spawn(move || {
                    let own = device.stream().unwrap();
                    for round in 0..40u64 {
                        let stream = if round % 2 == 0 { &own } else { shared };
                        let bytes = pattern(len, round * 8 + thread as u64);
                        put(device, stream, &bytes, memory, thread * len);
                        assert_eq!(&*get(device, stream, memory, thread * len, len), bytes);
                        drop(device.allocate(1000).unwrap());
                    }
                });
            }
        });
        drop(memory);
        assert_eq!(device.facts().used_bytes, 0);
    }

    pub(super) fn operations_of_threads_that_share_a_stream_never_overlap(make: Make) {
        let device = make();
        let (stream, memory) = (&device.stream().unwrap(), &device.allocate(20_000).unwrap());
        put(&*device, stream, &vec![0; 20_000], memory, 0);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let device = &*device;
                scope.spawn(move || {
                    for _ in 0..50 {
                        put(device, stream, &vec![thread; 20_000], memory, 0);
                        let seen = get(device, stream, memory, 0, 20_000);
                        assert!(seen.iter().all(|byte| *byte == seen[0]));
                    }
                });
            }
        });
    }
}

/// A kernel that runs until it is let go: what is behind it is in flight for certain.
struct Gate {
    release: mpsc::Sender<()>,
    passed: Event,
}

impl Gate {
    fn close(device: &Emulated, stream: &Stream) -> Self {
        let (release, released) = mpsc::channel::<()>();
        let hold = Box::new(move |_: &mut [_]| {
            let _ = released.recv();
            Ok(())
        });
        Self { release, passed: device.launch(stream, Vec::new(), hold).unwrap() }
    }

    /// A gate on a stream of its own, behind which all of `streams` wait: when it opens, they all
    /// go on at the same moment of model time.
    fn before(device: &Emulated, streams: &[Stream]) -> Self {
        let gate = Self::close(device, &device.stream().unwrap());
        for stream in streams {
            device.wait_for(stream, &gate.passed).unwrap();
        }
        gate
    }

    fn open(self) {
        self.release.send(()).unwrap();
    }
}

fn emulated(spec: &str) -> Emulated {
    Emulated::new(spec.parse().unwrap()).unwrap()
}

fn quick() -> Emulated {
    emulated("capacity=1MiB,bandwidth=4GB/s,latency=20us")
}

#[test]
fn a_copy_never_ends_before_its_modelled_time() {
    let device = emulated(
        "capacity=1MiB,bandwidth_in=10MB/s,bandwidth_out=20MB/s,latency_in=3ms,latency_out=6ms",
    );
    let (stream, memory) = (device.stream().unwrap(), device.allocate(100_000).unwrap());
    let start = Instant::now();
    put(&device, &stream, &vec![1; 100_000], &memory, 0);
    assert!(start.elapsed() >= Duration::from_millis(10 + 3));
    let start = Instant::now();
    get(&device, &stream, &memory, 0, 100_000);
    assert!(start.elapsed() >= Duration::from_millis(5 + 6));
    assert_eq!(log(&device, Direction::In)[0].slot.time(), Duration::from_millis(10 + 3));
    assert_eq!(log(&device, Direction::Out)[0].slot.time(), Duration::from_millis(5 + 6));
    let start = Instant::now();
    let copies: Vec<_> = (0..3)
        .map(|_| device.copy_in(&stream, block(&vec![1; 50_000]), &memory, 0).unwrap())
        .collect();
    for (position, copy) in (1u32..).zip(copies) {
        copy.finish(LIMIT).unwrap();
        assert!(start.elapsed() >= position * Duration::from_millis(5 + 3));
    }
}

#[test]
fn bytes_that_have_not_arrived_can_not_be_read() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(1000).unwrap());
    let other = device.stream().unwrap();
    let gate = Gate::close(&device, &stream);
    let copy = device.copy_in(&stream, block(&[7; 100]), &memory, 100).unwrap();
    let early = |range| vec![Operand::read(&memory, range)];

    let error = device.enter(early(199..300)).unwrap_err();
    assert!(error.to_string().contains("bytes 199..300 have not arrived"), "{error}");
    assert!(error.to_string().contains("writes 100..200"), "{error}");
    assert!(device.launch(&other, early(0..101), nothing()).is_err());
    let refused = device.copy_out(&other, &memory, 0, empty(1000)).unwrap_err();
    assert_eq!(refused.block.len(), 1000);
    assert!(device.copy_in(&other, empty(1), &memory, 150).is_err(), "two writers");

    assert!(device.enter(early(0..100)).is_ok(), "only the bytes in flight are closed");
    let behind = device.launch(&stream, early(100..200), nothing()).unwrap();
    assert!(!copy.is_done() && !behind.is_done());
    gate.open();
    copy.finish(LIMIT).unwrap();
    behind.wait_within(LIMIT).unwrap();
    assert_eq!(device.enter(early(100..200)).unwrap().views[0][..], [7; 100]);
}

#[test]
fn mapped_memory_that_a_kernel_in_flight_writes_can_not_be_used() {
    let device = quick();
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mapped = device.map_host(empty(300)).unwrap();
    let read = |range| vec![Operand::read_mapped(&mapped, range)];
    let write = |range| vec![Operand::write_mapped(&mapped, range)];
    let gate = Gate::close(&device, &stream);
    let fill = Box::new(|views: &mut [View]| {
        views[0].as_mut().unwrap().fill(7);
        Ok(())
    });
    let filled = device.launch(&stream, write(100..200), fill).unwrap();

    let error = device.launch(&other, read(0..101), nothing()).unwrap_err();
    assert!(error.to_string().contains("bytes 0..101 have not arrived"), "{error}");
    assert!(device.launch(&other, write(199..300), nothing()).is_err(), "two writers");
    assert!(device.enter(read(150..151)).is_err());
    let error = mapped.read(199..200).unwrap_err();
    assert!(error.to_string().contains("bytes 199..200 have not arrived"), "{error}");
    assert!(mapped.write(199..200).is_err());

    assert!(mapped.write(0..100).is_ok(), "only the bytes in flight are closed");
    device.wait_for(&other, &filled).unwrap();
    let behind = device.launch(&other, read(100..200), nothing()).unwrap();
    assert!(mapped.write(200..300).is_ok() && device.enter(read(200..300)).is_ok());
    gate.open();
    behind.wait_within(LIMIT).unwrap();
    assert_eq!(mapped.read(100..200).unwrap()[..], [7; 100]);
    assert_eq!(&mapped.unmap().unwrap()[100..200], [7; 100]);
}

#[test]
fn what_a_kernel_wrote_to_mapped_memory_is_not_seen_before_it_has_crossed_the_link() {
    let device = emulated("capacity=1MiB,bandwidth=1GB/s,latency=40s");
    let (stream, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mapped = device.map_host(empty(10)).unwrap();
    let (sender, ran) = mpsc::channel();
    let tell = Box::new(move |_: &mut [View]| {
        let _ = sender.send(());
        Ok(())
    });
    let event = device.launch(&stream, vec![Operand::write_mapped(&mapped, 0..10)], tell).unwrap();
    ran.recv_timeout(LIMIT).unwrap();
    assert_eq!(event.wait_within(Duration::from_millis(10)).unwrap_err().kind(), Kind::Timeout);
    let early = || vec![Operand::read_mapped(&mapped, 0..1)];
    assert!(device.enter(early()).is_err());
    assert!(device.launch(&other, early(), nothing()).is_err());
    assert!(mapped.read(0..1).is_err());
    assert!(mapped.unmap().is_err());
}

#[test]
fn mapped_memory_that_host_code_holds_can_not_be_used_against_it() {
    let device = quick();
    let stream = device.stream().unwrap();
    let mapped = device.map_host(empty(300)).unwrap();
    let mut writing = mapped.write(0..100).unwrap();
    let reading = mapped.read(100..200).unwrap();
    for operand in [Operand::read_mapped(&mapped, 99..100), Operand::write_mapped(&mapped, 0..1)] {
        let error = device.launch(&stream, vec![operand.clone()], nothing()).unwrap_err();
        assert!(error.to_string().contains("a thread of the host writes 0..100"), "{error}");
        assert!(device.enter(vec![operand]).is_err());
    }
    assert!(device.enter(vec![Operand::write_mapped(&mapped, 199..300)]).is_err());
    assert!(device.enter(vec![Operand::read_mapped(&mapped, 100..300)]).is_ok());
    writing.fill(1);
    drop((writing, reading));
    let operands = vec![Operand::write_mapped(&mapped, 0..300)];
    device.launch(&stream, operands, nothing()).unwrap().wait_within(LIMIT).unwrap();
    assert!(mapped.read(0..301).is_err(), "outside");
    assert_eq!(mapped.write(0..300).unwrap()[99..101], [1, 0], "and that left nothing behind");
}

#[test]
fn bytes_are_not_seen_while_the_link_model_says_that_they_travel() {
    let device = emulated("capacity=1MiB,bandwidth=1GB/s,latency=40s");
    let (stream, memory) = (device.stream().unwrap(), device.allocate(20).unwrap());
    let other = device.stream().unwrap();
    let copy_in = device.copy_in(&stream, block(&[7; 10]), &memory, 0).unwrap();
    let copy_out = device.copy_out(&other, &memory, 10, empty(10)).unwrap();
    // Time enough to move the bytes, and little of what the model asks for.
    assert_eq!(copy_in.wait_within(Duration::from_millis(10)).unwrap_err().kind(), Kind::Timeout);
    assert!(device.enter(vec![Operand::read(&memory, 9..10)]).is_err());
    assert!(device.enter(vec![Operand::write(&memory, 10..11)]).is_err());
    assert!(device.copy_out(&other, &memory, 0, empty(10)).is_err());
    assert!(copy_in.into_block().is_err() && copy_out.into_block().is_err());
}

#[test]
fn bytes_in_use_can_not_be_overwritten() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(1000).unwrap());
    let entered = device.enter(vec![Operand::read(&memory, 0..500)]).unwrap();
    let refused = device.copy_in(&stream, block(&[1; 10]), &memory, 495).unwrap_err();
    assert!(refused.error.to_string().contains("still being read"), "{}", refused.error);
    put(&device, &stream, &[1; 10], &memory, 500);
    assert_eq!(get(&device, &stream, &memory, 0, 500).len(), 500, "reading together is fine");
    drop(entered);
    put(&device, &stream, &[1; 10], &memory, 495);

    let gate = Gate::close(&device, &stream);
    let offload = device.copy_out(&stream, &memory, 0, empty(1000)).unwrap();
    let other = device.stream().unwrap();
    assert!(device.copy_in(&other, empty(1), &memory, 999).is_err());
    gate.open();
    offload.finish(LIMIT).unwrap();
    put(&device, &other, &[1], &memory, 999);
}

#[test]
fn two_buffers_in_turn_are_no_race_when_events_order_them() {
    let device = quick();
    let (copies, compute) = (device.stream().unwrap(), device.stream().unwrap());
    let memory = device.allocate(200).unwrap();
    let gate = Gate::close(&device, &copies);
    let (sender, sums) = mpsc::channel();
    let mut used: [Option<Event>; 2] = [None, None];
    // Layer after layer: the copy waits for the last use of its buffer, the kernel for the copy.
    for layer in 0..10u8 {
        let slot = usize::from(layer % 2);
        if let Some(event) = &used[slot] {
            device.wait_for(&copies, event).unwrap();
        }
        device.copy_in(&copies, block(&[layer; 100]), &memory, slot * 100).unwrap();
        device.wait_for(&compute, &device.record(&copies).unwrap()).unwrap();
        let operand = Operand::read(&memory, slot * 100..slot * 100 + 100);
        let sender = sender.clone();
        let sum = Box::new(move |views: &mut [View]| {
            let _ = sender.send(views[0].iter().map(|byte| u32::from(*byte)).sum::<u32>());
            Ok(())
        });
        used[slot] = Some(device.launch(&compute, vec![operand], sum).unwrap());
    }
    gate.open();
    device.synchronize(&compute, LIMIT).unwrap();
    let sums: Vec<_> = sums.try_iter().collect();
    assert_eq!(sums, (0..10).map(|layer| layer * 100).collect::<Vec<_>>());
}

#[test]
fn host_code_is_refused_on_the_emulated_device_and_welcome_on_the_host() {
    let (device, host) = (quick(), Host::with_capacity(1 << 20));
    let error = device.host_view(&device.allocate(10).unwrap(), 0..10).unwrap_err();
    assert_eq!(error.kind(), Kind::Unsupported);
    assert!(!device.facts().host_access && host.facts().host_access);
    let memory = host.allocate(10).unwrap();
    put(&host, &host.stream().unwrap(), b"0123456789", &memory, 0);
    assert_eq!(&*host.host_view(&memory, 2..4).unwrap(), b"23");
}

fn drain(device: &Emulated, streams: &[Stream]) {
    for stream in streams {
        device.synchronize(stream, LIMIT).unwrap();
    }
}

/// What the link did since the gate opened, by direction.
fn log(device: &Emulated, direction: Direction) -> Vec<LinkUse> {
    device.link_log().into_iter().filter(|one| one.direction == direction).collect()
}

#[test]
fn copies_in_one_direction_take_turns_in_order() {
    let device = emulated("capacity=1MiB,bandwidth=1GB/s,latency=10us");
    let memory = device.allocate(6000).unwrap();
    let streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let gate = Gate::before(&device, &streams);
    for (stream, (offset, len)) in streams.iter().zip([(0, 1000), (1000, 2000), (3000, 3000)]) {
        device.copy_in(stream, block(&vec![1; len]), &memory, offset).unwrap();
    }
    gate.open();
    drain(&device, &streams);
    let log = log(&device, Direction::In);
    assert_eq!(log.iter().map(|one| one.bytes).collect::<Vec<_>>(), [1000, 2000, 3000]);
    for one in &log {
        let time = Duration::from_micros(10) + Duration::from_nanos(one.bytes);
        assert_eq!(one.slot.time(), time);
    }
    assert!(log.windows(2).all(|pair| pair[1].slot.start == pair[0].slot.done), "{log:?}");
    assert_eq!(device.link_free_at(Direction::In), log[2].slot.done);
    assert_eq!(device.link_free_at(Direction::Out), Duration::ZERO);
}

#[test]
fn both_directions_work_at_the_same_time() {
    let device = quick();
    let memory = device.allocate(2000).unwrap();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let gate = Gate::before(&device, &streams);
    device.copy_in(&streams[0], block(&[1; 1000]), &memory, 0).unwrap();
    device.copy_out(&streams[1], &memory, 1000, empty(1000)).unwrap();
    gate.open();
    drain(&device, &streams);
    assert_eq!(log(&device, Direction::In)[0].slot, log(&device, Direction::Out)[0].slot);
}

#[test]
fn direct_access_and_copies_share_the_link() {
    let device = emulated("capacity=1MiB,bandwidth=1GB/s,latency=10us,direct_slowdown=2.5");
    let memory = device.allocate(1000).unwrap();
    let streams = [device.stream().unwrap(), device.stream().unwrap()];
    let gate = Gate::before(&device, &streams);
    device.direct_access(&streams[0], Direction::In, 1000).unwrap();
    device.copy_in(&streams[1], block(&[1; 1000]), &memory, 0).unwrap();
    gate.open();
    drain(&device, &streams);
    let log = log(&device, Direction::In);
    assert_eq!((log[0].bytes, log[0].is_copy), (2500, false));
    assert_eq!((log[1].bytes, log[1].is_copy), (1000, true));
    assert_eq!(log[1].slot.start, log[0].slot.done);
    let time = device.direct_time(Direction::In, 1000, Duration::ZERO);
    assert_eq!(time, log[0].slot.time());
}

fn nothing() -> Kernel {
    Box::new(|_| Ok(()))
}

#[test]
fn a_kernel_on_mapped_memory_uses_both_directions_of_the_link_at_once() {
    let device = quick();
    let stream = device.stream().unwrap();
    let mapped = device.map_host(empty(3000)).unwrap();
    let operands =
        vec![Operand::read_mapped(&mapped, 0..1000), Operand::write_mapped(&mapped, 1000..3000)];
    device.launch(&stream, operands, nothing()).unwrap().wait_within(LIMIT).unwrap();
    let (into, out) = (log(&device, Direction::In), log(&device, Direction::Out));
    assert_eq!((into[0].bytes, out[0].bytes), (1000, 2000));
    assert_eq!(into[0].slot.start, out[0].slot.start);
}

#[test]
fn a_kernel_on_mapped_memory_computes_while_its_bytes_cross_the_link() {
    // Far longer than a kernel that only says that it ran.
    let device = emulated("capacity=1MiB,bandwidth=1GB/s,latency=40s");
    let stream = device.stream().unwrap();
    let mapped = device.map_host(empty(10)).unwrap();
    let (sender, ran) = mpsc::channel();
    let tell = Box::new(move |_: &mut [View]| {
        let _ = sender.send(());
        Ok(())
    });
    let event = device.launch(&stream, vec![Operand::read_mapped(&mapped, 0..10)], tell).unwrap();
    ran.recv_timeout(LIMIT).unwrap();
    let error = event.wait_within(Duration::from_millis(10)).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
}

#[test]
fn a_launch_lasts_no_shorter_than_predicted_whichever_of_compute_and_link_is_longer() {
    let device = emulated("capacity=1MiB,bandwidth=1MB/s,latency=1ms,direct_slowdown=2");
    let (stream, memory) = (device.stream().unwrap(), device.allocate(1).unwrap());
    let mapped = device.map_host(empty(5000)).unwrap();
    for (compute_ms, expected_ms) in [(0, 11), (4, 11), (30, 30)] {
        let compute = Duration::from_millis(compute_ms);
        let predicted = device.direct_time(Direction::In, 5000, compute);
        assert_eq!(predicted, Duration::from_millis(expected_ms));
        let busy = Box::new(move |_: &mut [View]| {
            std::thread::sleep(compute);
            Ok(())
        });
        let start = Instant::now();
        let operands = vec![Operand::read_mapped(&mapped, 0..5000)];
        device.launch(&stream, operands, busy).unwrap().wait_within(LIMIT).unwrap();
        assert!(start.elapsed() >= predicted);
        // The copy is ready when the launch has ended, in model time too.
        put(&device, &stream, b"x", &memory, 0);
        let log = log(&device, Direction::In);
        let [.., launch, copy] = &log[..] else { panic!("two uses of the link") };
        assert_eq!(launch.slot.time(), Duration::from_millis(11));
        assert!(copy.slot.start >= launch.slot.start + predicted);
    }
}

#[test]
fn a_kernel_takes_its_turn_on_the_link_when_it_gets_the_compute_unit() {
    let device = quick();
    let memory = device.allocate(1000).unwrap();
    let streams: Vec<_> = (0..3).map(|_| device.stream().unwrap()).collect();
    let mapped = device.map_host(empty(1000)).unwrap();
    let gate = Gate::before(&device, &streams);
    // The first kernel has the unit, and the link from the start; the second waits for both.
    for (stream, range) in streams.iter().zip([0..400, 400..1000]) {
        device.launch(stream, vec![Operand::read_mapped(&mapped, range)], nothing()).unwrap();
    }
    device.copy_in(&streams[2], empty(1000), &memory, 0).unwrap();
    gate.open();
    drain(&device, &streams);
    let log = log(&device, Direction::In);
    assert_eq!(log.iter().map(|one| one.bytes).collect::<Vec<_>>(), [400, 1000, 600]);
    assert_eq!(log[1].slot.start, log[0].slot.done);
    assert!(log[2].slot.start >= log[0].slot.done && log[2].slot.start >= log[1].slot.done);
}

#[test]
fn the_failure_of_a_copy_shows_at_its_handle_behind_it_and_once_at_synchronize() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(100).unwrap());
    device.fail_next_copy(Direction::Out);
    put(&device, &stream, &[1; 100], &memory, 0);
    let failed = device.copy_out(&stream, &memory, 0, empty(100)).unwrap();
    let behind = device.record(&stream).unwrap();
    let error = failed.wait_within(LIMIT).unwrap_err();
    assert_eq!((error.kind(), error.is_retryable()), (Kind::Io, false));
    assert_eq!(&*failed.into_block().unwrap(), [0; 100], "nothing was copied");
    assert!(behind.wait_within(LIMIT).is_err());
    assert_eq!(device.synchronize(&stream, LIMIT).unwrap_err().kind(), Kind::Io);
    assert_eq!(&*get(&device, &stream, &memory, 0, 100), [1; 100]);
    device.synchronize(&stream, LIMIT).unwrap();
}

#[test]
fn a_full_stream_refuses_more_and_gives_the_block_back() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(1).unwrap());
    let gate = Gate::close(&device, &stream);
    for _ in 1..STREAM_QUEUE_MAX {
        device.copy_in(&stream, block(b"x"), &memory, 0).unwrap();
    }
    let refused = device.copy_in(&stream, block(b"y"), &memory, 0).unwrap_err();
    assert!(refused.error.is_retryable());
    assert_eq!(refused.error.to_string(), "the stream has 1024 operations in line");
    assert_eq!(&*refused.block, b"y");
    assert!(device.record(&stream).is_err());
    gate.open();
    device.synchronize(&stream, LIMIT).unwrap();
    put(&device, &stream, &refused.block, &memory, 0);
    assert_eq!(&*get(&device, &stream, &memory, 0, 1), b"y");
}

#[test]
fn waiting_for_what_is_in_flight_ends_with_a_timeout_and_can_be_tried_again() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(10).unwrap());
    let gate = Gate::close(&device, &stream);
    let copy = device.copy_in(&stream, block(&[5; 10]), &memory, 0).unwrap();
    let event = device.record(&stream).unwrap();
    let limit = Duration::from_millis(2);
    for (error, text) in [
        (copy.wait_within(limit).unwrap_err(), "the copy was not done within 2ms"),
        (event.wait_within(limit).unwrap_err(), "the event was not done within 2ms"),
        (device.synchronize(&stream, limit).unwrap_err(), "the stream was not done within 2ms"),
    ] {
        assert_eq!((error.kind(), error.to_string().as_str()), (Kind::Timeout, text));
    }
    let copy = copy.into_block().unwrap_err();
    gate.open();
    assert_eq!(&*copy.finish(LIMIT).unwrap(), [5; 10]);
    event.wait_within(LIMIT).unwrap();
}

#[test]
fn freed_memory_counts_as_used_while_an_operation_is_in_flight() {
    let device = quick();
    let (stream, memory) = (device.stream().unwrap(), device.allocate(1 << 20).unwrap());
    let gate = Gate::close(&device, &stream);
    let copy = device.copy_in(&stream, empty(10), &memory, 0).unwrap();
    drop((memory, stream));
    assert_eq!(device.facts().used_bytes, 1 << 20);
    assert_eq!(device.allocate(1).unwrap_err().kind(), Kind::OutOfMemory);
    gate.open();
    copy.finish(LIMIT).unwrap();
    assert_eq!(device.facts().used_bytes, 0);
}

/// Calls the device when it goes, and takes its time.
struct Slow(Arc<Emulated>);

impl Drop for Slow {
    fn drop(&mut self) {
        self.0.link_log();
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What is in line behind a failure never runs. It once was dropped only after its handle had told
/// of the end.
#[test]
fn whoever_sees_an_operation_fail_with_its_stream_finds_nothing_of_it_left() {
    let device = Arc::new(quick());
    let (stream, memory) = (device.stream().unwrap(), device.allocate(100).unwrap());
    let (mapped, pool) = (device.map_host(empty(100)).unwrap(), Pool::new(4096, 1).unwrap());
    let gate = Gate::close(&device, &stream);
    let fail = Box::new(|_: &mut [_]| Err(Error::new(Kind::Io, "no such luck")));
    device.launch(&stream, Vec::new(), fail).unwrap();
    let lease = Block::from(pool.take_within(LIMIT).unwrap()).narrow(0..50).unwrap();
    drop(device.copy_in(&stream, lease, &memory, 0).unwrap());
    let slow = Slow(Arc::clone(&device));
    let never = Box::new(move |_: &mut [_]| {
        let _capture = &slow;
        panic!("a kernel behind a failure ran")
    });
    let operands = vec![Operand::write(&memory, 0..50), Operand::write_mapped(&mapped, 0..50)];
    let event = device.launch(&stream, operands, never).unwrap();
    let behind = device.record(&stream).unwrap();
    drop(memory);
    gate.open();
    assert_eq!(event.wait_within(LIMIT).unwrap_err().kind(), Kind::Io);
    assert_eq!(device.facts().used_bytes, 0);
    assert_eq!(mapped.unmap().unwrap().len(), 100);
    assert!(behind.wait_within(LIMIT).is_err());
    assert!(pool.take_within(LIMIT).is_ok(), "the block went home");
    assert_eq!(device.synchronize(&stream, LIMIT).unwrap_err().to_string(), "no such luck");
    device.synchronize(&stream, LIMIT).unwrap();
}

#[test]
fn a_view_counts_as_use_of_its_memory() {
    let device = quick();
    let memory = device.allocate(1 << 20).unwrap();
    let entered = device.enter(vec![Operand::read(&memory, 0..1)]).unwrap();
    drop(memory);
    assert_eq!(device.facts().free_bytes(), 0);
    drop(entered);
    assert_eq!(device.facts().used_bytes, 0);
}

#[test]
fn a_spec_that_can_not_work_makes_no_device() {
    let good: Spec = "v100-pcie3".parse().unwrap();
    let error = Emulated::new(Spec { bandwidth_out: 0, ..good.clone() }).unwrap_err();
    assert_eq!(error.kind(), Kind::InvalidInput);
    assert_eq!(Emulated::new(good.clone()).unwrap().spec(), &good);
}
