//! Sets of cores, as the kernel and NVML write them.

use packhorse_model::CoreId;

/// More cores than any machine has: keeps a malformed file from filling our
/// memory.
const MAX_CORES: u32 = 1 << 16;

/// Parses the kernel's lists: `0-3,8,10-11`, in ascending order. `None` if it is not a
/// list.
pub fn parse_list(text: &str) -> Option<Vec<CoreId>> {
    let mut cores = Vec::new();
    for part in text.trim().split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_CORES {
            return None;
        }
        cores.extend((first..=last).map(CoreId));
    }
    Some(in_order(cores))
}

/// Parses NVML's sets: bit `b` of word `w` is core `w * 64 + b`.
pub(crate) fn from_words(words: &[libc::c_ulong]) -> Vec<CoreId> {
    let bits = libc::c_ulong::BITS;
    let mut cores = Vec::new();
    for (word, base) in words.iter().zip((0..).step_by(bits as usize)) {
        let set = (0..bits).filter(|bit| word & (1 << bit) != 0);
        cores.extend(set.map(|bit| CoreId(base + bit)));
    }
    cores
}

/// Each core once, in ascending order.
pub(crate) fn in_order(mut cores: Vec<CoreId>) -> Vec<CoreId> {
    cores.sort_unstable();
    cores.dedup();
    cores
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(cores: &[CoreId]) -> Vec<u32> {
        cores.iter().map(|core| core.0).collect()
    }

    #[test]
    fn the_kernels_lists_are_read() {
        let read = |text| parse_list(text).map(|cores| numbers(&cores));
        assert_eq!(read("0-3,8,10-11\n"), Some(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(read("5\n"), Some(vec![5]));
        assert_eq!(read("\n"), Some(vec![]));
        assert_eq!(read("3-1"), Some(vec![]));
        for nonsense in ["x", "0-4294967295", "-1", "0--2"] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn nvmls_sets_are_read() {
        assert_eq!(numbers(&from_words(&[0b101, 1, 0])), [0, 2, 64]);
    }
}
