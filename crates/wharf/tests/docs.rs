//! What the documentation says of the command: every field of its JSON, a README that stays short, and
//! links that lead somewhere. `nic` compares counters and settings with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below `directory` whose name ends in `suffix`.
fn files(directory: &Path, suffix: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, suffix, found);
        } else if path.to_string_lossy().ends_with(suffix) {
            found.push(path);
        }
    }
}

/// The sources that print JSON, without their tests.
fn sources() -> Vec<String> {
    let mut paths = Vec::new();
    let crates =
        ["crates/wharf/src", "crates/bench/src", "crates/nic/src/control", "crates/device/src"];
    for directory in crates {
        files(&root().join(directory), ".rs", &mut paths);
    }
    let whole = paths.iter().filter(|path| {
        let tests =
            path.ends_with("tests.rs") || path.components().any(|c| c.as_os_str() == "tests");
        // What the guard is told is between two processes of one wharf; what Go is told is its own.
        let within = path.ends_with("guard/before.rs") || path.ends_with("peers/build.rs");
        !tests && !within
    });
    let text = whole.map(|path| fs::read_to_string(path).unwrap());
    text.map(|text| text.split("#[cfg(test)]").next().unwrap().to_owned()).collect()
}

/// Text between the brackets that begin at the start of `text`.
fn within(text: &str) -> &str {
    let mut depth = 0;
    let end = text.char_indices().find_map(|(at, letter)| {
        match letter {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(at)
    });
    &text[..end.unwrap_or(text.len())]
}

/// `"name"`, if `text` begins with that and `name` is a word of a field.
fn word(text: &str) -> Option<&str> {
    let (word, _) = text.strip_prefix('"')?.split_once('"')?;
    let fits =
        |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    (!word.is_empty() && word.chars().all(fits)).then_some(word)
}

/// The keys of `json!({...})`, and what is inserted into objects by name.
fn fields(source: &str, found: &mut BTreeSet<String>) {
    for (at, start) in source.match_indices("json!(") {
        let object = within(&source[at + start.len() - 1..]);
        let quotes = object.match_indices('"').filter_map(|(at, _)| word(&object[at..]));
        let is_key = |key: &&str| object.contains(&format!("\"{key}\":"));
        found.extend(quotes.filter(is_key).map(str::to_owned));
    }
    for call in [".insert(", "put("] {
        let calls = source.match_indices(call).map(|(at, _)| &source[at + call.len()..]);
        found.extend(calls.filter_map(word).map(str::to_owned));
    }
}

#[test]
fn every_field_of_json_is_documented_and_no_other() {
    let (sources, page) = (sources(), read("docs/reference/json.md"));
    let mut known = BTreeSet::new();
    sources.iter().for_each(|source| fields(source, &mut known));
    assert!(known.len() > 40, "the fields are no longer found in the sources: {known:?}");
    let missing: Vec<_> =
        known.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert!(missing.is_empty(), "docs/reference/json.md lacks {missing:?}");

    // Rows of fields; those of benches name what was varied and measured, which the sources have too.
    let rows = page.lines().filter(|line| line.starts_with("| `") && !line.starts_with("| `{"));
    let named = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`').skip(1).step_by(2));
    let is_there = |name: &&str| sources.iter().any(|s| s.contains(&format!("\"{name}\"")));
    let gone: Vec<_> = named.filter(|name| !is_there(name)).collect();
    assert!(gone.is_empty(), "docs/reference/json.md has, and wharf has not, {gone:?}");
}

#[test]
fn every_metric_that_is_documented_is_measured() {
    let (sources, page) = (sources(), read("docs/reference/json.md"));
    let table = page.split("| bench | metrics |").nth(1).unwrap().split("\n\n").next().unwrap();
    for row in table.lines().filter(|line| line.starts_with("| `")) {
        for metric in row.split('|').nth(2).unwrap().split('`').skip(1).step_by(2) {
            let option = metric.starts_with("--");
            let measured = sources.iter().any(|s| s.contains(&format!("\"{metric}\"")));
            assert!(option || measured, "docs/reference/json.md: nothing measures {metric}");
        }
    }
}

#[test]
fn the_readme_is_short() {
    let lines = read("README.md").lines().count();
    assert!(lines < 150, "README.md has {lines} lines: the reference belongs to docs/");
}

#[test]
fn links_lead_to_files() {
    let mut pages = vec![root().join("README.md"), root().join("ARCHITECTURE.md")];
    pages.extend([root().join("CONTRIBUTING.md"), root().join("CHANGELOG.md")]);
    files(&root().join("docs"), ".md", &mut pages);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.starts_with("http")) {
            let (file, heading) = target.split_once('#').unwrap_or((target, ""));
            let to = match file {
                "" => page.clone(),
                file => page.parent().unwrap().join(file),
            };
            assert!(to.exists(), "{}: {target} leads nowhere", page.display());
            if !heading.is_empty() {
                let there = fs::read_to_string(&to).unwrap();
                let found = there.lines().any(|line| anchor(line).as_deref() == Some(heading));
                assert!(found, "{}: {target} leads to no heading", page.display());
            }
        }
    }
}

/// The anchor of a heading, as GitHub makes it.
fn anchor(line: &str) -> Option<String> {
    let title = line.strip_prefix('#')?.trim_start_matches('#').trim().to_lowercase();
    let kept = title.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    Some(kept.map(|c| if c == ' ' { '-' } else { c }).collect())
}

/// Files of the project that pages name without a link.
#[test]
fn named_files_are_there() {
    let mut pages = Vec::new();
    files(&root().join("docs"), ".md", &mut pages);
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        let code = text.split('`').skip(1).step_by(2);
        let named = code.filter(|word| word.starts_with("crates/") && !word.contains(['{', ' ']));
        for file in named {
            assert!(root().join(file).exists(), "{}: there is no {file}", page.display());
        }
    }
}

/// The text of a source, with comments that go on in the next line as one.
fn joined(source: &str) -> String {
    let line = |line: &str| line.trim_start().trim_start_matches(['/', '!']).trim().to_owned();
    source.lines().map(line).collect::<Vec<_>>().join(" ")
}

/// Comments that cite a rule cite one that is there.
#[test]
fn cited_rules_are_there() {
    let rules = read("docs/kernel-rules.md");
    let mut sources = Vec::new();
    files(&root().join("crates"), ".rs", &mut sources);
    let mut found = 0;
    for path in sources.iter().filter(|path| !path.ends_with("wharf/tests/docs.rs")) {
        let text = joined(&fs::read_to_string(path).unwrap());
        for (at, cited) in text.match_indices("docs/kernel-rules.md, rule ") {
            let rest = &text[at + cited.len()..];
            let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
            let there = rules.lines().any(|line| line.starts_with(&format!("{number}. **")));
            assert!(there, "{}: rule {number} is not in docs/kernel-rules.md", path.display());
            found += 1;
        }
    }
    assert!(found > 5, "rules are no longer cited as docs/kernel-rules.md, rule N");
}
