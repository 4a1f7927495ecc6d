//! The arithmetic, once for all levels.
//!
//! A kernel is [`all`] over the registers of its level. Everything here is inlined into it, because
//! only there the instructions of the level may be used.
//!
//! All numbers of a register are read before the first is written: tensors often lie at the same place
//! of different pages, where a processor takes a read for one of what was just written, and waits.
//! Lines are asked for a little ahead of their use. Either was measured to help (by a fifth, and by a
//! twentieth); writing past the caches can't, since all that is written was read.

use super::{Checked, Factors, Run};
use crate::dtype::Dtype;

/// Several `f32`s side by side.
///
/// # Safety
///
/// All functions are called from a function with the level's instructions only. Pointers are valid
/// for `WIDTH` elements of the type that is moved, at any alignment.
pub(super) trait Lanes: Copy {
    /// As many halves.
    type Halves: Copy;
    /// How many.
    const WIDTH: usize;

    unsafe fn splat(number: f32) -> Self;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, into: *mut u8);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    unsafe fn sqrt(self) -> Self;

    unsafe fn load_halves(from: *const u8) -> Self::Halves;
    unsafe fn store_halves(halves: Self::Halves, into: *mut u8);
    unsafe fn f16_of(self) -> Self::Halves;
    unsafe fn bf16_of(self) -> Self::Halves;
    unsafe fn of_f16(halves: Self::Halves) -> Self;
    unsafe fn of_bf16(halves: Self::Halves) -> Self;
    /// Asks for the line of an address, which need not be valid.
    unsafe fn prefetch(from: *const u8);
    /// `self` where the halves are the same bits, `other` elsewhere.
    unsafe fn where_same(self, other: Self, halves: [Self::Halves; 2]) -> Self;
}

/// How numbers lie in memory.
///
/// # Safety
///
/// As for [`Lanes`].
trait Numbers {
    const BYTES: usize;
    unsafe fn load<L: Lanes>(from: *const u8) -> L;
}

/// A parameter and, for halves, its master.
///
/// # Safety
///
/// As for [`Lanes`].
trait Parameter: Numbers {
    /// The number to go on from.
    unsafe fn read<L: Lanes>(parameter: *const u8, master: *const u8) -> L;
    unsafe fn write<L: Lanes>(number: L, parameter: *mut u8, master: *mut u8);
}

struct F32;
struct F16;
struct Bf16;

impl Numbers for F32 {
    const BYTES: usize = 4;

    #[inline(always)]
    unsafe fn load<L: Lanes>(from: *const u8) -> L {
        // SAFETY: as for this function.
        unsafe { L::load(from) }
    }
}

impl Parameter for F32 {
    #[inline(always)]
    unsafe fn read<L: Lanes>(parameter: *const u8, _master: *const u8) -> L {
        // SAFETY: as for this function.
        unsafe { L::load(parameter) }
    }

    #[inline(always)]
    unsafe fn write<L: Lanes>(number: L, parameter: *mut u8, _master: *mut u8) {
        // SAFETY: as for this function.
        unsafe { number.store(parameter) }
    }
}

/// Both kinds of halves, by their conversions.
macro_rules! halves {
    ($name:ident, $narrow:ident, $widen:ident) => {
        impl Numbers for $name {
            const BYTES: usize = 2;

            #[inline(always)]
            unsafe fn load<L: Lanes>(from: *const u8) -> L {
                // SAFETY: as for this function.
                unsafe { L::$widen(L::load_halves(from)) }
            }
        }

        impl Parameter for $name {
            #[inline(always)]
            unsafe fn read<L: Lanes>(parameter: *const u8, master: *const u8) -> L {
                // SAFETY: as for this function.
                unsafe {
                    let (truth, master) = (L::load_halves(parameter), L::load(master));
                    master.where_same(L::$widen(truth), [master.$narrow(), truth])
                }
            }

            #[inline(always)]
            unsafe fn write<L: Lanes>(number: L, parameter: *mut u8, master: *mut u8) {
                // SAFETY: as for this function.
                unsafe {
                    L::store_halves(number.$narrow(), parameter);
                    number.store(master);
                }
            }
        }
    };
}

halves!(F16, f16_of, of_f16);
halves!(Bf16, bf16_of, of_bf16);

/// Takes the step.
///
/// # Safety
///
/// As for [`Lanes`]: inlined into a function with the level's instructions.
#[inline(always)]
pub(super) unsafe fn all<L: Lanes>(factors: &Factors, run: Checked<'_>) {
    // SAFETY: as for this function.
    unsafe {
        match run.run.dtype {
            Dtype::F16 => with_parameter::<L, F16>(factors, run),
            Dtype::Bf16 => with_parameter::<L, Bf16>(factors, run),
            _ => with_parameter::<L, F32>(factors, run),
        }
    }
}

/// # Safety
///
/// As for [`all`], and the parameter is of type `P`.
#[inline(always)]
unsafe fn with_parameter<L: Lanes, P: Parameter>(factors: &Factors, run: Checked<'_>) {
    // SAFETY: as for this function.
    unsafe {
        match run.run.gradient_dtype {
            Dtype::F16 => over::<L, P, F16>(factors, run),
            Dtype::Bf16 => over::<L, P, Bf16>(factors, run),
            _ => over::<L, P, F32>(factors, run),
        }
    }
}

/// The pieces of memory that a register's worth of elements is in.
#[derive(Clone, Copy)]
struct Place {
    parameter: *mut u8,
    gradient: *const u8,
    first: *mut u8,
    second: *mut u8,
    master: *mut u8,
}

impl Place {
    fn of(run: &mut Run<'_>) -> Self {
        Self {
            parameter: run.parameter.as_mut_ptr(),
            gradient: run.gradient.as_ptr(),
            first: run.first.as_mut_ptr(),
            second: run.second.as_mut_ptr(),
            master: run.master.as_mut_ptr(),
        }
    }

    /// Asks for what is so many elements further, if it is there.
    ///
    /// # Safety
    ///
    /// As for [`Lanes`].
    #[inline(always)]
    unsafe fn prefetch<L: Lanes, P: Parameter, G: Numbers>(self, elements: usize) {
        // SAFETY: as for this function; the addresses need not be valid.
        unsafe {
            L::prefetch(self.parameter.wrapping_add(elements * P::BYTES));
            L::prefetch(self.gradient.wrapping_add(elements * G::BYTES));
            L::prefetch(self.first.wrapping_add(elements * 4));
            L::prefetch(self.second.wrapping_add(elements * 4));
            if P::BYTES == 2 {
                L::prefetch(self.master.wrapping_add(elements * 4));
            }
        }
    }

    /// So many elements further. Without a master its pointer says nothing, and is not used.
    ///
    /// # Safety
    ///
    /// There are so many elements.
    #[inline(always)]
    unsafe fn at<P: Parameter, G: Numbers>(self, elements: usize) -> Self {
        // SAFETY: as for this function.
        unsafe {
            Self {
                parameter: self.parameter.add(elements * P::BYTES),
                gradient: self.gradient.add(elements * G::BYTES),
                first: self.first.add(elements * 4),
                second: self.second.add(elements * 4),
                master: self.master.wrapping_add(elements * 4),
            }
        }
    }
}

/// The most bytes that a register's worth of elements takes.
const SPARE_BYTES: usize = 64;

/// Elements of a line of the cache, at full width.
const LINE: usize = 16;

/// How far ahead lines are asked for, in elements.
const AHEAD: usize = 256;

/// # Safety
///
/// As for [`all`], and parameter and gradient are of these types.
#[inline(always)]
unsafe fn over<L: Lanes, P: Parameter, G: Numbers>(factors: &Factors, mut run: Checked<'_>) {
    let registers = Registers::<L>::of(factors);
    let start = Place::of(&mut run.run);
    let whole = run.elements / L::WIDTH * L::WIDTH;
    // SAFETY: `Checked` has seen that all slices have as many elements as the first moment, which
    // are at least `whole`.
    unsafe {
        // The usual settings without a branch for the others.
        if registers.pull.is_none() && registers.back.is_none() {
            let usual = Registers { pull: None, back: None, ..registers };
            usual.steps::<P, G>(start, whole);
        } else {
            registers.steps::<P, G>(start, whole);
        }
    }
    let left = run.elements - whole;
    if left > 0 {
        // SAFETY: as for this function; fewer elements are left than a register has.
        unsafe { registers.last::<P, G>(&mut run.run, left) };
    }
}

/// The last bytes, or none of nothing.
fn tail(bytes: &mut [u8], len: usize) -> &mut [u8] {
    let start = bytes.len().saturating_sub(len);
    &mut bytes[start..]
}

/// [`Factors`] in all lanes.
#[derive(Clone, Copy)]
struct Registers<L> {
    sign: L,
    shrink: L,
    pull: Option<L>,
    towards: L,
    /// Close to the gradient, the mean is computed from there, as torch does.
    back: Option<L>,
    keep: L,
    add: L,
    root: L,
    eps: L,
    stride: L,
}

impl<L: Lanes> Registers<L> {
    #[inline(always)]
    fn of(factors: &Factors) -> Self {
        // SAFETY: inlined where the level's instructions may be used.
        let splat = |number| unsafe { L::splat(number) };
        Self {
            sign: splat(factors.sign),
            shrink: splat(factors.shrink),
            pull: (factors.pull != 0.0).then(|| splat(factors.pull)),
            towards: splat(factors.towards),
            back: (factors.towards.abs() >= 0.5).then(|| splat(1.0 - factors.towards)),
            keep: splat(factors.keep),
            add: splat(factors.add),
            root: splat(factors.root),
            eps: splat(factors.eps),
            stride: splat(factors.stride),
        }
    }

    /// As many elements, which are whole registers.
    ///
    /// # Safety
    ///
    /// As for [`Lanes`], and there are so many elements.
    #[inline(always)]
    unsafe fn steps<P: Parameter, G: Numbers>(self, start: Place, elements: usize) {
        let mut done = 0;
        while done + LINE <= elements {
            // SAFETY: as for this function.
            unsafe {
                start.prefetch::<L, P, G>(done + AHEAD);
                for register in 0..LINE / L::WIDTH {
                    self.step::<P, G>(start.at::<P, G>(done + register * L::WIDTH));
                }
            }
            done += LINE;
        }
        while done < elements {
            // SAFETY: as for this function.
            unsafe { self.step::<P, G>(start.at::<P, G>(done)) };
            done += L::WIDTH;
        }
    }

    /// The last elements of a run, fewer than a register has: they take their step in memory of
    /// their own, with whatever is beside them.
    ///
    /// # Safety
    ///
    /// As for [`Lanes`], and parameter and gradient are of these types.
    #[inline(always)]
    unsafe fn last<P: Parameter, G: Numbers>(self, run: &mut Run<'_>, left: usize) {
        let mut spare = [[0u8; SPARE_BYTES]; 5];
        let tails = [
            tail(run.parameter, left * P::BYTES),
            tail(run.first, left * 4),
            tail(run.second, left * 4),
            tail(run.master, left * 4),
        ];
        let gradient = &run.gradient[run.gradient.len() - left * G::BYTES..];
        spare[4][..gradient.len()].copy_from_slice(gradient);
        for (spare, tail) in spare.iter_mut().zip(&tails) {
            spare[..tail.len()].copy_from_slice(tail);
        }
        let [parameter, first, second, master, gradient] =
            spare.each_mut().map(|spare| spare.as_mut_ptr());
        // SAFETY: each is as long as the widest register.
        unsafe { self.step::<P, G>(Place { parameter, gradient, first, second, master }) };
        for (spare, tail) in spare.iter().zip(tails) {
            tail.copy_from_slice(&spare[..tail.len()]);
        }
    }

    /// One register's worth.
    ///
    /// # Safety
    ///
    /// As for [`Lanes`].
    #[inline(always)]
    unsafe fn step<P: Parameter, G: Numbers>(&self, place: Place) {
        // SAFETY: as for this function.
        unsafe {
            let mut parameter: L = P::read(place.parameter, place.master);
            let mut gradient = G::load::<L>(place.gradient).mul(self.sign);
            let (first, second) = (L::load(place.first), L::load(place.second));
            if let Some(pull) = self.pull {
                gradient = gradient.add(parameter.mul(pull));
            }
            parameter = parameter.mul(self.shrink);

            let way = gradient.sub(first);
            let first = match self.back {
                None => first.add(way.mul(self.towards)),
                Some(back) => gradient.sub(way.mul(back)),
            };
            let second = second.mul(self.keep).add(gradient.mul(self.add).mul(gradient));

            let scale = second.sqrt().div(self.root).add(self.eps);
            let number = parameter.add(first.mul(self.stride).div(scale));
            first.store(place.first);
            second.store(place.second);
            P::write(number, place.parameter, place.master);
        }
    }
}
