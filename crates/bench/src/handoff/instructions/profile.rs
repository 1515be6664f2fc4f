//! What callgrind(1) has written, in the format that valgrind's manual has under "Callgrind Format Specification". It is to
//! write without abbreviations: `--compress-strings=no --compress-pos=no`.

use std::ops::AddAssign;

/// What code takes, as callgrind counts and its simulation of caches has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cost {
    pub(super) instructions: u64,
    /// Reads and writes of data that the first level does not have.
    pub(super) data_misses: u64,
    /// What the last level does not have, of data and of instructions.
    pub(super) last_level_misses: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.instructions += other.instructions;
        self.data_misses += other.data_misses;
        self.last_level_misses += other.last_level_misses;
    }
}

/// What a function takes itself in one source file, which callgrind has several of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Line<'a> {
    /// The program or library.
    pub(super) object: &'a str,
    /// Its name, and behind apostrophes those of its callers, where `--separate-callers` asks for them.
    pub(super) function: &'a str,
    /// Where the code was written, which may be joined into a function of another file.
    pub(super) source: &'a str,
    pub(super) cost: Cost,
}

/// Reads a profile; `None` of what is none.
pub(super) fn read(text: &str) -> Option<Vec<Line<'_>>> {
    let events = text.lines().find_map(|line| line.strip_prefix("events: "))?;
    let events: Vec<&str> = events.split(' ').collect();
    let cost = |line: &str| -> Option<Cost> {
        // After the number of the line of source; zeros at the end are left out.
        let values = line.split(' ').skip(1).map(str::parse::<u64>);
        let mut cost = Cost::default();
        for (event, value) in events.iter().zip(values) {
            let value = value.ok()?;
            match *event {
                "Ir" => cost.instructions += value,
                "D1mr" | "D1mw" => cost.data_misses += value,
                "ILmr" | "DLmr" | "DLmw" => cost.last_level_misses += value,
                _ => {}
            }
        }
        Some(cost)
    };
    let (mut object, mut function, mut source) = ("", "", "");
    // A call is followed by what it takes, which the callee has as well.
    let mut is_call = false;
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with(|first: char| first.is_ascii_digit()) {
            let cost = cost(line)?;
            if !std::mem::take(&mut is_call) {
                lines.push(Line { object, function, source, cost });
            }
        } else if let Some((name, value)) = line.split_once('=') {
            match name {
                "ob" => object = value,
                "fn" => function = value,
                "fl" | "fi" | "fe" => source = value,
                "calls" => is_call = true,
                _ => {}
            }
        }
    }
    Some(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# callgrind format\nversion: 1\ncmd:  a b=c\ndesc: I1 cache: 65536 B, 64 B, 2-way\n\n\
                        positions: line\nevents: Ir Dr Dw I1mr D1mr D1mw ILmr DLmr DLmw\n\
                        summary: 121 13 2 0 5 2 1 0 3\n\n\
                        ob=/lib/libwharf.so\nfl=ring.rs\nfn=handoff::ring::push\n\
                        10 7 3 2 0 1 2 1 0 3\nfi=mod.rs\n11 5\n\
                        cob=/lib/libc.so.6\ncfi=memcpy.S\ncfn=memcpy\ncalls=2 40\n12 100 10 0 0 4\n\
                        cfn=handoff::ring::room\ncalls=1 50\n13 9\n\
                        fn=handoff::ring::room'handoff::ring::push\n50 9\n\n\
                        ob=/lib/libc.so.6\nfl=memcpy.S\nfn=memcpy\n40 100 10 0 0 4\n\ntotals: 121\n";

    #[test]
    fn costs_are_of_functions_and_not_of_what_they_call() {
        let lines = read(TEXT).unwrap();
        let short: Vec<_> = lines
            .iter()
            .map(|line| (line.object, line.function, line.source, line.cost.instructions))
            .collect();
        let (own, libc) = ("/lib/libwharf.so", "/lib/libc.so.6");
        let push = "handoff::ring::push";
        assert_eq!(
            short,
            [
                (own, push, "ring.rs", 7),
                (own, push, "mod.rs", 5),
                (own, "handoff::ring::room'handoff::ring::push", "mod.rs", 9),
                (libc, "memcpy", "memcpy.S", 100),
            ]
        );
        let first = Cost { instructions: 7, data_misses: 3, last_level_misses: 4 };
        assert_eq!(lines[0].cost, first);
        assert_eq!(lines[3].cost.data_misses, 4);
        let all: u64 = lines.iter().map(|line| line.cost.instructions).sum();
        assert!(TEXT.ends_with(&format!("totals: {all}\n")));
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        assert_eq!(read(""), None);
        assert_eq!(read("events: Ir\nfn=f\n1 many\n"), None);
        assert_eq!(read("events: Ir\nfn=f\n1\n").unwrap()[0].cost, Cost::default());
    }
}
