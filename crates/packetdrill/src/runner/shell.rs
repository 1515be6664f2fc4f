//! Shell commands of a script: those that change settings of the engine.

use super::Runner;
use crate::sockets::Refused;

/// The settings of `defaults.sh`, which scripts of google/packetdrill and of Linux run first.
const DEFAULTS: [(&str, &str); 6] = [
    ("tcp_rmem", "4096 540000 15728640"),
    ("tcp_wmem", "4096 262144 4194304"),
    ("tcp_syn_retries", "5"),
    ("tcp_synack_retries", "5"),
    ("tcp_congestion_control", "cubic"),
    ("tcp_ecn", "0"),
];

impl Runner {
    /// Runs the lines between backquotes.
    pub(super) fn command(&mut self, text: &str) -> Result<(), String> {
        let joined = text.replace("\\\n", " ");
        joined
            .split(['\n', ';'])
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .try_for_each(|line| self.line(line).map_err(|why| format!("command `{line}`: {why}")))
    }

    fn line(&mut self, line: &str) -> Result<(), String> {
        let words = words(line);
        let Some((program, arguments)) = words.split_first() else { return Ok(()) };
        let name = program.rsplit('/').next().unwrap_or(program);
        match name {
            "sysctl" => self.assignments(arguments),
            "set_sysctls.py" => self.assignments(arguments),
            "defaults.sh" => DEFAULTS.iter().try_for_each(|(name, value)| self.set(name, value)),
            "ethtool" => {
                let mut settings = self.host.settings().clone();
                settings.super_packets = false;
                self.host.set_settings(settings);
                Ok(())
            }
            "sleep" => {
                let seconds: f64 =
                    arguments.first().and_then(|word| word.parse().ok()).ok_or("how long?")?;
                let until = self.host.now() + (seconds * 1e9) as u64;
                self.wait_until(until)
            }
            // The settings end with the script.
            restore if restore.starts_with("sysctl_restore_") => Ok(()),
            "true" | "echo" => Ok(()),
            _ => Err("not supported".to_owned()),
        }
    }

    fn assignments(&mut self, arguments: &[String]) -> Result<(), String> {
        for argument in arguments {
            let Some((name, value)) = argument.split_once('=') else {
                if argument.starts_with('-') {
                    continue;
                }
                return Err(format!("`{argument}` sets nothing"));
            };
            let name = name.strip_prefix("/proc/sys/").unwrap_or(name).replace('/', ".");
            let name =
                name.strip_prefix("net.ipv4.").ok_or_else(|| format!("{name} is not TCP's"))?;
            self.set(name, value)?;
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let mut settings = self.host.settings().clone();
        settings.set(name, value).map_err(|refused| match refused {
            Refused::Unknown => format!("the engine has no {name}"),
            Refused::Value => format!("the engine does not have {name}={value}"),
        })?;
        self.host.set_settings(settings);
        Ok(())
    }
}

/// Words of a line; quotes hold several together.
fn words(line: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut begun = false;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.push(c),
            (None, '"' | '\'') => {
                quote = Some(c);
                begun = true;
            }
            (None, c) if c.is_whitespace() => {
                if begun {
                    out.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            (None, c) => {
                word.push(c);
                begun = true;
            }
        }
    }
    if begun {
        out.push(word);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(words("sysctl -q a=\"1 2 3\" b=4"), ["sysctl", "-q", "a=1 2 3", "b=4"]);
    }
}
