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
use tensorferry::{Result, Size};

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
    /// The level's name; `libc` for the plain copy.
    pub level: &'static str,
    /// Bytes of input.
    pub input_bytes: usize,
    /// The median of the samples.
    pub gb_per_s: f64,
    /// The slowest sample.
    pub gb_per_s_min: f64,
    /// The fastest sample.
    pub gb_per_s_max: f64,
    /// The median over the median of the plain copy.
    pub ratio_to_copy: f64,
    /// Every sample, in the order in which they were taken.
    pub samples_gb_per_s: Vec<f64>,
}

/// Measures every codec at every level that this processor has.
pub fn run(options: &Options) -> Result<Report> {
    let rounds = options.rounds.max(1);
    let mut rows = Vec::new();
    for bytes in &options.working_sets {
        // Whole elements, and never nothing.
        let bytes = bytes.next_multiple_of(4).max(4);
        rows.extend(measure(bytes, rounds, options.sample_bytes)?);
    }
    Ok(Report { level: Level::detect().name(), rounds, rows })
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
    let copy = median(&samples[0]);
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
        let mut random = SplitMix(7);
        let mut numbers = vec![0; bytes];
        for element in numbers.as_chunks_mut::<4>().0 {
            let bits = random.next();
            // Like activations after a ReLU: zero or positive, of ordinary size.
            let number = if bits & 1 == 0 { 0.0 } else { (bits >> 40) as f32 / (1 << 22) as f32 };
            *element = number.to_le_bytes();
        }
        let mut halves = vec![0; bytes];
        for element in halves.as_chunks_mut::<2>().0 {
            let bits = random.next();
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
        level: Level,
        work: impl Fn(&mut Buffers) -> Result<()> + 'static,
    ) -> Self {
        Self { codec, direction, level: level.name(), work: Box::new(work) }
    }

    fn row(&self, input_bytes: usize, copy: f64, samples: Vec<f64>) -> Row {
        let gb_per_s = median(&samples);
        Row {
            codec: self.codec,
            direction: self.direction,
            level: self.level,
            input_bytes,
            gb_per_s,
            gb_per_s_min: samples.iter().copied().fold(f64::INFINITY, f64::min),
            gb_per_s_max: samples.iter().copied().fold(0.0, f64::max),
            ratio_to_copy: gb_per_s / copy,
            samples_gb_per_s: samples,
        }
    }
}

/// The plain copy first, then each codec at each level.
fn cases() -> Vec<Case> {
    let copy: Work = Box::new(|buffers| {
        let out = &mut buffers.out[..buffers.numbers.len()];
        out.copy_from_slice(black_box(&buffers.numbers));
        black_box(out);
        Ok(())
    });
    let mut cases = vec![Case { codec: "copy", direction: "copy", level: "libc", work: copy }];
    for level in Level::available() {
        cases.extend(bitmap_cases(level));
        cases.extend(Format::ALL.into_iter().flat_map(|format| half_cases(level, format)));
        cases.push(Case::new("crc32c", "sum", level, move |buffers| {
            black_box(checksum::crc32c_at(level, black_box(&buffers.numbers))?);
            Ok(())
        }));
    }
    cases
}

fn bitmap_cases(level: Level) -> [Case; 6] {
    [
        Case::new("bitmap32", "encode", level, move |buffers| {
            bitmap::encode_into_at(level, &buffers.numbers, Width::Four, &mut buffers.out)?;
            Ok(())
        }),
        Case::new("bitmap32", "decode", level, move |buffers| {
            let out = &mut buffers.out[..buffers.numbers.len()];
            bitmap::decode_into_at(level, &buffers.encoded_numbers, out)
        }),
        Case::new("bitmap32", "measure", level, move |buffers| {
            black_box(bitmap::encoded_len_at(level, &buffers.numbers, Width::Four)?);
            Ok(())
        }),
        Case::new("bitmap16", "encode", level, move |buffers| {
            bitmap::encode_into_at(level, &buffers.halves, Width::Two, &mut buffers.out)?;
            Ok(())
        }),
        Case::new("bitmap16", "decode", level, move |buffers| {
            let out = &mut buffers.out[..buffers.halves.len()];
            bitmap::decode_into_at(level, &buffers.encoded_halves, out)
        }),
        Case::new("bitmap16", "measure", level, move |buffers| {
            black_box(bitmap::encoded_len_at(level, &buffers.halves, Width::Two)?);
            Ok(())
        }),
    ]
}

fn half_cases(level: Level, format: Format) -> [Case; 2] {
    [
        Case::new(format.name(), "narrow", level, move |buffers| {
            let out = &mut buffers.out[..buffers.numbers.len() / 2];
            half::narrow_at(level, format, &buffers.numbers, out)
        }),
        Case::new(format.name(), "widen", level, move |buffers| {
            let out = &mut buffers.out[..buffers.halves.len() * 2];
            half::widen_at(level, format, &buffers.halves, out)
        }),
    ]
}

fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

/// A small generator of random numbers: the same tensors on every machine.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        write!(f, "{:>8.2}{:>8.2}", self.gb_per_s, self.gb_per_s_min)?;
        write!(f, "{:>8.2}{:>10.2}", self.gb_per_s_max, self.ratio_to_copy)
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
        assert_eq!(report.rows.len(), 2 * (1 + 11 * Level::available().count()));
        for row in &report.rows {
            assert_eq!(row.samples_gb_per_s.len(), 3, "{row}");
            assert!(row.gb_per_s_min > 0.0 && row.gb_per_s_min <= row.gb_per_s_max, "{row}");
        }
        assert_eq!(report.to_string().matches("crc32c").count(), 2 * Level::available().count());
    }

    #[test]
    fn the_median_is_the_middle_one_or_between_the_middle_two() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }

    #[test]
    #[ignore = "takes a while and means something only in a release build: run it with --no-capture"]
    fn print_the_figures() {
        println!("{}", run(&Options::default()).unwrap());
    }
}
