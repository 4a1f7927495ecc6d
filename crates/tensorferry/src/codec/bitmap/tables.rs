//! Shuffles for groups of eight elements, one for each way in which eight bits can be set.
//!
//! AVX2 has no instruction that compresses or expands a vector. It can move elements to places
//! named by another vector, so these tables name the places.

/// Marks a place that becomes zero. Its high bit is what both `pshufb` and `blendv` look at.
const ZERO: u8 = 0x80;

/// For each mask: which elements are kept, in order; what follows them does not matter.
pub(super) static KEPT: [[u8; 8]; 256] = {
    let mut table = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut element, mut count) = (0, 0);
        while element < 8 {
            if mask >> element & 1 == 1 {
                table[mask][count] = element;
                count += 1;
            }
            element += 1;
        }
        mask += 1;
    }
    table
};

/// For each mask: which of the stored elements each place gets, or [`ZERO`].
pub(super) static SPREAD: [[u8; 8]; 256] = {
    let mut table = [[ZERO; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut place, mut count) = (0, 0);
        while place < 8 {
            if mask >> place & 1 == 1 {
                table[mask][place] = count;
                count += 1;
            }
            place += 1;
        }
        mask += 1;
    }
    table
};

/// [`KEPT`] in bytes of elements of two bytes.
pub(super) static KEPT_PAIRS: [[u8; 16]; 256] = pairs(&KEPT);

/// [`SPREAD`] in bytes of elements of two bytes.
pub(super) static SPREAD_PAIRS: [[u8; 16]; 256] = pairs(&SPREAD);

const fn pairs(elements: &[[u8; 8]; 256]) -> [[u8; 16]; 256] {
    let mut table = [[ZERO; 16]; 256];
    let mut mask = 0;
    while mask < 256 {
        let mut place = 0;
        while place < 8 {
            let element = elements[mask][place];
            if element != ZERO {
                table[mask][2 * place] = 2 * element;
                table[mask][2 * place + 1] = 2 * element + 1;
            }
            place += 1;
        }
        mask += 1;
    }
    table
}
