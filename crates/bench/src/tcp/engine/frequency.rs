//! How fast the core's clock is, to compute cycles from nanoseconds where nothing counts them.

use std::fs;
use std::hint::black_box;

/// How a frequency was found.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Frequency {
    /// Cycles in a nanosecond.
    pub(super) gigahertz: f64,
    /// Where the number is from, for the reader.
    pub(super) source: &'static str,
}

/// Rounds of the chain that are timed at once: about 0.1 ms, so that few of the tries are interrupted.
const ROUNDS: u32 = 100_000;
const TRIES: u32 = 200;
/// Cycles from one value of the chain to the next: 3 of a 64-bit multiplication and 1 of an exclusive
/// or, which holds for Intel since Nehalem and AMD since Zen (Agner Fog, "Instruction tables", IMUL r,r).
const CYCLES: f64 = 4.0;

/// The clock of the core at this moment, from a chain of instructions each of which waits for the one
/// before; on other processors what the kernel says in `/proc/cpuinfo`.
pub(super) fn of_core() -> Option<Frequency> {
    if !cfg!(target_arch = "x86_64") {
        return of_kernel();
    }
    let fastest = (0..TRIES).map(|_| chain()).min()?;
    let gigahertz = f64::from(ROUNDS) * CYCLES / fastest as f64;
    Some(Frequency { gigahertz, source: "a chain of multiplications, timed" })
}

/// `cpu MHz` of `/proc/cpuinfo`: of a virtual machine the rate of the time stamp counter.
pub(super) fn of_kernel() -> Option<Frequency> {
    let gigahertz = megahertz(&fs::read_to_string("/proc/cpuinfo").ok()?)? / 1e3;
    Some(Frequency { gigahertz, source: "cpu MHz of /proc/cpuinfo" })
}

/// The highest, as a core that sleeps reports less.
fn megahertz(cpuinfo: &str) -> Option<f64> {
    let lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let of = lines.filter(|(name, _)| name.trim() == "cpu MHz");
    of.filter_map(|(_, value)| value.trim().parse().ok()).reduce(f64::max)
}

/// Nanoseconds of all rounds.
fn chain() -> u64 {
    let factor = black_box(0x9e37_79b9_7f4a_7c15_u64);
    let mut value = black_box(1_u64);
    let began = sys::clock::now();
    for _ in 0..ROUNDS / 10 {
        for _ in 0..10 {
            value = (value ^ factor).wrapping_mul(factor);
        }
    }
    black_box(value);
    sys::clock::now() - began
}

#[cfg(test)]
mod tests {
    use super::megahertz;

    #[test]
    fn the_fastest_core_counts() {
        let cpuinfo = "processor\t: 0\ncpu MHz\t\t: 800.5\nbogomips\t: 9\ncpu MHz\t\t: 2596.126\n";
        assert_eq!(megahertz(cpuinfo), Some(2596.126));
        assert_eq!(megahertz("BogoMIPS\t: 48.00\n"), None);
    }
}
