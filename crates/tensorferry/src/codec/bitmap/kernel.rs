//! The three operations that each level has its own version of, for one width of elements.

use super::super::Level;
use super::header::BITMAP_BYTES;
use super::{ROW_ELEMENTS, ROW_OF_FOUR, ROW_OF_TWO, Usable, portable};

#[cfg(target_arch = "x86_64")]
use super::{avx2, avx512};

/// The operations on rows of `ROW` bytes. Made only by [`two`] and [`four`].
pub(super) struct Kernel<const ROW: usize> {
    compress: unsafe fn(&[u8; ROW], &mut [u8; BITMAP_BYTES], &mut [u8; ROW]) -> usize,
    expand: unsafe fn(&[u8; BITMAP_BYTES], &[u8; ROW], &mut [u8; ROW]) -> usize,
    count: unsafe fn(&[u8]) -> usize,
}

impl<const ROW: usize> Kernel<ROW> {
    /// Bytes in an element.
    pub(super) const WIDTH: usize = ROW / ROW_ELEMENTS;

    /// Moves the nonzero elements of `row` to the beginning of `room`, marks them in `bitmap` and
    /// returns how many there are. What `room` holds after them means nothing.
    #[inline]
    pub(super) fn compress(
        &self,
        row: &[u8; ROW],
        bitmap: &mut [u8; BITMAP_BYTES],
        room: &mut [u8; ROW],
    ) -> usize {
        // SAFETY: kernels ask only that the processor has their level, which `Usable` proved.
        unsafe { (self.compress)(row, bitmap, room) }
    }

    /// Spreads the elements at the beginning of `stored` to the places that `bitmap` marks, puts
    /// zeros in the others and returns how many elements it took.
    #[inline]
    pub(super) fn expand(
        &self,
        bitmap: &[u8; BITMAP_BYTES],
        stored: &[u8; ROW],
        row: &mut [u8; ROW],
    ) -> usize {
        // SAFETY: kernels ask only that the processor has their level, which `Usable` proved.
        unsafe { (self.expand)(bitmap, stored, row) }
    }

    /// How many elements of `src`, which holds whole ones, are not zero.
    pub(super) fn count(&self, src: &[u8]) -> usize {
        // SAFETY: kernels ask only that the processor has their level, which `Usable` proved.
        unsafe { (self.count)(src) }
    }
}

/// The kernel for elements of 2 bytes.
pub(super) fn two(usable: Usable) -> Kernel<ROW_OF_TWO> {
    match usable.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Kernel {
            compress: avx512::compress_two,
            expand: avx512::expand_two,
            count: avx512::count_two,
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Kernel {
            compress: avx2::compress_two,
            expand: avx2::expand_two,
            count: avx2::count_two,
        },
        _ => Kernel {
            compress: portable::compress::<2, ROW_OF_TWO>,
            expand: portable::expand::<2, ROW_OF_TWO>,
            count: portable::count_two,
        },
    }
}

/// The kernel for elements of 4 bytes.
pub(super) fn four(usable: Usable) -> Kernel<ROW_OF_FOUR> {
    match usable.level() {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => Kernel {
            compress: avx512::compress_four,
            expand: avx512::expand_four,
            count: avx512::count_four,
        },
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => Kernel {
            compress: avx2::compress_four,
            expand: avx2::expand_four,
            count: avx2::count_four,
        },
        _ => Kernel {
            compress: portable::compress::<4, ROW_OF_FOUR>,
            expand: portable::expand::<4, ROW_OF_FOUR>,
            count: portable::count_four,
        },
    }
}
