//! How many threads load for whom.

/// The paper's algorithm 1: the threads that each consumer alone would want, at most `threads`.
///
/// `difference` is what is left of a consumer's training time after loading with so many threads and
/// preparing; negative means too slow, and it must not fall with more threads. Starting from a share in
/// proportion to its queue, the count is bisected until the difference is within `tolerance`, and that of
/// the smallest difference is kept (the paper prints the comparison the other way round). The values
/// tried are remembered in a window of at most `threads`; a count that comes again ends the search, for
/// the bounds have met. Every consumer begins with the whole range.
pub fn wanted(
    threads: usize,
    queues: &[u64],
    tolerance: f64,
    difference: impl Fn(usize, usize) -> f64,
) -> Vec<usize> {
    let search = |(consumer, start): (usize, usize)| match start {
        0 => 0,
        _ => bisect(threads, start, tolerance, |count| difference(consumer, count)),
    };
    proportional(threads, queues).into_iter().enumerate().map(search).collect()
}

fn bisect(
    threads: usize,
    start: usize,
    tolerance: f64,
    difference: impl Fn(usize) -> f64,
) -> usize {
    let (mut low, mut high) = (0, threads.max(1));
    let mut window = vec![(start, difference(start))];
    while let Some((count, late)) = window.last().copied()
        && late.abs() >= tolerance
        && window.len() < threads
    {
        // Towards the bound that was not tried: the middle of neighbours is one of them.
        let next = if late < 0.0 {
            low = count;
            low + (high - low).div_ceil(2)
        } else {
            high = count;
            (low + (high - low) / 2).max(1)
        };
        if window.iter().any(|(tried, _)| *tried == next) {
            break;
        }
        window.push((next, difference(next)));
    }
    let nearest = window.iter().min_by(|a, b| a.1.abs().total_cmp(&b.1.abs()));
    nearest.map_or(start, |(count, _)| *count)
}

/// Shares in proportion to the queues, at least one for each that has something in it.
pub fn proportional(threads: usize, queues: &[u64]) -> Vec<usize> {
    let most = most(threads, queues);
    share(threads, &most, |consumer, count| queues[consumer] as f64 / (count + 1) as f64)
}

/// The share that leaves nobody further behind than need be: one thread after another goes to the
/// consumer whose `need`, with what it has, is greatest. Where needs fall with every thread, no other
/// share of that many has a smaller greatest need. Nobody gets more than `most`, or nothing while that
/// is not zero; so the sum is at most `threads`, or the number of those with work.
pub fn share(threads: usize, most: &[usize], need: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    let mut counts: Vec<usize> = most.iter().map(|most| (*most).min(1)).collect();
    for _ in counts.iter().sum::<usize>()..threads {
        let open = (0..counts.len()).filter(|consumer| counts[*consumer] < most[*consumer]);
        let neediest = open
            .max_by(|a, b| need(*a, counts[*a]).total_cmp(&need(*b, counts[*b])).then(b.cmp(a)));
        let Some(neediest) = neediest else { break };
        counts[neediest] += 1;
    }
    counts
}

/// All threads for those that have work, none for the others.
pub fn most(threads: usize, queues: &[u64]) -> Vec<usize> {
    queues.iter().map(|queue| if *queue > 0 { threads } else { 0 }).collect()
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn shares_are_in_proportion_to_the_queues() {
        assert_eq!(proportional(12, &[300, 100, 0, 200]), [6, 2, 0, 4]);
        assert_eq!(proportional(3, &[1_000_000, 1, 1]), [1, 1, 1], "nobody with work goes without");
        assert_eq!(proportional(4, &[0, 0]), [0, 0]);
    }

    #[test]
    fn the_count_whose_difference_is_smallest_is_kept() {
        // Loading takes 12 seconds of one thread, training 2.5: five threads miss it by 0.1.
        let wanted = |queue: &[u64]| wanted(16, queue, 1e-3, |_, count| 2.5 - 12.0 / count as f64);
        assert_eq!(wanted(&[1]), [5], "from too many");
        assert_eq!(wanted(&[1, 1000]), [5, 5], "from one, and from nearly all");
    }

    #[test]
    fn all_threads_are_wanted_where_even_they_are_too_few() {
        assert_eq!(wanted(7, &[1, 9], 1e-3, |_, count| -100.0 / count as f64), [7, 7]);
        assert_eq!(wanted(1, &[1], 1e-3, |_, _| -1.0), [1]);
    }

    #[test]
    fn a_count_within_the_tolerance_is_not_searched_further() {
        assert_eq!(wanted(16, &[1, 1], 1.0, |_, count| count as f64 - 7.5), [8, 8]);
        assert_eq!(wanted(16, &[3, 1], 1.0, |_, count| count as f64 - 11.5), [12, 11]);
    }

    #[test]
    fn bounds_are_restored_for_the_next_consumer() {
        let needs = [15.0, 2.0, 9.0];
        let wanted = wanted(16, &[1, 1, 1], 1e-3, |consumer, count| count as f64 - needs[consumer]);
        assert_eq!(wanted, [15, 2, 9]);
    }

    proptest! {
        #[test]
        fn bisection_finds_what_trying_all_counts_finds(
            threads in 1usize..100, queues in prop::collection::vec(1u64..1000, 1..4),
            work in 0.1f64..100.0, train in 0.01f64..100.0,
        ) {
            let difference = |count: usize| train - work / count as f64;
            let best = (1..=threads).map(|count| difference(count).abs()).fold(f64::INFINITY, f64::min);
            for count in wanted(threads, &queues, 0.0, |_, count| difference(count)) {
                prop_assert!((1..=threads).contains(&count));
                prop_assert!(difference(count).abs() <= best);
            }
        }

        #[test]
        fn no_other_share_leaves_a_smaller_greatest_need(
            threads in 3usize..12, work in prop::array::uniform3(0.1f64..10.0),
            train in prop::array::uniform3(0.0f64..5.0),
        ) {
            let need = |consumer: usize, count: usize| work[consumer] / count as f64 - train[consumer];
            let greatest = |counts: &[usize]| {
                counts.iter().enumerate().map(|(at, n)| need(at, *n)).fold(f64::MIN, f64::max)
            };
            let shared = share(threads, &[threads; 3], need);
            prop_assert_eq!(shared.iter().sum::<usize>(), threads);
            for first in 1..threads - 1 {
                for second in 1..threads - first {
                    let other = [first, second, threads - first - second];
                    prop_assert!(greatest(&shared) <= greatest(&other), "{:?}", other);
                }
            }
        }

        #[test]
        fn nobody_gets_more_than_the_most_and_the_sum_is_bounded(
            threads in 0usize..20, most in prop::collection::vec(0usize..8, 0..6),
        ) {
            let counts = share(threads, &most, |at, count| (at * 7 % 5) as f64 / (count + 1) as f64);
            let working = most.iter().filter(|most| **most > 0).count();
            prop_assert!(counts.iter().sum::<usize>() <= threads.max(working));
            for (count, most) in counts.iter().zip(&most) {
                prop_assert!(count <= most && (*count > 0) == (*most > 0));
            }
        }
    }
}
