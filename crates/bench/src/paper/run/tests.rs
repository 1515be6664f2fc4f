//! Runs that are interrupted, by a runner that measures nothing.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use super::*;
use crate::paper::{Header, registry};

/// A directory of the test's own, removed afterwards.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Directory {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("wharf-paper-{}-{number}", std::process::id());
        Directory(std::env::temp_dir().join(name))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Gives each case a value that follows from the point, and fails where it is recorded to.
#[derive(Default)]
struct Fake {
    ran: Vec<u32>,
    /// So many points are run; the next one fails.
    only: Option<usize>,
    /// The point without a figure.
    nothing_at: Option<u32>,
}

impl Runner for Fake {
    fn run(
        &mut self,
        scenario: &Scenario,
        point: u32,
        parameters: &Parameters,
        report: &mut dyn Report,
    ) -> Result<(), Error> {
        report.notice(&format!("at {point}"));
        if self.nothing_at == Some(point) {
            return Ok(());
        }
        if self.only.is_some_and(|only| self.ran.len() >= only) {
            return Err(Error::Usage("it failed".to_owned()));
        }
        self.ran.push(point);
        for (number, series) in scenario.series.iter().enumerate() {
            report.progress(number, scenario.series.len(), series.label);
            let value = f64::from(point) * 1e9 + number as f64;
            report.figure(Figure {
                bench: "fake",
                case: series.case.to_owned(),
                system: "wharf".to_owned(),
                varied: vec![("point", point.into())],
                metric: series.metric,
                unit: "bit/s",
                value,
                samples: (0..parameters.repetitions).map(|n| value + n as f64).collect(),
            });
        }
        Ok(())
    }
}

/// Remembers what it is recorded.
#[derive(Default)]
struct Recorded {
    progress: Vec<Progress>,
    notices: Vec<String>,
    kept: usize,
}

impl Observer for Recorded {
    fn progress(&mut self, progress: &Progress) {
        self.progress.push(progress.clone());
    }

    fn notice(&mut self, name: &str, text: &str) {
        self.notices.push(format!("{name} {text}"));
    }

    fn kept(&mut self, _: &Store, _: &Gaps) -> Result<(), StoreError> {
        self.kept += 1;
        Ok(())
    }
}

fn parameters() -> Parameters {
    Parameters {
        repetitions: 2,
        duration: Duration::from_millis(100),
        quick: true,
        seed: 1,
        library: None,
        rdma_library: None,
        path: Vec::new(),
        carrier: crate::rdma_wan::Carrier::Kernel,
        config: nic::config::Config::default(),
    }
}

const NAMES: [&str; 2] = ["lro-throughput-memory", "gso-udp4"];

fn open(
    directory: &Directory,
    parameters: &Parameters,
    restart: bool,
) -> Result<Store, StoreError> {
    // Finding out takes a while.
    static HEADER: LazyLock<Header> =
        LazyLock::new(|| Header::of_this(&self::parameters(), "test"));
    let header = match parameters.repetitions {
        2 => HEADER.clone(),
        _ => Header::of_this(parameters, "test"),
    };
    Store::open(&directory.0, header, &NAMES, if restart { &NAMES } else { &[] })
}

fn go(store: &mut Store, runner: &mut Fake, recorded: &mut Recorded) -> Gaps {
    let entries = registry();
    let chosen: Vec<&Entry> = entries.iter().filter(|entry| NAMES.contains(&entry.name)).collect();
    run(&chosen, &parameters(), store, runner, recorded).unwrap()
}

/// What was measured, but for how long it took.
fn results(store: &Store) -> Vec<Row> {
    let rows = NAMES.iter().flat_map(|name| store.rows(name));
    rows.map(|row| Row { took: 0.0, ..row.clone() }).collect()
}

/// A run that was not interrupted: its results, and its files.
fn uninterrupted() -> (Vec<Row>, Vec<Vec<u8>>) {
    let directory = Directory::new();
    let mut store = open(&directory, &parameters(), false).unwrap();
    let gaps = go(&mut store, &mut Fake::default(), &mut Recorded::default());
    assert!(gaps.is_empty());
    let files = NAMES.map(|name| fs::read(directory.0.join(format!("{name}.jsonl"))).unwrap());
    (results(&store), files.to_vec())
}

#[test]
fn everything_is_run_once_and_kept() {
    let directory = Directory::new();
    let mut store = open(&directory, &parameters(), false).unwrap();
    let (mut fake, mut recorded) = (Fake::default(), Recorded::default());
    go(&mut store, &mut fake, &mut recorded);
    assert_eq!(fake.ran, [1, 8, 64, 100, 36]);
    assert_eq!(recorded.kept, 5);
    assert_eq!(recorded.notices[0], "lro-throughput-memory at 1");
    assert!(recorded.progress.iter().all(|progress| progress.total == 5));
    assert_eq!(recorded.progress.iter().map(|progress| progress.done).max(), Some(4));
    let row = &store.rows("gso-udp4")[1];
    assert_eq!((row.point, row.notices.as_slice()), (36, &["at 36".to_owned()][..]));
    assert_eq!(row.samples("none", "throughput"), Some(vec![36e9, 36e9 + 1.0]));
    drop(store);

    let mut store = open(&directory, &parameters(), false).unwrap();
    let (mut again, mut recorded) = (Fake::default(), Recorded::default());
    go(&mut store, &mut again, &mut recorded);
    assert_eq!((again.ran.len(), recorded.kept), (0, 0));
    assert_eq!(results(&store), uninterrupted().0);
}

#[test]
fn a_run_that_is_killed_at_any_byte_ends_as_one_that_is_not() {
    let (whole, files) = uninterrupted();
    for (number, file) in files.iter().enumerate() {
        // Around the end of each line, and here and there within.
        let ends =
            (0..file.len()).filter(|at| file[*at] == b'\n').flat_map(|at| [at, at + 1, at + 2]);
        for length in ends.chain((0..file.len()).step_by(151)).filter(|at| *at <= file.len()) {
            let directory = Directory::new();
            drop(open(&directory, &parameters(), false).unwrap());
            for (name, before) in NAMES.iter().zip(&files[..number]) {
                fs::write(directory.0.join(format!("{name}.jsonl")), before).unwrap();
            }
            let torn = directory.0.join(format!("{}.jsonl", NAMES[number]));
            fs::write(torn, &file[..length]).unwrap();
            let mut store = open(&directory, &parameters(), false).unwrap();
            let before = results(&store);
            assert!(whole.starts_with(&before), "{length}");
            let mut fake = Fake::default();
            go(&mut store, &mut fake, &mut Recorded::default());
            assert_eq!(results(&store), whole, "{length}");
            assert_eq!(before.len() + fake.ran.len(), whole.len(), "{length}");
        }
    }
}

#[test]
fn a_point_that_fails_ends_its_figure_and_the_next_run_takes_it_up() {
    for only in 0..5 {
        let directory = Directory::new();
        let mut store = open(&directory, &parameters(), false).unwrap();
        let mut fake = Fake { only: Some(only), ..Fake::default() };
        let gaps = go(&mut store, &mut fake, &mut Recorded::default());
        assert_eq!(results(&store).len(), only);
        assert_eq!(gaps.len(), if only < 3 { 2 } else { 1 });
        let why: Vec<&String> = gaps.values().flatten().collect();
        assert!(why.iter().all(|why| why.ends_with(": it failed")), "{why:?}");
        drop(store);
        let mut store = open(&directory, &parameters(), false).unwrap();
        assert!(go(&mut store, &mut Fake::default(), &mut Recorded::default()).is_empty());
        assert_eq!(results(&store), uninterrupted().0);
    }
}

#[test]
fn a_point_that_gives_nothing_is_not_complete() {
    let directory = Directory::new();
    let mut store = open(&directory, &parameters(), false).unwrap();
    let mut fake = Fake { nothing_at: Some(8), ..Fake::default() };
    let gaps = go(&mut store, &mut fake, &mut Recorded::default());
    assert_eq!(fake.ran, [1, 64, 100, 36]);
    assert_eq!(gaps[NAMES[0]], ["lro-throughput-memory, 8 connections: at 8"]);
}

#[test]
fn what_was_measured_otherwise_is_not_continued() {
    let directory = Directory::new();
    drop(open(&directory, &parameters(), false).unwrap());
    let other = Parameters { repetitions: 3, ..parameters() };
    let error = open(&directory, &other, false).unwrap_err().to_string();
    assert!(error.contains("repetitions 2, now 3") && error.contains("--restart"), "{error}");
    // A figure that was measured goes, and what others have put there stays.
    fs::write(directory.0.join("gso-udp4.jsonl"), "{}\n").unwrap();
    fs::write(directory.0.join("mine.txt"), "").unwrap();
    drop(open(&directory, &other, true).unwrap());
    assert!(!directory.0.join("gso-udp4.jsonl").exists() && directory.0.join("mine.txt").exists());
    drop(open(&directory, &other, false).unwrap());
    assert!(open(&directory, &parameters(), false).is_err());
}

#[test]
fn a_restart_of_one_figure_discards_no_other() {
    let directory = Directory::new();
    let mut store = open(&directory, &parameters(), false).unwrap();
    go(&mut store, &mut Fake::default(), &mut Recorded::default());
    let [kept, anew] = NAMES;
    let rows = store.rows(kept).to_vec();
    assert!(!rows.is_empty() && !store.rows(anew).is_empty());
    let header = store.header().clone();
    drop(store);
    let store = Store::open(&directory.0, header.clone(), &NAMES, &[anew]).unwrap();
    assert_eq!((store.rows(kept), store.rows(anew)), (&rows[..], &[][..]));
    drop(store);
    // With other parameters both would stand on one page as if they belonged together.
    let other = Header::of_this(&Parameters { repetitions: 3, ..parameters() }, "test");
    let refused =
        Store::open(&directory.0, other.clone(), &NAMES, &[anew]).unwrap_err().to_string();
    assert!(refused.contains("repetitions 2, now 3") && refused.contains("--figure"), "{refused}");
    assert_eq!(Store::open(&directory.0, header, &NAMES, &[]).unwrap().rows(kept), rows);
    // Nothing else is there.
    drop(Store::open(&directory.0, other, &NAMES, &[kept]).unwrap());
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let directory = Directory::new();
    fs::create_dir(&directory.0).unwrap();
    fs::write(directory.0.join("thesis.tex"), "").unwrap();
    for restart in [false, true] {
        let refused = open(&directory, &parameters(), restart);
        assert!(matches!(refused, Err(StoreError::Foreign(_))), "{refused:?}");
    }
    // What is left of a run that was killed when it began belongs to no run.
    fs::rename(directory.0.join("thesis.tex"), directory.0.join("run.json.new")).unwrap();
    open(&directory, &parameters(), false).unwrap();
}

#[test]
fn two_runs_do_not_share_a_directory() {
    let directory = Directory::new();
    let first = open(&directory, &parameters(), false).unwrap();
    for restart in [false, true] {
        let second = open(&directory, &parameters(), restart);
        assert!(matches!(second, Err(StoreError::Busy(_))), "{second:?}");
    }
    drop(first);
    open(&directory, &parameters(), false).unwrap();
}

#[test]
fn damage_in_front_of_what_is_complete_is_told() {
    let directory = Directory::new();
    let mut store = open(&directory, &parameters(), false).unwrap();
    go(&mut store, &mut Fake::default(), &mut Recorded::default());
    drop(store);
    let path = directory.0.join("gso-udp4.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replacen('{', "[", 1)).unwrap();
    let error = open(&directory, &parameters(), false).unwrap_err().to_string();
    assert!(error.contains("gso-udp4.jsonl, line 1") && error.contains("--restart"), "{error}");
}
