//! Many ratios in five numbers.

/// Quartiles, 90 % and the most; ones if there are none.
pub(crate) fn quantiles(values: impl Iterator<Item = f64>) -> [f64; 5] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [0.25, 0.5, 0.75, 0.9, 1.0].map(|part| {
        let place = (part * values.len().saturating_sub(1) as f64).round() as usize;
        values.get(place).copied().unwrap_or(1.0)
    })
}
