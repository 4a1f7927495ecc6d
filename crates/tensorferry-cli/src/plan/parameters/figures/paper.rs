//! What each figure compares, and what the paper says there.

use tensorferry::Result;
use tensorferry::plan::parameters::Prediction;
use tensorferry_simulate::parameters::modelled;

use super::system::{Setup, System};
use super::{Compared, Figure};

/// The paper's smaller and larger networks.
const NETWORKS: [&str; 4] = ["bert-base", "roberta", "bert-large", "gpt2-medium"];
/// Its transformers.
const SIZES: [&str; 7] = ["0.7b", "1b", "1.3b", "2.4b", "3.6b", "4.3b", "6.7b"];
/// Its machine for most figures, with `PCIe` 3.
const A100: &str = "a100-pcie3";
const V100: &str = "v100-pcie3";
const GIB: f64 = (1u64 << 30) as f64;

pub(super) fn all() -> Result<Vec<Figure>> {
    Ok(vec![
        iteration_time()?,
        utilization()?,
        reserve_factor()?,
        small_device()?,
        memory()?,
        sizes()?,
        sizes_memory()?,
        devices()?,
        batches()?,
    ])
}

/// All systems in one setup, by one of their numbers.
fn compared(name: &str, setup: &Setup, of: impl Fn(&Prediction) -> f64) -> Result<Compared> {
    let value = |system: System| Ok((system.name(), system.train(setup)?.as_ref().map(&of)));
    let values = System::ALL.into_iter().map(value).collect::<Result<_>>()?;
    Ok(Compared { name: name.into(), values })
}

fn value(compared: &Compared, system: System) -> Option<f64> {
    compared.values.iter().find(|(name, _)| *name == system.name()).and_then(|(_, value)| *value)
}

/// One system's number over another's, group by group, as text.
fn ratios(groups: &[Compared], above: System, below: System) -> String {
    let ratio = |compared: &Compared| {
        let ratio = value(compared, above).zip(value(compared, below));
        ratio.map_or("-".into(), |(above, below)| format!("{:.2}", above / below))
    };
    groups.iter().map(ratio).collect::<Vec<_>>().join(", ")
}

fn seconds(came: &Prediction) -> f64 {
    came.seconds
}

fn gibibytes(came: &Prediction) -> f64 {
    came.device_bytes as f64 / GIB
}

fn iteration_time() -> Result<Figure> {
    let setups = NETWORKS.map(|network| (network, Setup::new(network, A100, modelled::BATCH)));
    let groups = setups.into_iter().map(|(name, setup)| compared(name, &setup?, seconds));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let native = ratios(&groups, System::Native, System::Exact);
    let copy = ratios(&groups, System::Copy, System::Exact);
    Ok(Figure {
        number: "9",
        title: "overall iteration time",
        unit: "s",
        assumed: "A100, PCIe 3, batches of 8",
        paper: "MemFerry is faster than both baselines by 21.7 to 68.7 % (bert-base, roberta) and by \
                7.1 to 32.1 % (bert-large, gpt2-medium); the baselines are DeepSpeed and a ZeRO-Offload \
                of its own",
        ours: format!("zero-offload over exact {native}; all copied over exact {copy}"),
        groups,
        is_a_line: false,
    })
}

fn utilization() -> Result<Figure> {
    let setup = Setup::new("gpt2-medium", A100, modelled::BATCH)?;
    let busy = |came: &Prediction| 100.0 * (1.0 - came.idle_share());
    let groups = vec![compared("gpt2-medium", &setup, busy)?];
    let native = ratios(&groups, System::Exact, System::Native);
    let offload = ratios(&groups, System::Offload, System::Native);
    Ok(Figure {
        number: "10a",
        title: "utilization",
        unit: "%",
        assumed: "A100, PCIe 3, batches of 8; the share of the iteration in which the device computes, reading \
                  in place included",
        paper: "MemFerry is 18.5 % above DeepSpeed and 1.5 % above its own ZeRO-Offload, with gradients to \
                host 27 % above DeepSpeed",
        ours: format!("exact over zero-offload {native}, with gradients to host {offload}"),
        groups,
        is_a_line: false,
    })
}

fn reserve_factor() -> Result<Figure> {
    const STEPS: u32 = 20;
    let mut groups = Vec::new();
    for step in 0..=STEPS {
        let share = f64::from(step) / f64::from(STEPS);
        let mut values = Vec::new();
        for network in NETWORKS {
            let Setup { shape, hardware, batch, .. } = Setup::new(network, A100, modelled::BATCH)?;
            let profile = modelled::profile(&shape, &hardware, batch)?;
            let at = |share: f64| -> Result<Option<f64>> {
                let reserve = profile.reserve(share)?;
                let came =
                    System::Exact.with_reserve(&profile, reserve, hardware.capacity_bytes)?;
                Ok(came.map(|came| came.seconds))
            };
            values.push((network, at(share)?.zip(at(1.0)?).map(|(some, all)| some / all)));
        }
        groups.push(Compared { name: format!("{share:.2}"), values });
    }
    let most = |place: usize| groups[0].values[place].1.unwrap_or(f64::NAN);
    let ours = format!(
        "from {:.2}, {:.2}, {:.2} and {:.2} times as long at factor 0",
        most(0),
        most(1),
        most(2),
        most(3)
    );
    Ok(Figure {
        number: "10b",
        title: "iteration time over the reserve factor",
        unit: "over factor 1",
        assumed: "A100, PCIe 3, batches of 8",
        paper: "the more gradients may stay on the device, the shorter the iteration; the curves are convex",
        ours,
        groups,
        is_a_line: true,
    })
}

fn small_device() -> Result<Figure> {
    let mut groups = Vec::new();
    for size in SIZES {
        let setup = Setup::new(&format!("transformer-{size}"), V100, 1)?;
        groups.push(compared(size, &setup, seconds)?);
    }
    let copy = ratios(&groups, System::Copy, System::Exact);
    let native = ratios(&groups, System::Native, System::Exact);
    let offload = ratios(&groups, System::Offload, System::Native);
    Ok(Figure {
        number: "11",
        title: "training on a V100 with 32 GB",
        unit: "s",
        assumed: "PCIe 3, batches of 1",
        paper: "MemFerry is 1.12 times faster; with gradients to host 3.4 % slower than the baseline; beyond 2.4b \
                only that fits, up to 1.52 times larger networks",
        ours: format!(
            "zero-offload over exact {native}; all copied over exact {copy}; gradients to host over \
             zero-offload {offload}"
        ),
        groups,
        is_a_line: false,
    })
}

fn memory() -> Result<Figure> {
    let setups = NETWORKS.map(|network| (network, Setup::new(network, A100, modelled::BATCH)));
    let groups = setups.into_iter().map(|(name, setup)| compared(name, &setup?, gibibytes));
    let groups = groups.collect::<Result<Vec<_>>>()?;
    let exact = ratios(&groups, System::Exact, System::Copy);
    let offload = ratios(&groups, System::Offload, System::Copy);
    Ok(Figure {
        number: "12",
        title: "most device memory",
        unit: "GiB",
        assumed: "batches of 8, activations of all blocks",
        paper: "MemFerry takes 40.1 % less than DeepSpeed with the smaller networks, 1.4 % less with GPT-2; 25.4 % \
                on average, 41.6 % with gradients to host",
        ours: format!("exact over all copied {exact}, with gradients to host {offload}"),
        groups,
        is_a_line: false,
    })
}

fn of_sizes(of: fn(&Prediction) -> f64) -> Result<Vec<Compared>> {
    let group = |size: &str| {
        let setup = Setup::new(&format!("transformer-{size}"), A100, modelled::BATCH)?;
        compared(size, &setup, of)
    };
    SIZES.into_iter().map(group).collect()
}

fn sizes() -> Result<Figure> {
    let groups = of_sizes(seconds)?;
    let native = ratios(&groups, System::Native, System::Exact);
    let copy = ratios(&groups, System::Copy, System::Exact);
    Ok(Figure {
        number: "13a",
        title: "iteration time by the size of the network",
        unit: "s",
        assumed: "A100, PCIe 3, batches of 8, recomputation by block",
        paper: "1.37 times faster than DeepSpeed at 1b, 1.26 times at 6.7b, 1.32 times on average",
        ours: format!("zero-offload over exact {native}; all copied over exact {copy}"),
        groups,
        is_a_line: false,
    })
}

fn sizes_memory() -> Result<Figure> {
    let groups = of_sizes(gibibytes)?;
    let offload = ratios(&groups, System::Offload, System::Copy);
    Ok(Figure {
        number: "13b",
        title: "device memory by the size of the network",
        unit: "GiB",
        assumed: "batches of 8, recomputation by block",
        paper: "with gradients to host 18 to 22 % less than DeepSpeed",
        ours: format!("gradients to host over all copied {offload}"),
        groups,
        is_a_line: false,
    })
}

fn devices() -> Result<Figure> {
    let mut groups = Vec::new();
    for devices in [1, 2, 4, 8] {
        let setup = Setup::new("transformer-4.3b", A100, modelled::BATCH / devices)?;
        groups.push(compared(&format!("{devices} devices"), &Setup { devices, ..setup }, seconds)?);
    }
    let native = ratios(&groups, System::Native, System::Exact);
    Ok(Figure {
        number: "14a",
        title: "several devices, 4.3b, one batch for all",
        unit: "s",
        assumed: "A100, each with PCIe 3 of its own; a batch of 8 is shared; the host adds the gradients up",
        paper: "5.41 s with one device, 4.12 s with eight, where it is 28.1 % faster than DeepSpeed and 19.1 % \
                faster than its own ZeRO-Offload",
        ours: format!("zero-offload over exact {native}"),
        groups,
        is_a_line: false,
    })
}

fn batches() -> Result<Figure> {
    let mut groups = Vec::new();
    for batch in [8, 16, 32, 64, 128] {
        let setup = Setup::new("transformer-6.7b", A100, batch / 8)?;
        groups.push(compared(&format!("batch {batch}"), &Setup { devices: 8, ..setup }, seconds)?);
    }
    let native = ratios(&groups, System::Native, System::Exact);
    let offload = ratios(&groups, System::Native, System::Offload);
    Ok(Figure {
        number: "14b",
        title: "larger batches on eight devices, 6.7b",
        unit: "s",
        assumed: "as 14a",
        paper: "at 128, 1.21 times faster than DeepSpeed, with gradients to host 1.16 times",
        ours: format!("zero-offload over exact {native}, over gradients to host {offload}"),
        groups,
        is_a_line: false,
    })
}
