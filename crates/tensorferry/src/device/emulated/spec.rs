//! What an emulated device is like, as users write it:
//! `capacity=2GiB,bandwidth=4GB/s,latency=20us`, or the name of a profile, or a profile with
//! changes: `v100-pcie3,capacity=1GiB`. Bandwidth and latency can be set for each direction:
//! `bandwidth_in`, `bandwidth_out`, `latency_in`, `latency_out`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::backing::ALLOCATION_ALIGNMENT;
use crate::device::link::{Direction, Speed};
use crate::error::{Error, Result};
use crate::size::Size;

/// Capacity and link of an emulated device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Bytes that can be allocated.
    pub capacity_bytes: u64,
    /// Bytes a second from host to device.
    pub bandwidth_in: u64,
    /// Bytes a second from device to host.
    pub bandwidth_out: u64,
    /// What each transfer from host to device costs on top of its bytes.
    pub latency_in: Duration,
    /// What each transfer from device to host costs on top of its bytes.
    pub latency_out: Duration,
    /// How much worse than a copy a kernel uses the link when it works on host memory in place.
    pub direct_slowdown: f64,
}

/// Devices known by name.
///
/// The figures are *modelled from published specifications, not measured*: capacity as sold, and
/// 78% of the raw rate of a `PCIe` x16 slot (15.75, 31.5 and 63.0 GB/s) for its payload, the share
/// that makes the 12.3 GB/s usually seen with a V100. Latency and slowdown are assumptions.
const PROFILES: [(&str, Spec); 3] = [
    ("v100-pcie3", modelled(16 << 30, 12_300_000_000)),
    ("a100-pcie4", modelled(40 << 30, 24_600_000_000)),
    ("h100-pcie5", modelled(80 << 30, 49_200_000_000)),
];

const fn modelled(capacity_bytes: u64, bandwidth: u64) -> Spec {
    Spec {
        capacity_bytes,
        bandwidth_in: bandwidth,
        bandwidth_out: bandwidth,
        latency_in: LATENCY_DEFAULT,
        latency_out: LATENCY_DEFAULT,
        direct_slowdown: 1.25,
    }
}

/// The usual order of magnitude of one asynchronous copy of nothing.
const LATENCY_DEFAULT: Duration = Duration::from_micros(10);

/// A latency beyond this is a typing mistake.
const LATENCY_MAX: Duration = Duration::from_mins(1);

/// A slowdown beyond this is a typing mistake.
const SLOWDOWN_MAX: f64 = 1e6;

const KEYS: &str = "capacity, bandwidth, bandwidth_in, bandwidth_out, latency, latency_in, \
                    latency_out, direct_slowdown";

impl Spec {
    /// The profile of this name; an error lists those there are.
    pub fn profile(name: &str) -> Result<Self> {
        let found = PROFILES.iter().find(|(known, _)| *known == name);
        found.map(|(_, spec)| spec.clone()).ok_or_else(|| {
            let known: Vec<_> = Self::profiles().collect();
            Error::invalid(format!(
                "no profile {name:?}; write one of {} or key=value pairs such as \
                 \"capacity=2GiB,bandwidth=4GB/s,latency=20us\"",
                known.join(", ")
            ))
        })
    }

    /// The names of all profiles.
    pub fn profiles() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|(name, _)| *name)
    }

    /// How fast the link is in this direction.
    pub fn speed(&self, direction: Direction) -> Speed {
        let (bytes_per_second, latency) = match direction {
            Direction::In => (self.bandwidth_in, self.latency_in),
            Direction::Out => (self.bandwidth_out, self.latency_out),
        };
        Speed { bytes_per_second, latency }
    }

    /// An error unless a device can be made of this.
    pub fn validate(&self) -> Result<()> {
        let smallest = ALLOCATION_ALIGNMENT as u64;
        let latency = self.latency_in.max(self.latency_out);
        let complaint = if self.capacity_bytes < smallest {
            format!("capacity is {} bytes; the least is {smallest}", self.capacity_bytes)
        } else if self.bandwidth_in == 0 || self.bandwidth_out == 0 {
            "a bandwidth of zero would never finish a copy".to_owned()
        } else if latency > LATENCY_MAX {
            format!("a latency of {latency:?} is beyond the limit of {LATENCY_MAX:?}")
        } else if !(1.0..=SLOWDOWN_MAX).contains(&self.direct_slowdown) {
            let slowdown = self.direct_slowdown;
            format!("direct_slowdown is {slowdown}; write a factor from 1 to {SLOWDOWN_MAX}")
        } else {
            return Ok(());
        };
        Err(Error::invalid(complaint))
    }
}

/// The values given in a text, each at most once.
#[derive(Default)]
struct Given {
    capacity: Option<u64>,
    bandwidth: Option<u64>,
    bandwidth_in: Option<u64>,
    bandwidth_out: Option<u64>,
    latency: Option<Duration>,
    latency_in: Option<Duration>,
    latency_out: Option<Duration>,
    direct_slowdown: Option<f64>,
}

impl FromStr for Spec {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).map_err(|error| {
            Error::invalid(format!("{text:?} does not describe an emulated device"))
                .caused_by(error)
        })
    }
}

fn parse(text: &str) -> Result<Spec> {
    let mut base = None;
    let mut given = Given::default();
    for (position, part) in text.split(',').map(str::trim).enumerate() {
        match part.split_once('=') {
            Some((key, value)) => given.set(key.trim(), value.trim())?,
            None if position == 0 && !part.is_empty() => base = Some(Spec::profile(part)?),
            None => {
                return Err(Error::invalid(format!(
                    "{part:?} is not a key=value pair; only a profile's name, in front, stands \
                     without a value"
                )));
            }
        }
    }
    let spec = given.over(base.as_ref())?;
    spec.validate()?;
    Ok(spec)
}

impl Given {
    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        let inside = |error: Error| Error::invalid(format!("bad {key}")).caused_by(error);
        let twice = match key {
            "capacity" => put(&mut self.capacity, value.parse().map(|Size(bytes)| bytes)),
            "bandwidth" => put(&mut self.bandwidth, rate(value)),
            "bandwidth_in" => put(&mut self.bandwidth_in, rate(value)),
            "bandwidth_out" => put(&mut self.bandwidth_out, rate(value)),
            "latency" => put(&mut self.latency, duration(value)),
            "latency_in" => put(&mut self.latency_in, duration(value)),
            "latency_out" => put(&mut self.latency_out, duration(value)),
            "direct_slowdown" => put(&mut self.direct_slowdown, factor(value)),
            _ => return Err(Error::invalid(format!("unknown key {key:?}; keys are {KEYS}"))),
        };
        if twice.map_err(inside)? {
            return Err(Error::invalid(format!("{key} is given twice")));
        }
        Ok(())
    }

    /// The given values, the narrower key before the wider, then `base`, then the defaults.
    fn over(self, base: Option<&Spec>) -> Result<Spec> {
        let missing = |key: &str| {
            Error::invalid(format!("{key} is missing; give capacity and bandwidth, or a profile"))
        };
        let of_base = |field: fn(&Spec) -> u64| base.map(field);
        let wide = self.bandwidth;
        let latency = |narrow: Option<Duration>, field: fn(&Spec) -> Duration| {
            narrow.or(self.latency).or(base.map(field)).unwrap_or(LATENCY_DEFAULT)
        };
        Ok(Spec {
            capacity_bytes: self
                .capacity
                .or(of_base(|spec| spec.capacity_bytes))
                .ok_or_else(|| missing("capacity"))?,
            bandwidth_in: self
                .bandwidth_in
                .or(wide)
                .or(of_base(|spec| spec.bandwidth_in))
                .ok_or_else(|| missing("bandwidth"))?,
            bandwidth_out: self
                .bandwidth_out
                .or(wide)
                .or(of_base(|spec| spec.bandwidth_out))
                .ok_or_else(|| missing("bandwidth"))?,
            latency_in: latency(self.latency_in, |spec| spec.latency_in),
            latency_out: latency(self.latency_out, |spec| spec.latency_out),
            direct_slowdown: self
                .direct_slowdown
                .unwrap_or(base.map_or(1.0, |spec| spec.direct_slowdown)),
        })
    }
}

/// Keeps a value; whether there was one already.
fn put<T>(kept: &mut Option<T>, value: Result<T>) -> Result<bool> {
    value.map(|value| kept.replace(value).is_some())
}

/// `"4GB/s"` as bytes a second.
fn rate(text: &str) -> Result<u64> {
    let bad = || {
        Error::invalid(format!(
            "{text:?} is not a bandwidth; write bytes a second with a unit such as \"4GB/s\""
        ))
    };
    let size: Size = text.strip_suffix("/s").ok_or_else(bad)?.parse().map_err(|_| bad())?;
    Ok(size.0)
}

/// `"20us"` as a duration.
fn duration(text: &str) -> Result<Duration> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let unit = UNITS.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    unit.and_then(|(number, scale)| Some(number.trim_end().parse::<f64>().ok()? * scale))
        .filter(|nanoseconds| (0.0..1e18).contains(nanoseconds))
        .map(|nanoseconds| Duration::from_nanos(nanoseconds.round() as u64))
        .ok_or_else(|| {
            Error::invalid(format!(
                "{text:?} is not a time; write a number with a unit such as \"20us\" or \"1.5ms\""
            ))
        })
}

fn factor(text: &str) -> Result<f64> {
    text.parse().map_err(|_| {
        Error::invalid(format!("{text:?} is not a factor; write a number such as \"1.5\""))
    })
}

impl fmt::Display for Spec {
    /// In a form that parses to the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { capacity_bytes, bandwidth_in, bandwidth_out, direct_slowdown, .. } = self;
        let [latency_in, latency_out] = [self.latency_in, self.latency_out].map(|t| t.as_nanos());
        write!(f, "capacity={capacity_bytes}")?;
        write!(f, ",bandwidth_in={bandwidth_in}B/s,bandwidth_out={bandwidth_out}B/s")?;
        write!(f, ",latency_in={latency_in}ns,latency_out={latency_out}ns")?;
        write!(f, ",direct_slowdown={direct_slowdown}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_device_is_read_as_people_write_it() {
        let spec: Spec = "capacity=2GiB,bandwidth=4GB/s,latency=20us".parse().unwrap();
        assert_eq!(spec.capacity_bytes, 2 << 30);
        assert_eq!((spec.bandwidth_in, spec.bandwidth_out), (4_000_000_000, 4_000_000_000));
        assert_eq!([spec.latency_in, spec.latency_out], [Duration::from_micros(20); 2]);
        let same: Spec = " latency = 0.02ms, bandwidth=4GB/s , capacity=2048MiB ".parse().unwrap();
        assert_eq!(spec, same);
    }

    #[test]
    fn the_narrower_bandwidth_wins_wherever_it_stands() {
        for text in ["bandwidth_in=1GB/s,bandwidth=2GB/s", "bandwidth=2GB/s,bandwidth_in=1GB/s"] {
            let spec: Spec = format!("capacity=1MiB,{text}").parse().unwrap();
            assert_eq!((spec.bandwidth_in, spec.bandwidth_out), (1_000_000_000, 2_000_000_000));
        }
    }

    #[test]
    fn each_direction_has_its_own_latency_and_the_narrower_key_wins_wherever_it_stands() {
        let micro = Duration::from_micros;
        for (text, expected) in [
            ("latency_in=1us,latency=2us", [1, 2]),
            ("latency=2us,latency_out=1us", [2, 1]),
            ("latency_in=3us,latency_out=4us", [3, 4]),
            ("latency_out=4us", [10, 4]),
        ] {
            for base in ["capacity=1MiB,bandwidth=1GB/s", "v100-pcie3"] {
                let spec: Spec = format!("{base},{text}").parse().unwrap();
                assert_eq!([spec.latency_in, spec.latency_out], expected.map(micro), "{text}");
                assert_eq!(spec.speed(Direction::In).latency, micro(expected[0]));
                assert_eq!(spec.speed(Direction::Out).latency, micro(expected[1]));
            }
        }
    }

    #[test]
    fn a_profile_is_a_name_and_can_be_changed() {
        for name in Spec::profiles() {
            assert!(Spec::profile(name).unwrap().validate().is_ok(), "{name}");
        }
        let spec: Spec = "v100-pcie3".parse().unwrap();
        assert_eq!((spec.capacity_bytes, spec.bandwidth_in), (16 << 30, 12_300_000_000));
        let small: Spec = "v100-pcie3,capacity=1GiB".parse().unwrap();
        assert_eq!(small, Spec { capacity_bytes: 1 << 30, ..spec });
    }

    #[test]
    fn every_mistake_is_named_with_the_way_to_write_it() {
        for (text, part) in [
            ("", "\"\" is not a key=value pair"),
            ("capacity=1GiB", "bandwidth is missing; give capacity and bandwidth, or a profile"),
            ("bandwidth=1GB/s", "capacity is missing"),
            ("k80", "no profile \"k80\"; write one of v100-pcie3, a100-pcie4, h100-pcie5"),
            ("capacity=1GiB,v100-pcie3", "only a profile's name, in front"),
            ("capacity=1GiB,bandwith=1GB/s", "unknown key \"bandwith\"; keys are capacity,"),
            ("capacity=1GiB,bandwidth=1GB", "bad bandwidth: \"1GB\" is not a bandwidth"),
            ("capacity=1GiB,bandwidth=4", "such as \"4GB/s\""),
            ("capacity=1GiB,bandwidth=fast/s", "is not a bandwidth"),
            ("capacity=1GiB,bandwidth=0GB/s", "a bandwidth of zero would never finish a copy"),
            ("capacity=1GiB,bandwidth=1GB/s,bandwidth_out=0B/s", "bandwidth of zero"),
            ("capacity=lots,bandwidth=1GB/s", "bad capacity: \"lots\" is not a size"),
            ("capacity=0,bandwidth=1GB/s", "capacity is 0 bytes; the least is 256"),
            ("capacity=1GiB,bandwidth=1GB/s,latency=20", "bad latency: \"20\" is not a time"),
            ("capacity=1GiB,bandwidth=1GB/s,latency=-1us", "is not a time"),
            ("capacity=1GiB,bandwidth=1GB/s,latency=nans", "is not a time"),
            ("capacity=1GiB,bandwidth=1GB/s,latency=2000s", "beyond the limit of 60s"),
            ("v100-pcie3,latency_in=20", "bad latency_in: \"20\" is not a time"),
            ("v100-pcie3,latency_out=x", "bad latency_out: \"x\" is not a time"),
            ("v100-pcie3,latency_out=61s", "a latency of 61s is beyond the limit of 60s"),
            ("v100-pcie3,latency_in=61s", "a latency of 61s is beyond the limit of 60s"),
            ("v100-pcie3,latency_in=1us,latency_in=1us", "latency_in is given twice"),
            ("v100-pcie3,latency_up=1us", "latency, latency_in, latency_out, direct_slowdown"),
            ("capacity=1GiB,capacity=2GiB,bandwidth=1GB/s", "capacity is given twice"),
            ("v100-pcie3,direct_slowdown=0.5", "write a factor from 1 to 1000000"),
            ("v100-pcie3,direct_slowdown=NaN", "write a factor from 1"),
            ("v100-pcie3,direct_slowdown=x", "\"x\" is not a factor"),
            ("v100-pcie3,", "\"\" is not a key=value pair"),
        ] {
            let error = text.parse::<Spec>().expect_err(text).to_string();
            assert!(error.contains(part), "{error}\nlacks {part}");
            assert!(error.contains("does not describe an emulated device"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_text_gives_a_device_or_an_error(text in "[a-z_=0-9,./ ]{0,40}") {
            let _ = text.parse::<Spec>();
        }

        #[test]
        fn what_is_shown_parses_to_the_same(
            capacity_bytes in 256u64..1 << 50,
            bandwidth_in in 1u64..1 << 50,
            bandwidth_out in 1u64..1 << 50,
            latencies in prop::array::uniform2(0u64..1_000_000_000),
            direct_slowdown in 1.0f64..100.0,
        ) {
            let [latency_in, latency_out] = latencies.map(Duration::from_nanos);
            let spec = Spec {
                capacity_bytes,
                bandwidth_in,
                bandwidth_out,
                latency_in,
                latency_out,
                direct_slowdown,
            };
            prop_assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
        }
    }
}
