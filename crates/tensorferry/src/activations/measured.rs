//! What a step was measured to be: a profile for the planner, and a report for the caller.
//!
//! A step does not tell everything. One that kept a tensor does not know what it would be encoded, one that
//! moved little does not know how fast the disk is. What is missing is taken from an earlier step, or from
//! the estimate, or is assumed to be no bottleneck.

use super::report::StepReport;
use super::step::{Entry, Step};
use super::traffic::Speed;
use crate::plan::activations::{self, Codec, Disk, Profile, Use};

/// A disk of which nothing is known.
const DISK_UNKNOWN: Speed = Speed { beside: 1e9, speedup: 1.0 };

/// Bytes a second of a codec that has coded nothing: not the bottleneck.
const CODEC_UNKNOWN: f64 = 1e12;

impl Step {
    /// What was measured. What this step does not tell is taken from a step like it, `before`, and from the
    /// `latest` of all.
    pub fn profile(
        &self,
        before: Option<&Profile>,
        latest: Option<&Profile>,
        threads: usize,
    ) -> Profile {
        let forward_seconds = self.clock.forward().compute;
        let known = |index: usize| Some(before?.tensors.get(index)?.encoded_bytes);
        let tensor = |(index, entry): (usize, &Entry)| {
            let bytes = entry.tensor.bytes;
            let encoded = entry.encoded.or_else(|| known(index)).or(entry.estimated);
            let saved_at = entry.tensor.saved_at.min(forward_seconds);
            let encoded_bytes = encoded.unwrap_or(bytes).min(bytes);
            activations::Tensor { encoded_bytes, saved_at, ..entry.tensor.clone() }
        };
        let tensors = self.entries.iter().enumerate().map(tensor).collect();
        let end = self.clock.backward().compute;
        let until = |index: usize| self.entries[index].released_at.unwrap_or(end);
        let uses = self.uses.iter().map(|&(tensor, at)| {
            let at = at.min(end);
            Use { tensor, at, until: until(tensor).clamp(at, end) }
        });
        Profile {
            version: activations::VERSION,
            tensors,
            uses: uses.collect(),
            forward_seconds,
            backward_seconds: end,
            disk: self.disk(latest),
            codec: self.codec(latest, threads),
        }
    }

    fn disk(&self, before: Option<&Profile>) -> Disk {
        let before = before.map(|before| &before.disk);
        let writes = before.map(|disk| Speed {
            beside: disk.write_bytes_per_second,
            speedup: disk.awaited_write_speedup,
        });
        let reads = before.map(|disk| Speed {
            beside: disk.read_bytes_per_second,
            speedup: disk.awaited_read_speedup,
        });
        let writes = self.writes.speed(writes).unwrap_or(DISK_UNKNOWN);
        let reads = self.reads.speed(reads).unwrap_or(DISK_UNKNOWN);
        Disk {
            write_bytes_per_second: writes.beside,
            read_bytes_per_second: reads.beside,
            // It is part of the rates: they were measured tensor by tensor.
            seconds_per_transfer: 0.0,
            awaited_write_speedup: writes.speedup,
            awaited_read_speedup: reads.speedup,
        }
    }

    fn codec(&self, before: Option<&Profile>, threads: usize) -> Codec {
        let rate = |(bytes, seconds): (u64, f64), before: Option<f64>| {
            if bytes > 0 && seconds > 0.0 {
                bytes as f64 / seconds * threads as f64
            } else {
                before.unwrap_or(CODEC_UNKNOWN)
            }
        };
        let codec = before.map(|before| &before.codec);
        let encode_before = codec.map(|codec| codec.encode_bytes_per_second);
        let decode_before = codec.map(|codec| codec.decode_bytes_per_second);
        Codec {
            encode_bytes_per_second: rate(self.encoding, encode_before),
            decode_bytes_per_second: rate(self.decoding, decode_before),
        }
    }

    /// The step in numbers. `staging` is what the workers have beside its tensors.
    pub fn report(&self, staging: u64) -> StepReport {
        let stored = || self.entries.iter().filter(|entry| entry.stored.is_some());
        let (forward, backward) = (self.clock.forward(), self.clock.backward());
        let (write_seconds, read_seconds) = (self.writes.seconds(), self.reads.seconds());
        let busy = write_seconds + read_seconds;
        let hidden = self.writes.hidden_seconds() + self.reads.hidden_seconds();
        StepReport {
            step: self.number,
            mode: self.following.mode(),
            tensors: self.entries.len(),
            saved_bytes: self.entries.iter().map(|entry| entry.tensor.bytes).sum(),
            offloaded_bytes: stored().map(|entry| entry.tensor.bytes).sum(),
            stored_bytes: stored().filter_map(|entry| entry.stored).sum(),
            read_bytes: self.reads.bytes(),
            forward_seconds: forward.wall,
            backward_seconds: backward.wall,
            forward_stall: forward.stall,
            backward_stall: backward.stall,
            write_seconds,
            read_seconds,
            overlap: if busy > 0.0 { hidden / busy } else { 1.0 },
            peak_bytes: self.peak_bytes + staging,
            predicted: self.expected,
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use crate::activations::step::fixtures::{plan, saved};

    #[test]
    fn what_was_stored_as_it_is_says_nothing_about_what_it_would_be_encoded() {
        let mut before = plan(1).profile.clone();
        before.tensors[0].encoded_bytes = 3;
        for (encoded, expected) in [(true, 7), (false, 3)] {
            let mut step = saved(1);
            step.stored(0, 7, encoded);
            assert_eq!(step.profile(Some(&before), None, 1).tensors[0].encoded_bytes, expected);
        }
    }

    #[test]
    fn reads_and_writes_have_speeds_of_their_own() {
        let mut step = saved(1);
        step.begin_backward();
        // So far apart that no pause of the scheduler makes up for it.
        for (is_read, bytes) in [(true, 1 << 40), (false, 1 << 20)] {
            step.traffic(is_read).queue(1);
            let mark = step.traffic(is_read).take();
            std::thread::sleep(std::time::Duration::from_millis(1));
            step.traffic(is_read).end(mark, bytes);
        }
        let disk = step.profile(None, None, 1).disk;
        assert!(disk.read_bytes_per_second > 10.0 * disk.write_bytes_per_second, "{disk:?}");
    }
}
