//! The choice beside all that can be.

use super::*;
use crate::random::SplitMix64;

fn total(items: &[Item], chosen: &[bool]) -> (u64, f64) {
    let those = items.iter().zip(chosen).filter(|(_, chosen)| **chosen);
    those.fold((0, 0.0), |sum, (item, _)| (sum.0 + item.bytes, sum.1 + item.seconds))
}

fn best_seconds(items: &[Item], reserve: u64) -> f64 {
    let all = 0..1u32 << items.len();
    let seconds = all.map(|set| {
        let chosen: Vec<bool> = (0..items.len()).map(|item| set >> item & 1 == 1).collect();
        let (bytes, seconds) = total(items, &chosen);
        if bytes <= reserve { seconds } else { 0.0 }
    });
    seconds.fold(0.0, f64::max)
}

fn items(random: &mut SplitMix64, count: usize) -> Vec<Item> {
    let sizes = random.below(3);
    let item = |_| {
        let bytes = match sizes {
            0 => 1 + random.below(8),
            1 => random.below(4) * 1000,
            _ => random.factor(1e3, 1e9) as u64,
        };
        let seconds = if random.likely(0.1) { 0.0 } else { bytes as f64 * random.unit() };
        Item { bytes, seconds }
    };
    (0..count).map(item).collect()
}

#[test]
fn the_choice_saves_as_much_as_the_best_of_all() {
    for seed in 0..4000 {
        let mut random = SplitMix64::new(seed);
        let count = random.place(13);
        let items = items(&mut random, count);
        let everything: u64 = items.iter().map(|item| item.bytes).sum();
        let reserve = (everything as f64 * random.unit()) as u64;
        let (bytes, seconds) = total(&items, &choose(&items, reserve));
        assert!(bytes <= reserve, "seed {seed}");
        let best = best_seconds(&items, reserve);
        assert!((seconds - best).abs() <= 1e-9 * best, "seed {seed}: {seconds} for {best}");
    }
}

#[test]
fn a_thousand_layers_are_as_good_as_a_table_of_bytes_says() {
    for seed in 0..6 {
        let mut random = SplitMix64::new(seed);
        let item = |_| Item { bytes: 1 + random.below(40), seconds: random.unit() };
        let items: Vec<Item> = (0..1000).map(item).collect();
        let reserve = 5000;
        // The paper's table.
        let mut table = vec![0.0f64; reserve + 1];
        for item in &items {
            for bytes in (item.bytes as usize..=reserve).rev() {
                table[bytes] = table[bytes].max(table[bytes - item.bytes as usize] + item.seconds);
            }
        }
        let (bytes, seconds) = total(&items, &choose(&items, reserve as u64));
        assert!(bytes <= reserve as u64);
        assert!((seconds - table[reserve]).abs() < 1e-6, "{seconds} for {}", table[reserve]);
    }
}

#[test]
fn what_fits_stays_and_nothing_stays_without_a_reserve() {
    let items = [Item { bytes: 5, seconds: 0.0 }, Item { bytes: 7, seconds: 2.0 }];
    assert_eq!(choose(&items, 12), [true, true]);
    assert_eq!(choose(&items, 11), [false, true]);
    assert_eq!(choose(&items, 0), [false, false]);
    assert_eq!(choose(&[], 0), [false; 0]);
}
