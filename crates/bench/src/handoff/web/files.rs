//! The static files of SPECweb99 and how often each is asked for, as its public description has them ("Understanding and
//! Addressing Blocking-Induced Network Server Latency", Ruan and Pai, USENIX 2006, section 3.1): directories of 36
//! files, in four classes by size, of which 35, 50, 14 and 1 % of the requests are; directories by Zipf's law.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Directories, of five megabytes each: as many as stay in memory.
const DIRECTORIES: usize = 20;
/// Files of a class in a directory: the first is of the class's unit, the last nine times as long.
const FILES: usize = 9;
/// Units of the classes, in bytes, and how many of 100 requests are for each.
const CLASSES: [(usize, u64); 4] = [(100, 35), (1_000, 50), (10_000, 14), (100_000, 1)];

/// The files, until this ends.
#[derive(Debug)]
pub(super) struct Files {
    root: PathBuf,
}

impl Files {
    /// Writes them into a directory.
    pub(super) fn write(root: &Path) -> io::Result<Files> {
        // What is written so far goes with it, should writing fail.
        let files = Files { root: root.to_owned() };
        fs::create_dir(root)?;
        for directory in 0..DIRECTORIES {
            fs::create_dir(root.join(directory.to_string()))?;
            for class in 0..CLASSES.len() {
                for file in 0..FILES {
                    let one = File { directory, class, file };
                    fs::write(root.join(one.path()), vec![0x55; one.len()])?;
                }
            }
        }
        Ok(files)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // They lie in a directory for such files, should they stay.
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// One of the files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct File {
    directory: usize,
    class: usize,
    file: usize,
}

impl File {
    /// The length of the longest, in bytes.
    pub(super) const LONGEST: usize = CLASSES[CLASSES.len() - 1].0 * FILES;

    /// That which a random number stands for.
    pub(super) fn pick(draw: u64) -> File {
        // Parts of the number that have nothing to do with each other.
        let [class, file, directory] = [draw % 100, draw / 100 % FILES as u64, draw >> 32];
        let mut below = 0;
        let class = CLASSES.iter().position(|(_, percent)| {
            below += percent;
            class < below
        });
        let part = directory as f64 / f64::from(u32::MAX);
        File { directory: zipf(part), class: class.unwrap_or(0), file: file as usize }
    }

    pub(super) fn path(self) -> String {
        format!("{}/{}-{}", self.directory, self.class, self.file)
    }

    /// That of such a path.
    pub(super) fn parse(path: &str) -> Option<File> {
        let (directory, name) = path.split_once('/')?;
        let (class, file) = name.split_once('-')?;
        let below = |number: &str, count: usize| number.parse().ok().filter(|n| *n < count);
        let directory = below(directory, DIRECTORIES)?;
        let (class, file) = (below(class, CLASSES.len())?, below(file, FILES)?);
        Some(File { directory, class, file })
    }

    /// Its length in bytes.
    pub(super) fn len(self) -> usize {
        CLASSES[self.class].0 * (self.file + 1)
    }
}

/// The directory at that part of all requests, 0 to 1: the n-th is asked for 1/n times as often as the first.
fn zipf(part: f64) -> usize {
    let all: f64 = (1..=DIRECTORIES).map(|n| 1.0 / n as f64).sum();
    let mut below = 0.0;
    let at = (1..=DIRECTORIES).position(|n| {
        below += 1.0 / n as f64 / all;
        part < below
    });
    at.unwrap_or(DIRECTORIES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_asked_for_as_specweb99_does() {
        const ALL: usize = 200_000;
        let picked: Vec<File> =
            (0..ALL).map(|number| File::pick(degen::Random::new(7).at(number as u64))).collect();
        let part = |is: &dyn Fn(&File) -> bool| {
            picked.iter().filter(|file| is(file)).count() as f64 / ALL as f64
        };
        for (class, (_, percent)) in CLASSES.iter().enumerate() {
            let found = part(&|file| file.class == class);
            assert!((found - *percent as f64 / 100.0).abs() < 0.01, "{class}: {found}");
        }
        let (first, tenth) = (part(&|file| file.directory == 0), part(&|file| file.directory == 9));
        assert!((first / tenth - 10.0).abs() < 1.0, "{first} {tenth}");
        let mean = picked.iter().map(|file| file.len()).sum::<usize>() as f64 / ALL as f64;
        // "Roughly 14 KB".
        assert!((13_500.0..16_000.0).contains(&mean), "{mean}");
    }
}
