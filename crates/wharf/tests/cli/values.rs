//! Values on the command line: names by both spellings, and a hint where a value is none.

use super::{Directory, degen_refused, refused, wharf};

/// As options have it, and as the table of keys and files have it. Nothing is looked at before the settings are.
#[test]
fn keys_have_both_spellings() {
    let spellings = [|name: &str| name.replace('_', "-"), |name: &str| name.to_owned()];
    let directory = Directory::new();
    for spelling in spellings {
        let mut words = Vec::new();
        let mut file = String::new();
        for key in degen::keys::KEYS {
            let (name, value) = (spelling(key.name), key.default_text());
            words.push(format!("--{name}={value}"));
            words.extend(["--forward".to_owned(), format!("{name}={value}")]);
            words.extend(["--reverse".to_owned(), format!("{name}={value}")]);
            file.push_str(&format!("{name} = '{value}'\nreverse.{name} = '{value}'\n"));
        }
        words.extend(["--file".to_owned(), directory.file("wan.toml", file.as_bytes())]);
        degen_refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), &["no-such-a"]);

        let mut words: Vec<String> =
            ["up", "--wire", "no-such-if", "--host", "nic0"].map(str::to_owned).to_vec();
        for key in nic::config::KEYS {
            let setting = format!("{}={}", spelling(key.name), key.default_text());
            words.extend(["--set".to_owned(), setting]);
        }
        refused(&words.iter().map(String::as_str).collect::<Vec<_>>(), &["no-such-if"]);
        for key in ["lro.max_timeout", "gilbert_p", "degen.reverse.gilbert_p"] {
            let output = wharf(&["set", "--defaults", &spelling(key)]);
            let text = String::from_utf8(output.stdout).unwrap();
            let name = key.rsplit('.').next().unwrap();
            assert!(text.lines().count() == 3 && text.contains(name), "{key}: {text}");
        }
    }
    for value in ["tail-drop", "tail_drop"] {
        degen_refused(&["--queue", value], &["no-such-a"]);
    }
    for value in ["by-hand", "at-accept", "at_accept ports=80"] {
        let policy = format!("handoff.policy={value}");
        refused(&["up", "--wire", "no-such-if", "--host", "x", "--set", &policy], &["no-such-if"]);
    }
}

/// A number without its unit, or with a unit of another program's.
#[test]
fn a_duration_or_a_size_that_is_none_gets_a_hint() {
    let directory = Directory::new();
    let up = |setting: &str, hint: &str| {
        let args = ["up", "--wire", "no-such-if", "--host", "nic0", "--set", setting];
        refused(&args, &[setting.split('=').next().unwrap(), &format!("did you mean `{hint}`?")]);
    };
    up("lro.max_timeout=100", "100ms");
    up("lro.max_timeout=5 msec", "5ms");
    up("lro.min_timeout=1.5ms", "1500us");
    up("poll.spin=20", "20us");
    up("lro.max_aggregate=64KB", "64000");
    let file = directory.file("wharf.toml", b"lro.max_timeout = 100\n");
    let args = ["up", "--wire", "no-such-if", "--host", "nic0", "--config", &file];
    refused(&args, &["wharf.toml:1:19", "did you mean `100ms`?"]);
    let file = directory.file("wan.toml", b"repeat = 60\n[[schedule]]\nat = '5 sec'\n");
    degen_refused(&["--file", &file], &["wan.toml:1:10", "did you mean `60ms`?"]);
    let file = directory.file("wan.toml", b"[[schedule]]\nat = '5 sec'\n");
    degen_refused(&["--file", &file], &["wan.toml:2:6", "did you mean `5s`?"]);
    for (text, hint) in [("5s", "5"), ("500ms", "0.5"), ("2 minutes", "120")] {
        let output = wharf(&["demo", "--seconds", text]);
        let words = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
        assert!(words.contains(&format!("did you mean `{hint}`?")), "{words}");
    }
}

/// An address without one reaches no other host.
#[test]
fn an_address_needs_the_length_of_its_prefix() {
    let up = ["up", "--wire", "no-such-if", "--host", "x", "--service", "echo", "--port", "7"];
    let tcp = ["tcp", "echo", "--host", "x", "--port", "7", "--address"];
    for (ip, parts) in [
        ("192.0.2.9", ["length of its network's prefix is missing", "192.0.2.9/24", "/32"]),
        ("2001:db8::9", ["length of its network's prefix is missing", "2001:db8::9/64", "/128"]),
        ("192.0.2.9/33", ["`192.0.2.9/33`", "no length of a prefix", "at most 32 for IPv4"]),
        ("192.0.2.9.1/24", ["`192.0.2.9.1/24`", "no IP address", "10.0.0.2/24"]),
    ] {
        let right = ["10.0.0.2/24", "--host-address", ip];
        for args in [
            [&up[..], &["--address", ip]].concat(),
            [&tcp[..], &[ip]].concat(),
            [&tcp[..], &right].concat(),
        ] {
            let output = wharf(&args);
            let text = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(2), "{text}");
            let first = text.lines().next().unwrap();
            assert!(parts.iter().all(|part| first.contains(part)), "{parts:?}: {text}");
        }
    }
}

#[test]
fn a_policy_that_is_none_says_what_is_wrong() {
    for (policy, part) in [
        ("at_accept ports=99999", "there is no port 99999: ports are 1 to 65535"),
        ("ports=80,http", "`http` is neither a port nor a range"),
        ("ports=8100-8000", "write 8000-8100"),
        ("sometimes", "no policy is called `sometimes`"),
    ] {
        refused(&["run", "--policy", policy, "--", "true"], &["--policy: ", part]);
        let setting = format!("handoff.policy={policy}");
        let up = ["up", "--wire", "no-such-if", "--host", "x", "--set", &setting];
        refused(&up, &["handoff.policy", part]);
    }
}
