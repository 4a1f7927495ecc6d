//! A leaf of the tree: how a tensor of the object comes from a tensor of the file.

/// What the file says of one tensor of the object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Of the stored tensor.
    pub name: String,
    /// Torch's or NumPy's name where the text gives one, otherwise that of the stored tensor.
    pub dtype: String,
    /// Bytes of one element.
    pub itemsize: u64,
    /// How many elements in each dimension.
    pub shape: Vec<u64>,
    /// Where they lie, if not one after the other from the first stored byte on; in the shared memory,
    /// if there is one.
    pub view: Option<View>,
    /// Leaves with the same number shared their memory, and do so again: those without a view are the
    /// same tensor. Each is stored under its own name all the same.
    pub memory: Option<u64>,
    /// Whether it was a parameter of a module.
    pub parameter: bool,
    /// Whether gradients were asked for.
    pub grad: bool,
    /// Where it was.
    pub device: String,
    /// Leaves with the same number were one object, and become one again.
    pub object: Option<u64>,
}

/// Where the elements of a leaf lie in its stored tensor, inside of it, or in shared memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    /// Elements from one to the next in each dimension.
    pub stride: Vec<u64>,
    /// Bytes in front of the first.
    pub offset: u64,
}

impl View {
    /// The byte behind the last element; `None` when there is no such number.
    pub fn end(&self, shape: &[u64], itemsize: u64) -> Option<u64> {
        if shape.contains(&0) {
            return Some(self.offset);
        }
        let steps = shape.iter().zip(&self.stride);
        let last = steps.map(|(size, stride)| (size - 1).checked_mul(*stride));
        let last = last.into_iter().try_fold(0u64, |sum, step| sum.checked_add(step?))?;
        last.checked_add(1)?.checked_mul(itemsize)?.checked_add(self.offset)
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_end_of_a_view_that_can_not_be_counted_is_none() {
        let end = |shape: &[u64], stride: &[u64], offset, itemsize| {
            View { stride: stride.to_vec(), offset }.end(shape, itemsize)
        };
        assert_eq!(end(&[], &[], 8, 4), Some(12));
        assert_eq!(end(&[3, 2], &[2, 1], 0, 4), Some(24));
        assert_eq!(end(&[9], &[0], 0, 4), Some(4), "one element, nine times");
        assert_eq!(end(&[u64::MAX, 0], &[u64::MAX, 1], 5, 4), Some(5));
        assert_eq!(end(&[u64::MAX], &[2], 0, 1), None);
        assert_eq!(end(&[3, 3], &[1 << 63, 1 << 63], 0, 1), None);
        assert_eq!(end(&[1], &[1], u64::MAX, 1), None);
        assert_eq!(end(&[1 << 62], &[1], 0, 4), None);
    }

    proptest! {
        #[test]
        fn no_element_of_a_view_ends_behind_its_end(
            dims in prop::collection::vec((1u64..4, 0u64..5), 0..4),
            offset in 0u64..9,
            itemsize in 1u64..17,
        ) {
            let (shape, stride): (Vec<_>, Vec<_>) = dims.iter().copied().unzip();
            let ends = dims.iter().fold(vec![0u64], |starts, (size, stride)| {
                starts.iter().flat_map(|at| (0..*size).map(move |i| at + i * stride)).collect()
            });
            let last = ends.into_iter().map(|at| offset + (at + 1) * itemsize).max();
            prop_assert_eq!(View { stride, offset }.end(&shape, itemsize), last);
        }
    }
}
