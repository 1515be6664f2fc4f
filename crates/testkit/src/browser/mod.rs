//! Checks of web pages in a real browser, at several widths, in light and dark.
//!
//! [`look_at`] opens a page in a headless Chromium and reports faults: errors on the console, requests to
//! other hosts, text that overlaps other text or leaves its drawing, text that is too small or too pale, a
//! page wider than the window, links and labels without a target. [`Browser`] is for checks of a single page.

mod cdp;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::{Value, json};

/// Names of Chromium's program.
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];
/// Environment variable with the directory for screenshots.
const SCREENSHOTS: &str = "REPORT_SCREENSHOTS";
/// Width in pixels below which a window counts as a phone's.
const PHONE: u32 = 600;
/// Chromium's longest screenshot, in pixels.
const LONGEST: u64 = 16_000;

/// How a page is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// On a screen, with light colours preferred.
    Light,
    /// On a screen, with dark colours preferred.
    Dark,
    /// On paper.
    Print,
}

/// A fault of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The window's width in pixels.
    pub width: u32,
    /// How the page was shown.
    pub medium: Medium,
    /// What is wrong, and where.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} px, {:?}: {}", self.width, self.medium, self.what)
    }
}

/// Checks a page at several widths, light and dark, with everything on it unfolded. Each of `expected` is a
/// CSS selector of something that must be visible. Where `REPORT_SCREENSHOTS` names a directory, the page is
/// stored there as `NAME.html`, and its screenshots before anything is unfolded as `NAME-WIDTH-MEDIUM.png`.
///
/// Returns `None` where no Chromium is installed, and an error if the browser fails.
pub fn look_at(
    name: &str,
    html: &str,
    widths: &[u32],
    expected: &[&str],
) -> io::Result<Option<Vec<Fault>>> {
    let Some(mut browser) = Browser::start()? else { return Ok(None) };
    let directory = std::env::var_os(SCREENSHOTS).map(PathBuf::from);
    if let Some(directory) = &directory {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join(format!("{name}.html")), html)?;
    }
    let mut faults = Vec::new();
    for &width in widths {
        for medium in [Medium::Light, Medium::Dark] {
            browser.open(html, width, medium)?;
            if let Some(directory) = &directory {
                let medium = format!("{medium:?}").to_lowercase();
                browser.screenshot(&directory.join(format!("{name}-{width}-{medium}.png")))?;
            }
            faults.extend(browser.faults(expected)?);
        }
    }
    Ok(Some(faults))
}

/// A headless Chromium with one page; it ends when this is dropped.
#[derive(Debug)]
pub struct Browser {
    connection: cdp::Connection,
    /// The page's file, whose address is the only one that may be requested.
    file: PathBuf,
    width: u32,
    medium: Medium,
}

impl Browser {
    /// Starts a browser with an empty profile; `None` where none is installed.
    pub fn start() -> io::Result<Option<Self>> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let Some(program) = installed() else { return Ok(None) };
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let name = format!("wharf-browser-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        let file = directory.join("page.html");
        let connection = cdp::Connection::start(&program, directory)?;
        Ok(Some(Self { connection, file, width: 0, medium: Medium::Light }))
    }

    /// Loads a page in a window of this width, in pixels, and waits until it is complete.
    pub fn open(&mut self, html: &str, width: u32, medium: Medium) -> io::Result<()> {
        (self.width, self.medium) = (width, medium);
        self.connection.take_events();
        std::fs::write(&self.file, html)?;
        self.resize(800)?;
        let scheme = if medium == Medium::Dark { "dark" } else { "light" };
        let emulated = json!({
            "media": if medium == Medium::Print { "print" } else { "screen" },
            "features": [{"name": "prefers-color-scheme", "value": scheme}],
        });
        self.connection.call("Emulation.setEmulatedMedia", emulated)?;
        let url = format!("file://{}", self.file.display());
        self.connection.call("Page.navigate", json!({ "url": url }))?;
        self.connection.wait("Page.loadEventFired")?;
        Ok(())
    }

    /// Value of a JavaScript expression; promises are awaited. An error if it throws.
    pub fn evaluate(&mut self, expression: &str) -> io::Result<Value> {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let mut answer = self.connection.call("Runtime.evaluate", asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(io::Error::other(format!("{expression}: {thrown}"))),
            None => Ok(answer["result"]["value"].take()),
        }
    }

    /// Faults of the page, unfolded, since it was opened. Each of `expected` is a CSS selector of something
    /// that must be visible.
    pub fn faults(&mut self, expected: &[&str]) -> io::Result<Vec<Fault>> {
        let unfold = "document.querySelectorAll('details').forEach(d => { d.open = true; })";
        self.evaluate(unfold)?;
        self.show_up_to(u64::MAX)?;
        let look = format!("({})({}, {})", include_str!("look.js"), self.width, json!(expected));
        let found = self.evaluate(&look)?;
        let seen = found.as_array().cloned().unwrap_or_default();
        let seen = seen.iter().map(|what| what.as_str().unwrap_or_default().to_owned());
        let events = self.connection.take_events();
        let own = format!("file://{}", self.file.display());
        let reported = events.iter().filter_map(|event| complaint(event, &own));
        let fault = |what| Fault { width: self.width, medium: self.medium, what };
        Ok(seen.chain(reported).map(fault).collect())
    }

    /// Stores a screenshot of the page as PNG, cut at Chromium's longest.
    pub fn screenshot(&mut self, file: &Path) -> io::Result<()> {
        self.show_up_to(LONGEST)?;
        let shot = self.connection.call("Page.captureScreenshot", json!({"format": "png"}))?;
        self.resize(800)?;
        let bytes = base64(shot["data"].as_str().unwrap_or_default());
        std::fs::write(file, bytes)
    }

    /// Makes the window as high as the page, so that all of it is visible.
    fn show_up_to(&mut self, longest: u64) -> io::Result<()> {
        let height = self.evaluate("document.documentElement.scrollHeight")?;
        self.resize(height.as_u64().unwrap_or(800).clamp(800, longest))
    }

    fn resize(&mut self, height: u64) -> io::Result<()> {
        let window = json!({
            "width": self.width,
            "height": height,
            "deviceScaleFactor": if self.width < PHONE { 2 } else { 1 },
            "mobile": self.width < PHONE,
        });
        self.connection.call("Emulation.setDeviceMetricsOverride", window)?;
        Ok(())
    }
}

fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = || std::env::split_paths(&path);
    PROGRAMS.iter().find_map(|name| {
        places().map(|directory| directory.join(name)).find(|program| program.is_file())
    })
}

/// The fault that an event of the browser reports, if it is one.
fn complaint(event: &Value, own: &str) -> Option<String> {
    let parameters = &event["params"];
    let bad = |level: &Value| matches!(level.as_str(), Some("error" | "warning" | "assert"));
    match event["method"].as_str()? {
        "Runtime.exceptionThrown" => {
            Some(format!("a script fails: {}", parameters["exceptionDetails"]))
        }
        "Runtime.consoleAPICalled" if bad(&parameters["type"]) => {
            Some(format!("on the console: {}", parameters["args"]))
        }
        "Log.entryAdded" if bad(&parameters["entry"]["level"]) => {
            Some(format!("the browser reports: {}", parameters["entry"]["text"]))
        }
        "Network.requestWillBeSent" => {
            let url = parameters["request"]["url"].as_str()?;
            let within = url.starts_with("data:") || url.split('#').next() == Some(own);
            (!within).then(|| format!("{url} is fetched"))
        }
        _ => None,
    }
}

/// Decodes base64; other characters are skipped.
fn base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut held, mut bits) = (0_u32, 0);
    for character in text.bytes() {
        let six = match character {
            b'A'..=b'Z' => character - b'A',
            b'a'..=b'z' => character - b'a' + 26,
            b'0'..=b'9' => character - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        held = held << 6 | u32::from(six);
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits & 0xff) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(base64("UE5HIQ=="), b"PNG!");
        assert_eq!(base64("/+8="), [0xff, 0xef]);
        assert!(base64("").is_empty());
    }
}
