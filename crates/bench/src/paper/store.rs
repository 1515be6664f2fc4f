//! The directory of a run: what is done is kept, so that the next run goes on from there.
//!
//! `run.json` says what the run was made with. `FIGURE.jsonl` has the figures of each point that is
//! complete, one JSON object a line, and behind them a line that says that the point is complete.
//! All lines of a point are written at once and reach the disk before the next point begins; what
//! lies behind the last point that is complete, torn in the middle of a line or not, never counts
//! and is cut off.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::header::Header;
use crate::Figure;

/// What the directory is known by.
const HEADER: &str = "run.json";
/// The header while it is written.
const NEW_HEADER: &str = "run.json.new";

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An error of the operating system.
    #[error("cannot {what} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        path: PathBuf,
        /// The error.
        cause: io::Error,
    },
    /// There is something else in it.
    #[error(
        "{} has other files in it, and no {HEADER}; choose another directory or an empty one \
         with --out", .0.display()
    )]
    Foreign(PathBuf),
    /// Others of its figures, which were to stay, were measured otherwise.
    #[error(
        "other figures in {} were measured otherwise ({}), and do not go together with new ones: \
         --restart without --figure discards all, --out chooses another directory",
        path.display(), differences.join("; ")
    )]
    OthersOtherwise {
        /// The directory.
        path: PathBuf,
        /// What is not the same.
        differences: Vec<String>,
    },
    /// Another run is in progress there.
    #[error("another run is in progress in {}; wait for it, or choose another with --out", .0.display())]
    Busy(PathBuf),
    /// What is there was measured otherwise.
    #[error(
        "{} was measured otherwise ({}); --restart discards it and begins anew, --out chooses \
         another directory", path.display(), differences.join("; ")
    )]
    Otherwise {
        /// The directory.
        path: PathBuf,
        /// What is not the same.
        differences: Vec<String>,
    },
    /// A file does not hold what was written to it.
    #[error("{}, line {line} is damaged; --restart discards all and begins anew", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
}

/// All that was measured at one point of a figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The point.
    pub point: u32,
    /// The figures, as [`Figure::json`] and with the `figure` that they belong to.
    pub figures: Vec<Value>,
    /// The notices of the scenario.
    pub notices: Vec<String>,
    /// How long it took, in seconds.
    pub took: f64,
}

impl Row {
    /// The value of each repetition of a metric of a case.
    pub fn samples(&self, case: &str, metric: &str) -> Option<Vec<f64>> {
        let of_it = |figure: &&Value| figure["case"] == case && figure["metric"] == metric;
        let figure = self.figures.iter().find(of_it)?;
        figure["samples"].as_array()?.iter().map(Value::as_f64).collect()
    }

    /// A row of a figure that has just been measured.
    pub fn new(name: &str, point: u32, figures: &[Figure], notices: Vec<String>, took: f64) -> Row {
        let figures = figures.iter().map(|figure| named(name, figure.json())).collect();
        Row { point, figures, notices, took }
    }

    fn lines(&self, name: &str) -> String {
        let mut end = Map::new();
        end.insert("figure".into(), name.into());
        end.insert("complete".into(), self.point.into());
        end.insert("seconds".into(), self.took.into());
        end.insert("notices".into(), self.notices.clone().into());
        let lines = self.figures.iter().cloned().chain([Value::Object(end)]);
        lines.map(|line| format!("{line}\n")).collect()
    }
}

fn named(name: &str, figure: Value) -> Value {
    match figure {
        Value::Object(mut map) => {
            map.insert("figure".into(), name.into());
            Value::Object(map)
        }
        other => other,
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    header: Header,
    rows: BTreeMap<&'static str, Vec<Row>>,
    /// Keeps others out while it is open.
    _lock: File,
}

impl Store {
    /// Opens the directory, which is made where there is none, and reads what is there of the
    /// figures `names`. What is there of the figures `discarded` goes first; that of others stays,
    /// and then it must have been measured with what `header` says.
    ///
    /// # Errors
    /// See [`StoreError`]. Nothing that others have made is touched.
    pub fn open(
        directory: &Path,
        header: Header,
        names: &[&'static str],
        discarded: &[&'static str],
    ) -> Result<Store, StoreError> {
        let path = directory.to_path_buf();
        fs::create_dir_all(directory).map_err(failed("make", directory))?;
        let at = directory.join(HEADER);
        if !at.exists() {
            if has_files(directory)? {
                return Err(StoreError::Foreign(path));
            }
            write_header(directory, &header)?;
        }
        // The run that has the directory as it is now has this file open.
        let lock = File::open(&at).map_err(failed("open", &at))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StoreError::Busy(path)),
            Err(TryLockError::Error(cause)) => return Err(failed("lock", &at)(cause)),
        }
        let text = fs::read_to_string(&at).map_err(failed("read", &at))?;
        let measured = |name: &&str| directory.join(raw_name(name)).exists();
        let stays = |name: &&str| !discarded.contains(name) && measured(name);
        let header = if !discarded.is_empty() && !names.iter().any(stays) {
            discard(directory, discarded)?;
            fs::write(&at, header.text()).map_err(failed("write", &at))?;
            header
        } else {
            let damaged = StoreError::Damaged { path: at, line: 1 };
            let begun = Header::parse(&text).ok_or(damaged)?;
            let differences = begun.differences(&header);
            match (differences.is_empty(), discarded.is_empty()) {
                (true, _) => {}
                (false, true) => return Err(StoreError::Otherwise { path, differences }),
                (false, false) => return Err(StoreError::OthersOtherwise { path, differences }),
            }
            discard(directory, discarded)?;
            begun
        };
        let mut rows = BTreeMap::new();
        for &name in names {
            let found = read(&directory.join(raw_name(name)))?;
            rows.insert(name, found);
        }
        Ok(Store { directory: path, header, rows, _lock: lock })
    }

    /// Where it is.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What all that is in it was made with.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The points of a figure that are complete.
    pub fn rows(&self, name: &str) -> &[Row] {
        self.rows.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether a point of a figure is complete.
    pub fn has(&self, name: &str, point: u32) -> bool {
        self.rows(name).iter().any(|row| row.point == point)
    }

    /// Keeps a point of a figure, on the disk when this returns.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn keep(&mut self, name: &'static str, row: Row) -> Result<(), StoreError> {
        let path = self.directory.join(raw_name(name));
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&path)
            .map_err(failed("write", &path))?;
        let lines = row.lines(name);
        file.write_all(lines.as_bytes())
            .and_then(|()| file.sync_data())
            .map_err(failed("write", &path))?;
        self.rows.entry(name).or_default().push(row);
        Ok(())
    }

    /// Writes a file for readers, which is there as a whole or not at all.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn write(&self, name: &str, text: &str) -> Result<(), StoreError> {
        replace(&self.directory, name, &format!("{name}.new"), text)
    }
}

/// The name of the file that has the lines of a figure.
pub fn raw_name(name: &str) -> String {
    format!("{name}.jsonl")
}

fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |cause| StoreError::Io { what, path, cause }
}

/// Whether there is anything but the header that a run that was killed at once has left.
fn has_files(directory: &Path) -> Result<bool, StoreError> {
    for entry in fs::read_dir(directory).map_err(failed("read", directory))? {
        if entry.map_err(failed("read", directory))?.file_name() != NEW_HEADER {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_header(directory: &Path, header: &Header) -> Result<(), StoreError> {
    replace(directory, HEADER, NEW_HEADER, &header.text())
}

fn replace(directory: &Path, name: &str, new: &str, text: &str) -> Result<(), StoreError> {
    let (path, new) = (directory.join(name), directory.join(new));
    fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).map_err(failed("write", &path))
}

/// Removes what was measured. What readers are given is written anew with the first point.
fn discard(directory: &Path, names: &[&str]) -> Result<(), StoreError> {
    for name in names {
        let path = directory.join(raw_name(name));
        match fs::remove_file(&path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
                return Err(failed("remove", &path)(cause));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The points that are complete; cuts off what is behind them.
fn read(path: &Path) -> Result<Vec<Row>, StoreError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(cause) => return Err(failed("read", path)(cause)),
    };
    let (mut rows, mut figures, mut damaged) = (Vec::new(), Vec::new(), None);
    let (mut at, mut complete) = (0, 0);
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        at += line.len();
        let parsed: Option<Value> = serde_json::from_slice(line).ok();
        match parsed.filter(|value| value.is_object() && line.ends_with(b"\n")) {
            None => damaged = damaged.or(Some(number + 1)),
            Some(value) if value["complete"].is_u64() => {
                if let Some(line) = damaged {
                    return Err(StoreError::Damaged { path: path.to_path_buf(), line });
                }
                rows.push(completed(&value, std::mem::take(&mut figures)));
                complete = at;
            }
            Some(value) => figures.push(value),
        }
    }
    if complete < text.len() {
        let file = OpenOptions::new().write(true).open(path).map_err(failed("repair", path))?;
        file.set_len(complete as u64).map_err(failed("repair", path))?;
    }
    Ok(rows)
}

/// The row that a line ends.
fn completed(line: &Value, figures: Vec<Value>) -> Row {
    let point = line["complete"].as_u64().unwrap_or_default();
    let notices = line["notices"].as_array().into_iter().flatten();
    Row {
        point: u32::try_from(point).unwrap_or(u32::MAX),
        figures,
        notices: notices.filter_map(|notice| Some(notice.as_str()?.to_owned())).collect(),
        took: line["seconds"].as_f64().unwrap_or(0.0),
    }
}
