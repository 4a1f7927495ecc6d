//! Every way to choose.

/// One of each list, in every way there is.
pub(crate) fn combinations<T: Copy>(lists: &[Vec<T>]) -> impl Iterator<Item = Vec<T>> {
    (0..lists.iter().map(Vec::len).product()).map(|number: usize| {
        let mut rest = number;
        let pick = |list: &Vec<T>| {
            let picked = list[rest % list.len()];
            rest /= list.len();
            picked
        };
        lists.iter().map(pick).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::combinations;

    #[test]
    fn every_combination_comes_once() {
        let all: Vec<_> = combinations(&[vec![1, 2], vec![3], vec![4, 5]]).collect();
        assert_eq!(all, [[1, 3, 4], [2, 3, 4], [1, 3, 5], [2, 3, 5]]);
        assert_eq!(combinations::<u8>(&[]).count(), 1);
        assert_eq!(combinations(&[vec![1], vec![]]).count(), 0);
    }
}
