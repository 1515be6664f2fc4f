//! What an operator is told on standard error: notices and errors, and with `--log` what led to them.
//!
//! A line is `wharf: TEXT`. In the journal its priority stands before it, as in sd-daemon(3), and the
//! journal knows the time; elsewhere `--log` puts time and level before it.

use std::fmt::{self, Write};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use clap::ValueEnum;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry;
use tracing_subscriber::registry::LookupSpan;

use crate::text::escaped;

/// What is told, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum LogLevel {
    /// Why the command failed
    Error,
    /// And what does not go as well as it might, as without --log
    Warn,
    /// And what is opened, changed, started and ended
    Info,
    /// And what was tried, and how
    Debug,
    /// And what happens often, such as each look of the mirror; never each packet
    Trace,
}

impl LogLevel {
    fn filter(self) -> LevelFilter {
        match self {
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Trace => LevelFilter::TRACE,
        }
    }
}

/// Begins to write to standard error what is of this level and above; without one, warnings and errors.
pub(crate) fn start(level: Option<LogLevel>) {
    let form = if is_journal() {
        Form::Journal
    } else if level.is_some() {
        Form::Timed
    } else {
        Form::Plain
    };
    let lines = tracing_subscriber::fmt::layer()
        .event_format(form)
        .with_writer(io::stderr)
        // That it is not read is no error.
        .log_internal_errors(false);
    let level = level.unwrap_or(LogLevel::Warn).filter();
    // There is none before this one.
    let _ = tracing::subscriber::set_global_default(registry().with(level).with(lines));
}

/// Tells what is not as it should be.
pub(crate) fn tell(notice: &str) {
    tracing::warn!("{notice}");
}

/// Whether standard error is the journal's stream: `JOURNAL_STREAM` is its device and inode
/// (systemd.exec(5)), and remains set where standard error was redirected since.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    let stderr = io::stderr().as_fd().try_clone_to_owned().map(File::from);
    let metadata = stderr.and_then(|stderr| stderr.metadata());
    metadata.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

/// What a line looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    /// As it was asked for nothing.
    Plain,
    /// Time and level before it.
    Timed,
    /// Its priority before it.
    Journal,
}

impl<S, N> FormatEvent<S, N> for Form
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        match self {
            Form::Plain => {}
            Form::Timed => {
                SystemTime.format_time(&mut writer)?;
                write!(writer, " {level:>5} ")?;
            }
            Form::Journal => write!(writer, "<{}>", priority(level))?,
        }
        let mut text = Text::default();
        event.record(&mut text);
        writeln!(writer, "wharf: {}", escaped(&text.0))
    }
}

/// The severities of syslog (RFC 5424 section 6.2.1).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

/// An event's sentence. Events here have nothing else.
#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // A string takes everything.
            let _ = write!(self.0, "{value:?}");
        }
    }
}
