//! One step of Adam or `AdamW` over a run of elements, in one pass over memory.
//!
//! # What is computed
//!
//! What torch's `Adam` and `AdamW` compute, in their order of operations, in `f32`:
//!
//! ```text
//!   g = ±gradient                     minus to maximize
//!   decoupled:  p = p · (1 - lr · decay)          otherwise:  g = g + decay · p
//!   m = m + (1 - β1) · (g - m)
//!   v = v · β2 + (1 - β2) · g · g
//!   p = p - lr / (1 - β1ᵗ) · m / (√v / √(1 - β2ᵗ) + ε)
//! ```
//!
//! Factors that are the same for all elements are computed in `f64` and rounded once, as torch does.
//! torch contracts some products and sums into one rounding (which ones depends on its build and on
//! the path taken), so results agree with it to the last few units, not to the last bit.
//!
//! # The same everywhere
//!
//! The arithmetic is written once, over lanes of registers, with no contraction and with
//! correctly rounded division and root only. So all levels give the same bits, and so does every
//! way to cut a tensor into runs: results depend neither on the machine nor on the number of
//! threads. (Payloads of NaNs may differ.)
//!
//! # Halves
//!
//! A parameter of 16 bits has a *master* of 32, in which small updates add up. The parameter is
//! the truth and the master carries the bits below it: where the two disagree, somebody has set
//! the parameter since (loaded weights, clipped them), and the step goes on from there. So a master
//! needs no initial value, and can't bring back what was overwritten. The comparison is free: the
//! line of the parameter is fetched anyhow in order to be written.

#![expect(clippy::inline_always, reason = "only the kernels may use their level's instructions")]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod lanes;
mod portable;
#[cfg(test)]
mod tests;

use super::Level;
use super::level::Usable;
use crate::dtype::Dtype;
use crate::error::{Error, Kind, Result};

/// The settings of an optimizer, by torch's names.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// The learning rate.
    pub lr: f64,
    /// How slowly the two moments forget.
    pub betas: (f64, f64),
    /// What keeps the quotient finite.
    pub eps: f64,
    /// How fast weights shrink.
    pub weight_decay: f64,
    /// Whether decay goes past the moments, as in `AdamW`; otherwise it is part of the gradient.
    pub decoupled: bool,
    /// Whether to climb.
    pub maximize: bool,
}

impl Settings {
    /// What a step with this number, counted from one, multiplies by.
    pub fn at(&self, step: f64) -> Factors {
        let (beta1, beta2) = self.betas;
        let decay = self.lr * self.weight_decay;
        let towards = 1.0 - beta1;
        Factors {
            sign: if self.maximize { -1.0 } else { 1.0 },
            shrink: if self.decoupled { (1.0 - decay) as f32 } else { 1.0 },
            pull: if self.decoupled { 0.0 } else { self.weight_decay as f32 },
            towards: towards as f32,
            keep: beta2 as f32,
            add: (1.0 - beta2) as f32,
            root: (1.0 - beta2.powf(step)).sqrt() as f32,
            eps: self.eps as f32,
            stride: -(self.lr / (1.0 - beta1.powf(step))) as f32,
        }
    }
}

/// What the elements of a step are multiplied by: the same for all of them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Factors {
    sign: f32,
    /// Of the parameter, before the step.
    shrink: f32,
    /// Of the parameter, into the gradient.
    pull: f32,
    /// From the first moment to the gradient.
    towards: f32,
    keep: f32,
    add: f32,
    root: f32,
    eps: f32,
    /// Against the gradient, and so mostly negative.
    stride: f32,
}

/// Elements that take a step: bytes of equally many elements, of any alignment.
#[derive(Debug)]
pub struct Run<'a> {
    /// `f32`, `f16` or `bf16`.
    pub dtype: Dtype,
    /// What is trained.
    pub parameter: &'a mut [u8],
    /// `f32`, `f16` or `bf16`, whatever the parameter is.
    pub gradient_dtype: Dtype,
    /// Where to go.
    pub gradient: &'a [u8],
    /// The mean of gradients, as `f32`.
    pub first: &'a mut [u8],
    /// The mean of their squares, as `f32`.
    pub second: &'a mut [u8],
    /// The parameter as `f32`; for halves only, and empty for others.
    pub master: &'a mut [u8],
}

impl Run<'_> {
    /// How many elements there are.
    pub fn elements(&self) -> usize {
        self.first.len() / 4
    }

    /// Whether all have equally many elements, of types that take steps.
    pub fn check(&self) -> Result<()> {
        for dtype in [self.dtype, self.gradient_dtype] {
            if !matches!(dtype, Dtype::F32 | Dtype::F16 | Dtype::Bf16) {
                let message = "only float32, bfloat16 and float16 take steps";
                return Err(Error::new(Kind::Unsupported, message).with("dtype", dtype.name()));
            }
        }
        let elements = self.elements();
        let master = if self.dtype == Dtype::F32 { 0 } else { elements * 4 };
        let expected = [
            ("parameter", self.parameter.len(), elements * self.dtype.bytes() as usize),
            ("gradient", self.gradient.len(), elements * self.gradient_dtype.bytes() as usize),
            ("first moment", self.first.len(), elements * 4),
            ("second moment", self.second.len(), elements * 4),
            ("master", self.master.len(), master),
        ];
        match expected.into_iter().find(|(_, found, expected)| found != expected) {
            None => Ok(()),
            Some((what, found, expected)) => {
                let message = "what takes a step together must have equally many elements";
                let error = Error::invalid(message).with("of", what);
                Err(error.with("bytes", found).with("expected", expected))
            }
        }
    }

    /// The first so many elements, and the others; there are as many, and the run was
    /// [checked](Self::check).
    #[must_use]
    pub fn split_at(self, elements: usize) -> (Self, Self) {
        let (dtype, gradient_dtype) = (self.dtype, self.gradient_dtype);
        let narrow = elements * dtype.bytes() as usize;
        let (parameter, parameter_rest) = self.parameter.split_at_mut(narrow);
        let narrow = elements * gradient_dtype.bytes() as usize;
        let (gradient, gradient_rest) = self.gradient.split_at(narrow);
        let (first, first_rest) = self.first.split_at_mut(elements * 4);
        let (second, second_rest) = self.second.split_at_mut(elements * 4);
        let master_at = if self.master.is_empty() { 0 } else { elements * 4 };
        let (master, master_rest) = self.master.split_at_mut(master_at);
        let front = Run { dtype, parameter, gradient_dtype, gradient, first, second, master };
        let back = Run {
            dtype,
            parameter: parameter_rest,
            gradient_dtype,
            gradient: gradient_rest,
            first: first_rest,
            second: second_rest,
            master: master_rest,
        };
        (front, back)
    }
}

/// Takes a step with the best instructions of this processor.
pub fn step(factors: &Factors, run: Run<'_>) -> Result<()> {
    step_with(Usable::best(), factors, run)
}

/// [`step`] with the instructions of `level`.
pub fn step_at(level: Level, factors: &Factors, run: Run<'_>) -> Result<()> {
    step_with(level.check()?, factors, run)
}

fn step_with(usable: Usable, factors: &Factors, run: Run<'_>) -> Result<()> {
    let run = Checked::new(run)?;
    let kernel: Kernel = match usable.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::step,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::step,
        _ => portable::step,
    };
    // SAFETY: kernels ask only that the processor has their level, which `Usable` proves.
    unsafe { kernel(factors, run) };
    Ok(())
}

type Kernel = unsafe fn(&Factors, Checked<'_>);

/// A [`Run`] that was checked.
struct Checked<'a> {
    elements: usize,
    run: Run<'a>,
}

impl<'a> Checked<'a> {
    fn new(run: Run<'a>) -> Result<Self> {
        run.check()?;
        Ok(Self { elements: run.elements(), run })
    }
}
