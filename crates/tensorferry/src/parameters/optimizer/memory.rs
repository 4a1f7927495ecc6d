//! Steps over tensors that are all in memory.
//!
//! Threads take portions of equal size from a queue over all tensors: a large tensor is cut, small
//! ones go together. So neither one large tensor nor thousands of small ones keep threads idle or
//! busy with one another.

use std::vec;

use crate::codec::adam::{self, Factors, Run};
use crate::error::Result;
use crate::memory::{Buffer, Named, Priority};
use crate::sync::{Mutex, lock};
use crate::threads::on_threads;

/// Elements that a thread takes at once: their bytes fit into its cache.
const PORTION_ELEMENTS: usize = 32 << 10;

/// Elements that are worth the start of another thread.
const THREAD_ELEMENTS_MIN: usize = 128 << 10;

/// More threads than this only wait for memory.
const THREADS_MAX: usize = 32;

/// What moments and masters in memory take.
static STATE: Named = Named::new("optimizer state", Priority::Needed);

/// Memory for the state of an optimizer: zeros, in huge pages where there are some.
pub fn zeroed(bytes: usize) -> Result<Buffer> {
    Buffer::zeroed_by(&STATE, bytes)
}

/// A tensor that takes a step.
#[derive(Debug)]
pub struct Tensor<'a> {
    /// What errors call it.
    pub name: &'a str,
    /// What it is multiplied by.
    pub factors: Factors,
    /// Its memory.
    pub run: Run<'a>,
}

/// Takes a step with every tensor, on at most so many threads; with none if one of them is not as
/// it should be.
pub fn step(tensors: Vec<Tensor<'_>>, threads: usize) -> Result<()> {
    for Tensor { name, run, .. } in &tensors {
        run.check().map_err(|error| error.with("parameter", name))?;
    }
    let elements: usize = tensors.iter().map(|tensor| tensor.run.elements()).sum();
    let useful = (elements / THREAD_ELEMENTS_MIN).clamp(1, THREADS_MAX);
    let queue = Mutex::new(Queue { rest: tensors.into_iter(), current: None });
    on_threads(threads.clamp(1, useful), || {
        loop {
            let portion = lock(&queue).next();
            if portion.is_empty() {
                return Ok(());
            }
            portion.into_iter().try_for_each(|tensor| adam::step(&tensor.factors, tensor.run))?;
        }
    })?;
    Ok(())
}

struct Queue<'a> {
    rest: vec::IntoIter<Tensor<'a>>,
    /// What is left of a tensor that was cut.
    current: Option<Tensor<'a>>,
}

impl<'a> Queue<'a> {
    /// The next [`PORTION_ELEMENTS`], or what is left.
    fn next(&mut self) -> Vec<Tensor<'a>> {
        let (mut portion, mut room) = (Vec::new(), PORTION_ELEMENTS);
        while room > 0
            && let Some(tensor) = self.current.take().or_else(|| self.rest.next())
        {
            let elements = tensor.run.elements();
            if elements <= room {
                room -= elements;
                portion.push(tensor);
                continue;
            }
            let (front, back) = tensor.run.split_at(room);
            portion.push(Tensor { run: front, ..tensor });
            self.current = Some(Tensor { run: back, ..tensor });
            room = 0;
        }
        portion
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;
    use crate::codec::adam::Settings;
    use crate::dtype::Dtype;
    use crate::error::Kind;

    const SETTINGS: Settings = Settings {
        lr: 0.1,
        betas: (0.9, 0.999),
        eps: 1e-8,
        weight_decay: 0.0,
        decoupled: true,
        maximize: false,
    };

    /// Parameter, gradient and both moments.
    fn memory(elements: usize, seed: usize) -> [Vec<u8>; 4] {
        let number = |at: usize| ((at * 7919 + seed * 31) % 1000) as f32 / 500.0 - 1.0;
        let numbers = (0..elements).flat_map(|at| number(at).to_le_bytes()).collect::<Vec<_>>();
        [numbers.clone(), numbers, vec![0; elements * 4], vec![0; elements * 4]]
    }

    fn tensor(memory: &mut [Vec<u8>; 4]) -> Tensor<'_> {
        let [parameter, gradient, first, second] = memory;
        let run = Run {
            dtype: Dtype::F32,
            parameter,
            gradient_dtype: Dtype::F32,
            gradient,
            first,
            second,
            master: &mut [],
        };
        Tensor { name: "w", factors: SETTINGS.at(1.0), run }
    }

    #[test]
    fn large_and_small_tensors_take_the_same_steps_on_any_number_of_threads() {
        let sizes = [300_001, 3, 0, 70_000, 1, 17, 500_000];
        let sizes = sizes.into_iter().chain(std::iter::repeat_n(100, 300));
        let before: Vec<_> = sizes.enumerate().map(|(seed, size)| memory(size, seed)).collect();
        let after = |threads| {
            let mut all = before.clone();
            step(all.iter_mut().map(tensor).collect(), threads).unwrap();
            all
        };
        let alone = after(1);
        for (before, after) in before.iter().zip(&alone) {
            assert_eq!(before[1], after[1]);
            assert!(before[0].is_empty() || before[0] != after[0]);
        }
        assert!(after(2) == alone && after(7) == alone && after(0) == alone);
    }

    #[test]
    fn one_bad_tensor_keeps_all_from_stepping() {
        let (mut good, mut bad) = (memory(10, 0), memory(10, 1));
        let before = good.clone();
        bad[3].truncate(20);
        let error = step(vec![tensor(&mut good), tensor(&mut bad)], 2).unwrap_err();
        assert_eq!(error.kind(), Kind::InvalidInput);
        assert!(error.to_string().contains("second moment"), "{error}");
        assert!(error.to_string().contains("parameter: w"), "{error}");
        assert!(good == before);
    }
}
