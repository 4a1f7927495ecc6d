//! How many bytes a kernel reads in place: one rule, for profiles that are modelled and for those of an
//! emulated device, where nothing but a rule can say it.
//!
//! A product of a matrix with many rows of input is worked on in parts, and each part reads the matrix: from the
//! device's memory that costs nothing beside the arithmetic, over the link it does. A table is different: only
//! rows that are looked up are read.

/// Rows of input that parameters in host memory are read once for: what of a product the device works on at a
/// time.
pub const ROWS_AT_ONCE: u64 = 1024;

/// Bytes that cross the link when `bytes` of parameters are used for so many rows of input.
pub fn read_bytes(bytes: u64, rows: u64) -> u64 {
    bytes.saturating_mul(rows.div_ceil(ROWS_AT_ONCE))
}

/// Bytes that cross the link when rows of `row_bytes` each are looked up in a table of `bytes`.
pub fn looked_up_bytes(bytes: u64, row_bytes: u64, rows: u64) -> u64 {
    row_bytes.saturating_mul(rows).min(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_once_for_each_part_of_the_rows() {
        let read = |rows| read_bytes(1000, rows);
        assert_eq!([0, 1, 8, 1024, 1025, 8192].map(read), [0, 1000, 1000, 1000, 2000, 8000]);
        assert_eq!(read_bytes(u64::MAX, 8192), u64::MAX);
    }

    #[test]
    fn a_table_is_read_as_far_as_it_is_looked_up() {
        assert_eq!(looked_up_bytes(1000, 10, 7), 70);
        assert_eq!(looked_up_bytes(1000, 10, 8192), 1000);
        assert_eq!(looked_up_bytes(1000, u64::MAX, 8192), 1000);
    }
}
