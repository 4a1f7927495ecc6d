//! How fast each codec is, at each level that this processor has, on one thread.
//!
//! Every case is timed once in each round, and a plain copy of the same number of bytes with them,
//! so that whatever else the machine does falls on all of them alike. A rate counts bytes of
//! *input*: the uncompressed tensor for both directions of `bitmap`, the source for `half` and the
//! checksummed bytes for `checksum`. Half of the tensor's elements are zero, at random places.
//!
//! The figures of the project are those of the large working set, which no cache holds; the small
//! one tells what the kernels do when memory is not the limit.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use serde::Serialize;
use tensorferry::codec::bitmap::{self, Width};
use tensorferry::codec::half::{self, Format};
use tensorferry::codec::{Level, checksum};
use tensorferry::random::SplitMix64;
use tensorferry::{Error, Kind, Result, Size};

use crate::machine::Machine;
use crate::sample::Samples;

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Bytes of input, one table for each.
    pub working_sets: Vec<usize>,
    /// How often each case is timed.
    pub rounds: usize,
    /// A sample of a smaller working set repeats its work until this much input went through.
    pub sample_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { working_sets: vec![64 << 20, 256 << 10], rounds: 11, sample_bytes: 32 << 20 }
    }
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// Where.
    pub machine: Machine,
    /// The best level of this processor, which the codecs use.
    pub level: &'static str,
    /// How often each case was timed.
    pub rounds: usize,
    /// One row for each case and working set.
    pub rows: Vec<Row>,
}

/// One case: what a codec does at one level.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    /// `copy`, `bitmap32`, `bitmap16`, `float16`, `bfloat16` or `crc32c`.
    pub codec: &'static str,
    /// What it does: `encode`, `decode`, `measure`, `narrow`, `widen`, `sum` or `copy`.
    pub direction: &'static str,
    /// The level's name; `libc` for the plain copy, `crc-fast` for the library that chooses among
    /// its own kernels.
    pub level: &'static str,
    /// Bytes of input.
    pub input_bytes: usize,
    /// Gigabytes of input a second.
    pub gb_per_s: Samples,
    /// The median over the median of the plain copy.
    pub ratio_to_copy: f64,
}

/// Measures every codec at every level that this processor has.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = options.rounds;
    if rounds == 0 {
        return Err(Error::invalid("a benchmark needs at least one sample"));
    }
    let mut rows = Vec::new();
    for bytes in &options.working_sets {
        // Whole elements, and never nothing.
        let bytes = bytes.next_multiple_of(4).max(4);
        rows.extend(measure(bytes, rounds, options.sample_bytes)?);
    }
    Ok(Report { machine: Machine::here(), level: Level::detect().name(), rounds, rows })
}

fn measure(bytes: usize, rounds: usize, sample_bytes: usize) -> Result<Vec<Row>> {
    let mut buffers = Buffers::new(bytes)?;
    let cases = cases();
    let mut samples = vec![Vec::with_capacity(rounds); cases.len()];
    let repeats = (sample_bytes / bytes).max(1);
    for case in &cases {
        // Touches every page, and lets the clock rise, before anything is timed.
        (case.work)(&mut buffers)?;
    }
    for _ in 0..rounds {
        for (case, samples) in cases.iter().zip(&mut samples) {
            let start = Instant::now();
            for _ in 0..repeats {
                (case.work)(&mut buffers)?;
            }
            let seconds = start.elapsed().as_secs_f64().max(1e-9);
            samples.push((bytes * repeats) as f64 / seconds / 1e9);
        }
    }
    let no_samples = || Error::new(Kind::Internal, "a case has no samples");
    let samples: Option<Vec<_>> = samples.into_iter().map(Samples::of).collect();
    let samples = samples.ok_or_else(no_samples)?;
    let copy = samples.first().ok_or_else(no_samples)?.median;
    Ok(cases.iter().zip(samples).map(|(case, samples)| case.row(bytes, copy, samples)).collect())
}

/// The tensors that the cases work on.
struct Buffers {
    numbers: Vec<u8>,
    /// As many bytes as `numbers`; taken as `f16` and as `bf16`.
    halves: Vec<u8>,
    encoded_numbers: Vec<u8>,
    encoded_halves: Vec<u8>,
    out: Vec<u8>,
}

impl Buffers {
    fn new(bytes: usize) -> Result<Self> {
        let mut random = SplitMix64::new(7);
        let mut numbers = vec![0; bytes];
        for element in numbers.as_chunks_mut::<4>().0 {
            let bits = random.draw();
            // Like activations after a ReLU: zero or positive, of ordinary size.
            let number = if bits & 1 == 0 { 0.0 } else { (bits >> 40) as f32 / (1 << 22) as f32 };
            *element = number.to_le_bytes();
        }
        let mut halves = vec![0; bytes];
        for element in halves.as_chunks_mut::<2>().0 {
            let bits = random.draw();
            let half = if bits & 1 == 0 { 0 } else { 0x3c00 | (bits >> 54) as u16 };
            *element = half.to_le_bytes();
        }
        let encode = |src: &[u8], width| -> Result<Vec<u8>> {
            let mut encoded = vec![0; bitmap::encoded_len(src, width)?];
            bitmap::encode_into(src, width, &mut encoded)?;
            Ok(encoded)
        };
        Ok(Self {
            encoded_numbers: encode(&numbers, Width::Four)?,
            encoded_halves: encode(&halves, Width::Two)?,
            numbers,
            halves,
            out: vec![1; bitmap::encoded_len_max(bytes, Width::Two).max(2 * bytes)],
        })
    }
}

type Work = Box<dyn Fn(&mut Buffers) -> Result<()>>;

struct Case {
    codec: &'static str,
    direction: &'static str,
    level: &'static str,
    work: Work,
}

impl Case {
    fn new(
        codec: &'static str,
        direction: &'static str,
        level: &'static str,
        work: impl Fn(&mut Buffers) -> Result<()> + 'static,
    ) -> Self {
        Self { codec, direction, level, work: Box::new(work) }
    }

    fn row(&self, input_bytes: usize, copy: f64, gb_per_s: Samples) -> Row {
        let Self { codec, direction, level, .. } = *self;
        let ratio_to_copy = gb_per_s.median / copy;
        Row { codec, direction, level, input_bytes, gb_per_s, ratio_to_copy }
    }
}

/// The plain copy first, then each codec at each level.
fn cases() -> Vec<Case> {
    let mut cases = vec![Case::new("copy", "copy", "libc", |buffers| {
        let out = &mut buffers.out[..buffers.numbers.len()];
        out.copy_from_slice(black_box(&buffers.numbers));
        black_box(out);
        Ok(())
    })];
    for level in Level::available() {
        cases.extend(bitmap_cases(level));
        cases.extend(Format::ALL.into_iter().flat_map(|format| half_cases(level, format)));
    }
    cases.extend([
        checksum_case("portable", checksum::crc32c_portable),
        checksum_case("crc-fast", checksum::crc32c),
    ]);
    cases
}

fn checksum_case(level: &'static str, sum: fn(&[u8]) -> u32) -> Case {
    Case::new("crc32c", "sum", level, move |buffers| {
        black_box(sum(black_box(&buffers.numbers)));
        Ok(())
    })
}

fn bitmap_cases(level: Level) -> [Case; 6] {
    [
        Case::new("bitmap32", "encode", level.name(), move |buffers| {
            bitmap::encode_into_at(level, &buffers.numbers, Width::Four, &mut buffers.out)?;
            Ok(())
        }),
        Case::new("bitmap32", "decode", level.name(), move |buffers| {
            let out = &mut buffers.out[..buffers.numbers.len()];
            bitmap::decode_into_at(level, &buffers.encoded_numbers, out)
        }),
        Case::new("bitmap32", "measure", level.name(), move |buffers| {
            black_box(bitmap::encoded_len_at(level, &buffers.numbers, Width::Four)?);
            Ok(())
        }),
        Case::new("bitmap16", "encode", level.name(), move |buffers| {
            bitmap::encode_into_at(level, &buffers.halves, Width::Two, &mut buffers.out)?;
            Ok(())
        }),
        Case::new("bitmap16", "decode", level.name(), move |buffers| {
            let out = &mut buffers.out[..buffers.halves.len()];
            bitmap::decode_into_at(level, &buffers.encoded_halves, out)
        }),
        Case::new("bitmap16", "measure", level.name(), move |buffers| {
            black_box(bitmap::encoded_len_at(level, &buffers.halves, Width::Two)?);
            Ok(())
        }),
    ]
}

fn half_cases(level: Level, format: Format) -> [Case; 2] {
    [
        Case::new(format.name(), "narrow", level.name(), move |buffers| {
            let out = &mut buffers.out[..buffers.numbers.len() / 2];
            half::narrow_at(level, format, &buffers.numbers, out)
        }),
        Case::new(format.name(), "widen", level.name(), move |buffers| {
            let out = &mut buffers.out[..buffers.halves.len() * 2];
            half::widen_at(level, format, &buffers.halves, out)
        }),
    ]
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { processor, processors, kernel, .. } = &self.machine;
        writeln!(f, "{processor}, {processors} processors, Linux {kernel}")?;
        write!(f, "codecs, one thread, GB/s of input, median of {} rounds", self.rounds)?;
        let mut shown = None;
        for row in &self.rows {
            if shown != Some(row.input_bytes) {
                shown = Some(row.input_bytes);
                write!(f, "\n\n{:<24}", Size(row.input_bytes as u64).to_string())?;
                write!(
                    f,
                    "{:<10}{:>8}{:>8}{:>8}{:>10}",
                    "level", "median", "min", "max", "x copy"
                )?;
            }
            write!(f, "\n{row}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<12}{:<12}{:<10}", self.codec, self.direction, self.level)?;
        let Samples { median, min, max, .. } = &self.gb_per_s;
        write!(f, "{median:>8.2}{min:>8.2}{max:>8.2}{:>10.2}", self.ratio_to_copy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_measured_in_every_round_at_every_level() {
        let options =
            Options { working_sets: vec![4096, 1 << 16], rounds: 3, sample_bytes: 1 << 17 };
        let report = run(&options).unwrap();
        assert_eq!(report.rows.len(), 2 * (1 + 10 * Level::available().count() + 2));
        for row in &report.rows {
            let Samples { min, max, raw, .. } = &row.gb_per_s;
            assert_eq!(raw.len(), 3, "{row}");
            assert!(*min > 0.0 && min <= max, "{row}");
        }
    }

    #[test]
    fn no_code_is_measured_under_two_names() {
        let report = run(&small()).unwrap();
        let checksums = report.rows.iter().filter(|row| row.codec == "crc32c");
        let levels: Vec<_> = checksums.map(|row| row.level).collect();
        assert_eq!(levels, ["portable", "crc-fast"]);
    }

    #[test]
    fn a_report_says_on_which_machine_it_was_taken() {
        let shown = run(&small()).unwrap().to_string();
        assert!(shown.starts_with(&Machine::here().processor), "{shown}");
    }

    #[test]
    fn no_samples_are_an_error() {
        let error = run(&Options { rounds: 0, ..small() }).unwrap_err();
        assert_eq!(error.to_string(), "a benchmark needs at least one sample");
    }

    fn small() -> Options {
        Options { working_sets: vec![4096], rounds: 1, sample_bytes: 4096 }
    }

    #[test]
    #[ignore = "takes a while and means something only in a release build: run it with --no-capture"]
    fn print_the_figures() {
        println!("{}", run(&Options::default()).unwrap());
    }
}
