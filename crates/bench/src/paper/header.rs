//! What a run of the evaluation was made with: the machine, the program and what it was asked for.

use std::fs;

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value};

use super::parameters::Parameters;

/// What may differ between two runs that continue each other.
const MAY_DIFFER: [&str; 2] = ["date", "commit"];

/// See the module's documentation. Written as `run.json`.
#[derive(Clone, PartialEq, Debug)]
pub struct Header(Map<String, Value>);

impl Header {
    /// This machine and program. What cannot be found out is left out.
    ///
    /// `build` is different for builds of one version.
    pub fn of_this(parameters: &Parameters, build: &str) -> Header {
        let mut map = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                map.insert(name.to_owned(), value);
            }
        };
        let read = |path| fs::read_to_string(path).ok();
        put("cpu", read("/proc/cpuinfo").and_then(|text| Some(cpu_model(&text)?.into())));
        put("cpus", Some(sys::affinity::count().into()));
        put("memory_kib", read("/proc/meminfo").and_then(|text| Some(memory(&text)?.into())));
        put("kernel", read("/proc/sys/kernel/osrelease").map(|text| text.trim().into()));
        put("wharf", Some(env!("CARGO_PKG_VERSION").into()));
        put("build", Some(build.into()));
        put("commit", option_env!("WHARF_COMMIT").map(Into::into));
        put("rustc", option_env!("WHARF_RUSTC").map(Into::into));
        put("date", Some(date(SystemTime::now()).into()));
        put("seed", Some(parameters.seed.into()));
        put("repetitions", Some(parameters.repetitions.into()));
        put("seconds", Some(parameters.duration.as_secs_f64().into()));
        put("quick", Some(parameters.quick.into()));
        put("settings", Some(settings(parameters)));
        put("path", path(parameters).map(Value::from));
        put("carrier", Some(parameters.carrier.name().into()));
        Header(map)
    }

    /// Reads what [`text`](Self::text) wrote.
    pub fn parse(text: &str) -> Option<Header> {
        match serde_json::from_str(text) {
            Ok(Value::Object(map)) if map.contains_key("wharf") => Some(Header(map)),
            _ => None,
        }
    }

    /// One JSON object.
    pub fn text(&self) -> String {
        format!("{:#}\n", Value::Object(self.0.clone()))
    }

    /// What is known, by name.
    pub fn entries(&self) -> impl Iterator<Item = (&str, String)> {
        self.0.iter().map(|(name, value)| (name.as_str(), plain(value)))
    }

    /// What is known by that name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).map(plain)
    }

    /// What keeps measurements of `self` from being continued with `other`: names, with the values
    /// of both.
    pub fn differences(&self, other: &Header) -> Vec<String> {
        let names = self.0.keys().chain(other.0.keys().filter(|name| !self.0.contains_key(*name)));
        let differ = names.filter(|name| {
            !MAY_DIFFER.contains(&name.as_str()) && self.0.get(*name) != other.0.get(*name)
        });
        let say = |header: &Header, name: &str| header.get(name).unwrap_or("unknown".to_owned());
        differ.map(|name| format!("{name} {}, now {}", say(self, name), say(other, name))).collect()
    }
}

/// A value as it is read aloud.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The settings that are not as they are by default.
fn settings(parameters: &Parameters) -> Value {
    let changed = parameters.config.entries().filter(|(key, value)| *value != key.default_text());
    Value::Object(changed.map(|(key, value)| (key.name.to_owned(), value.into())).collect())
}

/// What degen does in the figures on RDMA, if it is more than delaying.
fn path(parameters: &Parameters) -> Option<String> {
    let words: Vec<String> =
        parameters.path.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!words.is_empty()).then(|| words.join(","))
}

/// The name of the first CPU (proc(5)).
fn cpu_model(cpuinfo: &str) -> Option<&str> {
    let line = cpuinfo.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

/// Memory in KiB (proc(5)).
fn memory(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Day and time in UTC (RFC 3339).
fn date(now: SystemTime) -> String {
    let seconds = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years that begin in March have their leap day at the end; 719,468 days before 1970 the first
    // of 400 such years began.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march = (5 * day + 2) / 153;
    let (month, day) = ((march + 2) % 12 + 1, day - (153 * march + 2) / 5 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parameters() -> Parameters {
        Parameters {
            repetitions: 5,
            duration: Duration::from_millis(300),
            quick: false,
            seed: 7,
            library: None,
            rdma_library: None,
            path: Vec::new(),
            carrier: crate::rdma_wan::Carrier::Kernel,
            config: nic::config::Config::default(),
        }
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        // What `date -u -d @N` says.
        for (seconds, day) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_767_225_599, "2025-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(UNIX_EPOCH + Duration::from_secs(seconds)), day);
        }
    }

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header::of_this(&parameters(), "b");
        assert_eq!(Header::parse(&header.text()), Some(header.clone()));
        assert_eq!(header.get("repetitions").as_deref(), Some("5"));
        assert!(header.get("cpus").is_some() && header.get("kernel").is_some());
        assert_eq!(Header::parse("{}"), None);
        assert_eq!(Header::parse("{\"wharf\": "), None);
    }

    #[test]
    fn what_would_not_be_the_same_measurement_is_named() {
        let one = Header::of_this(&parameters(), "b");
        let differences = |parameters: &Parameters, build: &str| {
            one.differences(&Header::of_this(parameters, build))
        };
        assert_eq!(differences(&parameters(), "b"), [""; 0]);
        let other = Parameters { repetitions: 3, ..parameters() };
        assert_eq!(differences(&other, "b"), ["repetitions 5, now 3"]);
        assert_eq!(differences(&parameters(), "c"), ["build b, now c"]);
        let mut other = parameters();
        other.config.set("lro.enable", "false").unwrap();
        assert_eq!(differences(&other, "b"), ["settings {}, now {\"lro.enable\":\"false\"}"]);
    }
}
